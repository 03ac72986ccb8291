"""How models print their calls: one table, a line for each family of models.

What each family's template has comes from the templates and from the readers of vLLM, llama.cpp and Ollama. A call that
was printed means that the endpoint did not read it: a wrong template, a fine-tune, a reader that is not switched on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dial_client.formats import non_json_calls
from dial_client.formats.json_calls import Found, ends_in_string, in_json
from dial_client.formats.special_tokens import Markers
from dial_client.formats.stream_buffer import StepResult
from dial_client.formats.tool_matching import OfferedTools
from dial_client.schema.json_repair import Unreadable

_TURN_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)  # fmt: skip


class CallSyntax:
    """How one family of models prints a call.

    Args:
        opener: the marker before it.
        closers: the markers behind it; the next opener and the end of the turn end it too.
        read: reads what is between them.
        json: it may begin with a brace, a bracket or a fence.
        words: what it may begin with, each before the name of a tool; an empty one is for the name itself.
        is_open: whether a text ends inside a value, so that a marker behind it is a part of that.
        is_token: the opener has no other meaning, so it is not shown even where it opens no call.
    """

    def __init__(
        self,
        opener: str,
        closers: tuple[str, ...],
        read: Callable[[str], Found],
        *,
        json: bool = True,
        words: tuple[str, ...] = (),
        is_open: Callable[[str], bool] = ends_in_string,
        is_token: bool = True,
    ) -> None:
        self.opener = opener
        self.closers = closers
        self.read = read
        self.is_open = is_open
        self.is_token = is_token
        self.ends = Markers(opener, *closers, *_TURN_ENDS)
        self._json = json
        self._words = words

    def may_begin(self, text: str, offer: OfferedTools) -> StepResult:
        """Whether what stands behind the opener may be a call; None where more of it must be seen."""
        text = text.lstrip()
        if not text:
            return None
        verdict: StepResult = self._json and text[0] in "{[`"
        for word in self._words if not verdict else ():
            if text.startswith(word):
                said = offer.begins_with_name(text[len(word) :].lstrip("[ "))
            else:
                said = None if word.startswith(text) else False
            verdict = said if said is not False else verdict
            if verdict:
                break
        return verdict


def _in_tool_call(text: str) -> Found:
    """Read what stands in ``<tool_call>``: Hermes' and Granite's JSON, Qwen's tags, GLM's, Hunyuan's name and JSON."""
    if "<function=" in text and text.lstrip()[:1] == "<":
        return non_json_calls.QWEN.read(text)
    if text.lstrip()[:1] in "{[`":
        return in_json(text)
    return non_json_calls.name_first(text) if "{" in text and "<arg_key>" not in text else non_json_calls.glm(text)


def _is_open_in_tool_call(text: str) -> bool:
    if text.lstrip()[:1] in ("{", "[", "`"):
        return ends_in_string(text)
    return non_json_calls.QWEN.is_open(text) or non_json_calls.GLM.is_open(text)


def _in_list(text: str) -> Found:
    """Read a list, in JSON or in Python."""
    try:
        return non_json_calls.pythonic(text)
    except Unreadable:
        return in_json(text)


def _behind_tool_calls(text: str) -> Found:
    """Read what stands behind ``[TOOL_CALLS]``: a list, or a name and its arguments."""
    return in_json(text) if text.lstrip()[:1] in ("[", "{") else non_json_calls.name_first(text)


def _is_odd(quote: str, text: str) -> bool:
    return text.count(quote) % 2 == 1


_SEPARATOR = "<\uff5ctool\u2581sep\uff5c>"
_DSML_BEGIN = '<\uff5cDSML\uff5cinvoke name="'
_KIMI_SEPARATOR = "<|tool_call_argument_begin|>"

HERMES = CallSyntax(
    "<tool_call>",
    ("</tool_call>",),
    _in_tool_call,
    words=("<function=", ""),
    is_open=_is_open_in_tool_call,
)
HARMONY = CallSyntax("<|message|>", ("<|call|>", "<|end|>", "<|return|>", "<|start|>", "<|channel|>"), in_json)

DIALECTS = {
    dialect.opener: dialect
    for dialect in (
        HERMES,
        CallSyntax("<tool_calls>", ("</tool_calls>",), in_json),
        CallSyntax("<function_call>", ("</function_call>",), in_json),
        CallSyntax("<function_calls>", ("</function_calls>",), _in_list, words=("",)),
        CallSyntax("<TOOLCALL>", ("</TOOLCALL>",), in_json),
        CallSyntax("<|START_ACTION|>", ("<|END_ACTION|>",), in_json),
        CallSyntax("<|plugin|>", ("<|action_end|>",), in_json),
        CallSyntax(
            "<function=",
            ("</function>",),
            non_json_calls.function_tag,
            json=False,
            words=("",),
            is_open=non_json_calls.QWEN.is_open,
            is_token=False,
        ),
        CallSyntax("<|python_tag|>", (), in_json),
        CallSyntax("<|python_start|>", ("<|python_end|>",), _in_list, words=("",)),
        CallSyntax("<|tool_call_start|>", ("<|tool_call_end|>",), _in_list, words=("",)),
        CallSyntax("<|tool_call|>", ("<|/tool_call|>",), in_json),
        CallSyntax("[TOOL_CALLS]", ("[/TOOL_CALLS]",), _behind_tool_calls, words=("",)),
        CallSyntax(
            "<\uff5ctool\u2581call\u2581begin\uff5c>",
            ("<\uff5ctool\u2581call\u2581end\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"),
            partial(non_json_calls.separated, _SEPARATOR),
            json=False,
            words=(f"function{_SEPARATOR}", ""),
        ),
        CallSyntax(
            _DSML_BEGIN,
            ("</\uff5cDSML\uff5cinvoke>",),
            partial(non_json_calls.tagged, _DSML_BEGIN, non_json_calls.DSML),
            json=False,
            words=("",),
            is_open=non_json_calls.DSML.is_open,
        ),
        CallSyntax(
            "<|tool_call_begin|>",
            ("<|tool_call_end|>", "<|tool_calls_section_end|>"),
            partial(non_json_calls.separated, _KIMI_SEPARATOR),
            json=False,
            words=("",),
        ),
        CallSyntax(
            '<invoke name="',
            ("</invoke>",),
            partial(non_json_calls.tagged, '<invoke name="', non_json_calls.MINIMAX),
            json=False,
            words=("",),
            is_open=non_json_calls.MINIMAX.is_open,
            is_token=False,
        ),
        CallSyntax(
            "<start_function_call>",
            ("<end_function_call>", "<start_function_response>"),
            partial(non_json_calls.braced, "<escape>"),
            json=False,
            words=("call:",),
            is_open=partial(_is_odd, "<escape>"),
        ),
        CallSyntax(
            "<|tool_call>",
            ("<tool_call|>", "<|tool_response>"),
            partial(non_json_calls.braced, '<|"|>'),
            json=False,
            words=("call:",),
            is_open=partial(_is_odd, '<|"|>'),
        ),
    )
}
"""By their openers."""

THOUGHTS = {
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
"""What encloses a model's reasoning."""
THOUGHT_ENDS = frozenset(THOUGHTS.values())
RESULTS = {
    "<tool_response>": "</tool_response>",
    "<|tool_response>": "<tool_response|>",
    "<start_function_response>": "<end_function_response>",
    "[TOOL_RESULTS]": "[/TOOL_RESULTS]",
    "<\uff5ctool\u2581outputs\u2581begin\uff5c>": "<\uff5ctool\u2581outputs\u2581end\uff5c>",
}
"""What encloses a result, which only the host can have: a model that writes one repeats it, or is making it up."""
RESULT_ENDS = frozenset(RESULTS.values())
END_OF_TEXT = "</s>"
"""Llama's and Mistral's last token; anywhere else it is a tag of HTML."""
TURNS = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>")
"""What begins a turn: behind it stands whose."""
CHANNELS = ("<|channel|>", "<|start|>")
"""What begins a header in harmony, the format of gpt-oss."""

_CONTAINERS = (
    "<eos>", "<minimax:tool_call>", "</minimax:tool_call>", "<seed:tool_call>", "</seed:tool_call>",
    "<start_of_turn>", "<end_of_turn>",
    *(f"<{slash}\uff5cDSML\uff5c{name}>" for slash in ("", "/") for name in ("function_calls", "tool_calls")),
    "</\uff5cDSML\uff5cinvoke>", "</\uff5cDSML\uff5cparameter>",
)  # fmt: skip
_IN_MARKUP_ONLY = frozenset({"</function>", "</invoke>"})
"""These end calls, but anybody's XML may have them."""

TAGS = tuple(
    sorted(
        {
            *DIALECTS,
            *(closer for dialect in DIALECTS.values() for closer in dialect.closers),
            *THOUGHTS,
            *THOUGHT_ENDS,
            *RESULTS,
            *RESULT_ENDS,
            END_OF_TEXT,
            *CHANNELS,
            *_CONTAINERS,
        }
        - _IN_MARKUP_ONLY
    )
)
"""All that is looked at, besides the templates' own tokens."""
HIDDEN = frozenset(TAGS) - {END_OF_TEXT, *(opener for opener, dialect in DIALECTS.items() if not dialect.is_token)}
"""What of it is never shown outside code."""
