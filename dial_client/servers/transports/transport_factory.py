"""The transports to a server, behind the interface that a session uses.

Creating a factory may start a process, but does not import the SDK: the process starts up while
`TransportFactory.create` imports the SDK.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from dial_client.hooks.server_callbacks import Login
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.status import AddNote
from dial_client.servers.transports.server_process import ServerProcess, StderrTail
from dial_client.settings.config_types import ServerSettings, Transport

OnEnd = Callable[[str], None]
"""Called when a connection has ended, with the reason; empty if it is unknown."""
OnError = Callable[[BaseException], Awaitable[None]]
"""Called with the error that ends a connection, before the transport closes, which may take some seconds."""


class TransportFactory:
    """Creates a transport to one server: this one to a server object in this process, its subclasses to others."""

    is_streamable_http = False
    """True for streamable HTTP: a server may lose a session, and HTTP+SSE is tried if the server refuses this one."""

    def __init__(self, target: Any, mask: SecretMask) -> None:
        self._target = target
        self._mask = mask

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's standard error."""
        return ()

    def create(self, on_note: AddNote, on_end: OnEnd, on_error: OnError) -> Any:
        """Return the target for `mcp.Client`: a transport, or a server object of this process.

        Args:
            on_note: Is called with a note about a harmless irregularity of the server.
            on_end: See `OnEnd`.
            on_error: See `OnError`.
        """
        del on_note, on_end, on_error  # the SDK itself reports the end and errors
        return self._target

    async def explain_end(self) -> str:
        """Return why the connection ended, as a text for users."""
        return "the server has stopped"

    async def aclose(self) -> None:
        """Release all resources, such as the server process. Must be called even if `create` was not."""

    def _add_repair(self, transport: Any, on_note: AddNote, on_end: OnEnd, on_error: OnError) -> Any:
        from dial_client.servers.transports.response_repair import RepairingTransport

        return RepairingTransport(transport, self._mask, on_note, on_end, on_error)


def list_transports(target: Any, login: Login | None, mask: SecretMask) -> Iterator[TransportFactory]:
    """Yield the transports to try, each only after the transport before it was refused.

    For a URL, streamable HTTP is tried first, then HTTP+SSE (MCP specification, "Backwards Compatibility").

    Args:
        target: A `ServerSettings`, or a server object in this process.
        login: The callback for logins of the user to a server behind a URL; None if nobody can log in.
        mask: Masks secrets in the server's output.

    Raises:
        ServerStartError: The server's process cannot be started.
    """
    if not isinstance(target, ServerSettings):
        yield TransportFactory(target, mask)
    elif target.transport is Transport.STDIO and sys.platform == "win32":
        yield WindowsStdioTransportFactory(target, mask)
    elif target.transport is Transport.STDIO:
        yield StdioTransportFactory(target, mask)
    else:
        if target.transport is Transport.HTTP:
            yield HTTPTransportFactory(target, mask, login)
        yield SSETransportFactory(target, mask, login)


class StdioTransportFactory(TransportFactory):
    """Connects to a child process (POSIX). The constructor starts the process."""

    def __init__(self, settings: ServerSettings, mask: SecretMask) -> None:
        super().__init__(settings, mask)
        self._process = ServerProcess(settings, mask)
        self._explain_end: Callable[[], Awaitable[str]] | None = None

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's standard error."""
        return self._process.stderr.lines

    def create(self, on_note: AddNote, on_end: OnEnd, on_error: OnError) -> Any:
        """Return the transport over standard input and output."""
        from dial_client.servers.transports.stdio import StdioTransport

        transport = StdioTransport(self._process, on_note)
        self._explain_end = transport.explain_end
        return self._add_repair(transport, on_note, on_end, on_error)

    async def explain_end(self) -> str:
        """Return how the process ended, with its last error line."""
        return await self._explain_end() if self._explain_end is not None else "the server was not reached"

    async def aclose(self) -> None:
        """End the process and its group."""
        await self._process.stop()
        self._process.close()


class WindowsStdioTransportFactory(TransportFactory):
    """Connects to a child process on Windows, which the SDK runs in a job object, and ends."""

    def __init__(self, settings: ServerSettings, mask: SecretMask) -> None:
        super().__init__(settings, mask)
        self._tail = StderrTail(mask)

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's standard error."""
        return self._tail.lines

    def create(self, on_note: AddNote, on_end: OnEnd, on_error: OnError) -> Any:
        """Return the transport over standard input and output."""
        from dial_client.servers.transports.stdio import WindowsStdioTransport

        return self._add_repair(WindowsStdioTransport(self._target, self._tail), on_note, on_end, on_error)

    async def explain_end(self) -> str:
        """Return that the server ended, with its last error line."""
        line = self._tail.last
        return f"the server ended; it last said: {line}" if line else "the server ended and said nothing"


class HTTPTransportFactory(TransportFactory):
    """Connects to a URL over streamable HTTP; the failure of a request affects that request only."""

    is_streamable_http = True

    def __init__(self, settings: ServerSettings, mask: SecretMask, login: Login | None) -> None:
        super().__init__(settings, mask)
        self._login = login

    def create(self, on_note: AddNote, on_end: OnEnd, on_error: OnError) -> Any:
        """Return the transport over HTTP."""
        from dial_client.servers.transports.streamable_http import HTTPTransport

        # HTTP+SSE sends messages apart from the stream: a message that cannot be sent ends the connection.
        on_failure = None if self.is_streamable_http else on_end
        transport = HTTPTransport(self._target, self._login, self._mask, on_failure)
        return self._add_repair(transport, on_note, on_end, on_error)

    async def explain_end(self) -> str:
        """Return that the connection was closed; the cause is unknown."""
        return "the connection was closed"


class SSETransportFactory(HTTPTransportFactory):
    """Connects to a URL over the older HTTP+SSE."""

    is_streamable_http = False
