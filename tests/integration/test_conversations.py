"""ConversationManager: messages are stored even if the turn fails or its reader leaves."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from tests.inner import (
    INTERRUPTED,
    MAX_UNREAD,
    Change,
    ConversationStore,
    DialError,
    Event,
    Finished,
    ImagePart,
    MemoryStore,
    Message,
    MessageCompleted,
    ProviderError,
    Role,
    ScriptedProvider,
    SQLStore,
    StopReason,
    TextDelta,
    TextPart,
    ToolCallStarted,
    TurnHandle,
)
from tests.support.managed_conversations import (
    ADD,
    WAIT,
    Calculator,
    Echo,
    assert_valid,
    dialogue,
    managed,
    read,
    read_messages,
)
from tests.support.temporary_stores import query

pytestmark = pytest.mark.anyio
T = TypeVar("T")


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


async def test_a_chat_is_stored_and_continued(store: ConversationStore) -> None:
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


async def test_a_given_title_is_kept(store: ConversationStore) -> None:
    async with managed(store, ["Hello."]) as manager:
        made = await manager.create("Introductions")
        await manager.chat(made.id, "I am Ann.")
        assert [conversation.title for conversation in await manager.list()] == ["Introductions"]


async def test_messages_are_stored_before_their_events_are_yielded(store: ConversationStore) -> None:
    async with managed(store, [ADD, "3 and 7."], {"calculator": Calculator().server}) as manager:
        made = await manager.create()
        seen = list(dialogue("What is 1 + 2, and 3 + 4?"))
        async with aclosing(manager.stream_chat(made.id, seen[0].text)) as events:
            async for event in events:
                if isinstance(event, MessageCompleted):
                    seen.append(event.message)
                stored = await read_messages(store, made.id)
                assert stored[: len(seen)] == tuple(seen)
        assert isinstance(event, Finished)
        assert event.turn.messages == tuple(seen) == stored
    assert [message.role for message in seen] == ["user", "assistant", "tool", "tool", "assistant"]


async def test_the_users_message_is_stored_before_the_model_request(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model) as manager, anyio.create_task_group() as group:
        made = await manager.create()
        group.start_soon(manager.chat, made.id, "Hello?")
        await model.until_asked()
        assert await read_messages(store, made.id) == dialogue("Hello?")
        model.may_answer.set()


async def test_leaving_a_stream_early_keeps_the_text_so_far(store: ConversationStore) -> None:
    model = ScriptedProvider([{"text": "One, two, three", "chunk_size": 5, "hang": True}, "Four."])
    async with managed(store, model) as manager:
        made = await manager.create()
        async with aclosing(manager.stream_chat(made.id, "Count!")) as events:
            async for event in events:
                if event == TextDelta("three"):
                    break
        assert await read_messages(store, made.id) == dialogue("Count!", "One, two, three")
        await manager.chat(made.id, "Go on.")
        assert model.requests[1].messages == dialogue("Count!", "One, two, three", "Go on.")


async def test_a_cancelled_reader_keeps_the_text_so_far(store: ConversationStore) -> None:
    async with managed(store, [{"text": "One, ", "hang": True}]) as manager:
        made = await manager.create()
        with anyio.CancelScope() as scope:
            async with aclosing(manager.stream_chat(made.id, "Count!")) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        scope.cancel()
        assert scope.cancelled_caught
        assert await read_messages(store, made.id) == dialogue("Count!", "One, ")


async def test_a_cancelled_chat_keeps_the_text_so_far(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model) as manager:
        made = await manager.create()
        async with anyio.create_task_group() as group:
            group.start_soon(manager.chat, made.id, "Hello?")
            await model.until_asked()
            group.cancel_scope.cancel()
        assert await read_messages(store, made.id) == dialogue("Hello?", "You said: ")


class Yielding(MemoryStore):
    """A store that yields to other tasks before and after each change."""

    async def _change(self, conversation_id: str, change: Change[T]) -> T:
        await checkpoint()
        result = await super()._change(conversation_id, change)
        await checkpoint()
        return result


class Cancelling(Yielding):
    """A store that cancels its caller after it has begun a turn."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        super().__init__()
        self.scope = scope

    async def acquire(self, *arguments: Any, **options: Any) -> bool:
        try:
            return await super().acquire(*arguments, **options)
        finally:
            self.scope.cancel()
            await checkpoint()


async def test_a_request_that_is_cancelled_while_it_is_stored_releases_its_conversation(anyio_backend: str) -> None:
    scope = anyio.CancelScope()
    store = Cancelling(scope)
    async with managed(store, ["Here."], when_busy="refuse") as manager:
        made = await manager.create()
        with scope:
            await manager.chat(made.id, "Hello?")
        assert not (await manager.get(made.id)).running
        store.scope = anyio.CancelScope()
        assert (await manager.chat(made.id, "Are you there?")).text == "Here."
        assert await read_messages(store, made.id) == (Message.user("Hello?"), *dialogue("Are you there?", "Here."))


async def test_messages_are_stored_once_if_the_reader_is_cancelled_meanwhile(anyio_backend: str) -> None:
    store = Yielding()
    async with managed(store, [ADD, "3 and 7."], {"calculator": Calculator().server}) as manager:
        made = await manager.create()
        with anyio.CancelScope() as scope:
            async with aclosing(manager.stream_chat(made.id, "Add!")) as events:
                async for event in events:
                    if isinstance(event, MessageCompleted):
                        scope.cancel()
        assert scope.cancelled_caught
        stored = await read_messages(store, made.id)
        assert [message.role for message in stored] == ["user", "assistant", "tool", "tool"]
        assert_valid(stored)


async def test_a_turn_can_be_stopped_from_outside_and_read_to_its_end(store: ConversationStore) -> None:
    calculator = Calculator()
    turns: list[TurnHandle] = []
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
        stored = await read_messages(store, made.id)
        assert stored == event.turn.messages
        assert [message.role for message in stored] == ["user", "assistant", "tool"]
        assert stored[2].is_error
        assert (await manager.chat(made.id, "Forget it.")).text == "Never mind."


async def test_no_text_is_lost_if_the_reader_is_slow_and_the_turn_is_stopped(store: ConversationStore) -> None:
    turns: list[TurnHandle] = []
    async with managed(store, [{"text": "x" * 3 * MAX_UNREAD, "chunk_size": 1}]) as manager:
        made = await manager.create()
        async with aclosing(manager.stream_chat(made.id, "Talk!", on_started=turns.append)) as events:
            await anext(events)
            await anyio.wait_all_tasks_blocked()
            turns[0].cancel()
            await anyio.wait_all_tasks_blocked()
            rest = [event async for event in events]
        assert isinstance(rest[-1], Finished)
        messages = rest[-1].turn.messages
        assert len(messages) == 2
        assert len(messages[1].text) > MAX_UNREAD // 2
        assert await read_messages(store, made.id) == messages


async def test_a_model_failure_keeps_the_text_so_far(store: ConversationStore) -> None:
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


@pytest.mark.parametrize("kept", [("asyncio", "memory")], ids=["asyncio"], indirect=True)
async def test_a_store_failure_stops_the_turn(tmp_path: Path) -> None:
    file = tmp_path / "talk.db"
    store = SQLStore.sqlite(file)
    async with managed(store, [ADD, "7", "Fine again."], {"calculator": Calculator().server}) as manager:
        made = await manager.create()
        with pytest.raises(DialError, match="no such table: messages"):
            async with aclosing(manager.stream_chat(made.id, "Add!")) as events:
                async for event in events:
                    if isinstance(event, MessageCompleted):
                        query(file, "ALTER TABLE messages RENAME TO away")
        query(file, "ALTER TABLE away RENAME TO messages")
        stored = (await manager.get(made.id)).messages
        assert [message.role for message in stored] == ["user", "assistant", "tool", "tool"]
        assert [message.text for message in stored[2:]] == [INTERRUPTED, INTERRUPTED]
        assert (await manager.chat(made.id, "And now?")).text == "7"
    await store.aclose()


async def test_a_message_may_contain_images(store: ConversationStore) -> None:
    message = Message(Role.USER, (TextPart("What is this?"), ImagePart("aGk=", "image/png")))
    async with managed(store, ["A picture."]) as manager:
        made = await manager.create()
        await manager.chat(made.id, message)
        read_back = await manager.get(made.id)
    assert read_back.messages == (message, Message.assistant("A picture."))
    assert read_back.title == "What is this?"


async def test_a_title_has_the_name_of_an_attached_file_without_its_folders(store: ConversationStore) -> None:
    async with managed(store, ["A cat."]) as manager:
        made = await manager.create()
        await manager.chat(made.id, "@/home/ann/.cache/images/clipboard-1.png What is this? See @notes/a.md")
        assert (await manager.get(made.id)).title == "@clipboard-1.png What is this? See @notes/a.md"
