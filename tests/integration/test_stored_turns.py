"""Leases of turns on their conversations, in every kind of store."""

from __future__ import annotations

import anyio
import pytest

from tests.inner import ConversationBusy, ConversationNotFound, ConversationStore, Message
from tests.support.temporary_stores import MESSAGES

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


ASKED, CALLS, RESULT, SAID = MESSAGES
LONG = 1000.0


async def begin(
    store: ConversationStore, conversation_id: str, turn: str, behind: int = 0, seconds: float = LONG
) -> bool:
    return await store.acquire(conversation_id, turn, [ASKED], expected_count=behind, lease=seconds, title=ASKED.text)


async def test_a_turn_begins_with_its_question_and_ends_with_its_answer(store: ConversationStore) -> None:
    made = await store.create()
    assert await begin(store, made.id, "one")
    held = await store.get(made.id)
    assert (held.messages, held.running, held.turn, held.title) == ((ASKED,), True, "one", "What time is it?")
    assert [conversation.running for conversation in await store.list()] == [True]
    await store.append(made.id, [CALLS], turn="one")
    await store.append(made.id, [RESULT], turn="one")
    await store.release(made.id, "one", [SAID])
    over = await store.get(made.id)
    assert (over.messages, over.running, over.turn, over.message_count) == (MESSAGES, False, "", 4)
    assert [conversation.running for conversation in await store.list()] == [False]


async def test_only_one_turn_has_the_lease_of_a_conversation(store: ConversationStore) -> None:
    made, second = await store.create(), await store.create()
    assert await begin(store, made.id, "one")
    assert not await begin(store, made.id, "two", behind=1)
    assert await begin(store, second.id, "two")
    assert (await store.get(made.id)).messages == (ASKED,)
    await store.release(made.id, "one")
    assert await begin(store, made.id, "two", behind=1)


async def test_one_of_many_concurrent_turns_begins(store: ConversationStore) -> None:
    made = await store.create()
    begun: list[str] = []

    async def attempt(turn: str) -> None:
        if await begin(store, made.id, turn):
            begun.append(turn)

    async with anyio.create_task_group() as group:
        for n in range(10):
            group.start_soon(attempt, str(n))
    assert len(begun) == 1
    held = await store.get(made.id)
    assert (held.turn, held.messages) == (begun[0], (ASKED,))


async def test_a_turn_begins_only_with_the_current_number_of_messages(store: ConversationStore) -> None:
    made = await store.create()
    await store.append(made.id, [SAID])
    assert not await begin(store, made.id, "one", behind=0)
    assert await begin(store, made.id, "one", behind=1)


async def test_unfinished_messages_are_kept_until_they_are_appended(store: ConversationStore) -> None:
    made = await store.create()
    await begin(store, made.id, "one")
    assert await store.renew(made.id, "one", LONG, [RESULT, Message.assistant("It is")])
    assert (await store.get(made.id)).unfinished == (RESULT, Message.assistant("It is"))
    assert await store.renew(made.id, "one", LONG)
    assert (await store.get(made.id)).unfinished == (RESULT, Message.assistant("It is"))
    await store.append(made.id, [SAID], turn="one")
    assert (await store.get(made.id)).unfinished == ()


async def test_unfinished_messages_of_an_expired_turn_are_kept_until_the_next_turn(store: ConversationStore) -> None:
    made = await store.create()
    await begin(store, made.id, "one")
    await store.renew(made.id, "one", 0.0, [SAID])
    dead = await store.get(made.id)
    assert (dead.running, dead.turn, dead.unfinished) == (False, "one", (SAID,))
    await store.append(made.id, [RESULT])
    assert (await store.get(made.id)).unfinished == (SAID,)
    assert await begin(store, made.id, "two", behind=2)
    held = await store.get(made.id)
    assert (held.running, held.turn, held.unfinished) == (True, "two", ())


async def test_a_turn_with_an_expired_lease_loses_its_conversation_to_the_next_turn(store: ConversationStore) -> None:
    made = await store.create()
    await begin(store, made.id, "one", seconds=0.0)
    assert await begin(store, made.id, "two", behind=1)
    assert not await store.renew(made.id, "one", LONG, [SAID])
    for attempt in (store.append(made.id, [SAID], turn="one"), store.release(made.id, "one", [SAID])):
        with pytest.raises(ConversationBusy, match="taken over"):
            await attempt
    held = await store.get(made.id)
    assert (held.turn, held.messages, held.unfinished) == ("two", (ASKED, ASKED), ())


async def test_a_turn_can_renew_an_expired_lease_if_no_other_turn_began(store: ConversationStore) -> None:
    made = await store.create()
    await begin(store, made.id, "one", seconds=0.0)
    assert await store.renew(made.id, "one", LONG)
    assert not await begin(store, made.id, "two", behind=1)
    await store.release(made.id, "one", [SAID])
    assert (await store.get(made.id)).messages == (ASKED, SAID)


async def test_a_deleted_conversation_has_no_lease(store: ConversationStore) -> None:
    made = await store.create()
    await begin(store, made.id, "one")
    await store.delete(made.id)
    assert not await store.renew(made.id, "one", LONG, [SAID])
    await store.release(made.id, "one", [SAID])
    for attempt in (begin(store, made.id, "two"), store.append(made.id, [SAID], turn="one")):
        with pytest.raises(ConversationNotFound):
            await attempt
    assert await store.list() == ()
