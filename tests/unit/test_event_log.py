"""The log of a turn's events: numbered, for any number of readers, and bounded."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest

from tests.inner import _SLACK, MAX_UNREAD, Event, EventLog, ProviderError, TextDelta

pytestmark = pytest.mark.anyio


def filled(log: EventLog, count: int) -> EventLog:
    for number in range(count):
        log.append(TextDelta(str(number)))
    return log


async def read(log: EventLog, after: int = 0) -> list[tuple[int, Event]]:
    return [numbered async for numbered in log.events(after)]


async def test_events_are_numbered_from_one_and_read_from_any_position() -> None:
    log = filled(EventLog(), 3)
    log.close()
    assert await read(log) == [(1, TextDelta("0")), (2, TextDelta("1")), (3, TextDelta("2"))]
    assert await read(log, 2) == [(3, TextDelta("2"))]
    assert await read(log, 3) == await read(log, 99) == []
    assert log.since(0, 2) == [(1, TextDelta("0")), (2, TextDelta("1"))]


async def test_a_reader_waits_for_new_events_and_a_closed_log_accepts_no_event() -> None:
    log, seen = EventLog(), list[int]()

    async def follow() -> None:
        seen.extend([position async for position, _ in log.events()])

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        group.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        filled(log, 2)
        await anyio.wait_all_tasks_blocked()
        log.close()
        filled(log, 2)
    assert (seen, log.last) == ([1, 2, 1, 2], 2)


@pytest.mark.parametrize("count", [5, 6, 50, _SLACK + 6, 3 * _SLACK])
async def test_a_late_reader_continues_with_the_oldest_event_in_the_log(count: int) -> None:
    log = filled(EventLog(capacity=5), count)
    log.close()
    assert [position for position, _ in await read(log)] == list(range(count - 4, count + 1))
    assert log.since(0, 1) == [(count - 4, TextDelta(str(count - 5)))]


async def test_no_event_is_dropped_before_the_paced_reader_has_read_the_event() -> None:
    log = filled(EventLog(capacity=5, is_paced=True), 3 * _SLACK)
    log.close()
    async with aclosing(log.events()) as events:
        async for position, event in events:
            assert event == TextDelta(str(position - 1))
            log.mark_read(position)
    assert log.unread == 0


@pytest.mark.parametrize("leaves", [False, True], ids=["reads on", "leaves"])
async def test_a_turn_waits_until_the_paced_reader_has_read_enough_or_left(leaves: bool) -> None:
    log, done = filled(EventLog(is_paced=True), MAX_UNREAD), anyio.Event()

    async def work() -> None:
        await log.wait_for_room()
        done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        log.mark_read(1)
        await anyio.wait_all_tasks_blocked()
        assert not done.is_set()
        if leaves:
            log.release()
        else:
            log.mark_read(MAX_UNREAD // 2)
        await done.wait()


async def test_a_turn_never_waits_for_a_log_without_a_paced_reader() -> None:
    log = filled(EventLog(), 2 * MAX_UNREAD)
    log.mark_read(1)
    await log.wait_for_room()
    assert log.unread == 0


async def test_every_reader_gets_the_error_of_the_turn_after_the_last_event() -> None:
    log = filled(EventLog(), 1)
    log.close(ProviderError("overloaded"))
    for _ in range(2):
        with pytest.raises(ProviderError, match="overloaded"):
            await read(log)


async def test_a_reader_of_a_fast_writer_is_cancelled_at_once() -> None:
    log, seen = EventLog(), list[int]()

    async def write() -> None:
        for number in range(1_000):
            log.append(TextDelta(str(number)))
            await anyio.lowlevel.checkpoint()
        log.close()

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        with anyio.CancelScope() as scope:
            async for position, _ in log.events():
                seen.append(position)
                if position == 10:
                    scope.cancel()
    assert seen[-1] < 20
