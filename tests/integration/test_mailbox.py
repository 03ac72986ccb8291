"""The board of a database: what every database has to do with notes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from dial_client.stores import mailbox
from dial_client.stores.mailbox import Envelope, Mailbox
from dial_client.stores.sql_store import SQLStore
from tests.support.temporary_stores import DATABASES, place

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("kept", DATABASES, indirect=True)]

LONG, OVER = 1000.0, -1.0
"""Seconds: time enough, and time that is over."""


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


@pytest.fixture
async def boards(kept: tuple[str, str], tmp_path: Path) -> AsyncIterator[tuple[Mailbox, Mailbox]]:
    """The same board, as two programs have it."""
    async with place(kept[1], tmp_path) as where:
        stores = SQLStore(where), SQLStore(where)
        yield stores[0].mailbox, stores[1].mailbox
        for store in stores:
            await store.aclose()


async def test_messages_of_a_store_are_read_by_its_peer_by_topic_and_in_order(boards: tuple[Mailbox, Mailbox]) -> None:
    ours, theirs = boards
    first, second, third = await ours.send([("a", "1"), ("b", "2"), ("a", "3")], LONG)
    assert first < second < third
    assert await theirs.read({"a": 0}) == (Envelope(first, "a", "1"), Envelope(third, "a", "3"))
    assert await theirs.read({"b": 0, "a": first, "c": 0}) == (Envelope(second, "b", "2"), Envelope(third, "a", "3"))
    assert await theirs.read({"c": 0, "a": third}) == await theirs.read({}) == ()
    assert await ours.send([], LONG) == ()
    assert len(await theirs.read({f"{n}" if n else "b": 0 for n in range(500)})) == 1


async def test_a_note_whose_time_is_over_is_as_good_as_gone(boards: tuple[Mailbox, Mailbox]) -> None:
    ours, theirs = boards
    over, there = *await ours.send([("a", "1")], OVER), *await ours.send([("a", "2")], LONG)
    assert [note.id for note in await theirs.read({"a": 0})] == [there]
    assert not await theirs.take(over)
    assert not await theirs.swap(over, "b", "3", LONG)
    assert await theirs.read({"b": 0}) == ()


async def test_renewing_gives_a_note_its_time_from_now(boards: tuple[Mailbox, Mailbox]) -> None:
    ours, theirs = boards
    ids = await ours.send([("a", "1"), ("a", "2"), ("a", "3")], LONG)
    await ours.take(ids[1])
    await ours.renew(ids, LONG)
    assert [note.id for note in await theirs.read({"a": 0})] == [ids[0], ids[2]]
    await ours.renew(ids[:1], OVER)
    assert [note.id for note in await theirs.read({"a": 0})] == [ids[2]]
    await ours.renew([], LONG)


async def test_of_concurrent_deletions_of_a_message_exactly_one_succeeds(boards: tuple[Mailbox, Mailbox]) -> None:
    ids = await boards[0].send([("a", str(n)) for n in range(5)], LONG)
    had: list[int] = []

    async def take(board: Mailbox) -> None:
        had.extend(await board.take(*reversed(ids), 0))

    async with anyio.create_task_group() as group:
        for turn in range(6):
            group.start_soon(take, boards[turn % 2])
    assert sorted(had) == sorted(ids)
    assert await boards[1].read({"a": 0}) == ()


async def test_of_concurrent_replacements_of_a_message_exactly_one_succeeds(boards: tuple[Mailbox, Mailbox]) -> None:
    (note,) = await boards[0].send([("a", "?")], LONG)
    swapped: list[str] = []

    async def swap(board: Mailbox, body: str) -> None:
        if await board.swap(note, "b", body, LONG):
            swapped.append(body)

    async with anyio.create_task_group() as group:
        for turn in range(6):
            group.start_soon(swap, boards[turn % 2], str(turn))
    assert [found.body for found in await boards[1].read({"a": 0, "b": 0})] == swapped
    assert len(swapped) == 1


async def test_an_id_is_never_given_twice(boards: tuple[Mailbox, Mailbox]) -> None:
    (first,) = await boards[0].send([("a", "1")], LONG)
    await boards[1].take(first)
    (second,) = await boards[1].send([("a", "2")], LONG)
    assert second > first


async def test_expired_messages_are_deleted_with_a_later_pin(
    boards: tuple[Mailbox, Mailbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = boards
    over = await ours.send([("a", "1")], OVER)
    (there,) = await ours.send([("a", "2")], LONG)
    monkeypatch.setattr(mailbox, "CLEARED", 0.0)
    await theirs.send([("b", "3")], LONG)
    await theirs.renew([*over, there], LONG)
    assert [note.id for note in await ours.read({"a": 0})] == [there]
