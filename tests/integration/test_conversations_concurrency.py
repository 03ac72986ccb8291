"""Concurrent conversations, and several requests for the same conversation."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.inner import (
    CallChunk,
    Completion,
    ConfigError,
    ConversationBusy,
    ConversationManager,
    ConversationNotFound,
    ConversationStore,
    Delta,
    DialClient,
    Event,
    Finished,
    FinishReason,
    MemoryStore,
    Message,
    ModelInfo,
    ModelRequest,
    Role,
    ScriptedProvider,
    StopReason,
    TextChunk,
    TextDelta,
    ToolCallRequest,
)
from tests.support.managed_conversations import Calculator, Echo, assert_valid, dialogue, managed, read, read_messages

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


async def test_turns_of_one_conversation_run_in_sequence(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model) as manager:
        made = await manager.create()
        async with anyio.create_task_group() as group:
            for text in ("a", "b", "c"):
                group.start_soon(manager.chat, made.id, text)
                await model.until_asked()
                await anyio.wait_all_tasks_blocked()
            assert model.asking == ["a"]
            model.may_answer.set()
        texts = [message.text for message in (await read_messages(store, made.id))]
    assert texts == ["a", "You said: a", "b", "You said: b", "c", "You said: c"]


async def test_different_conversations_run_concurrently(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model) as manager:
        conversations = [await manager.create() for _ in range(5)]
        async with anyio.create_task_group() as group:
            for at, made in enumerate(conversations):
                group.start_soon(manager.chat, made.id, str(at))
            await model.until_asked(5)
            model.may_answer.set()
        for at, made in enumerate(conversations):
            assert await read_messages(store, made.id) == dialogue(str(at), f"You said: {at}")


async def test_a_waiting_turn_can_be_cancelled_and_stores_nothing(store: ConversationStore) -> None:
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
        assert await read_messages(store, made.id) == dialogue("a", "You said: a", "c", "You said: c")


async def test_idle_conversations_use_no_memory(store: ConversationStore) -> None:
    async with managed(store, ScriptedProvider(["Hello."], after="repeat")) as manager:
        for _ in range(3):
            await manager.chat((await manager.create()).id, "Hello.")
        gc.collect()
        assert len(manager._queue._slots) == 0


async def test_an_unknown_conversation_asks_no_model(store: ConversationStore) -> None:
    model = ScriptedProvider([])
    async with managed(store, model) as manager:
        for attempt in (manager.chat("nobody", "Hello"), manager.get("nobody"), manager.delete("nobody")):
            with pytest.raises(ConversationNotFound):
                await attempt
        with pytest.raises(ConversationNotFound):
            await read(manager.stream_chat("nobody", "Hello"))
    assert model.requests == []


async def test_deleting_a_conversation_stops_its_running_and_waiting_turns(store: ConversationStore) -> None:
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
        assert [conversation.id for conversation in await manager.list()] == [kept.id]
        assert len(model.requests) == 1


async def test_deleting_a_conversation_while_reading_its_stream_ends_the_stream(store: ConversationStore) -> None:
    async with managed(store, [{"text": "One, ", "hang": True}]) as manager:
        made = await manager.create()
        async with aclosing(manager.stream_chat(made.id, "Count!")) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    await manager.delete(made.id)
        assert isinstance(event, Finished)
        assert await manager.list() == ()


async def test_a_second_request_is_refused_with_when_busy_refuse(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model, when_busy="refuse") as manager:
        made, second = await manager.create(), await manager.create()
        async with anyio.create_task_group() as group:
            group.start_soon(manager.chat, made.id, "a")
            await model.until_asked()
            with pytest.raises(ConversationBusy, match=made.id):
                await manager.chat(made.id, "b")
            model.may_answer.set()
            await manager.chat(second.id, "c")
        await manager.chat(made.id, "d")
        assert await read_messages(store, made.id) == dialogue("a", "You said: a", "d", "You said: d")


async def test_a_waiting_request_fails_after_the_configured_time(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model, patience=0.01) as manager:
        made = await manager.create()
        async with anyio.create_task_group() as group:
            group.start_soon(manager.chat, made.id, "a")
            await model.until_asked()
            with pytest.raises(ConversationBusy):
                await manager.chat(made.id, "b")
            model.may_answer.set()
        assert await read_messages(store, made.id) == dialogue("a", "You said: a")


def test_the_option_for_busy_conversations_has_two_values() -> None:
    with pytest.raises(ConfigError, match="sometimes"):
        ConversationManager(DialClient(ScriptedProvider([])), MemoryStore(), when_busy="sometimes")  # type: ignore[arg-type]  # on purpose


async def test_a_request_waits_for_the_turn_of_another_program(store: ConversationStore) -> None:
    ours, theirs = Echo(), Echo()
    ours.may_answer.set()
    async with managed(store, ours) as manager, managed(store, theirs) as another:
        made = await manager.create()
        async with anyio.create_task_group() as group:
            group.start_soon(another.chat, made.id, "a")
            await theirs.until_asked()
            group.start_soon(manager.chat, made.id, "b")
            assert (await manager.get(made.id)).running
            theirs.may_answer.set()
        assert await read_messages(store, made.id) == dialogue("a", "You said: a", "b", "You said: b")


async def test_a_request_is_refused_during_the_turn_of_another_program(store: ConversationStore) -> None:
    theirs = Echo()
    async with managed(store, ["Hi."], when_busy="refuse") as manager, managed(store, theirs) as another:
        made = await manager.create()
        async with anyio.create_task_group() as group:
            group.start_soon(another.chat, made.id, "a")
            await theirs.until_asked()
            with pytest.raises(ConversationBusy):
                await manager.chat(made.id, "b")
            theirs.may_answer.set()
        assert (await manager.chat(made.id, "c")).text == "Hi."


async def test_a_long_turn_keeps_its_lease_on_the_conversation(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model, lease=0.05) as manager, managed(store, [], when_busy="refuse") as another:
        made = await manager.create()
        async with anyio.create_task_group() as group:
            group.start_soon(manager.chat, made.id, "a")
            await model.until_asked()
            turn, seen = (await store.get(made.id)).turn, 0
            while seen < 5:
                seen += (await store.renew(made.id, turn, 0.05)) and (await store.get(made.id)).running
            model.may_answer.set()
        assert await read_messages(store, made.id) == dialogue("a", "You said: a")
        assert await another.list() != ()


async def test_a_turn_that_lost_its_lease_stops_and_stores_nothing(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model, lease=0.3) as manager:
        made = await manager.create()
        live = await manager.start(made.id, "a")
        await model.until_asked()
        theirs = partial(store.acquire, made.id, "theirs", [Message.user("b")], expected_count=1, lease=100.0, title="")
        await store.renew(made.id, live.id, 0.0)
        while not await theirs():  # the turn may have renewed its lease in between
            await store.renew(made.id, live.id, 0.0)
        with pytest.raises(ConversationBusy, match="taken over"):
            await live.result()
        assert await read_messages(store, made.id) == dialogue("a") + dialogue("b")


async def test_deleting_by_another_program_stops_the_turn(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model, lease=0.3) as manager, managed(store, []) as another:
        made = await manager.create()
        live = await manager.start(made.id, "a")
        await model.until_asked()
        await another.delete(made.id)
        assert (await live.result()).stop_reason is StopReason.CANCELLED
        assert await store.list() == ()


async def test_a_request_that_cannot_start_does_not_block_the_conversation(store: ConversationStore) -> None:
    closed = ConversationManager(DialClient(ScriptedProvider([])), store)
    made = await closed.create()
    with pytest.raises(RuntimeError, match="not open"):
        await closed.chat(made.id, "a")
    async with managed(store, ["Hi."], when_busy="refuse") as manager:
        assert (await manager.chat(made.id, "b")).text == "Hi."


class Adder:
    """A model that adds 1 to the number of the question in each of three tool calls, and answers with the sum."""

    info = ModelInfo("adder")

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        texts = [message.text for message in request.messages if message.role in (Role.USER, Role.TOOL)]
        await checkpoint()
        if len(texts) <= 3:
            yield CallChunk(ToolCallRequest("call", "add", {"a": int(texts[-1]), "b": 1}))
        else:
            yield TextChunk(texts[-1])
        yield Completion(FinishReason.STOP)

    async def aclose(self) -> None:
        pass


async def test_many_concurrent_conversations_are_neither_lost_nor_mixed(store: ConversationStore) -> None:
    async with managed(store, Adder(), {"calculator": Calculator().server}) as manager:
        made = [(await manager.create()).id for _ in range(30)]
        async with anyio.create_task_group() as group:
            for at, conversation in enumerate(made):
                group.start_soon(manager.chat, conversation, str(100 * at))
        for at, conversation in enumerate(made):
            stored = (await manager.get(conversation)).messages
            texts = [message.text for message in stored if message.role is not Role.ASSISTANT or not message.tool_calls]
            assert texts == [str(100 * at + n) for n in (0, 1, 2, 3, 3)]
            assert_valid(stored)
