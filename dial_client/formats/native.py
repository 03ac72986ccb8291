"""The wire's own tool calls, with an eye on models that print a call as text all the same."""

from __future__ import annotations

from collections.abc import Sequence

from dial_client.formats.stream_parser import ReplyParser, read_reply
from dial_client.messages import Message, ToolCallRequest, ToolCallResult, ToolSpec, text_of
from dial_client.model import ModelRequest, ReplyReader, ToolFormat


class NativeFormatHandler:
    """Tools and calls ride as the wire has them; a call in the text counts if it names an offered tool and fits it.

    Its readers leave text as it is, but for reasoning, calls and a template's own tokens; code they leave alone.
    """

    format = ToolFormat.NATIVE

    def request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """Pass both on; a tuple of tools is passed on as the same object."""
        return ModelRequest(tuple(messages), tuple(tools))

    def system_prompt(self, tools: Sequence[ToolSpec]) -> str:  # noqa: ARG002 - another format needs them
        """Give nothing: the wire tells the model."""
        return ""

    def stop_sequences(self) -> tuple[str, ...]:
        """Give none."""
        return ()

    def parse_response(self, text: str) -> tuple[tuple[ToolCallRequest, ...], str]:
        """Give the text for people, and no calls: without knowing what is on offer, none in the text can be trusted."""
        return (), read_reply(ReplyParser(None, careful=True), text)[1]

    def format_result(self, call: ToolCallRequest, result: ToolCallResult) -> str:  # noqa: ARG002 - as above
        """Give the text as it is: the wire keeps it apart."""
        return text_of(result.content)

    def sanitize_response(self, text: str) -> str:
        """Give the text without printed calls and thoughts."""
        return self.parse_response(text)[1].strip()

    def reader(self, tools: Sequence[ToolSpec]) -> ReplyReader:
        """Make a reader that rescues calls of these tools."""
        return ReplyParser(tools, careful=True)
