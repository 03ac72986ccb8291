"""Tool formats: how requests offer tools and replies call them, as the API's own tool calls or as text.

`react` is a format in text, and so is XML, with calls in tags as in Hermes and Qwen. `stream_parser` reads every reply,
also one with the API's own calls, because models write calls as text when their endpoint does not parse them:
`call_syntaxes` lists the syntaxes, `call_readers` reads them, and `tool_matching` compares the calls with the tools on
offer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from dial_client.messages.message import Message, Role, ToolCallRequest, ToolCallResult, ToolSpec, extract_text
from dial_client.messages.model import ModelRequest, ReplyReader, ToolFormat, ToolFormatHandler
from dial_client.providers.formats import text_history
from dial_client.providers.formats.react import ReActFormatHandler
from dial_client.providers.formats.stream_parser import ReplyParser, read_reply
from dial_client.runtime.logs import get_logger
from dial_client.schema.gbnf import Grammar

log = get_logger(__name__)

_PROMPT = """\
# Tools

You may call one or more functions to assist with the user query. You cannot act or know live data in any other way.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>

Then stop: the result comes back within <tool_response></tool_response> XML tags. Never write a result yourself.
When no function is needed, or none any more, answer the user in plain words, without tags.

For example, if there were a function "stock_of_book", the question how many copies of "Dune" are left would be met with
<tool_call>
{{"name": "stock_of_book", "arguments": {{"title": "Dune"}}}}
</tool_call>
and, after the result 3, with: There are 3 copies of "Dune" left."""


class XMLFormatHandler:
    """Describes tools in the instructions, and expects calls in tags. A legacy format: native calls work better."""

    format = ToolFormat.XML

    def __init__(self) -> None:
        _log_legacy_format()
        self._prompt = text_history.ToolText(self.system_prompt)
        self._grammar = text_history.ToolText(partial(_build_grammar, bare=True))
        self._grammar_after_results = text_history.ToolText(partial(_build_grammar, bare=False))

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """Return a request with all messages as text; without tools it has no instructions and no stop sequences."""
        conversation = text_history.as_text(messages, _format_reply, self.format_result)
        request = text_history.build_text_request(conversation, self._prompt.for_tools(tools), self.stop_sequences())
        if not tools:
            return request
        ends_with_result = bool(messages) and messages[-1].role is Role.TOOL
        grammar = self._grammar_after_results if ends_with_result else self._grammar
        return replace(request, grammar=grammar.for_tools(tools))

    def constrain_answer(
        self, request: ModelRequest, tools: Sequence[ToolSpec], schema: Mapping[str, Any]
    ) -> ModelRequest:
        """Return `request` with a grammar for calls of `tools`, and for answers in JSON that satisfy `schema`."""
        if not tools:
            return replace(request, grammar=text_history.build_json_grammar(schema))
        return replace(request, grammar=_build_grammar(tools, bare=False, answer_schema=schema))

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:
        """Return the instructions, with the tools, the tags and an example; empty without tools."""
        return _PROMPT.format(tools=text_history.format_tool_lines(tools, _to_function)) if tools else ""

    def stop_sequences(self) -> tuple[str, ...]:
        """Return the opening tag of a result, which the model would otherwise invent."""
        return ("<tool_response>",)

    def parse_response(self, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
        """Return the calls of a complete reply, including invalid calls, and the text for the user."""
        return read_reply(ReplyParser(None), text)

    def format_result(self, call: ToolCallRequest, result: ToolCallResult) -> str:  # noqa: ARG002 - matched by order
        """Return the result in tags, escaped so that it cannot close them."""
        return f"<tool_response>\n{text_history.format_result_text(result)}\n</tool_response>"

    def sanitize_response(self, text: str) -> str:
        """Return the text without calls and reasoning."""
        return self.parse_response(text)[1].strip()

    def reader(self, tools: Sequence[ToolSpec]) -> ReplyReader:
        """Return a reader for the next reply, which may call the tools."""
        return ReplyParser(tools)


def _build_grammar(tools: Sequence[ToolSpec], *, bare: bool, answer_schema: Mapping[str, Any] | None = None) -> str:
    """Return the grammar of a reply: valid calls, or text, perhaps with calls after it.

    The text cannot begin like JSON or a tag, and cannot contain the beginning of a call's tag.

    Args:
        tools: The tools on offer.
        bare: True to allow a call without tags. Small models omit the tags; if that is not allowed, they answer in
            text instead of calling. After results, however, they would call tools again and again.
        answer_schema: The JSON Schema of an answer; None for an answer in text.
    """
    rules = Grammar()
    inputs = rules.add_calls((_format_opening(tool.name), tool.input_schema) for tool in tools)
    object_ = f'( {inputs} ) "}}"'
    call = rf'"<tool_call>\n" {object_} "\n</tool_call>"'
    calls = rf'{call} ( "\n" {call} )*'
    text = rf'[^{_NOT_TEXT}] ( [^<] | "<" [^t] | "<t" [^o] )*'
    if answer_schema is not None:
        return rules.to_text(f"{calls} | {rules.add_answer(answer_schema)}")
    replies = [calls, f"{text} ( {calls} )?", *([object_] if bare else [])]
    return rules.to_text(" | ".join(replies))


# Characters that begin no answer, but could begin the rest of a call whose first character was not allowed.
_NOT_TEXT = r"<>{}()\[\]`,;:=/|&^%@!+~\\ \t\n"


def _format_opening(name: str) -> str:
    return f'{{"name": {text_history.to_json_line(name)}, "arguments": '


def _to_function(tool: ToolSpec) -> dict[str, Any]:
    return {"type": "function", "function": text_history.to_definition(tool)}


def _format_reply(message: Message) -> str:
    return text_history.format_reply(
        message, '<tool_call>\n{{"name": {json_name}, "arguments": {arguments}}}\n</tool_call>'
    )


@cache
def _log_legacy_format() -> None:
    log.info("legacy_tool_format", format=ToolFormat.XML.value)


class NativeFormatHandler:
    """Uses the API's own tool calls. A call in the text counts if it names an offered tool and satisfies its schema.

    The readers remove reasoning, calls and special tokens of chat templates from the text, but not from code.

    Args:
        fenced_calls: True if a call in the code fence at the end of a reply counts too (`ModelInfo.fenced_calls`).
    """

    format = ToolFormat.NATIVE

    def __init__(self, *, fenced_calls: bool = False) -> None:
        self._fenced_calls = fenced_calls

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """Return a request with unchanged messages and tools; a tuple of tools stays the same object."""
        return ModelRequest(tuple(messages), tuple(tools))

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:  # noqa: ARG002 - other formats need them
        """Return an empty text: the API describes the tools to the model."""
        return ""

    def stop_sequences(self) -> tuple[str, ...]:
        """Return no stop sequences."""
        return ()

    def parse_response(self, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
        """Return the text for the user, and no calls: a call in the text only counts if the offered tools are known."""
        return (), read_reply(ReplyParser(None, careful=True), text)[1]

    def format_result(self, call: ToolCallRequest, result: ToolCallResult) -> str:  # noqa: ARG002 - as above
        """Return the unchanged text: the API marks results itself."""
        return extract_text(result.content)

    def sanitize_response(self, text: str) -> str:
        """Return the text without calls and reasoning."""
        return self.parse_response(text)[1].strip()

    def reader(self, tools: Sequence[ToolSpec]) -> ReplyReader:
        """Return a reader, which also finds calls of the offered tools in the text."""
        return ReplyParser(tools, careful=True, fenced_calls=self._fenced_calls)


__all__ = ["NativeFormatHandler", "ReActFormatHandler", "XMLFormatHandler", "build_handler"]


def build_handler(
    format: ToolFormat,  # noqa: A002 - the name of the handlers' attribute
    *,
    fenced_calls: bool = False,
) -> ToolFormatHandler:
    """Return the handler of a format; `fenced_calls` applies only to `NativeFormatHandler`."""
    if format in (ToolFormat.NATIVE, ToolFormat.CODE):
        return NativeFormatHandler(fenced_calls=fenced_calls)
    return ReActFormatHandler() if format is ToolFormat.REACT else XMLFormatHandler()


class ActiveFormat:
    """The format in use with one model. All turns share it, so the fallback happens only once.

    Args:
        handler: The handler of the initial format.
        automatic: True if a fallback to text is allowed; False if the user has chosen the format.
        is_code: True if servers' tools are called by programs (`ToolFormat.CODE`), as long as the API has tool calls.
    """

    def __init__(self, handler: ToolFormatHandler, *, automatic: bool = False, is_code: bool = False) -> None:
        self.handler = handler
        self._automatic, self._is_code = automatic, is_code

    @property
    def runs_code(self) -> bool:
        """Whether servers' tools are called by programs."""
        return self._is_code and self.handler.format is ToolFormat.NATIVE

    def fall_back(self) -> bool:
        """Change to a text format, because the endpoint does not support tools; return False if it is not allowed."""
        if not self._automatic or self.handler.format is not ToolFormat.NATIVE:
            return False
        self.handler = ReActFormatHandler()
        return True
