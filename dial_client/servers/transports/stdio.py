"""The stdio transport: a server's standard input and output as the streams of the SDK.

It replaces the SDK's transport (mcp 2.3, `mcp.client.stdio`), which reads in quadratic time, does not limit the size of
a message, does not expose the process, and leaves the children of a server running when the server exits by itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import ObjectSendStream, TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import StdioServerParameters, stdio_client
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCRequest

from dial_client.messages.errors import ServerStartError
from dial_client.servers.transports.pipe_writer import PipeWriter
from dial_client.servers.transports.response_repair import LineSplitter, LineTooLong, parse_messages
from dial_client.servers.transports.server_process import ServerProcess, StderrTail, build_environment, find_program
from dial_client.settings.config_types import ServerSettings

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# Messages buffered between a pipe and the session, each of at most `MAX_MESSAGE_BYTES`.
_BUFFERED = 16
# Timeout in seconds for writing the last messages (for example a cancellation) before the pipe is closed.
_FLUSH = 0.5
# Seconds for the output to end after the process exited, or closed its input.
_LINGER = 0.5
# Limit of bytes that are read after `_LINGER`: the capacity of a pipe. A child process may write without end.
_MAX_REST = 1024 * 1024

StdioReader = MemoryObjectSendStream[SessionMessage | Exception]


class StdioTransport:
    """A transport for `mcp.Client`: opens the streams, and on exit ends the process and its process group.

    Args:
        process: The running server process.
        note: Is called at most once, if the server writes lines that are not messages; they are skipped.
    """

    def __init__(self, process: ServerProcess, note: Callable[[str], None]) -> None:
        self.failure: str | None = None
        """Why the transport closed the connection itself; None if it did not."""
        self._process = process
        self._note = note
        self._noted = False
        self._closed = "its output"
        self._is_ending = False
        self._rest = _MAX_REST
        self._output_read = anyio.Event()
        self._pumps: TaskGroup = anyio.create_task_group()
        self._flushed = anyio.Event()
        self._stderr_read = anyio.Event()

    async def __aenter__(
        self,
    ) -> tuple[MemoryObjectReceiveStream[SessionMessage | Exception], ObjectSendStream[SessionMessage]]:
        incoming, self._read = anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFERED)
        self._write = _ServerInput(self._process, incoming)
        await self._pumps.__aenter__()
        self._pumps.start_soon(self._pump_in, incoming)
        self._pumps.start_soon(self._write_waiting)
        self._pumps.start_soon(self._pump_stderr)
        self._pumps.start_soon(self._watch)
        return self._read, self._write

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            self._read.close()
            await self._write.aclose()
            with anyio.move_on_after(_FLUSH):
                await self._flushed.wait()
            # The pumps keep running meanwhile: a server that is blocked on a full output pipe could not exit.
            await self._process.stop()
        self._pumps.cancel_scope.cancel()
        return await self._pumps.__aexit__(kind, error, trace)

    async def write_line(self, line: bytes) -> None:
        """Write a line to the server's standard input.

        Raises:
            anyio.ClosedResourceError, anyio.BrokenResourceError: The connection has ended.
        """
        await self._write.pipe.send(line)

    async def explain_end(self) -> str:
        """Return why the connection ended, in one line; waits at most a second for the process to exit."""
        if self.failure is not None:
            return self.failure
        await self._process.wait_exited(within=1.0)
        with anyio.move_on_after(0.3):
            await self._stderr_read.wait()
        code = self._process.find_exit_code()
        event = f"closed {self._closed}" if code is None else f"ended {_describe_exit(code)}"
        line = self._process.stderr.last
        return f"the server {event}; it last said: {line}" if line else f"the server {event} and said nothing"

    async def _pump_in(self, incoming: StdioReader) -> None:
        lines = LineSplitter(MAX_MESSAGE_BYTES)
        with incoming:
            try:
                while chunk := await self._read_output():
                    for line in lines.feed(chunk):
                        await self._deliver(line, incoming)
                await self._deliver(lines.take_rest(), incoming)
            except LineTooLong:
                self.failure = f"the server sent a message of more than {MAX_MESSAGE_BYTES:,} bytes"
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the session was closed
            finally:
                self._output_read.set()
        # Nobody reads the messages any more, but a server that is blocked on a full pipe could not exit by itself.
        with suppress(anyio.ClosedResourceError):
            while await self._process.read():
                pass

    async def _read_output(self) -> bytes:
        """Return the next bytes of the output; after `_end_output`, only bytes that have arrived."""
        if not self._is_ending:
            with suppress(anyio.ClosedResourceError):
                return await self._process.read()
        chunk = self._process.read_arrived() if self._rest > 0 else b""
        self._rest -= len(chunk)
        return chunk

    async def _end_output(self) -> None:
        """End the connection when the output has ended, after `_LINGER` at the latest. No message in it is lost."""
        with anyio.move_on_after(_LINGER):
            await self._output_read.wait()
            return
        self._is_ending = True
        self._process.wake_reader()

    async def _deliver(self, line: bytes, incoming: StdioReader) -> None:
        messages = parse_messages(line)
        if not messages and not self._noted and line.strip():
            self._noted = True
            self._note("it writes lines to its standard output that are not MCP messages; they are skipped")
        for message in messages:
            try:
                incoming.send_nowait(message)
            except anyio.WouldBlock:  # the session has enough to read
                await incoming.send(message)
        if not messages and b"{" in line:
            await anyio.lowlevel.checkpoint()  # endless text must not block the event loop

    async def _write_waiting(self) -> None:
        try:
            await self._write.pipe.run()
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._closed = "its input"
        finally:
            self._flushed.set()
        if self._closed == "its input":
            # The server has stopped reading: closing the other direction, too, ends the session.
            await self._end_output()

    async def _watch(self) -> None:
        """End the connection after the process exits, even if a child process keeps the pipe open."""
        await self._process.wait()
        await self._end_output()

    async def _pump_stderr(self) -> None:
        try:
            await self._process.read_stderr()
        finally:
            self._stderr_read.set()


class _ServerInput(ObjectSendStream[SessionMessage]):
    """Standard input of the server."""

    def __init__(self, process: ServerProcess, answers: StdioReader) -> None:
        self.pipe = PipeWriter(process.write_now, process.write)
        self._answers = answers

    async def send(self, item: SessionMessage) -> None:
        try:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        except ValueError as error:  # lone surrogates in a model's arguments
            if isinstance(item.message, JSONRPCRequest):
                data = ErrorData(code=INTERNAL_ERROR, message=f"the request cannot be written as JSON: {error}")
                await self._answers.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=data)))
            return
        await self.pipe.send(text.encode() + b"\n")

    async def aclose(self) -> None:
        self.pipe.close()


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


# Seconds until reading standard error is cancelled on exit: more than the SDK needs to end a process.
_CLOSE = 8.0


class WindowsStdioTransport:
    """A transport for `mcp.Client`. Entering it starts the process.

    Raises:
        ServerStartError: On entering, if the command does not exist or cannot be executed.
    """

    def __init__(self, settings: ServerSettings, stderr: StderrTail) -> None:
        self._settings = settings
        self._stderr = stderr
        self._readers: TaskGroup = anyio.create_task_group()

    async def __aenter__(self) -> Any:
        settings = self._settings
        env = build_environment(settings.env)
        program = find_program(settings.name, settings.command or "", env.get("PATH"), settings.cwd)
        parameters = StdioServerParameters(
            command=program, args=list(settings.args), env=env, cwd=settings.cwd, encoding_error_handler="replace"
        )
        reading, writing = os.pipe()
        await self._readers.__aenter__()
        self._readers.start_soon(self._read, reading)
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self._readers)
            # The write end of the pipe is closed after the process has ended, which ends the reader.
            errors = stack.enter_context(os.fdopen(writing, "w", encoding="utf-8"))
            try:
                streams = await stack.enter_async_context(stdio_client(parameters, errlog=errors))
            except OSError as error:
                raise ServerStartError(settings.name, f"cannot run {settings.command!r}: {error.strerror}") from error
            self._stack = stack.pop_all()
        return streams

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        # A child of the server may keep the pipe open: reading has a deadline.
        self._readers.cancel_scope.deadline = anyio.current_time() + _CLOSE
        return await self._stack.__aexit__(kind, error, trace)

    async def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb", buffering=0) as stream:
            while chunk := await anyio.to_thread.run_sync(stream.read, 65_536, abandon_on_cancel=True):
                self._stderr.feed(chunk)
