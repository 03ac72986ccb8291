"""What fills a model's context window: the instructions, the tools by server, the messages and the results of calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dial_client.messages.message import SEARCH_TOOLS, Message, Role, ToolSpec
from dial_client.messages.model import InstructionSource
from dial_client.tools.tool_selection import TurnTools
from dial_client.turns.context_window import (
    estimate_instruction_tokens,
    estimate_message_tokens,
    estimate_tool_tokens,
    measure_tool,
)
from dial_client.turns.turn_run import TurnServices, has_endpoint_search, open_code_offer, prepare_instructions

# The names of the parts that are instructions, by their sources.
_INSTRUCTIONS = {
    InstructionSource.CONVERSATION: "your instructions",
    InstructionSource.HOST: "instructions of the program",
    InstructionSource.FILES: "instructions of files",
    InstructionSource.SERVERS: "instructions of servers",
    InstructionSource.TOOL_FORMAT: "tools, as instructions",
}
_OWN_TOOLS = "tools of the program"


@dataclass(frozen=True, slots=True)
class ContextPart:
    """A part of a request."""

    name: str
    """``your instructions``, ``tools of time``, ``messages``, ``results of calls`` and the like."""
    tokens: int
    """The estimated number of tokens."""
    count: int
    """The number of instructions, tools, messages or results."""
    bytes: int = 0
    """The bytes of the tools' definitions; 0 for other parts."""


@dataclass(frozen=True, slots=True)
class ContextReport:
    """The parts of the next request, without the next question."""

    parts: tuple[ContextPart, ...]
    """The parts that are not empty."""
    window: int | None = None
    """The size of the context window in tokens; None if it is unknown."""
    is_counted: bool = False
    """Whether the sum of the parts is a number that the endpoint has counted for the last request and its reply. The
    single parts are estimates in any case."""
    left_out: int = 0
    """The number of messages that are too old to fit into the window, and are not sent."""
    searched_tools: int = 0
    """The number of tools that are not in the request, because the model searches for them."""
    searched_bytes: int = 0
    """The bytes of their definitions."""

    @property
    def tokens(self) -> int:
        """The sum of the parts in tokens."""
        return sum(part.tokens for part in self.parts)

    @property
    def fill(self) -> float | None:
        """The part of the context window that is filled; None if the size of the window is unknown."""
        return self.tokens / self.window if self.window else None


def measure_request(services: TurnServices, messages: Sequence[Message], window: int | None) -> ContextReport:
    """Return the parts of the request that a turn of a conversation would begin with.

    Args:
        services: The services of the turn.
        messages: The conversation, which may have system messages.
        window: The size of the context window in tokens; None if it is unknown.
    """
    model = services.model
    turn_instructions, conversation = prepare_instructions(services, messages)
    turn_tools = TurnTools(
        services.tool_snapshot,
        services.result_store,
        services.limits,
        messages,
        model.window.tokens,
        partial(has_endpoint_search, model),
    )
    code = open_code_offer(services, turn_tools, messages, prepares=False)
    tools = (turn_tools if code is None else code).offer_tools()
    handler = model.format.handler
    instructions = turn_instructions.select(has_tools=bool(tools), tool_format=handler.format)
    sent = model.window.fit(conversation, tools, instructions)
    request = handler.request(sent, tools)
    parts: dict[str, ContextPart] = {}
    for instruction in (*instructions, *request.instructions):
        _add(parts, _INSTRUCTIONS[instruction.source], estimate_instruction_tokens(instruction))
    for tool in request.tools:
        if not tool.deferred:
            name = f"tools of {tool.server}" if tool.server else _OWN_TOOLS
            _add(parts, name, estimate_tool_tokens(tool), measure_tool(tool))
    for message in sent:
        name = "results of calls" if message.role is Role.TOOL else "messages"
        _add(parts, name, estimate_message_tokens(message))
    searched = _find_searched(services, tools)
    return ContextReport(
        tuple(parts.values()),
        window,
        left_out=len(conversation) - len(sent),
        searched_tools=len(searched),
        searched_bytes=sum(map(measure_tool, searched)),
    )


def _find_searched(services: TurnServices, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
    """Return the tools that are not offered, because the model, or its endpoint, searches for them."""
    if not any(tool.deferred or (tool.name == SEARCH_TOOLS and not tool.server) for tool in tools):
        return ()
    # In code mode, `run_code` has the tools that are always offered.
    snapshot = services.tool_snapshot()
    offered = {tool.name for tool in (*tools, *snapshot.always_offered) if not tool.deferred}
    return [tool for tool in snapshot.catalog.tools if tool.name not in offered]


def with_counted_tokens(report: ContextReport, tokens: int) -> ContextReport:
    """Return a report whose parts have a sum that was counted; their shares stay those of the estimate."""
    estimated = report.tokens
    if not estimated or not tokens:
        return report
    return replace(report, parts=tuple(_scale(report.parts, tokens / estimated, tokens)), is_counted=True)


def _scale(parts: Sequence[ContextPart], factor: float, tokens: int) -> Iterator[ContextPart]:
    """Yield the parts with their tokens scaled; the sums are rounded, so that the rounded parts have the exact sum."""
    exact = rounded = 0.0
    for part in parts:
        exact += part.tokens * factor
        share = min(round(exact), tokens) - rounded
        rounded += share
        yield replace(part, tokens=int(share))


def _add(parts: dict[str, ContextPart], name: str, tokens: int, size: int = 0) -> None:
    known = parts.get(name, ContextPart(name, 0, 0))
    parts[name] = ContextPart(name, known.tokens + tokens, known.count + 1, known.bytes + size)
