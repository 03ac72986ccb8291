"""The lock that is light as long as no task waits for it."""

from __future__ import annotations

import anyio
import pytest

from tests.inner import LightLock

pytestmark = pytest.mark.anyio


async def test_tasks_get_the_lock_in_the_order_in_which_they_ask() -> None:
    lock, order = LightLock(), list[int]()

    async def take(number: int) -> None:
        async with lock:
            order.append(number)

    async with anyio.create_task_group() as group:
        await lock.acquire()
        for number in range(4):
            group.start_soon(take, number)
            await anyio.wait_all_tasks_blocked()
        lock.release()
        # One that comes now asks last.
        group.start_soon(take, 4)
    assert order == [0, 1, 2, 3, 4]


async def test_a_free_lock_is_taken_in_a_cancelled_scope() -> None:
    lock = LightLock()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await lock.acquire()
    assert not scope.cancelled_caught
    with anyio.move_on_after(0) as waiting:
        await lock.acquire()
    assert waiting.cancelled_caught


async def test_a_task_that_is_cancelled_when_it_gets_the_lock_hands_it_on() -> None:
    lock, order = LightLock(), list[str]()
    patience = anyio.CancelScope()

    async def give_up() -> None:
        with patience:
            await lock.acquire()
            order.append("cancelled")
            lock.release()

    async def wait() -> None:
        async with lock:
            order.append("waited")

    async with anyio.create_task_group() as group:
        await lock.acquire()
        group.start_soon(give_up)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        lock.release()
        patience.cancel()
        await anyio.wait_all_tasks_blocked()
        async with lock:
            order.append("again")
    assert order[-2:] == ["waited", "again"]
