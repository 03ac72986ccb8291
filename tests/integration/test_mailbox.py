"""The mailbox of a database: messages by topic, expiry, renewal and atomic deletion, on every database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.inner import Envelope, Mailbox, SQLStore, mailbox
from tests.support.temporary_stores import DATABASES, place

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("kept", DATABASES, indirect=True)]

LONG, EXPIRED = 1000.0, -1.0
"""Lifetimes in seconds: long enough for a test, and already expired."""


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


@pytest.fixture
async def mailboxes(kept: tuple[str, str], tmp_path: Path) -> AsyncIterator[tuple[Mailbox, Mailbox]]:
    """The same mailbox through the stores of two programs."""
    async with place(kept[1], tmp_path) as where:
        stores = SQLStore(where), SQLStore(where)
        yield stores[0].mailbox, stores[1].mailbox
        for store in stores:
            await store.aclose()


async def test_messages_are_read_by_another_program_by_topic_and_in_order(mailboxes: tuple[Mailbox, Mailbox]) -> None:
    ours, theirs = mailboxes
    first, second, third = await ours.send([("a", "1"), ("b", "2"), ("a", "3")], LONG)
    assert first < second < third
    assert await theirs.read({"a": 0}) == (Envelope(first, "a", "1"), Envelope(third, "a", "3"))
    assert await theirs.read({"b": 0, "a": first, "c": 0}) == (Envelope(second, "b", "2"), Envelope(third, "a", "3"))
    assert await theirs.read({"c": 0, "a": third}) == await theirs.read({}) == ()
    assert await ours.send([], LONG) == ()
    assert len(await theirs.read({f"{n}" if n else "b": 0 for n in range(500)})) == 1


async def test_an_expired_message_is_neither_read_nor_replaced(mailboxes: tuple[Mailbox, Mailbox]) -> None:
    ours, theirs = mailboxes
    over, there = *await ours.send([("a", "1")], EXPIRED), *await ours.send([("a", "2")], LONG)
    assert [note.id for note in await theirs.read({"a": 0})] == [there]
    assert not await theirs.take(over)
    assert not await theirs.swap(over, "b", "3", LONG)
    assert await theirs.read({"b": 0}) == ()


async def test_renewing_extends_the_lifetime_of_a_message(mailboxes: tuple[Mailbox, Mailbox]) -> None:
    ours, theirs = mailboxes
    ids = await ours.send([("a", "1"), ("a", "2"), ("a", "3")], LONG)
    await ours.take(ids[1])
    await ours.renew(ids, LONG)
    assert [note.id for note in await theirs.read({"a": 0})] == [ids[0], ids[2]]
    await ours.renew(ids[:1], EXPIRED)
    assert [note.id for note in await theirs.read({"a": 0})] == [ids[2]]
    await ours.renew([], LONG)


async def test_exactly_one_of_concurrent_deletions_of_a_message_succeeds(mailboxes: tuple[Mailbox, Mailbox]) -> None:
    ids = await mailboxes[0].send([("a", str(n)) for n in range(5)], LONG)
    had: list[int] = []

    async def take(target: Mailbox) -> None:
        had.extend(await target.take(*reversed(ids), 0))

    async with anyio.create_task_group() as group:
        for turn in range(6):
            group.start_soon(take, mailboxes[turn % 2])
    assert sorted(had) == sorted(ids)
    assert await mailboxes[1].read({"a": 0}) == ()


async def test_exactly_one_of_concurrent_replacements_of_a_message_succeeds(mailboxes: tuple[Mailbox, Mailbox]) -> None:
    (note,) = await mailboxes[0].send([("a", "?")], LONG)
    swapped: list[str] = []

    async def swap(target: Mailbox, body: str) -> None:
        if await target.swap(note, "b", body, LONG):
            swapped.append(body)

    async with anyio.create_task_group() as group:
        for turn in range(6):
            group.start_soon(swap, mailboxes[turn % 2], str(turn))
    assert [found.body for found in await mailboxes[1].read({"a": 0, "b": 0})] == swapped
    assert len(swapped) == 1


async def test_an_id_is_never_reused(mailboxes: tuple[Mailbox, Mailbox]) -> None:
    (first,) = await mailboxes[0].send([("a", "1")], LONG)
    await mailboxes[1].take(first)
    (second,) = await mailboxes[1].send([("a", "2")], LONG)
    assert second > first


async def test_expired_messages_are_deleted_when_a_later_message_is_sent(
    mailboxes: tuple[Mailbox, Mailbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = mailboxes
    over = await ours.send([("a", "1")], EXPIRED)
    (there,) = await ours.send([("a", "2")], LONG)
    monkeypatch.setattr(mailbox, "CLEARING_INTERVAL", 0.0)
    await theirs.send([("b", "3")], LONG)
    await theirs.renew([*over, there], LONG)
    assert [note.id for note in await ours.read({"a": 0})] == [there]
