"""A host of strangers on loopback: records each connection and each datagram, and answers HTTP requests with a text."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class NetworkListener:
    """Listens on one port, for TCP and UDP."""

    def __init__(self) -> None:
        self.received: list[str] = []
        """The first line of each request, and ``datagram`` for each datagram."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.bind(("127.0.0.1", self.port))

    @property
    def url(self) -> str:
        """The origin of this host."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        for receive in (self._receive_connections, self._receive_datagrams):
            threading.Thread(target=receive, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for opened in (self._listener, self._datagrams):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _receive_connections(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self.received.append(connection.recv(4096).decode(errors="replace").partition("\r\n")[0])
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")

    def _receive_datagrams(self) -> None:
        with suppress(OSError):
            while self._datagrams.recv(4096):
                self.received.append("datagram")
