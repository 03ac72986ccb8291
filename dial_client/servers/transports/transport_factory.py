"""The transports to a server, as a session sees them.

Creating a factory may start a process but imports no SDK: the process boots while `TransportFactory.create` imports
the SDK.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from dial_client.callbacks.oauth_callbacks import Login
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.transports.stderr_tail import StderrTail
from dial_client.settings.configuration import ServerSettings, Transport


@dataclass(frozen=True, slots=True)
class TransportHooks:
    """The callbacks of a transport."""

    on_note: Callable[[str], None]
    """Is told of an oddity that harms nothing, in words."""
    on_end: Callable[[str | None], None]
    """Is told that the connection has ended; with the reason, if it is known."""
    on_error: Callable[[BaseException], Awaitable[None]]
    """Is told of the error that ends the connection, before the transport closes, which may take seconds."""


class TransportFactory(Protocol):
    """A transport to one server. `aclose` has to be called, whether the transport was created or not."""

    is_streamable_http: bool
    """True for streamable HTTP: there are sessions a server may forget, and HTTP+SSE is tried if this is refused."""

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's standard error."""

    def create(self, hooks: TransportHooks) -> Any:
        """Return the transport, or the server object, that `mcp.Client` takes."""

    async def explain_end(self) -> str:
        """Return why the connection ended, in words."""

    async def aclose(self) -> None:
        """Release everything."""


def transports_for(
    settings: ServerSettings, login: Login | None = None, mask: SecretMask | None = None
) -> Iterator[TransportFactory]:
    """Yield the transports to try, each created when the one before was refused.

    A URL is first taken for streamable HTTP, then for HTTP+SSE (MCP specification, "Backwards Compatibility").

    Args:
        settings: of the server.
        login: how a person logs in to a server behind a URL.
        mask: hides secrets in what the server sends; by default those of the settings.

    Raises:
        ServerStartError: its process cannot be started.
    """
    mask = mask or SecretMask.of(settings)
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
    """A server object in this very process."""

    is_streamable_http = False
    stderr: tuple[str, ...] = ()

    def __init__(self, server: Any) -> None:
        self._server = server

    def create(self, hooks: TransportHooks) -> Any:  # noqa: ARG002 (the SDK reports all there is)
        """Return the server itself."""
        return self._server

    async def explain_end(self) -> str:
        """Return that the server stopped: there is no more to know."""
        return "the server has stopped"

    async def aclose(self) -> None:
        """Do nothing: the server belongs to its creator."""


class StdioTransportFactory:
    """A child process (POSIX). The constructor starts it."""

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
        return _repairing(transport, hooks, self._mask)

    async def explain_end(self) -> str:
        """Return how the process ended and what it wrote last."""
        return await self._explain_end() if self._explain_end is not None else "the server was not reached"

    async def aclose(self) -> None:
        """End the process and its group."""
        await self._process.stop()
        self._process.close()


class WindowsStdioTransportFactory:
    """A child process on Windows, run by the SDK, which puts it into a job object."""

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

        return _repairing(WindowsStdioTransport(self._settings, self._tail), hooks, self._mask)

    async def explain_end(self) -> str:
        """Return what the process wrote last."""
        line = self._tail.last
        return f"the server ended; it last said: {line}" if line else "the server ended and said nothing"

    async def aclose(self) -> None:
        """Do nothing: the SDK has ended the process."""


class HTTPTransportFactory:
    """A URL that speaks streamable HTTP."""

    is_streamable_http = True
    stderr: tuple[str, ...] = ()

    def __init__(self, settings: ServerSettings, login: Login | None, mask: SecretMask) -> None:
        self._settings = settings
        self._login = login
        self._mask = mask

    def create(self, hooks: TransportHooks) -> Any:
        """Return the transport, in which a failure stays with the request it belongs to."""
        from dial_client.servers.transports.streamable_http import StreamableHTTPTransport

        return _repairing(StreamableHTTPTransport(self._settings, self._login, self._mask), hooks, self._mask)

    async def explain_end(self) -> str:
        """Return that the connection is closed: there is no more to know."""
        return "the connection was closed"

    async def aclose(self) -> None:
        """Do nothing: the transport has closed its connections."""


class SSETransportFactory(HTTPTransportFactory):
    """A URL that speaks the older HTTP+SSE."""

    is_streamable_http = False

    def create(self, hooks: TransportHooks) -> Any:
        """Return the transport, which ends, with the reason, when a message cannot be sent."""
        from dial_client.servers.transports.streamable_http import SSETransport

        transport = SSETransport(self._settings, hooks.on_end, self._login, self._mask)
        return _repairing(transport, hooks, self._mask)


def _repairing(transport: Any, hooks: TransportHooks, mask: SecretMask) -> Any:
    from dial_client.servers.transports.rate_limit import RateLimiter
    from dial_client.servers.transports.response_repair import RepairingTransport, ResponseRepairer

    repairer = ResponseRepairer(hooks.on_note, mask)
    limiter = RateLimiter(hooks.on_note)
    return RepairingTransport(transport, repairer, limiter, lambda: hooks.on_end(None), hooks.on_error)
