"""Tasks that outlast the call that started them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import types

import anyio
import anyio.lowlevel
import pytest

from dial_client.runtime.background_tasks import BackgroundTasks

pytestmark = pytest.mark.anyio
NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


async def test_a_nursery_is_opened_in_one_task_and_closed_in_another() -> None:
    box: list[BackgroundTasks] = []
    ran = anyio.Event()

    async def opens() -> None:
        box.append(await BackgroundTasks.open())

    async def closes() -> None:
        await box[0].aclose()

    async def child() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ran.set()

    for step in (opens, closes):
        async with anyio.create_task_group() as group:
            group.start_soon(step)
        if step is opens:
            box[0].start_soon(child)
            await anyio.wait_all_tasks_blocked()
    assert ran.is_set()


async def test_the_opening_task_keeps_no_cancel_scope() -> None:
    with anyio.CancelScope() as scope:
        nursery = await BackgroundTasks.open()
        done = anyio.Event()
        nursery.start_soon(_set_soon, done)
        scope.cancel()
    await done.wait()
    await nursery.aclose()


async def _set_soon(event: anyio.Event) -> None:
    await anyio.lowlevel.checkpoint()
    event.set()


async def test_a_child_has_the_context_of_the_starting_task() -> None:
    nursery = await BackgroundTasks.open()
    seen: list[str] = []
    done = anyio.Event()

    async def child() -> None:
        seen.append(NAME.get())
        done.set()

    NAME.set("caller")
    nursery.start_soon(child)
    await done.wait()
    await nursery.aclose()
    assert seen == ["caller"]


async def test_a_child_that_raises_is_logged_and_leaves_its_siblings_running(caplog: pytest.LogCaptureFixture) -> None:
    nursery = await BackgroundTasks.open()
    done = anyio.Event()

    async def breaks() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.WARNING, logger="dial_client"):
        nursery.start_soon(breaks)
        await anyio.wait_all_tasks_blocked()
        nursery.start_soon(_set_soon, done)
        await done.wait()
    await nursery.aclose()
    assert "ValueError: broken" in caplog.text


async def test_closing_waits_for_shielded_ends_even_when_the_closer_is_cancelled() -> None:
    nursery = await BackgroundTasks.open()
    began, ended = anyio.Event(), anyio.Event()

    async def child() -> None:
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                ended.set()

    nursery.start_soon(child)
    await began.wait()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await nursery.aclose()
    assert ended.is_set()


async def test_a_child_that_breaks_while_it_is_cancelled_is_contained() -> None:
    nursery = await BackgroundTasks.open()

    async def breaks() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("broken")

    async def child() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(breaks)
            await anyio.sleep_forever()

    nursery.start_soon(child)
    await anyio.wait_all_tasks_blocked()
    await nursery.aclose()
    with pytest.raises(RuntimeError):
        nursery.start_soon(child)


async def test_closing_twice_is_fine_and_nothing_starts_afterwards() -> None:
    nursery = await BackgroundTasks.open()
    await nursery.aclose()
    await nursery.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        nursery.start_soon(_set_soon, anyio.Event())


def test_a_half_imported_trio_does_not_matter_to_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another thread may be in the middle of importing it: an HTTP library does so when it finds it installed.
    monkeypatch.setitem(sys.modules, "trio", types.ModuleType("trio"))

    async def main() -> None:
        nursery = await BackgroundTasks.open()
        await nursery.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)  # no other has tasks that are cancelled like this
async def test_tasks_whose_opening_is_cancelled_end() -> None:
    before = asyncio.all_tasks()
    opening = asyncio.create_task(BackgroundTasks.open())
    await anyio.lowlevel.checkpoint()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    with anyio.fail_after(60):
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)
