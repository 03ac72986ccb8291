"""Running turns: they need no reader, and several readers can follow them."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest

from tests.inner import (
    MAX_ENDED,
    ConversationStore,
    Event,
    Finished,
    ProviderError,
    RoundStarted,
    ScriptedProvider,
    StopReason,
    TextDelta,
    ToolCallFinished,
    TurnHandle,
)
from tests.support.managed_conversations import ADD, Calculator, Echo, dialogue, managed, read_messages

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


async def read(live: TurnHandle, after: int = 0) -> list[tuple[int, Event]]:
    return [numbered async for numbered in live.log.events(after)]


async def test_a_turn_runs_without_a_reader(store: ConversationStore) -> None:
    async with managed(store, [ADD, "3 and 7."], {"calculator": Calculator().server}) as manager:
        made = await manager.create()
        live = await manager.start(made.id, "Add!")
        turn = await live.result()
        assert await read_messages(store, made.id) == turn.messages
        events = await read(live)
    assert [position for position, _ in events] == list(range(1, live.log.last + 1))
    assert events[0][1] == RoundStarted(0)
    assert events[-1][1] == Finished(turn)
    assert sum(isinstance(event, ToolCallFinished) for _, event in events) == 2


async def test_each_reader_can_leave_and_resume_at_its_position(store: ConversationStore) -> None:
    model = Echo()
    async with managed(store, model) as manager:
        made = await manager.create()
        live = await manager.start(made.id, "Hello?")
        seen: list[tuple[int, Event]] = []
        async with aclosing(live.log.events()) as events:
            async for position, event in events:
                seen.append((position, event))
                if isinstance(event, TextDelta):
                    break
        assert manager.find_turn(made.id) is live
        assert not live.has_ended
        late: list[tuple[int, Event]] = []

        async def come_back() -> None:
            late.extend(await read(live, seen[-1][0]))

        async with anyio.create_task_group() as group:
            group.start_soon(come_back)
            await anyio.wait_all_tasks_blocked()
            model.may_answer.set()
        assert [*seen, *late] == await read(live)
        assert isinstance(late[-1][1], Finished)
        assert await read(live, live.log.last) == []


async def test_the_latest_ended_turn_of_a_conversation_can_be_read(store: ConversationStore) -> None:
    async with managed(store, ScriptedProvider(["Hi."], after="repeat")) as manager:
        made = await manager.create()
        assert manager.find_turn(made.id) is None
        first = await manager.start(made.id, "a")
        await first.result()
        assert manager.find_turn(made.id) is first
        await manager.chat(made.id, "b")
        latest = manager.find_turn(made.id)
        assert latest is not None
        assert latest.id != first.id
        assert manager.find_turn(made.id, first.id) is None
        assert manager.find_turn(made.id, latest.id) is latest
        await manager.delete(made.id)
        assert manager.find_turn(made.id) is None


async def test_the_number_of_ended_turns_in_memory_is_limited(store: ConversationStore) -> None:
    async with managed(store, ScriptedProvider(["Hi."], after="repeat")) as manager:
        made = [(await manager.create()).id for _ in range(MAX_ENDED + 2)]
        for conversation in made:
            await manager.chat(conversation, "a")
        assert [conversation for conversation in made if manager.find_turn(conversation) is None] == made[:2]


async def test_a_turn_can_be_stopped_by_another_holder_of_its_handle(store: ConversationStore) -> None:
    async with managed(store, [{"text": "One, ", "hang": True}]) as manager:
        made = await manager.create()
        live = await manager.start(made.id, "Count!")
        async for _, event in live.log.events():
            if isinstance(event, TextDelta):
                live.cancel()
        assert isinstance(event, Finished)
        assert event.turn.stop_reason is StopReason.CANCELLED
        assert await read_messages(store, made.id) == dialogue("Count!", "One, ")


async def test_every_reader_gets_the_error_after_the_last_event(store: ConversationStore) -> None:
    async with managed(store, [{"text": "One, ", "error": {"message": "overloaded"}}]) as manager:
        made = await manager.create()
        live = await manager.start(made.id, "Count!")
        for _ in range(2):
            seen: list[Event] = []
            with pytest.raises(ProviderError, match="overloaded"):
                async for _, event in live.log.events():
                    seen.append(event)
            assert TextDelta("One, ") in seen
        assert await read_messages(store, made.id) == dialogue("Count!", "One, ")


async def test_closing_a_client_stores_the_text_of_its_running_turns(store: ConversationStore) -> None:
    async with managed(store, [{"text": "One, ", "hang": True}]) as manager:
        made = await manager.create()
        live = await manager.start(made.id, "Count!")
        async with aclosing(live.log.events()) as events:
            async for _, event in events:
                if isinstance(event, TextDelta):
                    break
    assert await read_messages(store, made.id) == dialogue("Count!", "One, ")
    assert not (await store.get(made.id)).running
