"""The tool calls of the API itself; calls that a model writes as text all the same are found too."""

from __future__ import annotations

from collections.abc import Sequence

from dial_client.formats.stream_parser import ReplyParser, read_reply
from dial_client.messages.message import Message, ToolCallRequest, ToolCallResult, ToolSpec, text_of
from dial_client.model import ModelRequest, ReplyReader, ToolFormat


class NativeFormatHandler:
    """Tools and calls as the API has them; a call in the text counts if it names an offered tool and satisfies it.

    Its readers remove reasoning, calls and a template's own tokens from the text, but not from code.

    Args:
        fenced_calls: a call in the code fence that ends a reply counts too (`ModelInfo.fenced_calls`).
    """

    format = ToolFormat.NATIVE

    def __init__(self, *, fenced_calls: bool = False) -> None:
        self._fenced_calls = fenced_calls

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """Return a request with messages and tools as they are; a tuple of tools stays the same object."""
        return ModelRequest(tuple(messages), tuple(tools))

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:  # noqa: ARG002 - other formats need them
        """Return nothing: the API sends the tools."""
        return ""

    def stop_sequences(self) -> tuple[str, ...]:
        """Return none."""
        return ()

    def parse_response(self, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
        """Return the text for the user, and no calls: without known tools no call in the text can be trusted."""
        return (), read_reply(ReplyParser(None, careful=True), text)[1]

    def format_result(self, call: ToolCallRequest, result: ToolCallResult) -> str:  # noqa: ARG002 - as above
        """Return the text as it is: the API keeps results apart."""
        return text_of(result.content)

    def sanitize_response(self, text: str) -> str:
        """Return the text without calls and reasoning."""
        return self.parse_response(text)[1].strip()

    def reader(self, tools: Sequence[ToolSpec]) -> ReplyReader:
        """Return a reader that finds calls of these tools in the text."""
        return ReplyParser(tools, careful=True, fenced_calls=self._fenced_calls)
