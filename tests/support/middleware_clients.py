"""Clients with middleware, a function as a tool and a scripted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dial_client import DialClient, Event, ToolCallResult, Turn
from dial_client.extend import AuditEntry, CallNext, Middleware, ModelReply, ModelRequest, ToolCall, TurnRequest
from dial_client.testing import ScriptedProvider

NextTurn = CallNext[TurnRequest, Turn]
NextModelCall = CallNext[ModelRequest, ModelReply]
NextToolCall = CallNext[ToolCall, ToolCallResult]


def calling(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


DOUBLE = calling("double", number=4)


class Tools:
    """A function of the program, and what it was called with."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def double(self, number: int) -> int:
        """Double a number."""
        self.numbers.append(number)
        return 2 * number


class Auditor:
    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    def record(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


def open_client(
    middleware: Sequence[Middleware], *replies: Any, **options: Any
) -> tuple[DialClient, ScriptedProvider, Tools]:
    tools, model = Tools(), ScriptedProvider(replies or (DOUBLE, "It is 8."))
    return DialClient(model, tools=[tools.double], middleware=middleware, guidance="", **options), model, tools


async def read_events(dial: DialClient, prompt: str = "go on") -> list[Event]:
    return [event async for event in dial.stream(prompt)]


class Notebook(Middleware):
    """Writes down what it is around."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name, self.lines = name, lines

    async def around_turn(self, request: TurnRequest, call_next: NextTurn) -> Turn:
        self.lines.append(f"{self.name} turn")
        turn = await call_next(request)
        self.lines.append(f"{self.name} turn ends: {turn.text}")
        return turn

    async def around_model_call(self, request: ModelRequest, call_next: NextModelCall) -> ModelReply:
        self.lines.append(f"{self.name} model")
        reply = await call_next(request)
        self.lines.append(f"{self.name} model ends: {reply.finish}")
        return reply

    async def around_tool_call(self, call: ToolCall, call_next: NextToolCall) -> ToolCallResult:
        self.lines.append(f"{self.name} {call.server}/{call.tool}")
        result = await call_next(call)
        self.lines.append(f"{self.name} tool ends: {result.content!r}")
        return result
