"""The ways to reach a server, as far as whoever owns a connection has to know them.

Making a factory may start a process but loads no SDK: the process boots while `TransportFactory.target` imports the
SDK.
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
    """Whom a link tells what it sees."""

    note: Callable[[str], None]
    """Something odd that harms nothing, in words."""
    ended: Callable[[str | None], None]
    """The connection is no more; with the reason, where it is known by then."""
    leaving: Callable[[BaseException], Awaitable[None]]
    """The client is left on account of this error; it may take seconds until it is."""


class TransportFactory(Protocol):
    """One way to one server. `aclose` has to be called, whether the target was used or not."""

    is_streamable_http: bool
    """Whether there are sessions a server may forget, and the older HTTP+SSE is worth trying when this is refused."""

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines on its standard error."""

    def target(self, hooks: TransportHooks) -> Any:
        """Give what `mcp.Client` takes."""

    async def last_words(self) -> str:
        """Say why the connection ended, in words."""

    async def aclose(self) -> None:
        """Leave nothing behind."""


def links_to(
    settings: ServerSettings, login: Login | None = None, mask: SecretMask | None = None
) -> Iterator[TransportFactory]:
    """Give the ways to a server, each made when the one before it was refused; `login` is for those behind a URL.

    What comes from it is masked with `mask`, which without it is that of the settings alone. A URL is first taken
    for streamable HTTP, then for HTTP+SSE (MCP specification, "Backwards Compatibility").

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

    def target(self, hooks: TransportHooks) -> Any:  # noqa: ARG002 (it has nothing to tell that the SDK does not)
        """Give the server itself."""
        return self._server

    async def last_words(self) -> str:
        """Say that it stopped: there is no more to know."""
        return "the server has stopped"

    async def aclose(self) -> None:
        """Do nothing: the server belongs to whoever made it."""


class StdioTransportFactory:
    """A process of our own (POSIX). Making it starts the process."""

    is_streamable_http = False

    def __init__(self, settings: ServerSettings, mask: SecretMask) -> None:
        from dial_client.servers.transports.server_process import ServerProcess

        self._mask = mask
        self._process = ServerProcess(settings, mask)
        self._last_words: Callable[[], Awaitable[str]] | None = None

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines on its standard error."""
        return self._process.stderr.lines

    def target(self, hooks: TransportHooks) -> Any:
        """Give its standard input and output as a transport."""
        from dial_client.servers.transports.stdio import StdioTransport

        transport = StdioTransport(self._process, hooks.note)
        self._last_words = transport.last_words
        return _mending(transport, hooks, self._mask)

    async def last_words(self) -> str:
        """Say how the process ended and what it said last."""
        return await self._last_words() if self._last_words is not None else "the server was not reached"

    async def aclose(self) -> None:
        """End the process and all its group."""
        await self._process.stop()
        self._process.close()


class WindowsStdioTransportFactory:
    """A process of our own on Windows, run by the SDK, which puts it into a job object."""

    is_streamable_http = False

    def __init__(self, settings: ServerSettings, mask: SecretMask) -> None:
        self._settings = settings
        self._mask = mask
        self._tail = StderrTail(mask)

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines on its standard error."""
        return self._tail.lines

    def target(self, hooks: TransportHooks) -> Any:
        """Give its standard input and output as a transport."""
        from dial_client.servers.transports.windows_stdio import WindowsStdioTransport

        return _mending(WindowsStdioTransport(self._settings, self._tail), hooks, self._mask)

    async def last_words(self) -> str:
        """Say what the process said last."""
        said = self._tail.last
        return f"the server ended; it last said: {said}" if said else "the server ended and said nothing"

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

    def target(self, hooks: TransportHooks) -> Any:
        """Give the URL as a transport whose faults stay with the request they belong to."""
        from dial_client.servers.transports.streamable_http import StreamableHTTPTransport

        return _mending(StreamableHTTPTransport(self._settings, self._login, self._mask), hooks, self._mask)

    async def last_words(self) -> str:
        """Say that the connection is closed: there is no more to know."""
        return "the connection was closed"

    async def aclose(self) -> None:
        """Do nothing: the transport has closed its connections."""


class SSETransportFactory(HTTPTransportFactory):
    """A URL that speaks the older HTTP+SSE."""

    is_streamable_http = False

    def target(self, hooks: TransportHooks) -> Any:
        """Give the URL as a transport that ends, with the reason, when a message cannot be sent."""
        from dial_client.servers.transports.streamable_http import SSETransport

        transport = SSETransport(self._settings, hooks.ended, self._login, self._mask)
        return _mending(transport, hooks, self._mask)


def _mending(transport: Any, hooks: TransportHooks, mask: SecretMask) -> Any:
    from dial_client.servers.transports.rate_limit import RateLimiter
    from dial_client.servers.transports.response_repair import RepairingTransport, ResponseRepairer

    mender = ResponseRepairer(hooks.note, mask)
    return RepairingTransport(transport, mender, RateLimiter(hooks.note), lambda: hooks.ended(None), hooks.leaving)
