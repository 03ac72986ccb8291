"""A turn under way: all that carries it out, with a model and tools at its edges, and places where it stands still."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
from mcp_types import CallToolResult

from tests.inner import (
    ActiveFormat,
    ApprovalChecker,
    Approver,
    CallChunk,
    ChatModel,
    Completion,
    ContextWindow,
    Event,
    EventLog,
    FinishReason,
    Limits,
    Message,
    NativeFormatHandler,
    OnCallProgress,
    PolicyRules,
    ResultStore,
    Role,
    StopReason,
    ToolCallRequest,
    ToolSnapshot,
    TurnHandle,
    TurnServices,
    TurnWork,
    build_catalog,
    run_turn,
)
from tests.support.fakes import Model, Step, server, text_result

QUESTION = Message.user("What time is it?")
STOP = Completion(FinishReason.STOP)


class Hang:
    """A place in a turn where it stands still until it is cancelled."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.left = False

    async def __call__(self, *_: object) -> Any:
        self.reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.left = True


class Pipeline:
    """All that carries a turn out, with a model and tools at its edges."""

    def __init__(
        self, *replies: Sequence[Step], tools: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
        approve: Approver | None = None, max_depth: int = 5
    ) -> None:  # fmt: skip
        self.model = Model(*replies)
        self.tools = tools or {}
        catalog = build_catalog([server("clock", "now", "later", call=self._call)])
        self.services = TurnServices(
            model=ChatModel(self.model, ActiveFormat(NativeFormatHandler()), ContextWindow()),
            tool_snapshot=lambda: ToolSnapshot(catalog),
            result_store=ResultStore(),
            approvals=ApprovalChecker(PolicyRules(), approve),
            limits=Limits(max_depth=max_depth),
            await_tool_changes=anyio.lowlevel.checkpoint,
        )

    async def _call(self, tool: str, _arguments: Mapping[str, Any], _on_progress: OnCallProgress) -> CallToolResult:
        if tool in self.tools:
            await self.tools[tool]()
        return text_result(f"{tool} ran")

    async def __call__(self, turn: TurnHandle) -> StopReason:
        return await run_turn(self._open_services, (QUESTION,), turn)

    async def _open_services(self) -> TurnServices:
        return self.services


@asynccontextmanager
async def started(
    work: TurnWork, *, watched: bool = False, raise_at_limits: bool = False
) -> AsyncGenerator[TurnHandle, None]:
    """Run a turn in a task of its own, and wait for that task's end; nothing here may take long."""
    turn = TurnHandle(work, EventLog(is_paced=watched), raise_at_limits=raise_at_limits)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(turn.run)
            yield turn


def calling(*names: str) -> list[Step]:
    return [*(CallChunk(ToolCallRequest(f"id_{name}", name, {})) for name in names), STOP]


def check_history(messages: Sequence[Message]) -> None:
    left = list(messages)
    while left:
        message = left.pop(0)
        assert message.role is Role.ASSISTANT
        assert message.tool_calls or message.text.strip()
        assert [message_left.tool_call_id for message_left in left[: len(message.tool_calls)]] == [
            call.id for call in message.tool_calls
        ]
        del left[: len(message.tool_calls)]


async def heard(events: AsyncGenerator[Event, None]) -> list[Event]:
    async with aclosing(events):
        return [event async for event in events]
