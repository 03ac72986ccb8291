"""The transports to a server, behind the interface that a session uses.

Creating a factory may start a process, but does not import the SDK: the process starts up while
`TransportFactory.create` imports the SDK.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from dial_client.hooks.oauth_callbacks import Login
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.transports.stderr_tail import StderrTail
from dial_client.settings.configuration import ServerSettings, Transport


@dataclass(frozen=True, slots=True)
class TransportHooks:
    """The callbacks of a transport."""

    on_note: Callable[[str], None]
    """Called with a note about a harmless irregularity of the server."""
    on_end: Callable[[str | None], None]
    """Called when the connection has ended, with the reason, or None if it is unknown."""
    on_error: Callable[[BaseException], Awaitable[None]]
    """Called with the error that ends the connection, before the transport closes, which may take some seconds."""


class TransportFactory(Protocol):
    """Creates a transport to one server. `aclose` must be called even if `create` was not."""

    is_streamable_http: bool
    """True for streamable HTTP: a server may lose a session, and HTTP+SSE is tried if the server refuses this one."""

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's standard error."""

    def create(self, hooks: TransportHooks) -> Any:
        """Return the target for `mcp.Client`: a transport, or a server object of this process."""

    async def explain_end(self) -> str:
        """Return why the connection ended, as a text for users."""

    async def aclose(self) -> None:
        """Release all resources, such as the server process."""


def list_transports(
    settings: ServerSettings, login: Login | None = None, mask: SecretMask | None = None
) -> Iterator[TransportFactory]:
    """Yield the transports to try, each only after the transport before it was refused.

    For a URL, streamable HTTP is tried first, then HTTP+SSE (MCP specification, "Backwards Compatibility").

    Args:
        settings: The server's settings.
        login: The callback for logins of the user to a server behind a URL; None if nobody can log in.
        mask: Masks secrets in the server's output; None for a mask of the secrets in the settings.

    Raises:
        ServerStartError: The server's process cannot be started.
    """
    mask = mask or SecretMask.from_settings(settings)
    if settings.transport is Transport.STDIO:
        yield (
            WindowsStdioTransportFactory(settings, mask)
            if sys.platform == "win32"
            else StdioTransportFactory(settings, mask)
        )
        return
    if settings.transport is Transport.HTTP:
        yield HTTPTransportFactory(settings, login, mask)
    yield SSETransportFactory(settings, login, mask)


class InProcessTransportFactory:
    """Connects to a server object in this process."""

    is_streamable_http = False
    stderr: tuple[str, ...] = ()

    def __init__(self, server: Any) -> None:
        self._server = server

    def create(self, hooks: TransportHooks) -> Any:  # noqa: ARG002 (the SDK itself reports the end and errors)
        """Return the server object."""
        return self._server

    async def explain_end(self) -> str:
        """Return that the server has stopped; the cause is unknown."""
        return "the server has stopped"

    async def aclose(self) -> None:
        """Do nothing: the server belongs to its creator."""


class StdioTransportFactory:
    """Connects to a child process (POSIX). The constructor starts the process."""

    is_streamable_http = False

    def __init__(self, settings: ServerSettings, mask: SecretMask) -> None:
        from dial_client.servers.transports.server_process import ServerProcess

        self._mask = mask
        self._process = ServerProcess(settings, mask)
        self._explain_end: Callable[[], Awaitable[str]] | None = None

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's standard error."""
        return self._process.stderr.lines

    def create(self, hooks: TransportHooks) -> Any:
        """Return the transport over standard input and output."""
        from dial_client.servers.transports.stdio import StdioTransport

        transport = StdioTransport(self._process, hooks.on_note)
        self._explain_end = transport.explain_end
        return _add_repair(transport, hooks, self._mask)

    async def explain_end(self) -> str:
        """Return how the process ended, with its last error line."""
        return await self._explain_end() if self._explain_end is not None else "the server was not reached"

    async def aclose(self) -> None:
        """End the process and its group."""
        await self._process.stop()
        self._process.close()


class WindowsStdioTransportFactory:
    """Connects to a child process on Windows, which the SDK runs in a job object."""

    is_streamable_http = False

    def __init__(self, settings: ServerSettings, mask: SecretMask) -> None:
        self._settings = settings
        self._mask = mask
        self._tail = StderrTail(mask)

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's standard error."""
        return self._tail.lines

    def create(self, hooks: TransportHooks) -> Any:
        """Return the transport over standard input and output."""
        from dial_client.servers.transports.windows_stdio import WindowsStdioTransport

        return _add_repair(WindowsStdioTransport(self._settings, self._tail), hooks, self._mask)

    async def explain_end(self) -> str:
        """Return that the server ended, with its last error line."""
        line = self._tail.last
        return f"the server ended; it last said: {line}" if line else "the server ended and said nothing"

    async def aclose(self) -> None:
        """Do nothing: the SDK has ended the process."""


class HTTPTransportFactory:
    """Connects to a URL over streamable HTTP."""

    is_streamable_http = True
    stderr: tuple[str, ...] = ()

    def __init__(self, settings: ServerSettings, login: Login | None, mask: SecretMask) -> None:
        self._settings = settings
        self._login = login
        self._mask = mask

    def create(self, hooks: TransportHooks) -> Any:
        """Return the transport; the failure of a request affects that request only."""
        from dial_client.servers.transports.streamable_http import StreamableHTTPTransport

        return _add_repair(StreamableHTTPTransport(self._settings, self._login, self._mask), hooks, self._mask)

    async def explain_end(self) -> str:
        """Return that the connection was closed; the cause is unknown."""
        return "the connection was closed"

    async def aclose(self) -> None:
        """Do nothing: the transport has closed its connections."""


class SSETransportFactory(HTTPTransportFactory):
    """Connects to a URL over the older HTTP+SSE."""

    is_streamable_http = False

    def create(self, hooks: TransportHooks) -> Any:
        """Return the transport; it ends the connection, with the reason, if a message cannot be sent."""
        from dial_client.servers.transports.streamable_http import SSETransport

        transport = SSETransport(self._settings, hooks.on_end, self._login, self._mask)
        return _add_repair(transport, hooks, self._mask)


def _add_repair(transport: Any, hooks: TransportHooks, mask: SecretMask) -> Any:
    from dial_client.servers.transports.rate_limit import RateLimiter
    from dial_client.servers.transports.response_repair import RepairingTransport, ResponseRepairer

    repairer = ResponseRepairer(hooks.on_note, mask)
    limiter = RateLimiter(hooks.on_note)
    return RepairingTransport(transport, repairer, limiter, lambda: hooks.on_end(None), hooks.on_error)
