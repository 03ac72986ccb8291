"""The result of a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dial_client.citations import Citation
from dial_client.limits import StopReason
from dial_client.messages import Failure, Message, ToolCallRequest, ToolCallResult, content_to_json
from dial_client.token_usage import Usage


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """One call of a turn, with its result."""

    call: ToolCallRequest
    result: ToolCallResult
    server: str
    """The server's name in the configuration; empty for a tool nobody offers."""
    tool: str
    """The tool's own name at that server."""
    duration: float
    """Seconds the call took; waiting for permission is not counted."""
    by_endpoint: bool = False
    """The model's endpoint ran the tool itself; `server` is its name."""

    @property
    def denied(self) -> bool:
        """True if the call was not allowed."""
        return self.result.failure is Failure.DENIED

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types only."""
        return {
            "id": self.call.id,
            "name": self.call.name,
            "server": self.server,
            "tool": self.tool,
            "arguments": dict(self.call.arguments),
            "is_error": not self.result.success,
            "content": content_to_json(self.result.content),
            "duration_s": round(self.duration, 4),
        } | ({"by_endpoint": True} if self.by_endpoint else {})


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: a message, and everything that was done to answer it."""

    message: Message
    """The last message: an answer, or the findings so far and why the turn stopped."""
    messages: tuple[Message, ...]
    """All messages of this turn, in order, to be stored. Behind the caller's messages they are a valid history."""
    stop_reason: StopReason
    depth: int
    """Rounds of tool calls."""
    usage: Usage
    """The tokens of all requests to the model together."""
    tool_calls: tuple[ToolCallRecord, ...] = ()
    notes: tuple[str, ...] = ()
    """Deviations, as sentences for people: servers that are missing, tools left out, results cut."""
    request_usages: tuple[Usage, ...] = ()
    """The tokens of each request to the model, in their order."""
    cost_usd: float | None = None
    """The price of all requests in US dollars; None where it is not known (see `prices`)."""
    client_tool_calls: tuple[ToolCallRequest, ...] = ()
    """Calls of the caller's tools, for it to answer (`StopReason.CLIENT_TOOL_CALLS`); they are in `messages`."""

    @property
    def text(self) -> str:
        """The text of `message`."""
        return self.message.text

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources of `text`, with their spans in it."""
        return self.message.citations

    def usage_to_dict(self) -> dict[str, Any]:
        """Return the counts of `usage` and of each request, and ``cost_usd``, which is null where it is not known."""
        rounds = [usage.to_dict() for usage in self.request_usages]
        return {**self.usage.to_dict(), "rounds": rounds, "cost_usd": self.cost_usd}

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types only: the output of ``dial-chat --output json``."""
        client_tool_calls = [call.to_dict() for call in self.client_tool_calls]
        citations = [citation.to_dict() for citation in self.citations]
        return {
            "text": self.text,
            "stop_reason": self.stop_reason.value,
            "depth": self.depth,
            "usage": self.usage_to_dict(),
            "tool_calls": [record.to_dict() for record in self.tool_calls],
            "messages": [message.to_dict() for message in self.messages],
            "notes": list(self.notes),
            **({"citations": citations} if citations else {}),
            **({"client_tool_calls": client_tool_calls} if client_tool_calls else {}),
        }
