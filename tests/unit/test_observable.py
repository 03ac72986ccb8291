"""A value that tasks wait for."""

from __future__ import annotations

import anyio
import pytest

from tests.inner import Observable

pytestmark = pytest.mark.anyio


async def test_a_value_that_fulfils_the_predicate_is_returned_at_once() -> None:
    assert await Observable(3).wait_until(lambda value: value == 3) == 3


async def test_a_wait_ends_after_its_seconds_with_the_value_as_it_is() -> None:
    assert await Observable(3).wait_until(lambda value: value == 4, seconds=0) == 3


async def test_every_waiting_task_sees_the_value_it_waits_for() -> None:
    count, seen = Observable(0), list[int]()

    async def wait(least: int) -> None:
        seen.append(await count.wait_until(lambda value: value >= least))

    async with anyio.create_task_group() as group:
        for least in (1, 2, 2):
            group.start_soon(wait, least)
        await anyio.wait_all_tasks_blocked()
        count.set(1)
        await anyio.wait_all_tasks_blocked()
        assert seen == [1]
        count.set(2)
    assert seen == [1, 2, 2]


async def test_a_predicate_is_evaluated_again_when_an_equal_value_is_set() -> None:
    value, is_right = Observable("same"), False
    async with anyio.create_task_group() as group:
        group.start_soon(value.wait_until, lambda _: is_right)
        await anyio.wait_all_tasks_blocked()
        is_right = True
        value.set("same")
