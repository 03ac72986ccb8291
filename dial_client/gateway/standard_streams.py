"""Standard input and output of this process as the streams of the SDK's server.

It replaces the SDK's transport (mcp 2.3, `mcp.server.stdio`), which needs three changes of threads for each call, does
not limit the size of a message, and cannot be cancelled: a gateway would stay after SIGTERM, until the host has closed
its input.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, JSONRPCResponse, RequestId
from pydantic_core import to_json

from dial_client.gateway.early_answers import FirstAnswers
from dial_client.gateway.standard_files import StandardFiles
from dial_client.runtime.logs import get_logger
from dial_client.runtime.pipes import PipeReader, PipeWriter
from dial_client.servers.transports.response_repair import LineSplitter, LineTooLong, parse_messages

log = get_logger(__name__)

# The most messages before the first request.
MAX_EARLY = 100
# Maximum bytes of a message of the client.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_CHUNK = 65_536
# Bytes that a pipe takes without blocking once it can be written.
_WRITABLE = select.PIPE_BUF if sys.platform != "win32" else _CHUNK

# The messages that a client begins with. No server is needed to answer them.
_GREETINGS = ("initialize", "server/discover")
# Those that no server is needed for either if all tools are known from the last run.
_FIRST_REQUESTS = ("notifications/initialized", "tools/list")
ANSWERED_BEFORE = frozenset((*_GREETINGS, *_FIRST_REQUESTS))
"""Requests that are answered before the servers have begun to start."""


@dataclass(eq=False, slots=True)
class StartSignal:
    """Says when the servers may start: many of them keep the event loop busy, and the first answers would wait.

    Args:
        knows_tools: True if no server is needed to list the tools.
    """

    knows_tools: bool
    is_over: anyio.Event = field(default_factory=anyio.Event)
    """Set when a request was answered that no server is needed for, or when one arrives that needs servers."""
    is_greeted: anyio.Event = field(default_factory=anyio.Event)
    """Set when anything was answered, or when a request arrives that needs servers."""
    _is_list_requested: bool = False
    # True once both are set: every later message would set them again.
    _is_told: bool = False

    def receive(self, method: str) -> None:
        """Learn that a message has arrived; an answer has no method."""
        if self._is_told or method in _GREETINGS:
            return
        if not self.knows_tools or method not in _FIRST_REQUESTS:
            self._end()
        self._is_list_requested = self._is_list_requested or method == "tools/list"

    def write(self) -> None:
        """Learn that a message was written."""
        if self._is_told:
            return
        self.is_greeted.set()
        if not self.knows_tools or self._is_list_requested:
            self._end()

    def _end(self) -> None:
        self._is_told = True
        self.is_greeted.set()
        self.is_over.set()


@asynccontextmanager
async def open_streams(
    files: StandardFiles, signal: StartSignal, first: FirstAnswers | None = None
) -> AsyncGenerator[tuple[StandardInput, StandardOutput]]:
    """Open the streams for the SDK's server; the first one ends when standard input ends.

    Args:
        files: The descriptors.
        signal: Is told what arrives, and what is written.
        first: The answers that the client has got already; None for none.
    """
    first = first or FirstAnswers()
    beginning = first.begin()
    output = StandardOutput(files.output, signal.write, first)
    async with anyio.create_task_group() as group:
        group.start_soon(output.write_waiting)
        if beginning.unwritten:
            await output.write(beginning.unwritten)
        yield StandardInput(files.input, signal.receive, first, beginning.received), output
        group.cancel_scope.cancel()


class StandardInput(ObjectReceiveStream[SessionMessage]):
    """Standard input, which is read by the task that receives: a task between would delay each message."""

    def __init__(
        self, file: int, on_message: Callable[[str], None], first: FirstAnswers, received: bytes = b""
    ) -> None:
        self._file, self._pipe = file, PipeReader(file, _CHUNK)
        self._on_message, self._first = on_message, first
        self._lines = LineSplitter(MAX_MESSAGE_BYTES)
        self._arrived: deque[SessionMessage] = deque()
        self._is_over = False
        self.begin_call: Callable[[JSONRPCRequest], None] | None = None
        """Begins a call that arrives alone and whole while a task waits for messages; None to let that receive it."""
        self._pipe.take = self._take_call
        self._take(received)

    async def receive(self) -> SessionMessage:
        """Return the next message; implements `ObjectReceiveStream`."""
        while not self._arrived:
            if self._is_over:
                raise anyio.EndOfStream
            await self._read_more()
        message = self._arrived.popleft()
        self._note(message)
        return message

    def _note(self, message: SessionMessage) -> None:
        if isinstance(request := message.message, JSONRPCRequest):
            self._first.receive(request.id, request.method, request.params)
        self._on_message(getattr(message.message, "method", ""))

    async def find_first_request(self) -> JSONRPCRequest | None:
        """Return the first request without receiving it; None at the end of the input, and if none comes soon."""
        read = 0
        while True:
            for message in tuple(self._arrived)[read:]:
                if isinstance(message.message, JSONRPCRequest):
                    return message.message
            read = len(self._arrived)
            if self._is_over or read > MAX_EARLY:
                return None
            await self._read_more()

    async def _read_more(self) -> None:
        try:
            chunk = await self._read()
            self._is_over = not chunk
            self._take(chunk)
        except LineTooLong:
            log.warning("client_message_too_long", max_bytes=MAX_MESSAGE_BYTES)
            self._is_over = True
        except OSError as error:
            log.debug("standard_input_lost", error=type(error).__name__)
            self._is_over = True

    async def _read(self) -> bytes:
        """Wait for input, and return it; empty bytes at the end."""
        if sys.platform == "win32":
            # Pipes cannot be waited for. A read that is cancelled ends with the client's end of the pipe.
            return await anyio.to_thread.run_sync(os.read, self._file, _CHUNK, abandon_on_cancel=True)
        try:
            return await self._pipe.read()
        except PermissionError:  # a regular file: reading it never waits
            await anyio.lowlevel.checkpoint()
            return os.read(self._file, _CHUNK)

    def _take_call(self, chunk: bytes) -> bool:
        # `in` would make and drop an exception for each chunk: bytes are asked for an integer first.
        if self.begin_call is None or chunk.find(b'"tools/call"') < 0 or not self._lines.is_line(chunk):
            return False
        messages = parse_messages(chunk)
        request = messages[0].message if len(messages) == 1 else None
        if not isinstance(request, JSONRPCRequest) or request.method != "tools/call":
            return False
        self._note(messages[0])
        self.begin_call(request)
        return True

    def _take(self, chunk: bytes) -> None:
        for line in self._lines.feed(chunk):
            self._arrived.extend(parse_messages(line))

    async def aclose(self) -> None:
        """Read no more."""
        self._is_over = True
        self._pipe.close()


class StandardOutput(ObjectSendStream[SessionMessage]):
    """Standard output."""

    def __init__(self, file: int, on_written: Callable[[], None], first: FirstAnswers) -> None:
        self._pipe = PipeWriter(partial(_write_now, file), partial(_write, file))
        self._on_written, self._first = on_written, first

    async def send(self, item: SessionMessage) -> None:
        """Write a message; implements `ObjectSendStream`."""
        message = item.message
        if isinstance(message, JSONRPCResponse):
            await self.send_result(message.id, message.result)
            return
        data = self._first.answer(message.id, None) if isinstance(message, JSONRPCError) else None
        await self.write(_encode(item) if data is None else data)

    async def send_result(self, request_id: RequestId, result: dict[str, Any]) -> None:
        """Write the result of a request. It is plain JSON: no model needs to be made of it."""
        data = self._first.answer(request_id, result)
        await self.write(_encode_result(request_id, result) if data is None else data)

    async def write(self, data: bytes) -> None:
        """Write bytes, or let them wait."""
        if await self._pipe.send(data):
            self._on_written()

    async def write_waiting(self) -> None:
        """Write what has to wait, until the client is gone."""
        try:
            await self._pipe.run(self._on_written)
        except OSError as error:  # the client is gone; the end of standard input ends the server
            log.debug("standard_output_lost", error=type(error).__name__)

    async def aclose(self) -> None:
        """Write no more than what waits."""
        self._pipe.close()


def _encode(message: SessionMessage) -> bytes:
    try:
        return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:  # lone surrogates in a server's text
        return b""


def _encode_result(request_id: RequestId, result: dict[str, Any]) -> bytes:
    try:
        return to_json({"jsonrpc": "2.0", "id": request_id, "result": result}, inf_nan_mode="null") + b"\n"
    except ValueError as error:  # lone surrogates in a server's text
        data = ErrorData(code=INTERNAL_ERROR, message=f"the result cannot be written as JSON: {error}")
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=data).model_dump_json().encode() + b"\n"


def _write_now(file: int, data: memoryview) -> memoryview:
    """Write what the client's pipe takes without blocking, and return the rest."""
    if sys.platform == "win32":
        return data  # whether a pipe takes more cannot be asked
    while data and select.select((), (file,), (), 0)[1]:
        data = data[os.write(file, data[:_WRITABLE]) :]
    return data


async def _write(file: int, data: memoryview) -> None:
    """Write bytes without blocking the event loop, also if the client does not read."""
    while data := _write_now(file, data):
        if sys.platform == "win32":
            data = data[await anyio.to_thread.run_sync(os.write, file, data, abandon_on_cancel=True) :]
        else:
            await anyio.wait_writable(file)
