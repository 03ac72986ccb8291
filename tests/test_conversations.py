"""ConversationManager: what is said is kept, whatever happens to the turn, its reader or the program."""

from __future__ import annotations

import gc
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st
from mcp.server import MCPServer

from dial_client.client import DialClient
from dial_client.conversations import INTERRUPTED, ConversationManager, valid_history
from dial_client.errors import ConversationNotFound, DialError, ProviderError
from dial_client.events import Event, Finished, MessageCompleted, TextDelta, ToolCallStarted
from dial_client.limits import StopReason
from dial_client.messages import Message, Role, ToolCallRequest, ToolCallResult
from dial_client.model import Completion, Delta, FinishReason, ModelRequest, Provider, TextChunk
from dial_client.providers.scripted import ScriptedProvider
from dial_client.running import BUFFERED_EVENTS, RunningTurn
from dial_client.store import ConversationStore, MemoryStore, SQLStore

pytestmark = pytest.mark.anyio
sqlite_only = pytest.mark.parametrize("kept", [("asyncio", "sqlite")], indirect=True)

ADD = {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}, {"name": "add", "arguments": {"a": 3, "b": 4}}]}
WAIT = {"text": "Let me see.", "tool_calls": [{"name": "wait", "arguments": {}}]}


@pytest.fixture(params=[("asyncio", "memory"), ("trio", "memory"), ("asyncio", "sqlite")], ids="-".join)
def kept(request: pytest.FixtureRequest) -> tuple[str, str]:
    """On which event loop, and where."""
    return request.param[0], request.param[1]


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


@pytest.fixture
async def store(kept: tuple[str, str], tmp_path: Path) -> AsyncIterator[ConversationStore]:
    made: ConversationStore = MemoryStore() if kept[1] == "memory" else SQLStore.sqlite(tmp_path / "talk.db")
    yield made
    await made.aclose()


@asynccontextmanager
async def managed(
    store: ConversationStore, model: Sequence[Any] | Provider, servers: Mapping[str, Any] | None = None
) -> AsyncIterator[ConversationManager]:
    provider = ScriptedProvider(model) if isinstance(model, Sequence) else model
    with anyio.fail_after(30):
        async with DialClient(servers or {}, provider) as dial:
            yield ConversationManager(dial, store)


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

    name = "echo"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.asking: list[str] = []
        self.may_answer = anyio.Event()
        self._asked = anyio.Event()

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        said = request.messages[-1].text
        self.requests.append(request)
        self.asking.append(said)
        self._asked.set()
        yield TextChunk("You said: ")
        await self.may_answer.wait()
        self.asking.remove(said)
        yield TextChunk(said)
        yield Completion(FinishReason.STOP)

    async def until_asked(self, count: int = 1) -> None:
        while len(self.asking) < count:
            self._asked = anyio.Event()
            await self._asked.wait()

    async def aclose(self) -> None:
        pass


def dialogue(*said: str) -> tuple[Message, ...]:
    """Messages of the person and the model in turn."""
    return tuple((Message.assistant if at % 2 else Message.user)(text) for at, text in enumerate(said))


async def read(events: AsyncGenerator[Event, None]) -> list[Event]:
    async with aclosing(events):
        return [event async for event in events]


async def test_a_chat_is_stored_and_goes_on_where_it_was(store: ConversationStore) -> None:
    model = ScriptedProvider(["Hello Ann.", "Your name is Ann."])
    async with managed(store, model) as manager:
        made = await manager.create()
        turn = await manager.chat(made.id, "I am Ann.")
        assert turn.text == "Hello Ann."
        assert (await manager.chat(made.id, "Who am I?")).text == "Your name is Ann."
        read_back = await manager.get(made.id)
    assert model.requests[1].messages == dialogue("I am Ann.", "Hello Ann.", "Who am I?")
    assert [request.stream for request in model.requests] == [False, False]
    assert read_back.messages == dialogue("I am Ann.", "Hello Ann.", "Who am I?", "Your name is Ann.")
    assert read_back.title == "I am Ann."


async def test_a_title_that_was_given_stays(store: ConversationStore) -> None:
    async with managed(store, ["Hello."]) as manager:
        made = await manager.create("Introductions")
        await manager.chat(made.id, "I am Ann.")
        assert [one.title for one in await manager.list()] == ["Introductions"]


async def test_what_a_turn_adds_is_stored_before_its_event_is_handed_on(store: ConversationStore) -> None:
    async with managed(store, [ADD, "3 and 7."], {"calculator": Calculator().server}) as manager:
        made = await manager.create()
        seen = list(dialogue("What is 1 + 2, and 3 + 4?"))
        async with aclosing(manager.stream_chat(made.id, seen[0].text)) as events:
            async for event in events:
                if isinstance(event, MessageCompleted):
                    seen.append(event.message)
                stored = (await store.get(made.id)).messages
                assert stored[: len(seen)] == tuple(seen)
        assert isinstance(event, Finished)
        assert (*seen[:1], *event.turn.messages) == tuple(seen) == stored
    assert [message.role for message in seen] == ["user", "assistant", "tool", "tool", "assistant"]


async def test_what_the_person_says_is_stored_before_the_model_is_asked(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model) as manager, anyio.create_task_group() as group:
        made = await manager.create()
        group.start_soon(manager.chat, made.id, "Hello?")
        await model.until_asked()
        assert (await store.get(made.id)).messages == dialogue("Hello?")
        model.may_answer.set()


async def test_leaving_a_stream_early_keeps_what_was_said(store: ConversationStore) -> None:
    model = ScriptedProvider([{"text": "One, two, three", "chunk_size": 5, "hang": True}, "Four."])
    async with managed(store, model) as manager:
        made = await manager.create()
        async with aclosing(manager.stream_chat(made.id, "Count!")) as events:
            async for event in events:
                if event == TextDelta("three"):
                    break
        assert (await store.get(made.id)).messages == dialogue("Count!", "One, two, three")
        await manager.chat(made.id, "Go on.")
        assert model.requests[1].messages == dialogue("Count!", "One, two, three", "Go on.")


async def test_a_cancelled_reader_keeps_what_was_said(store: ConversationStore) -> None:
    async with managed(store, [{"text": "One, ", "hang": True}]) as manager:
        made = await manager.create()
        with anyio.CancelScope() as scope:
            async with aclosing(manager.stream_chat(made.id, "Count!")) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        scope.cancel()
        assert scope.cancelled_caught
        assert (await store.get(made.id)).messages == dialogue("Count!", "One, ")


async def test_a_cancelled_chat_keeps_what_was_said(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model) as manager:
        made = await manager.create()
        async with anyio.create_task_group() as group:
            group.start_soon(manager.chat, made.id, "Hello?")
            await model.until_asked()
            group.cancel_scope.cancel()
        assert (await store.get(made.id)).messages == dialogue("Hello?", "You said: ")


class Distant(MemoryStore):
    """A store that is some way off."""

    async def append(self, conversation_id: str, messages: Sequence[Message], *, title: str = "") -> None:
        await checkpoint()
        await super().append(conversation_id, messages, title=title)
        await checkpoint()


async def test_what_is_being_stored_when_the_reader_is_cancelled_is_stored_once(anyio_backend: str) -> None:
    store = Distant()
    async with managed(store, [ADD, "3 and 7."], {"calculator": Calculator().server}) as manager:
        made = await manager.create()
        with anyio.CancelScope() as scope:
            async with aclosing(manager.stream_chat(made.id, "Add!")) as events:
                async for event in events:
                    if isinstance(event, MessageCompleted):
                        scope.cancel()
        assert scope.cancelled_caught
        stored = (await store.get(made.id)).messages
        assert [message.role for message in stored] == ["user", "assistant", "tool", "tool"]
        assert_valid(stored)


async def test_a_turn_can_be_stopped_from_outside_and_read_to_its_end(store: ConversationStore) -> None:
    calculator = Calculator()
    turns: list[RunningTurn] = []
    async with managed(store, [WAIT, "Never mind."], {"calculator": calculator.server}) as manager:
        made = await manager.create()
        seen: list[Event] = []
        async with aclosing(manager.stream_chat(made.id, "Wait!", on_started=turns.append)) as events:
            async for event in events:
                seen.append(event)
                if isinstance(event, ToolCallStarted):
                    await calculator.waiting.wait()
                    turns[0].cancel()
        await calculator.cancelled.wait()
        assert isinstance(event, Finished)
        assert event.turn.stop_reason is StopReason.CANCELLED
        stored = (await store.get(made.id)).messages
        assert stored == (Message.user("Wait!"), *event.turn.messages)
        assert [message.role for message in stored] == ["user", "assistant", "tool"]
        assert stored[2].is_error
        assert (await manager.chat(made.id, "Forget it.")).text == "Never mind."


async def test_nothing_is_lost_when_the_reader_is_slow_and_the_turn_is_stopped(store: ConversationStore) -> None:
    turns: list[RunningTurn] = []
    async with managed(store, [{"text": "x" * 3 * BUFFERED_EVENTS, "chunk_size": 1}]) as manager:
        made = await manager.create()
        async with aclosing(manager.stream_chat(made.id, "Talk!", on_started=turns.append)) as events:
            await anext(events)
            await anyio.wait_all_tasks_blocked()
            turns[0].cancel()
            await anyio.wait_all_tasks_blocked()
            rest = [event async for event in events]
        assert isinstance(rest[-1], Finished)
        said = rest[-1].turn.messages
        assert len(said) == 1
        assert len(said[0].text) > BUFFERED_EVENTS // 2
        assert (await store.get(made.id)).messages == (Message.user("Talk!"), *said)


async def test_a_model_that_breaks_off_leaves_what_it_said(store: ConversationStore) -> None:
    broken = {"error": {"message": "overloaded", "status": 529}}
    model = ScriptedProvider([broken, {"text": "One, "} | broken, "Two."])
    async with managed(store, model) as manager:
        made = await manager.create()
        with pytest.raises(ProviderError, match="overloaded"):
            await manager.chat(made.id, "Count!")
        with pytest.raises(ProviderError, match="overloaded"):
            await read(manager.stream_chat(made.id, "Try again."))
        await manager.chat(made.id, "Go on.")
        expected = (*dialogue("Count!"), *dialogue("Try again.", "One, ", "Go on."))
        assert model.requests[2].messages == expected
        assert (await manager.get(made.id)).messages == (*expected, Message.assistant("Two."))


async def test_turns_of_one_conversation_take_place_one_after_the_other(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model) as manager:
        made = await manager.create()
        async with anyio.create_task_group() as group:
            for text in ("a", "b", "c"):
                group.start_soon(manager.chat, made.id, text)
                await anyio.wait_all_tasks_blocked()
            assert model.asking == ["a"]
            model.may_answer.set()
        texts = [message.text for message in (await store.get(made.id)).messages]
    assert texts == ["a", "You said: a", "b", "You said: b", "c", "You said: c"]


async def test_different_conversations_run_side_by_side(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model) as manager:
        conversations = [await manager.create() for _ in range(5)]
        async with anyio.create_task_group() as group:
            for at, made in enumerate(conversations):
                group.start_soon(manager.chat, made.id, str(at))
            await model.until_asked(5)
            model.may_answer.set()
        for at, made in enumerate(conversations):
            assert (await store.get(made.id)).messages == dialogue(str(at), f"You said: {at}")


async def test_a_turn_that_waits_can_be_cancelled_and_says_nothing(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model) as manager:
        made = await manager.create()
        async with anyio.create_task_group() as group:
            group.start_soon(manager.chat, made.id, "a")
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as impatient:
                impatient.start_soon(manager.chat, made.id, "b")
                await anyio.wait_all_tasks_blocked()
                impatient.cancel_scope.cancel()
            model.may_answer.set()
        await manager.chat(made.id, "c")
        assert (await store.get(made.id)).messages == dialogue("a", "You said: a", "c", "You said: c")


async def test_nothing_remains_of_conversations_nobody_talks_in(store: ConversationStore) -> None:
    async with managed(store, ScriptedProvider(["Hello."], after="repeat")) as manager:
        for _ in range(3):
            await manager.chat((await manager.create()).id, "Hello.")
        gc.collect()
        assert len(manager._places) == 0


async def test_an_unknown_conversation_asks_no_model(store: ConversationStore) -> None:
    model = ScriptedProvider([])
    async with managed(store, model) as manager:
        for attempt in (manager.chat("nobody", "Hello"), manager.get("nobody"), manager.delete("nobody")):
            with pytest.raises(ConversationNotFound):
                await attempt
        with pytest.raises(ConversationNotFound):
            await read(manager.stream_chat("nobody", "Hello"))
    assert model.requests == []


async def test_deleting_a_conversation_stops_its_turn_and_those_that_wait(store: ConversationStore) -> None:
    model = Echo()
    finished: list[Event] = []
    async with managed(store, model) as manager:
        gone, kept = await manager.create(), await manager.create()

        async def talks() -> None:
            finished.append((await read(manager.stream_chat(gone.id, "a")))[-1])

        async def waits() -> None:
            with pytest.raises(ConversationNotFound):
                await manager.chat(gone.id, "b")

        async with anyio.create_task_group() as group:
            group.start_soon(talks)
            await model.until_asked()
            group.start_soon(waits)
            await anyio.wait_all_tasks_blocked()
            await manager.delete(gone.id)
        assert isinstance(finished[0], Finished)
        assert finished[0].turn.stop_reason is StopReason.CANCELLED
        assert [one.id for one in await manager.list()] == [kept.id]
        assert len(model.requests) == 1


async def test_deleting_from_inside_the_stream_ends_it(store: ConversationStore) -> None:
    async with managed(store, [{"text": "One, ", "hang": True}]) as manager:
        made = await manager.create()
        async with aclosing(manager.stream_chat(made.id, "Count!")) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    await manager.delete(made.id)
        assert isinstance(event, Finished)
        assert await manager.list() == ()


@sqlite_only
async def test_a_store_that_fails_in_a_turn_stops_it(store: ConversationStore, tmp_path: Path) -> None:
    file = tmp_path / "talk.db"
    async with managed(store, [ADD, "7", "Fine again."], {"calculator": Calculator().server}) as manager:
        made = await manager.create()
        with pytest.raises(DialError, match="no such table: messages"):
            async with aclosing(manager.stream_chat(made.id, "Add!")) as events:
                async for event in events:
                    if isinstance(event, ToolCallStarted):
                        execute(file, "ALTER TABLE messages RENAME TO away")
        execute(file, "ALTER TABLE away RENAME TO messages")
        stored = (await manager.get(made.id)).messages
        assert [message.role for message in stored] == ["user", "assistant", "tool", "tool"]
        assert [message.text for message in stored[2:]] == [INTERRUPTED, INTERRUPTED]
        await manager.chat(made.id, "And now?")


def execute(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


THIS_PROGRAM_IS_KILLED = """
import json, sys
import anyio
from mcp.server import MCPServer
from dial_client import ConversationManager, DialClient, MessageCompleted, SQLStore, ToolCallRequest
from dial_client.model import CallChunk, Completion, FinishReason, TextChunk

server = MCPServer("calculator")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

class Model:
    name = "tiny"

    async def generate(self, request):
        if request.messages[-1].role == "user":
            yield CallChunk(ToolCallRequest("call_1", "add", {"a": 1, "b": 2}))
            yield CallChunk(ToolCallRequest("call_2", "add", {"a": 3, "b": 4}))
        else:
            for word in ("three ", "and ", "seven"):
                yield TextChunk(word)
        yield Completion(FinishReason.STOP)

    async def aclose(self):
        pass

def say(what):
    print(json.dumps(what), flush=True)

async def main(file, conversation_id):
    async with DialClient({"calculator": server}, Model()) as dial:
        manager = ConversationManager(dial, SQLStore.sqlite(file))
        for n in range(1000):
            async for event in manager.stream_chat(conversation_id, f"question {n}"):
                say(event.message.to_dict() if isinstance(event, MessageCompleted) else None)

anyio.run(main, *sys.argv[1:])
"""


@sqlite_only
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing kills like SIGKILL")
@pytest.mark.parametrize("lines", [1, 4, 8, 20, 45])
async def test_a_killed_program_leaves_a_valid_conversation(
    store: ConversationStore, tmp_path: Path, lines: int
) -> None:
    made = await store.create()
    program = [sys.executable, "-c", THIS_PROGRAM_IS_KILLED, str(tmp_path / "talk.db"), made.id]
    with anyio.fail_after(60):
        printed = await anyio.to_thread.run_sync(first_lines, program, lines)
    told = [Message.from_dict(said) for said in map(json.loads, printed) if said]
    stored = (await store.get(made.id)).messages
    assert [message for message in stored if message.role is not Role.USER][: len(told)] == told
    history = valid_history(stored)
    assert_valid(history)
    model = ScriptedProvider(["Where were we?"])
    async with managed(store, model) as manager:
        await manager.chat(made.id, "Are you there?")
    assert model.requests[0].messages == (*history, Message.user("Are you there?"))
    assert (await store.get(made.id)).messages[: len(stored)] == stored


def first_lines(program: list[str], count: int) -> list[str]:
    """Start a program, kill it when it has printed so many lines, and give all whole ones it printed."""
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(count)]
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.readlines()
    return [line for line in lines if line.endswith("\n")]


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


A, B = ToolCallRequest("a", "add", {}), ToolCallRequest("b", "add", {})


def answer(call: ToolCallRequest, text: str) -> Message:
    return Message.tool(call, ToolCallResult(call.id, success=not text.startswith("["), content=text))


@pytest.mark.parametrize(
    ("stored", "history"),
    [
        ([], []),
        (dialogue("hi", "ho"), dialogue("hi", "ho")),
        (
            [Message.assistant("", [A, B]), answer(A, "1"), answer(B, "2"), Message.assistant("3")],
            [Message.assistant("", [A, B]), answer(A, "1"), answer(B, "2"), Message.assistant("3")],
        ),
        (
            [Message.assistant("", [A, B])],
            [Message.assistant("", [A, B]), answer(A, INTERRUPTED), answer(B, INTERRUPTED)],
        ),
        (
            [Message.assistant("", [A, B]), answer(B, "2"), Message.user("and?")],
            [Message.assistant("", [A, B]), answer(A, INTERRUPTED), answer(B, "2"), Message.user("and?")],
        ),
        (
            [Message.assistant("", [A]), Message.user("another program"), answer(A, "1")],
            [Message.assistant("", [A]), answer(A, "1"), Message.user("another program")],
        ),
        (
            [Message.assistant("", [A]), Message.assistant("", [A]), answer(A, "1")],
            [Message.assistant("", [A]), answer(A, INTERRUPTED), Message.assistant("", [A]), answer(A, "1")],
        ),
        ([answer(A, "0"), *dialogue("hi")], dialogue("hi")),
        (
            [Message.assistant("", [A]), answer(A, "1"), answer(A, "2")],
            [Message.assistant("", [A]), answer(A, "1")],
        ),
    ],
)
def test_a_history_is_made_valid_and_nothing_else(stored: Sequence[Message], history: Sequence[Message]) -> None:
    assert valid_history(stored) == tuple(history)


some_messages = st.lists(
    st.sampled_from([Message.user("hi"), Message.assistant("ho"), answer(A, "1"), answer(B, "2")])
    | st.builds(Message.assistant, st.just(""), st.lists(st.sampled_from([A, B]), unique_by=lambda call: call.id))
)


@given(some_messages, some_messages)
def test_any_history_becomes_valid_and_stays_so(stored: list[Message], later: list[Message]) -> None:
    history = valid_history(stored)
    assert_valid(history)
    assert valid_history(history) == history
    assert [one for one in history if one.role is not Role.TOOL] == [one for one in stored if one.role is not Role.TOOL]
    assert_valid(valid_history([*stored, *later]))
