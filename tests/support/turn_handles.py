"""A turn under way: all that carries it out, with a model and tools at its edges, and places where it stands still."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
from mcp_types import CallToolResult

from dial_client.messages.events import Emit, Event, MessageCompleted
from dial_client.messages.limits import Limits, StopReason
from dial_client.messages.message import Message, Role, ToolCallRequest
from dial_client.messages.model import CallChunk, Completion, FinishReason
from dial_client.providers.formats import ActiveFormat, NativeFormatHandler
from dial_client.runtime.deadline import Deadline
from dial_client.servers.session import OnCallProgress
from dial_client.tools.approval import ApprovalChecker, Approver, PolicyRules
from dial_client.tools.catalog import build_catalog
from dial_client.tools.executor import ToolExecutor
from dial_client.turns.context_window import ContextWindow
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.event_log import EventLog
from dial_client.turns.finalization import finish_turn
from dial_client.turns.model_call import ChatModel, ModelCaller
from dial_client.turns.resolution import resolve
from dial_client.turns.turn_handle import TurnHandle, Work
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
        self.limits = Limits(max_depth=max_depth)
        catalog = build_catalog([server("clock", "now", "later", call=self._call)])
        self.executor = ToolExecutor(lambda: catalog, ApprovalChecker(PolicyRules(), approve), self.limits)
        self.offered = catalog.tools

    async def _call(self, tool: str, _arguments: Mapping[str, Any], _on_progress: OnCallProgress) -> CallToolResult:
        if tool in self.tools:
            await self.tools[tool]()
        return text_result(f"{tool} ran")

    async def __call__(self, turn: TurnHandle) -> StopReason:
        deadline = Deadline(60)
        asker = ModelCaller(
            model=ChatModel(self.model, ActiveFormat(NativeFormatHandler()), ContextWindow()),
            tools=lambda: self.offered,
            deadline=deadline,
            recorder=turn.recorder,
            limits=Limits(),
            stream=True,
        )

        async def call_tools(calls: Sequence[ToolCallRequest], emit: Emit) -> list[Message]:
            done = await self.executor.execute_all(calls, emit, deadline)
            messages = [Message.tool(call, result) for call, result in zip(calls, done, strict=True)]
            for message in messages:
                await emit(MessageCompleted(message))
            return messages

        context = ConversationContext((QUESTION,), self.limits.max_depth)
        outcome = await resolve(context, asker, call_tools, turn.emit)
        return await finish_turn(outcome, asker, turn.emit)


@asynccontextmanager
async def started(
    work: Work, *, watched: bool = False, raise_at_limits: bool = False
) -> AsyncGenerator[TurnHandle, None]:
    """Run a turn in a task of its own, and wait for that task's end; nothing here may take long."""
    turn = TurnHandle(work, EventLog(is_paced=watched), raise_at_limits=raise_at_limits)
    with anyio.fail_after(20):
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
