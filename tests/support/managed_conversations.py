"""Conversations for tests: a manager, models and servers that are seen at work."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
from mcp.server import MCPServer

from tests.inner import (
    Completion,
    ConversationManager,
    ConversationStore,
    Delta,
    DialClient,
    Event,
    FinishReason,
    Message,
    ModelInfo,
    ModelRequest,
    Provider,
    Role,
    ScriptedProvider,
    TextChunk,
)

ADD = {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}, {"name": "add", "arguments": {"a": 3, "b": 4}}]}
WAIT = {"text": "Let me see.", "tool_calls": [{"name": "wait", "arguments": {}}]}


@asynccontextmanager
async def managed(
    store: ConversationStore, model: Sequence[Any] | Provider, servers: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[ConversationManager]:
    provider = ScriptedProvider(model) if isinstance(model, Sequence) else model
    with anyio.fail_after(30):
        async with DialClient(provider, servers=servers or {}) as dial:
            yield ConversationManager(dial, store, **options)


class Calculator:
    """A server in this process; it knows when its slow tool began and was cancelled."""

    def __init__(self) -> None:
        self.waiting = anyio.Event()
        self.cancelled = anyio.Event()
        self.server = MCPServer("calculator")
        self.server.add_tool(self.add)
        self.server.add_tool(self.wait)

    def add(self, a: int, b: int) -> int:
        return a + b

    async def wait(self) -> None:
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()


class Echo:
    """A model that repeats what was said last, as soon as it may; it knows who asks it at the same time."""

    info = ModelInfo("echo")

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.asking: list[str] = []
        self.may_answer = anyio.Event()
        self._asked = anyio.Event()

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        text = request.messages[-1].text
        self.requests.append(request)
        self.asking.append(text)
        self._asked.set()
        yield TextChunk("You said: ")
        await self.may_answer.wait()
        self.asking.remove(text)
        yield TextChunk(text)
        yield Completion(FinishReason.STOP)

    async def until_asked(self, count: int = 1) -> None:
        while len(self.asking) < count:
            self._asked = anyio.Event()
            await self._asked.wait()

    async def aclose(self) -> None:
        pass


def dialogue(*texts: str) -> tuple[Message, ...]:
    """Messages of the person and the model in turn."""
    return tuple((Message.assistant if at % 2 else Message.user)(text) for at, text in enumerate(texts))


async def read_messages(store: ConversationStore, conversation_id: str) -> tuple[Message, ...]:
    """Return the stored messages of a conversation, without the entries between them."""
    return tuple(message for message in (await store.get(conversation_id)).messages if message.entry is None)


async def read(events: AsyncGenerator[Event, None]) -> list[Event]:
    async with aclosing(events):
        return [event async for event in events]


def assert_valid(history: Sequence[Message]) -> None:
    """Every call has one result, right behind the message that asks, in the order of the calls."""
    expected: list[str | None] = []
    for message in history:
        if message.role is Role.TOOL:
            assert message.tool_call_id == expected.pop(0)
        else:
            assert expected == []
            expected = [call.id for call in message.tool_calls]
    assert expected == []
