"""The values that programs with one database share: names, expiry, renewal and atomic deletion, on every database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.inner import SharedValues, SQLStore, shared_values
from tests.support.temporary_stores import DATABASES, place

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("kept", DATABASES, indirect=True)]

LONG, EXPIRED = 1000.0, -1.0
"""Lifetimes in seconds: long enough for a test, and already expired."""


@pytest.fixture
def anyio_backend(kept: tuple[str, str]) -> str:
    return kept[0]


@pytest.fixture
async def both(kept: tuple[str, str], tmp_path: Path) -> AsyncIterator[tuple[SharedValues, SharedValues]]:
    """The same values through the stores of two programs."""
    async with place(kept[1], tmp_path) as where:
        stores = SQLStore(where), SQLStore(where)
        yield stores[0].values, stores[1].values
        for store in stores:
            await store.aclose()


async def test_values_are_read_by_another_program_by_topic_and_name(both: tuple[SharedValues, SharedValues]) -> None:
    ours, theirs = both
    for topic, name, value in (("a", "2", "two"), ("a", "1", "one"), ("b", "1", "other"), ("a", "2", "second")):
        await ours.put(topic, name, value, LONG)
    assert list((await theirs.read("a")).items()) == [("1", "one"), ("2", "second")]
    assert await theirs.read("a", ["2", "3"]) == {"2": "second"}
    assert await theirs.read("b", []) == await theirs.read("c") == {}


async def test_an_expired_value_is_neither_read_nor_replaced(both: tuple[SharedValues, SharedValues]) -> None:
    ours, theirs = both
    await ours.put("a", "over", "1", EXPIRED)
    await ours.put("a", "there", "2", LONG)
    assert await theirs.read("a") == {"there": "2"}
    assert not await theirs.take("a", "over")
    assert not await theirs.replace("a", "over", "b", "3", LONG)
    assert await theirs.read("b") == {}


async def test_renewing_extends_the_lifetime_of_a_value(both: tuple[SharedValues, SharedValues]) -> None:
    ours, theirs = both
    for name in ("1", "2", "3"):
        await ours.put("a", name, name, LONG)
    await ours.take("a", "2")
    await ours.renew([("a", name) for name in ("1", "2", "3")], LONG)
    assert list(await theirs.read("a")) == ["1", "3"]
    await ours.renew([("a", "1")], EXPIRED)
    assert list(await theirs.read("a")) == ["3"]
    await ours.renew([], LONG)


async def test_exactly_one_of_concurrent_deletions_of_a_value_succeeds(both: tuple[SharedValues, SharedValues]) -> None:
    names = [str(number) for number in range(5)]
    for name in names:
        await both[0].put("a", name, name, LONG)
    taken: list[str] = []

    async def take(values: SharedValues) -> None:
        taken.extend([name for name in (*names, "none") if await values.take("a", name)])

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(take, both[number % 2])
    assert sorted(taken) == names
    assert await both[1].read("a") == {}


async def test_exactly_one_of_concurrent_replacements_of_a_value_succeeds(
    both: tuple[SharedValues, SharedValues],
) -> None:
    await both[0].put("a", "it", "?", LONG)
    replaced: list[str] = []

    async def replace(values: SharedValues, value: str) -> None:
        if await values.replace("a", "it", "b", value, LONG):
            replaced.append(value)

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(replace, both[number % 2], str(number))
    assert len(replaced) == 1
    assert (await both[1].read("a"), await both[1].read("b")) == ({}, {"it": replaced[0]})


async def test_expired_values_are_deleted_when_a_later_value_is_stored(
    both: tuple[SharedValues, SharedValues], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = both
    await ours.put("a", "over", "1", EXPIRED)
    monkeypatch.setattr(shared_values, "CLEARING_INTERVAL", 0.0)
    await theirs.put("b", "there", "2", LONG)
    await theirs.put("b", "there", "3", LONG)
    await theirs.renew([("a", "over"), ("b", "there")], LONG)
    assert (await ours.read("a"), await ours.read("b")) == ({}, {"there": "3"})
