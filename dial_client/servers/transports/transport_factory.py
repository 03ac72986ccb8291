"""The transports to a server, behind the interface that a session uses.

Creating a factory may start a process, but does not import the SDK: the process starts up while
`TransportFactory.create` imports the SDK.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from dial_client.hooks.server_callbacks import Login
from dial_client.servers.oauth.login_stores import LoginStore
from dial_client.servers.sdk_import import import_sdk
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.status import AddNote
from dial_client.settings.config_types import ServerSettings, Transport

# Called when a connection has ended, with the reason; empty if it is unknown.
OnEnd = Callable[[str], None]
# Called with the error that ends a connection, before the transport closes, which may take some seconds.
OnError = Callable[[Exception], Awaitable[None]]


class TransportFactory:
    """Creates one transport to a server: to a URL, a child process, or a server object in this process.

    Creating the factory for a child process starts the process, except on Windows, where the SDK does.

    Args:
        target: A `ServerSettings`, or a server object in this process.
        mask: Masks secrets in the server's output.
        login: The callback for logins of the user to a server behind a URL; None if nobody can log in.
        logins: The logins of the client.
        is_streamable_http: True for streamable HTTP: a server may lose a session, and HTTP+SSE is tried if the server
            refuses this one.

    Raises:
        ServerStartError: The server's process cannot be started.
    """

    def __init__(
        self,
        target: Any,
        mask: SecretMask,
        login: Login | None,
        logins: LoginStore,
        *,
        is_streamable_http: bool = False,
    ) -> None:
        # Imported for a server that starts: `subprocess` would be loaded with the package.
        from dial_client.servers.transports.server_process import ServerProcess, StderrTail

        self.is_streamable_http = is_streamable_http
        self._target = target
        self._mask = mask
        self._login, self._logins = login, logins
        self._is_stdio = isinstance(target, ServerSettings) and target.transport is Transport.STDIO
        has_process = self._is_stdio and sys.platform != "win32"
        self._process = ServerProcess(target, mask) if has_process else None
        self._stderr = StderrTail(mask) if self._process is None else self._process.stderr
        self._explain_exit: Callable[[], Awaitable[str]] | None = None
        self.direct: Any = None
        """The `direct_calls.DirectCalls` of the transport; None before `create`, and if the transport has none."""

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines of the server's standard error."""
        return self._stderr.lines

    def create(self, on_note: AddNote, on_end: OnEnd, on_error: OnError) -> Any:
        """Return the target for `mcp.Client`: a transport, or a server object of this process.

        Args:
            on_note: Is called with a note about a harmless irregularity of the server.
            on_end: See `OnEnd`. The SDK itself reports the end and errors of a server object.
            on_error: See `OnError`.
        """
        if not isinstance(self._target, ServerSettings):
            return self._target
        import_sdk()
        from dial_client.servers.transports.direct_calls import DirectCalls
        from dial_client.servers.transports.response_repair import RepairingTransport

        transport: Any
        if self._process is not None:
            from dial_client.servers.transports.stdio import StdioTransport

            transport = StdioTransport(self._process, on_note)
            self._explain_exit = transport.explain_end
            self.direct = DirectCalls(transport.write_line)
        elif self._is_stdio:
            from dial_client.servers.transports.stdio import WindowsStdioTransport

            transport = WindowsStdioTransport(self._target, self._stderr)
        else:
            from dial_client.servers.transports.streamable_http import HTTPTransport

            # HTTP+SSE sends messages apart from the stream: a message that cannot be sent ends the connection.
            on_failure = None if self.is_streamable_http else on_end
            transport = HTTPTransport(self._target, self._login, self._logins, self._mask, on_failure)
        return RepairingTransport(transport, self._mask, on_note, on_end, on_error, self.direct)

    async def explain_end(self) -> str:
        """Return why the connection ended, as a text for users; of a URL the cause is unknown."""
        if self._explain_exit is not None:
            return await self._explain_exit()
        if self._is_stdio:
            line = self._stderr.last
            return f"the server ended; it last said: {line}" if line else "the server ended and said nothing"
        return "the connection was closed" if isinstance(self._target, ServerSettings) else "the server has stopped"

    async def aclose(self) -> None:
        """End the server process and its group. Must be called even if `create` was not."""
        if self._process is not None:
            await self._process.stop()
            self._process.close()


def list_transports(
    target: Any, login: Login | None, logins: LoginStore, mask: SecretMask
) -> Iterator[TransportFactory]:
    """Yield the transports to try, each only after the transport before it was refused.

    For a URL, streamable HTTP is tried first, then HTTP+SSE (MCP specification, "Backwards Compatibility"). The
    arguments and errors are those of `TransportFactory`.
    """
    if isinstance(target, ServerSettings) and target.transport is Transport.HTTP:
        yield TransportFactory(target, mask, login, logins, is_streamable_http=True)
    yield TransportFactory(target, mask, login, logins)
