"""The format with the API's own tool calls. It also finds calls that a model nevertheless writes as text."""

from __future__ import annotations

from collections.abc import Sequence

from dial_client.messages.message import Message, ToolCallRequest, ToolCallResult, ToolSpec, extract_text
from dial_client.messages.model import ModelRequest, ReplyReader, ToolFormat
from dial_client.providers.formats.stream_parser import ReplyParser, read_reply


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
