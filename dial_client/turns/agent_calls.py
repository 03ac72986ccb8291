"""The calls of an agent's turn, for the details of the turn that has called the agent."""

from __future__ import annotations

from typing import Any

from dial_client.messages.events import AgentEvent, ToolCallFinished, ToolCallStarted
from dial_client.messages.message import content_to_json, extract_text

# The most calls of an agent that are kept, and the most characters of the arguments and of the result of each.
MAX_CALLS = 100
MAX_CHARS = 2_000


class AgentCalls:
    """The calls of one agent, which are shown below the call of the agent; long texts are cut."""

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []
        # The place of each running call; ids are unique within a round of the agent only.
        self._running: dict[str, int] = {}
        self._agents: dict[int, AgentCalls] = {}

    def record(self, event: ToolCallStarted | ToolCallFinished | AgentEvent) -> None:
        """Record an event of the agent's turn."""
        match event:
            case ToolCallStarted(call, server) if len(self._calls) < MAX_CALLS:
                arguments = call.arguments if len(str(call.arguments)) <= MAX_CHARS else {}
                self._running[call.id] = len(self._calls)
                self._calls.append({"id": call.id, "name": call.name, "server": server, "arguments": dict(arguments)})
            case ToolCallFinished(result, _, duration) if result.tool_call_id in self._running:
                content = result.content if isinstance(result.content, str) else extract_text(result.content)
                self._calls[self._running.pop(result.tool_call_id)] |= {
                    "duration_s": round(duration, 4),
                    "is_error": not result.success,
                    "content": content_to_json(content[:MAX_CHARS]),
                }
            case AgentEvent(call_id, _, inner) if call_id in self._running:
                self._agents.setdefault(self._running[call_id], AgentCalls()).record(inner)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the calls in JSON types, each with the ``calls`` of its own if it is the call of an agent."""
        return [
            call | ({"calls": self._agents[index].to_list()} if index in self._agents else {})
            for index, call in enumerate(self._calls)
        ]
