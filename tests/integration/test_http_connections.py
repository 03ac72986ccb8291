"""Connections to endpoints without a proxy: which are used again, which are trusted, and what is not sent."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from anyio import to_thread
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.inner import DirectTransport

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = CHUNKED + b"5\r\nHello\r\n1;with=more\r\n,\r\nA\r\n everybody\r\n0\r\n"
WORDS = b"Hello, everybody"


class Server:
    """Answers each request with the next bytes, in pieces, and closes a connection on which nothing more is to come."""

    def __init__(self, answers: Sequence[bytes], piece: int, tls: ssl.SSLContext | None) -> None:
        self.connections, self.is_ending = 0, False
        self.requests: list[bytes] = []
        self._answers, self._piece, self._tls = list(answers), piece, tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._socket.getsockname()[1]}/v1?tenant=7"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            if self.is_ending:
                connection.close()
                return
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def end(self) -> None:
        """Close the server, once the clients have closed their connections."""
        self.is_ending = True
        socket.create_connection(self._socket.getsockname()).close()
        for thread in self._threads:
            thread.join(10)
        self._socket.close()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A client that does not trust the certificate ends the handshake.
        with connection, suppress(OSError):
            stream = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
            with stream:
                while self._answers and (request := self._read(stream)):
                    self.requests.append(request)
                    answer = self._answers.pop(0)
                    for at in range(0, len(answer), self._piece):
                        stream.sendall(answer[at : at + self._piece])
                    if b"\r\nX-Closed:" in answer:
                        return

    def _read(self, stream: socket.socket) -> bytes:
        request = b""
        while not request.endswith(b"\r\n\r\n{}"):
            if not (received := stream.recv(65536)):
                return b""
            request += received
        return request

    async def wait_for_end(self) -> None:
        """Wait until the first connection has been closed."""
        await to_thread.run_sync(self._threads[1].join)


@contextmanager
def serving(*answers: bytes, piece: int = 1 << 20, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(answers, piece, tls)
    try:
        yield server
    finally:
        server.end()


@asynccontextmanager
async def client(context: ssl.SSLContext | None = None) -> AsyncIterator[DirectTransport]:
    made = DirectTransport(context)
    yield made
    await made.aclose()


async def ask(made: DirectTransport, url: str, value: str = "k") -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    extensions = {"timeout": {"connect": 5, "read": 5}}
    request = httpx2.Request("POST", url, headers={"X-Key": value}, content=b"{}", extensions=extensions)
    response = await made.handle_async_request(request)
    try:
        return response.status_code, b"".join([piece async for piece in response.aiter_bytes()])
    finally:
        await response.aclose()


@pytest.mark.parametrize("piece", [1, 1000])
async def test_a_connection_whose_response_was_read_is_used_again(piece: int) -> None:
    with serving(CHUNKS + b"\r\n", CHUNKS + b"\r\n", piece=piece) as server:
        async with client() as made:
            assert [await ask(made, server.url) for _ in range(2)] == [(200, WORDS)] * 2
    assert server.connections == 1


async def test_a_connection_that_the_endpoint_has_closed_is_not_used_again() -> None:
    answer = OK + b"X-Closed: 1\r\nContent-Length: 16\r\n\r\n" + WORDS
    with serving(answer, answer) as server:
        async with client() as made:
            assert await ask(made, server.url) == (200, WORDS)
            await server.wait_for_end()
            assert await ask(made, server.url) == (200, WORDS)
    assert server.connections == 2


async def test_a_response_that_was_not_read_to_its_end_takes_its_connection_along() -> None:
    with serving(CHUNKS, CHUNKS + b"\r\n") as server:
        async with client() as made:
            response = await made.handle_async_request(httpx2.Request("POST", server.url, content=b"{}"))
            await response.aclose()
            assert await ask(made, server.url) == (200, WORDS)
    assert server.connections == 2


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "a\0b"])
async def test_a_header_with_a_line_end_is_not_sent(value: str) -> None:
    with serving() as server:
        async with client() as made:
            with pytest.raises(httpx2.LocalProtocolError, match="Illegal header value"):
                await ask(made, server.url, value)
    assert server.requests == []


def write_certificate(folder: Path) -> Path:
    """Write a certificate of the loopback address that nobody has signed, with its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "endpoint.test")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "certificate.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return file


async def test_an_endpoint_with_tls_is_asked_if_its_certificate_is_trusted(tmp_path: Path) -> None:
    file = write_certificate(tmp_path)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(file)
    trusting = ssl.create_default_context(cafile=str(file))
    with serving(CHUNKS + b"\r\n", CHUNKS + b"\r\n", tls=served) as server:
        async with client(trusting) as made:
            assert [await ask(made, server.url) for _ in range(2)] == [(200, WORDS)] * 2
            assert server.connections == 1
    with serving(tls=served) as server:
        async with client(ssl.create_default_context()) as made:
            with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
                await ask(made, server.url)
    assert server.requests == []
