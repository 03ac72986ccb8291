"""The table of syntaxes in which models write calls as text, with an entry for each family of models.

The sources are the models' chat templates, and the tool call parsers of vLLM, llama.cpp and Ollama. A call is in the
text if the endpoint did not parse it: its template is wrong, the model is fine-tuned, or no parser is enabled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial

from dial_client.providers.formats import call_readers
from dial_client.providers.formats.call_readers import FoundCalls, ends_in_string, parse_json_calls
from dial_client.providers.formats.stream_buffer import Lookahead, Markers
from dial_client.providers.formats.tool_matching import OfferedTools
from dial_client.schema.tool_arguments import Unreadable

_TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class CallSyntax:
    """The syntax in which one family of models writes a call."""

    opener: str
    """The marker before the call."""
    closers: tuple[str, ...]
    """The markers that end the call; the next opener and the end of the turn end it too."""
    read: Callable[[str], FoundCalls]
    """The function that returns the calls of the text between opener and closer."""
    _: KW_ONLY
    json: bool = True
    """True if the text may begin with a brace, a bracket or a code fence."""
    words: tuple[str, ...] = ()
    """The words that may begin the text, before the name of a tool; an empty word for the name alone."""
    is_open: Callable[[str], bool] = ends_in_string
    """The function that returns True if a text ends within a value, so that the next marker belongs to it."""
    is_token: bool = True
    """True if the opener has no other meaning, so that it is hidden even if it opens no call."""

    @cached_property
    def end_markers(self) -> Markers:
        """The markers that may end the call."""
        return Markers(self.opener, *self.closers, *_TURN_ENDS)

    def may_begin(self, text: str, offer: OfferedTools) -> Lookahead:
        """Return True if the text after the opener may be a call; None if more text is needed to decide."""
        text = text.lstrip()
        if not text:
            return None
        if self.json and text[0] in "{[`":
            return True
        answers = {
            offer.begins_with_name(text[len(word) :].lstrip("[ "))
            if text.startswith(word)
            else (None if word.startswith(text) else False)
            for word in self.words
        }
        return True if True in answers else (None if None in answers else False)


def _parse_tool_call(text: str) -> FoundCalls:
    """Return the calls after ``<tool_call>``: JSON (Hermes, Granite), tags (Qwen, GLM), or name and JSON (Hunyuan)."""
    if "<function=" in text and text.lstrip()[:1] == "<":
        return call_readers.QWEN.read(text)
    if text.lstrip()[:1] in "{[`":
        return parse_json_calls(text)
    is_tagged = "{" not in text or "<arg_key>" in text
    return call_readers.parse_glm(text) if is_tagged else call_readers.parse_name_first(text)


def _is_open_in_tool_call(text: str) -> bool:
    if text.lstrip()[:1] in ("{", "[", "`"):
        return ends_in_string(text)
    return call_readers.QWEN.is_open(text) or call_readers.GLM.is_open(text)


def _parse_list(text: str) -> FoundCalls:
    """Return the calls of a list in Python or JSON syntax."""
    try:
        return call_readers.parse_python(text)
    except Unreadable:
        return parse_json_calls(text)


def _parse_mistral(text: str) -> FoundCalls:
    """Return the calls after ``[TOOL_CALLS]``: a JSON list, or a name and its arguments."""
    return parse_json_calls(text) if text.lstrip()[:1] in ("[", "{") else call_readers.parse_name_first(text)


def _is_odd(quote: str, text: str) -> bool:
    return text.count(quote) % 2 == 1


_SEPARATOR = "<\uff5ctool\u2581sep\uff5c>"
_DSML_BEGIN = '<\uff5cDSML\uff5cinvoke name="'
_KIMI_SEPARATOR = "<|tool_call_argument_begin|>"

HERMES = CallSyntax(
    "<tool_call>", ("</tool_call>",), _parse_tool_call, words=("<function=", ""), is_open=_is_open_in_tool_call
)
HARMONY = CallSyntax("<|message|>", ("<|call|>", "<|end|>", "<|return|>", "<|start|>", "<|channel|>"), parse_json_calls)

# The syntaxes, by opener.
CALL_SYNTAXES = {
    syntax.opener: syntax
    for syntax in (
        HERMES,
        CallSyntax("<tool_calls>", ("</tool_calls>",), parse_json_calls),
        CallSyntax("<function_call>", ("</function_call>",), parse_json_calls),
        CallSyntax("<function_calls>", ("</function_calls>",), _parse_list, words=("",)),
        CallSyntax("<TOOLCALL>", ("</TOOLCALL>",), parse_json_calls),
        CallSyntax("<|START_ACTION|>", ("<|END_ACTION|>",), parse_json_calls),
        CallSyntax("<|plugin|>", ("<|action_end|>",), parse_json_calls),
        CallSyntax(
            "<function=",
            ("</function>",),
            call_readers.parse_function_tag,
            json=False,
            words=("",),
            is_open=call_readers.QWEN.is_open,
            is_token=False,
        ),
        CallSyntax("<|python_tag|>", (), parse_json_calls),
        CallSyntax("<|python_start|>", ("<|python_end|>",), _parse_list, words=("",)),
        CallSyntax("<|tool_call_start|>", ("<|tool_call_end|>",), _parse_list, words=("",)),
        CallSyntax("<|tool_call|>", ("<|/tool_call|>",), parse_json_calls),
        CallSyntax("[TOOL_CALLS]", ("[/TOOL_CALLS]",), _parse_mistral, words=("",)),
        CallSyntax(
            "<\uff5ctool\u2581call\u2581begin\uff5c>",
            ("<\uff5ctool\u2581call\u2581end\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"),
            partial(call_readers.parse_separated, _SEPARATOR),
            json=False,
            words=(f"function{_SEPARATOR}", ""),
        ),
        CallSyntax(
            _DSML_BEGIN,
            ("</\uff5cDSML\uff5cinvoke>",),
            partial(call_readers.parse_tags, _DSML_BEGIN, call_readers.DSML),
            json=False,
            words=("",),
            is_open=call_readers.DSML.is_open,
        ),
        CallSyntax(
            "<|tool_call_begin|>",
            ("<|tool_call_end|>", "<|tool_calls_section_end|>"),
            partial(call_readers.parse_separated, _KIMI_SEPARATOR),
            json=False,
            words=("",),
        ),
        CallSyntax(
            '<invoke name="',
            ("</invoke>",),
            partial(call_readers.parse_tags, '<invoke name="', call_readers.MINIMAX),
            json=False,
            words=("",),
            is_open=call_readers.MINIMAX.is_open,
            is_token=False,
        ),
        CallSyntax(
            "<start_function_call>",
            ("<end_function_call>", "<start_function_response>"),
            partial(call_readers.parse_braces, "<escape>"),
            json=False,
            words=("call:",),
            is_open=partial(_is_odd, "<escape>"),
        ),
        CallSyntax(
            "<|tool_call>",
            ("<tool_call|>", "<|tool_response>"),
            partial(call_readers.parse_braces, '<|"|>'),
            json=False,
            words=("call:",),
            is_open=partial(_is_odd, '<|"|>'),
        ),
    )
}

# The tags around a model's reasoning: the closing tag, by opening tag.
REASONING_TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "[THINK]": "[/THINK]",
    "<|channel>": "<channel|>",
    "\u25c1think\u25b7": "\u25c1/think\u25b7",
    "<seed:think>": "</seed:think>",
    "<|START_THINKING|>": "<|END_THINKING|>",
}
REASONING_ENDS = frozenset(REASONING_TAGS.values())
# The tags around a tool result. Only the host provides results: a result in a reply is repeated or invented.
RESULT_TAGS = {
    "<tool_response>": "</tool_response>",
    "<|tool_response>": "<tool_response|>",
    "<start_function_response>": "<end_function_response>",
    "[TOOL_RESULTS]": "[/TOOL_RESULTS]",
    "<\uff5ctool\u2581outputs\u2581begin\uff5c>": "<\uff5ctool\u2581outputs\u2581end\uff5c>",
}
RESULT_ENDS = frozenset(RESULT_TAGS.values())
# The end token of Llama and Mistral. In the middle of a text it is an HTML tag.
END_OF_TEXT = "</s>"
# The tokens that begin a turn. The role follows them.
TURN_BEGINNINGS = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>")
# The tokens that begin a header in harmony, the format of gpt-oss.
HARMONY_HEADERS = ("<|channel|>", "<|start|>")

_CONTAINERS = (
    "<eos>", "<minimax:tool_call>", "</minimax:tool_call>", "<seed:tool_call>", "</seed:tool_call>",
    "<start_of_turn>", "<end_of_turn>",
    *(f"<{slash}\uff5cDSML\uff5c{name}>" for slash in ("", "/") for name in ("function_calls", "tool_calls")),
    "</\uff5cDSML\uff5cinvoke>", "</\uff5cDSML\uff5cparameter>",
)  # fmt: skip
# Closers of calls that also occur in ordinary XML.
_IN_MARKUP_ONLY = frozenset({"</function>", "</invoke>"})

_CLOSERS = {closer for syntax in CALL_SYNTAXES.values() for closer in syntax.closers}
_PAIRED = {*CALL_SYNTAXES, *_CLOSERS, *REASONING_TAGS, *REASONING_ENDS, *RESULT_TAGS, *RESULT_ENDS}
# All markers except the special tokens of chat templates that match `stream_buffer.CONTROL`.
TAGS = tuple(sorted({*_PAIRED, END_OF_TEXT, *HARMONY_HEADERS, *_CONTAINERS} - _IN_MARKUP_ONLY))
# Markers that are never shown outside code.
HIDDEN = frozenset(TAGS) - {END_OF_TEXT, *(opener for opener, syntax in CALL_SYNTAXES.items() if not syntax.is_token)}
