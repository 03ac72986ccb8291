"""HTTP/1.1 without a library: how bodies end, when a connection is used again, and what is refused."""

from __future__ import annotations

import gzip
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

from tests.inner import DirectClient

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = CHUNKED + b"5\r\nHello\r\n01 ;with=more\r\n,\r\nA\r\n everybody\r\n0\r\n"
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
async def client(context: ssl.SSLContext | None = None) -> AsyncIterator[DirectClient]:
    made = DirectClient(context)
    yield made
    await made.aclose()


async def ask(made: DirectClient, url: str) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    response = await made.send(httpx2.Request("POST", url, headers={"X-Key": "k"}), b"{}", 5)
    try:
        return response.status_code, b"".join([piece async for piece in response.aiter_bytes()])
    finally:
        await response.aclose()


COMPLETE = {
    "in chunks": (CHUNKS + b"\r\n", WORDS),
    "in chunks, with headers after them": (CHUNKS + b"X-Sum: 1\r\nX-More: 2\r\n\r\n", WORDS),
    "of a length": (OK + b"Content-Length: 16\r\n\r\n" + WORDS, WORDS),
    "of a length that is said twice": (OK + b"Content-Length: 16\r\nContent-Length: 16\r\n\r\n" + WORDS, WORDS),
    "of no length": (OK + b"Content-Length: 0\r\n\r\n", b""),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "after announcements": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + CHUNKS + b"\r\n",
        WORDS,
    ),
    "with line feeds alone, and a folded header": (
        b"HTTP/1.1 200\nX-Long: a\n  b\nContent-Length: 16\n\n" + WORDS,
        WORDS,
    ),
}


@pytest.mark.parametrize("piece", [1, 2, 7, 1000])
@pytest.mark.parametrize(("answer", "body"), COMPLETE.values(), ids=COMPLETE)
async def test_a_complete_body_is_read_however_it_is_cut_and_leaves_the_connection_for_the_next_request(
    answer: bytes, body: bytes, piece: int
) -> None:
    with serving(answer, answer, piece=piece) as server:
        async with client() as made:
            replies = [await ask(made, server.url) for _ in range(2)]
    assert [content for _, content in replies] == [body, body]
    assert server.connections == 1


async def test_chunks_that_arrive_together_are_one_piece() -> None:
    with serving(CHUNKS + b"\r\n") as server:
        async with client() as made:
            response = await made.send(httpx2.Request("POST", server.url), b"{}", 5)
            pieces = [piece async for piece in response.aiter_bytes()]
            await response.aclose()
    assert pieces == [WORDS]


LAST = {
    "without a length": OK + b"X-Closed: 1\r\n\r\n" + WORDS,
    "of HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 16\r\n\r\n" + WORDS,
    "that ends the connection": OK + b"Connection: Close\r\nContent-Length: 16\r\n\r\n" + WORDS,
    "before more bytes": OK + b"Content-Length: 16\r\n\r\n" + WORDS + OK,
    "in chunks before more bytes": CHUNKS + b"\r\n" + OK,
    "in chunks and of a length": OK
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
    + CHUNKS[47:]
    + b"\r\n",
}


@pytest.mark.parametrize("answer", LAST.values(), ids=LAST)
async def test_a_connection_that_may_have_ended_is_not_used_again(answer: bytes) -> None:
    with serving(answer, answer) as server:
        async with client() as made:
            assert await ask(made, server.url) == (200, WORDS)
            assert await ask(made, server.url) == (200, WORDS)
    assert server.connections == 2


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
            response = await made.send(httpx2.Request("POST", server.url), b"{}", 5)
            await response.aclose()
            assert await ask(made, server.url) == (200, WORDS)
    assert server.connections == 2


BROKEN = {
    "no HTTP": (b"220 mail.test ESMTP\r\n\r\n", "illegal status line"),
    "no header": (OK + b"no header\r\n\r\n", "illegal header line"),
    "a space in the name of a header": (OK + b"Content-Length : 3\r\n\r\nabc", "illegal header line"),
    "two lengths": (OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "lengths of the response"),
    "a negative length": (OK + b"Content-Length: -3\r\n\r\n", "lengths of the response"),
    "an unknown coding of the transfer": (
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        "unknown transfer encoding",
    ),
    "a chunk without a size": (CHUNKED + b"five\r\nHello\r\n", "illegal chunk header"),
    "a negative chunk": (CHUNKED + b"-5\r\nHello\r\n", "illegal chunk header"),
    "a chunk that is longer than it says": (CHUNKED + b"4\r\nHello\r\n0\r\n\r\n", "illegal chunk header"),
    "a head without an end": (OK + b"X: " + b"x" * 200_000, "head of the response is too long"),
    "a size without an end": (CHUNKED + b"1;" + b"x" * 40_000, "line between chunks is too long"),
    "nothing": (b"", "disconnected without sending a response"),
    "half a head": (OK + b"X-Half: ", "disconnected without sending a response"),
    "half a chunk": (CHUNKED + b"5\r\nHel", "incomplete chunked read"),
    "chunks without the last one": (CHUNKED + b"5\r\nHello\r\n", "incomplete chunked read"),
    "less than its length": (OK + b"Content-Length: 16\r\n\r\nHello", "too few bytes"),
    "another protocol": (b"HTTP/1.1 101 Switching Protocols\r\nContent-Length: 99\r\n\r\n", "too few bytes"),
}


@pytest.mark.parametrize(("answer", "why"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_response_is_an_error_that_says_what_is_wrong(answer: bytes, why: str) -> None:
    with serving(answer) as server:
        async with client() as made:
            with pytest.raises(httpx2.RemoteProtocolError, match=why):
                await ask(made, server.url)


async def test_a_coded_body_is_decoded() -> None:
    body = gzip.compress(WORDS)
    answer = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with serving(answer, answer) as server:
        async with client() as made:
            assert [await ask(made, server.url) for _ in range(2)] == [(200, WORDS)] * 2
    assert server.connections == 1


async def test_a_request_has_its_path_its_headers_and_its_length() -> None:
    with serving(CHUNKS + b"\r\n") as server:
        async with client() as made:
            await ask(made, server.url)
    [request] = server.requests
    host = server.url.split("/")[2].encode()
    assert request == b"POST /v1?tenant=7 HTTP/1.1\r\nHost: %b\r\nX-Key: k\r\ncontent-length: 2\r\n\r\n{}" % host


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "a\0b"])
async def test_a_header_with_a_line_end_is_not_sent(value: str) -> None:
    with serving() as server:
        async with client() as made:
            with pytest.raises(httpx2.LocalProtocolError, match="X-Key"):
                await made.send(httpx2.Request("POST", server.url, headers={"X-Key": value}), b"{}", 5)
    assert server.connections == 0


async def test_a_silent_endpoint_is_a_timeout() -> None:
    with serving(OK) as server:
        async with client() as made:
            with pytest.raises(httpx2.ReadTimeout):
                await made.send(httpx2.Request("POST", server.url), b"{", 0.05)
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
            with pytest.raises(httpx2.ConnectError) as refused:
                await ask(made, server.url)
    causes = [refused.value.__cause__, getattr(refused.value.__cause__, "__cause__", None)]
    assert any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes)
