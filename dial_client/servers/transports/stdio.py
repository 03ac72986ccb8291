"""The stdio transport: a server's standard input and output as the streams of the SDK.

It replaces the SDK's transport (mcp 2.3, `mcp.client.stdio`), which reads in quadratic time, does not limit the size of
a message, does not expose the process, and leaves the children of a server running when the server exits by itself.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream, TaskGroup
from mcp import StdioServerParameters, stdio_client
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCRequest

from dial_client.messages.errors import ServerStartError
from dial_client.runtime.pipes import PipeWriter
from dial_client.servers.transports.response_repair import LineSplitter, LineTooLong, parse_messages
from dial_client.servers.transports.server_process import ServerProcess, StderrTail, build_environment, find_program
from dial_client.settings.config_types import ServerSettings

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# Lines of the server that are handled before other tasks have their turn.
_LINES_IN_A_ROW = 16
# Timeout in seconds for writing the last messages (for example a cancellation) before the pipe is closed.
_FLUSH = 0.5
# Seconds for the output to end after the process exited, or closed its input.
_LINGER = 0.5
# Limit of bytes that are read after `_LINGER`: the capacity of a pipe. A child process may write without end.
_MAX_REST = 1024 * 1024


class StdioTransport:
    """A transport for `mcp.Client`: opens the streams, and on exit ends the process and its process group.

    Args:
        process: The running server process.
        note: Is called at most once, if the server writes lines that are not messages; they are skipped.
    """

    def __init__(self, process: ServerProcess, note: Callable[[str], None]) -> None:
        self._process = process
        self._note = note
        self._closed = "its output"
        self._pumps: TaskGroup = anyio.create_task_group()
        self._flushed = anyio.Event()
        self._stderr_read = anyio.Event()

    async def __aenter__(
        self,
    ) -> tuple[ObjectReceiveStream[SessionMessage | Exception], ObjectSendStream[SessionMessage]]:
        self._read = _ServerOutput(self._process, self._note)
        self._write = _ServerInput(self._process, self._read)
        await self._pumps.__aenter__()
        self._pumps.start_soon(self._write_waiting)
        self._pumps.start_soon(self._pump_stderr)
        self._pumps.start_soon(self._watch)
        return self._read, self._write

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            # Nobody reads messages any more, but a server that is blocked on a full pipe could not exit by itself.
            self._pumps.start_soon(self._read.drain)
            await self._write.aclose()
            with anyio.move_on_after(_FLUSH):
                await self._flushed.wait()
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
        if self._read.failure is not None:
            return self._read.failure
        await self._process.wait_exited(within=1.0)
        with anyio.move_on_after(0.3):
            await self._stderr_read.wait()
        code = self._process.find_exit_code()
        event = f"closed {self._closed}" if code is None else f"ended {_describe_exit(code)}"
        line = self._process.stderr.last
        return f"the server {event}; it last said: {line}" if line else f"the server {event} and said nothing"

    async def _end_output(self) -> None:
        """End the connection when the output has ended, after `_LINGER` at the latest. No message in it is lost."""
        with anyio.move_on_after(_LINGER):
            await self._read.is_over.wait()
            return
        self._read.end()

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


class _ServerOutput(ObjectReceiveStream[SessionMessage | Exception]):
    """Standard output of the server, which is read by the task that receives: a task between would delay each message.

    Args:
        process: The server.
        note: As for `StdioTransport`.
    """

    def __init__(self, process: ServerProcess, note: Callable[[str], None]) -> None:
        self.is_over = anyio.Event()
        """Set when all output is read."""
        self.failure: str | None = None
        """Why the connection was closed from this side; None if it was not."""
        self.take_at_once: Callable[[SessionMessage], bool] = lambda _: False
        """Called with a response that arrives alone and whole while a task waits; returns False, and leaves it as it
        is, if the task is to receive it."""
        process.output.take = self._take_response
        self._process, self._note = process, note
        self._splitter = LineSplitter(MAX_MESSAGE_BYTES)
        self._lines: deque[bytes] = deque()
        self._arrived: deque[SessionMessage] = deque()
        self._lines_in_a_row = 0
        self._is_noted = self._is_ending = False
        self._rest = _MAX_REST

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; implements `ObjectReceiveStream`."""
        while not self._arrived:
            if self._lines:
                await self._parse(self._lines.popleft())
            elif self.is_over.is_set():
                raise anyio.EndOfStream
            else:
                await self._read_more()
        return self._arrived.popleft()

    def add(self, message: SessionMessage) -> None:
        """Add a message as if the server had sent it."""
        self._arrived.append(message)
        self._process.wake_reader()

    def end(self) -> None:
        """Read only what has arrived, and then no more."""
        self._is_ending = True
        self._process.wake_reader()

    async def drain(self) -> None:
        """Read and drop the output until its end."""
        with suppress(anyio.ClosedResourceError):
            while await self._process.read():
                pass
        self.is_over.set()

    async def aclose(self) -> None:
        """Do nothing: the transport ends the process."""

    async def _read_more(self) -> None:
        chunk: bytes | None = b""
        try:
            chunk = await self._read()
            if chunk is not None:
                self._lines.extend(self._splitter.feed(chunk) if chunk else [self._splitter.take_rest()])
        except LineTooLong:
            chunk, self.failure = b"", f"the server sent a message of more than {MAX_MESSAGE_BYTES:,} bytes"
        self._lines_in_a_row = 0
        if chunk == b"":
            self.is_over.set()

    async def _read(self) -> bytes | None:
        """Return the next bytes, after `end` only bytes that have arrived; None if `add` has ended the wait."""
        if not self._is_ending:
            try:
                return await self._process.read()
            except anyio.ClosedResourceError:
                if not self._is_ending:
                    return None
        chunk = self._process.read_arrived() if self._rest > 0 else b""
        self._rest -= len(chunk)
        return chunk

    def _take_response(self, chunk: bytes) -> bool:
        if chunk.find(b'"method"') >= 0 or not self._splitter.is_line(chunk):
            return False
        messages = parse_messages(chunk)
        return len(messages) == 1 and self.take_at_once(messages[0])

    async def _parse(self, line: bytes) -> None:
        messages = parse_messages(line)
        self._arrived.extend(messages)
        if not messages and not self._is_noted and line.strip():
            self._is_noted = True
            self._note("it writes lines to its standard output that are not MCP messages; they are skipped")
        self._lines_in_a_row += 1
        if self._lines_in_a_row >= _LINES_IN_A_ROW or (not messages and b"{" in line):
            self._lines_in_a_row = 0
            await anyio.lowlevel.checkpoint()  # endless lines must not block the event loop


class _ServerInput(ObjectSendStream[SessionMessage]):
    """Standard input of the server."""

    def __init__(self, process: ServerProcess, output: _ServerOutput) -> None:
        self.pipe = PipeWriter(process.write_now, process.write)
        self._output = output

    async def send(self, item: SessionMessage) -> None:
        try:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        except ValueError as error:  # lone surrogates in a model's arguments
            if isinstance(item.message, JSONRPCRequest):
                data = ErrorData(code=INTERNAL_ERROR, message=f"the request cannot be written as JSON: {error}")
                self._output.add(SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=data)))
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
