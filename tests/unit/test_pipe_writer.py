"""Messages reach a pipe whole and in order, whatever happens to their senders."""

from __future__ import annotations

import anyio
import pytest

from tests.inner import MAX_WAITING, PipeWriter

pytestmark = pytest.mark.anyio


class Pipe:
    """A pipe that takes three bytes at once, and more when it is read."""

    def __init__(self) -> None:
        self.data = b""
        self.room = 3
        self.read = anyio.Event()

    def write_now(self, data: memoryview) -> memoryview:
        taken, self.room = data[: self.room], max(0, self.room - len(data))
        self.data += taken
        return data[len(taken) :]

    async def write(self, data: memoryview) -> None:
        await self.read.wait()
        self.data += data


async def test_a_message_that_does_not_fit_waits_and_those_after_it_do_too() -> None:
    pipe = Pipe()
    writer = PipeWriter(pipe.write_now, pipe.write)
    written = [await writer.send(data) for data in (b"a\n", b"bcd\n", b"e\n")]
    before = pipe.data
    pipe.read.set()
    writer.close()
    await writer.run()
    assert (written, before, pipe.data) == ([True, False, False], b"a\nb", b"a\nbcd\ne\n")


async def test_a_sender_that_is_cancelled_while_the_writer_makes_room_breaks_no_order() -> None:
    pipe = Pipe()
    writer = PipeWriter(pipe.write_now, pipe.write)
    await writer.send(b"aaa")
    for _ in range(MAX_WAITING):
        await writer.send(b"b")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            scope = anyio.CancelScope()

            async def send_one_more() -> None:
                with scope:
                    await writer.send(b"cancelled")

            group.start_soon(send_one_more)
            await anyio.wait_all_tasks_blocked()
            pipe.read.set()
            group.start_soon(writer.run, scope.cancel)
            await anyio.wait_all_tasks_blocked()
            await writer.send(b"c")
            writer.close()
    assert pipe.data.replace(b"cancelled", b"") == b"aaa" + b"b" * MAX_WAITING + b"c"


async def test_senders_learn_that_the_pipe_is_broken_or_closed() -> None:
    pipe = Pipe()

    async def fail(_: memoryview) -> None:
        raise BrokenPipeError

    writer = PipeWriter(pipe.write_now, fail)
    await writer.send(b"long")
    with pytest.raises(BrokenPipeError):
        await writer.run()
    with pytest.raises(anyio.BrokenResourceError):
        await writer.send(b"x")
    writer.close()
    with pytest.raises(anyio.ClosedResourceError):
        await writer.send(b"x")
