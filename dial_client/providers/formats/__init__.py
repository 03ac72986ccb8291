"""Tool formats: how requests offer tools and replies call them, as the API's own tool calls or as text.

`react` and `xml` are formats in text. `stream_parser` reads every reply, also one with the API's own calls, because
models write calls as text when their endpoint does not parse them: `call_syntaxes` lists the syntaxes, `call_readers`
reads them, and `tool_matching` compares the calls with the tools on offer.
"""

from __future__ import annotations

from collections.abc import Sequence

from dial_client.messages.message import Message, ToolCallRequest, ToolCallResult, ToolSpec, extract_text
from dial_client.messages.model import ModelRequest, ReplyReader, ToolFormat, ToolFormatHandler
from dial_client.providers.formats.react import ReActFormatHandler
from dial_client.providers.formats.stream_parser import ReplyParser, read_reply
from dial_client.providers.formats.xml import XMLFormatHandler


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
    match format:
        case ToolFormat.NATIVE:
            return NativeFormatHandler(fenced_calls=fenced_calls)
        case ToolFormat.REACT:
            return ReActFormatHandler()
        case ToolFormat.XML:
            return XMLFormatHandler()


class ActiveFormat:
    """The format in use with one model. All turns share it, so the fallback happens only once.

    Args:
        handler: The handler of the initial format.
        automatic: True if a fallback to text is allowed; False if the user has chosen the format.
    """

    def __init__(self, handler: ToolFormatHandler, *, automatic: bool = False) -> None:
        self.handler = handler
        self._automatic = automatic

    def fall_back(self) -> bool:
        """Change to a text format, because the endpoint does not support tools; return False if it is not allowed."""
        if not self._automatic or self.handler.format is not ToolFormat.NATIVE:
            return False
        self.handler = ReActFormatHandler()
        return True
