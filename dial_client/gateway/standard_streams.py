"""Standard input and output of this process as the streams of the SDK's server.

It replaces the SDK's transport (mcp 2.3, `mcp.server.stdio`), which needs three changes of threads for each call, does
not limit the size of a message, and cannot be cancelled: a gateway would stay after SIGTERM, until the host has closed
its input.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse

from dial_client.gateway.standard_files import StandardFiles
from dial_client.runtime.logs import get_logger
from dial_client.servers.transports.response_repair import LineSplitter, LineTooLong, parse_messages

log = get_logger(__name__)

# Maximum bytes of a message of the client.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# Messages buffered between a stream and the server.
_BUFFERED = 16
_CHUNK = 65_536
# Bytes that a pipe takes without blocking once it can be written.
_WRITABLE = select.PIPE_BUF if sys.platform != "win32" else _CHUNK

# The requests that a client begins with. No server is needed to answer them.
_GREETINGS = ("initialize", "server/discover")

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectReceiveStream[SessionMessage]


@asynccontextmanager
async def open_streams(
    files: StandardFiles, begin: Callable[[], None]
) -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """Open the streams for the SDK's server; the first one ends when standard input ends.

    Args:
        files: The descriptors.
        begin: Called when a greeting was answered, or when a message arrives that is none; perhaps several times.
    """
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](_BUFFERED)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](_BUFFERED)
    async with anyio.create_task_group() as group:
        group.start_soon(_pump_in, files.input, incoming, begin)
        group.start_soon(_pump_out, outgoing, files.output, begin)
        yield read, write
        group.cancel_scope.cancel()


async def _pump_in(file: int, incoming: Incoming, begin: Callable[[], None]) -> None:
    lines = LineSplitter(MAX_MESSAGE_BYTES)
    with incoming, suppress(anyio.BrokenResourceError):
        try:
            while chunk := await _read(file):
                for line in lines.feed(chunk):
                    for message in parse_messages(line):
                        if getattr(message.message, "method", "") not in _GREETINGS:
                            begin()
                        await incoming.send(message)
        except LineTooLong:
            log.warning("client_message_too_long", max_bytes=MAX_MESSAGE_BYTES)
        except OSError as error:
            log.debug("standard_input_lost", error=type(error).__name__)


async def _read(file: int) -> bytes:
    """Wait for input, and return it; empty bytes at the end."""
    if sys.platform == "win32":
        # Pipes cannot be waited for. A read that is cancelled ends with the client's end of the pipe.
        return await anyio.to_thread.run_sync(os.read, file, _CHUNK, abandon_on_cancel=True)
    try:
        await anyio.wait_readable(file)
    except PermissionError:  # a regular file: reading it never waits
        await anyio.lowlevel.checkpoint()
    return os.read(file, _CHUNK)


async def _pump_out(outgoing: Outgoing, file: int, begin: Callable[[], None]) -> None:
    with outgoing:
        async for message in outgoing:
            try:
                await _write(file, _encode(message))
            except OSError as error:  # the client is gone; the end of standard input ends the server
                log.debug("standard_output_lost", error=type(error).__name__)
                return
            begin()


def _encode(message: SessionMessage) -> bytes:
    try:
        return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError as error:  # lone surrogates in a server's text
        if not isinstance(message.message, JSONRPCResponse):
            return b""
        data = ErrorData(code=INTERNAL_ERROR, message=f"the result cannot be written as JSON: {error}")
        return JSONRPCError(jsonrpc="2.0", id=message.message.id, error=data).model_dump_json().encode() + b"\n"


async def _write(file: int, data: bytes) -> None:
    """Write bytes without blocking the event loop, also if the client does not read."""
    if sys.platform == "win32":
        while data:
            written = await anyio.to_thread.run_sync(os.write, file, data, abandon_on_cancel=True)
            data = data[written:]
        return
    rest = memoryview(data)
    while rest:
        if not select.select((), (file,), (), 0)[1]:
            await anyio.wait_writable(file)
        rest = rest[os.write(file, rest[:_WRITABLE]) :]
