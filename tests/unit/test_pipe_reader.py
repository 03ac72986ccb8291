"""A pipe is read as it arrives: nothing is lost to a cancelled task, and nothing is taken that no task waits for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from tests.inner import PipeReader

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="there the event loop cannot wait for a pipe"),
]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The two ends of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:  # the test has closed it
            assert end == ends[1]


async def test_reads_get_what_has_arrived_in_order_and_then_the_end(pipe: tuple[int, int]) -> None:
    reader = PipeReader(pipe[0], 3)
    os.write(pipe[1], b"abcde")
    found = [await reader.read(), await reader.read()]
    os.close(pipe[1])
    found.append(await reader.read())
    assert found == [b"abc", b"de", b""]


@pytest.mark.parametrize("rounds", range(4))
async def test_a_cancelled_read_loses_nothing(pipe: tuple[int, int], rounds: int) -> None:
    reader = PipeReader(pipe[0], 100)
    found: list[bytes] = []

    async def read() -> None:
        found.append(await reader.read())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            os.write(pipe[1], b"kept")
            for _ in range(rounds):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        if not found:
            await read()
    reader.close()
    assert found == [b"kept"]


async def test_what_no_task_waits_for_stays_in_the_pipe(pipe: tuple[int, int]) -> None:
    """The other side has to wait then, rather than this process to keep all that it sends."""
    reader = PipeReader(pipe[0], 100)
    os.write(pipe[1], b"first")
    assert await reader.read() == b"first"
    os.write(pipe[1], b"second")
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
    assert os.read(pipe[0], 100) == b"second"
    os.write(pipe[1], b"third")
    assert await reader.read() == b"third"
    reader.close()


async def test_what_is_taken_at_once_wakes_nobody_and_all_else_is_read_in_order(pipe: tuple[int, int]) -> None:
    reader = PipeReader(pipe[0], 100)
    taken: list[bytes] = []

    def take(chunk: bytes) -> bool:
        taken.append(chunk)
        if chunk == b"broken":
            raise ValueError("what fails at once fails for the task that waits")
        return chunk == b"answer"

    reader.take = take
    found: list[bytes] = []

    async def read() -> None:
        found.append(await reader.read())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            for chunk in (b"answer", b"another"):
                await anyio.wait_all_tasks_blocked()
                os.write(pipe[1], chunk)
                while not (found or chunk in taken):
                    await anyio.lowlevel.checkpoint()
                if found == [chunk]:
                    break
        if not taken:
            return  # an event loop that watches no pipes
        assert (taken, found) == ([b"answer", b"another"], [b"another"])
        os.write(pipe[1], b"broken")
        with pytest.raises(ValueError, match="for the task that waits"):
            await reader.read()
    reader.close()


async def test_a_read_that_is_woken_ends_and_a_later_read_goes_on(pipe: tuple[int, int]) -> None:
    reader = PipeReader(pipe[0], 100)

    async def read() -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await reader.read()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            reader.wake()
        os.write(pipe[1], b"later")
        assert await reader.read() == b"later"
    reader.close()


async def test_a_descriptor_whose_reader_was_closed_can_be_used_again(pipe: tuple[int, int]) -> None:
    reader = PipeReader(pipe[0], 100)
    os.write(pipe[1], b"old")
    assert await reader.read() == b"old"
    reader.close()
    reads, writes = os.pipe()
    os.dup2(reads, pipe[0])
    os.close(reads)
    os.write(writes, b"new")
    again = PipeReader(pipe[0], 100)
    with anyio.fail_after(60):
        assert await again.read() == b"new"
    again.close()
    os.close(writes)
