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

from tests.inner import BackgroundTasks

pytestmark = pytest.mark.anyio
NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


async def test_background_tasks_are_opened_in_one_task_and_closed_in_another_task() -> None:
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


async def test_cancelling_the_task_that_opened_does_not_cancel_background_tasks() -> None:
    with anyio.CancelScope() as scope:
        tasks = await BackgroundTasks.open()
        done = anyio.Event()
        tasks.start_soon(_set_soon, done)
        scope.cancel()
    await done.wait()
    await tasks.aclose()


async def _set_soon(event: anyio.Event) -> None:
    await anyio.lowlevel.checkpoint()
    event.set()


async def test_a_child_has_the_context_variables_of_the_task_that_started_the_child() -> None:
    tasks = await BackgroundTasks.open()
    seen: list[str] = []
    done = anyio.Event()

    async def child() -> None:
        seen.append(NAME.get())
        done.set()

    NAME.set("caller")
    tasks.start_soon(child)
    await done.wait()
    await tasks.aclose()
    assert seen == ["caller"]


async def test_a_child_that_raises_is_logged_and_leaves_its_siblings_running(caplog: pytest.LogCaptureFixture) -> None:
    tasks = await BackgroundTasks.open()
    done = anyio.Event()

    async def breaks() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.WARNING, logger="dial_client"):
        tasks.start_soon(breaks)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(_set_soon, done)
        await done.wait()
    await tasks.aclose()
    assert "ValueError: broken" in caplog.text


async def test_closing_waits_for_shielded_cleanup_even_if_the_closing_task_is_cancelled() -> None:
    tasks = await BackgroundTasks.open()
    began, ended = anyio.Event(), anyio.Event()

    async def child() -> None:
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                ended.set()

    tasks.start_soon(child)
    await began.wait()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await tasks.aclose()
    assert ended.is_set()


async def test_an_exception_during_the_cancellation_of_a_child_is_contained() -> None:
    tasks = await BackgroundTasks.open()

    async def breaks() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("broken")

    async def child() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(breaks)
            await anyio.sleep_forever()

    tasks.start_soon(child)
    await anyio.wait_all_tasks_blocked()
    await tasks.aclose()
    with pytest.raises(RuntimeError):
        tasks.start_soon(child)


async def test_closing_twice_is_allowed_and_no_task_starts_afterwards() -> None:
    tasks = await BackgroundTasks.open()
    await tasks.aclose()
    await tasks.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        tasks.start_soon(_set_soon, anyio.Event())


def test_a_partially_imported_trio_does_not_affect_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another thread may be importing trio: an HTTP library imports it if it is installed.
    monkeypatch.setitem(sys.modules, "trio", types.ModuleType("trio"))

    async def main() -> None:
        tasks = await BackgroundTasks.open()
        await tasks.aclose()

    asyncio.run(main())


async def test_closing_with_time_lets_tasks_end_and_cancels_those_that_do_not() -> None:
    ended: list[str] = []

    async def send() -> None:
        await anyio.lowlevel.checkpoint()
        ended.append("sent")

    tasks = await BackgroundTasks.open()
    tasks.start_soon(send)
    await tasks.aclose(60.0)
    assert ended == ["sent"]
    tasks = await BackgroundTasks.open()
    tasks.start_soon(anyio.sleep_forever)
    await tasks.aclose(0.01)
    assert tasks.is_closed


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)  # only asyncio cancels a task in this way
async def test_cancelling_open_leaves_no_task_running() -> None:
    before = asyncio.all_tasks()
    opening = asyncio.create_task(BackgroundTasks.open())
    await anyio.lowlevel.checkpoint()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    with anyio.fail_after(60):
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)
