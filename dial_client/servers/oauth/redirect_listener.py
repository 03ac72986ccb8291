"""A listener on a loopback port for the redirect of one login (RFC 8252, 7.3)."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Self
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import Listener, SocketStream

from dial_client.messages.errors import LoginFailed
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.oauth.login_stores import LoginStore
from dial_client.servers.oauth.token_storage import TokenStorage
from dial_client.settings.config_types import OAuthSettings, ServerSettings

PATH = "/callback"
# Maximum bytes of a request's headers.
MAX_REQUEST = 16 * 1024
REQUEST_SECONDS = 10.0
_PAGE = """<!doctype html><meta charset="utf-8"><title>dial-chat</title>
<body style="font-family: sans-serif; margin: 4em"><p>{}</p></body>"""
_DONE = "You can close this page now, and return to the terminal."


class RedirectListener:
    """Listens on this machine while it is entered.

    Args:
        port: The port; 0 selects a free port.
        host: ``127.0.0.1``, or ``localhost``, which is ``::1`` too.
        path: The path of the redirect URI.

    Raises:
        LoginFailed: On entering, if the port is in use.
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1", path: str = PATH) -> None:
        self.redirect_uri = ""
        """The redirect URI; empty before the listener is entered."""
        self._port, self._name, self._path = port, host, path
        self._host = ""

    async def __aenter__(self) -> Self:
        try:
            self._listener = await self._listen()
        except OSError as error:
            raise LoginFailed(f"cannot listen for the redirect on port {self._port}: {error.strerror}") from None
        port = self._listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 (no Django here)
        self._host = f"{self._name}:{port}"
        self.redirect_uri = f"http://{self._host}{self._path}"
        return self

    async def _listen(self) -> Listener[SocketStream]:
        try:
            return await anyio.create_tcp_listener(local_host=self._name, local_port=self._port)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            # In a container `localhost` may name ::1 although there is no IPv6.
            return await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)

    async def __aexit__(self, *failure: object) -> None:
        await self._listener.aclose()

    async def answer(self, state: str) -> str:
        """Wait for the redirect of the login with this `state`, and return its URL.

        All other requests, for example from other pages, are answered with 404.
        """
        urls: list[str] = []
        async with anyio.create_task_group() as group:

            async def serve(stream: SocketStream) -> None:
                async with stream:
                    with suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
                        if url := await self._respond(stream, state):
                            urls.append(url)
                            group.cancel_scope.cancel()

            await self._listener.serve(serve, group)
        return urls[0]

    async def _respond(self, stream: SocketStream, state: str) -> str | None:
        head = b""
        with anyio.move_on_after(REQUEST_SECONDS):
            # Another program may connect and send nothing, or send without an end.
            while b"\r\n\r\n" not in head and len(head) < MAX_REQUEST:
                head += await stream.receive()
            target = self._parse_target(head.decode("latin-1"), state)
            status, words = ("200 OK", _DONE) if target else ("404 Not Found", "There is nothing here.")
            page = _PAGE.format(words).encode()
            fields = f"Content-Type: text/html\r\nContent-Length: {len(page)}\r\nConnection: close"
            await stream.send(f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + page)
            return f"http://{self._host}{target}" if target else None
        return None

    def _parse_target(self, head: str, state: str) -> str | None:
        """Return the target of a request if it is the redirect of this login."""
        # Any web page can send requests to this port. One that guesses the path does not know the state. With another
        # host than this address, a page could read the answers as if they were its own (DNS rebinding), and two `Host`
        # headers could mean different hosts to different readers.
        lines = head.split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target = rest.partition(" ")[0]
        hosts = [line.partition(":")[2].strip() for line in lines[1:] if line.lower().startswith("host:")]
        is_redirect = urlsplit(target).path == self._path and parse_qs(urlsplit(target).query).get("state") == [state]
        return target if method == "GET" and is_redirect and hosts == [self._host] else None


async def build_listener(server: ServerSettings, logins: LoginStore) -> RedirectListener:
    """Return the listener for the redirect URI of a server's entry.

    Raises:
        LoginFailed: The redirect URI is not an address of this machine.
    """
    oauth = server.oauth or OAuthSettings()
    if oauth.redirect_uri is None:
        return RedirectListener(oauth.callback_port or await _find_registered_port(server, logins), oauth.callback_host)
    parts = urlsplit(oauth.redirect_uri)
    if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost"):
        raise LoginFailed(
            f"cannot receive the redirect at {to_one_line(oauth.redirect_uri, 200)}, the redirectUri of {server.name}: "
            "dial-chat listens on this machine, at http://localhost:PORT/PATH or http://127.0.0.1:PORT/PATH"
        )
    return RedirectListener(parts.port or 80, parts.hostname, parts.path)


async def _find_registered_port(server: ServerSettings, logins: LoginStore) -> int:
    """Return the port of a redirect URI that is registered for the server, if it is free; else 0, for any port."""
    client = (await TokenStorage(server, logins).load()).client or {}
    for uri in client.get("redirect_uris") or ():
        port = urlsplit(uri).port or 0
        try:
            async with RedirectListener(port):
                return port
        except LoginFailed:
            continue
    return 0
