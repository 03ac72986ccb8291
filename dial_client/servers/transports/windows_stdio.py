"""The stdio transport on Windows: the SDK's transport, which uses job objects.

Standard error goes through a pipe to a `StderrTail`, never to the terminal.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from mcp import StdioServerParameters, stdio_client

from dial_client.messages.errors import ServerStartError
from dial_client.servers.transports.environment import build_environment, find_program
from dial_client.servers.transports.stderr_tail import StderrTail
from dial_client.settings.configuration import ServerSettings

_CLOSE = 8.0
"""Seconds until reading standard error is cancelled on exit: more than the SDK needs to end a process."""


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
