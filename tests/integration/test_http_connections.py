"""Connections to endpoints without a proxy: how responses end, what is refused, and what is used again."""

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

import anyio
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
        self.is_asked = threading.Event()
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
                    self.is_asked.set()
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


COMPLETE = {
    "in chunks": (CHUNKS + b"\r\n", WORDS),
    "in chunks, with headers after them": (CHUNKS + b"X-Sum: 1\r\nContent-Length: 2\r\n\r\n", WORDS),
    "in chunks whose sizes have spaces and zeros": (CHUNKED + b"005 \r\nHello\r\n000  \r\n\r\n", b"Hello"),
    "of a length": (OK + b"Content-Length: 16\r\n\r\n" + WORDS, WORDS),
    "of no length": (OK + b"Content-Length: 0\r\n\r\n", b""),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "without a reason": (b"HTTP/1.1 200\r\nContent-Length: 16\r\n\r\n" + WORDS, WORDS),
    "not modified, of the length of what is not sent": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b""),
    "after announcements": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Length: 3\r\n\r\n" + CHUNKS + b"\r\n",
        WORDS,
    ),
    "with line feeds alone": (b"HTTP/1.1 200 OK\nX-Empty:\nContent-Length: 16\n\n" + WORDS, WORDS),
}


@pytest.mark.parametrize("piece", [1, 7, 1000])
@pytest.mark.parametrize(("answer", "body"), COMPLETE.values(), ids=COMPLETE)
async def test_a_complete_body_is_read_however_it_is_cut_and_leaves_the_connection_for_the_next_request(
    answer: bytes, body: bytes, piece: int
) -> None:
    with serving(answer, answer, piece=piece) as server:
        async with client() as made:
            assert [(await ask(made, server.url))[1] for _ in range(2)] == [body, body]
    assert server.connections == 1


async def test_chunks_that_arrive_together_are_one_piece() -> None:
    with serving(CHUNKS + b"\r\n") as server:
        async with client() as made:
            response = await made.handle_async_request(httpx2.Request("POST", server.url, content=b"{}"))
            pieces = [piece async for piece in response.aiter_bytes()]
            await response.aclose()
    assert pieces == [WORDS]


async def test_a_coded_body_is_decoded() -> None:
    body = gzip.compress(WORDS)
    answer = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with serving(answer, answer) as server:
        async with client() as made:
            assert [await ask(made, server.url) for _ in range(2)] == [(200, WORDS)] * 2
    assert server.connections == 1


LAST = {
    "without a length": OK + b"X-Closed: 1\r\n\r\n" + WORDS,
    "of HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 16\r\n\r\n" + WORDS,
    "that ends the connection": OK + b"Connection: Close\r\nContent-Length: 16\r\n\r\n" + WORDS,
    "before the beginning of another one": OK + b"Content-Length: 16\r\n\r\n" + WORDS + OK,
    "before bytes that are no response": CHUNKS + b"\r\nagain",
    "in chunks and of a length": CHUNKS.replace(OK, OK + b"Content-Length: 3\r\n") + b"\r\n",
    "of a length and in chunks": CHUNKS.replace(b"chunked\r\n", b"chunked\r\nContent-Length: 99\r\n") + b"\r\n",
}


@pytest.mark.parametrize("answer", LAST.values(), ids=LAST)
async def test_a_connection_that_may_have_ended_or_carry_the_response_to_another_request_is_not_used_again(
    answer: bytes,
) -> None:
    with serving(answer, answer) as server:
        async with client() as made:
            assert [await ask(made, server.url) for _ in range(2)] == [(200, WORDS)] * 2
    assert server.connections == 2


ANNOUNCEMENT = b"HTTP/1.1 103 Early Hints\r\nLink: <%b>\r\n\r\n" % (b"x" * 900)
MALFORMED = {
    "no HTTP": b"220 mail.test ESMTP\r\n\r\n",
    "a status below 100": b"HTTP/1.1 000 Nothing\r\n\r\nabc",
    "no header": OK + b"no header\r\n\r\n",
    "a header with NUL": OK + b"X: a\0b\r\n\r\n",
    "a space in the name of a header": OK + b"Content-Length : 3\r\n\r\nabc",
    "two lengths": OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two lengths in one header": OK + b"Content-Length: 3, 4\r\n\r\nabcd",
    "a negative length": OK + b"Content-Length: -3\r\n\r\n",
    "a length with a sign": OK + b"Content-Length: +3\r\n\r\nabc",
    "a length beyond all numbers": OK + b"Content-Length: %b\r\n\r\nabc" % (b"9" * 40),
    "a coding of the transfer before the chunks": CHUNKS.replace(b"chunked", b"gzip, chunked") + b"\r\n",
    "a coding of the transfer in place of chunks": CHUNKS.replace(b"chunked", b"xchunked") + b"\r\n",
    "chunks in chunks": CHUNKS.replace(b"chunked", b"chunked\r\nTransfer-Encoding: chunked") + b"\r\n",
    "a coding of the transfer without a name": CHUNKS.replace(b"chunked", b"") + b"\r\n",
    "a chunk without a size": CHUNKED + b"five\r\nHello\r\n",
    "a negative chunk": CHUNKED + b"-5\r\nHello\r\n",
    "a chunk beyond all numbers": CHUNKED + b"fffffffffffffffff\r\nHello",
    "a chunk that is longer than it says": CHUNKED + b"4\r\nHello\r\n0\r\n\r\n",
    "a body of an announcement": b"HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\nabc" + CHUNKS,
}
ENDLESS = {
    "headers without an end": OK + b"X: " + b"x" * 300_000,
    "many headers": OK + b"X: y\r\n" * 60_000 + b"\r\n",
    "announcements without an end": ANNOUNCEMENT * 300,
    "a size without an end": CHUNKED + b"1;" + b"x" * 300_000,
    "headers without an end after the last chunk": CHUNKED + b"0\r\n" + b"X: y\r\n" * 60_000,
}
CUT = {
    "nothing": b"",
    "half a head": OK + b"X-Half: ",
    "half a chunk": CHUNKED + b"5\r\nHel",
    "chunks without the last one": CHUNKED + b"5\r\nHello\r\n",
    "chunks without the line after the last one": CHUNKED + b"5\r\nHello\r\n0\r\n",
    "less than its length": OK + b"Content-Length: 16\r\n\r\nHello",
}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        *((answer, r"^(?!Server disconnected|peer closed|the headers)") for answer in MALFORMED.values()),
        *((answer, "the headers of the response are too long") for answer in ENDLESS.values()),
        *((answer, "Server disconnected|peer closed") for answer in CUT.values()),
    ],
    ids=[*MALFORMED, *ENDLESS, *CUT],
)
async def test_a_malformed_endless_or_cut_response_is_an_error(answer: bytes, why: str) -> None:
    with serving(answer) as server:
        async with client() as made:
            with pytest.raises(httpx2.RemoteProtocolError, match=why):
                await ask(made, server.url)


async def test_another_protocol_than_was_asked_for_is_no_answer_and_takes_its_connection_along() -> None:
    answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nabc"
    with serving(answer, CHUNKS + b"\r\n") as server:
        async with client() as made:
            assert await ask(made, server.url) == (101, b"")
            assert await ask(made, server.url) == (200, WORDS)
    assert server.connections == 2


async def test_what_arrived_before_a_broken_chunk_is_handed_on() -> None:
    with serving(CHUNKED + b"5\r\nHello\r\nfive\r\n") as server:
        async with client() as made:
            response = await made.handle_async_request(httpx2.Request("POST", server.url, content=b"{}"))
            body = aiter(response.aiter_bytes())
            assert await anext(body) == b"Hello"
            with pytest.raises(httpx2.RemoteProtocolError):
                await anext(body)
            await response.aclose()


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


async def test_a_request_that_is_cancelled_takes_its_connection_along() -> None:
    with serving(OK, CHUNKS + b"\r\n") as server:
        async with client() as made:
            async with anyio.create_task_group() as group:
                group.start_soon(ask, made, server.url)
                await to_thread.run_sync(server.is_asked.wait)
                group.cancel_scope.cancel()
            assert await ask(made, server.url) == (200, WORDS)
    assert server.connections == 2


async def test_a_silent_endpoint_is_a_timeout() -> None:
    with serving(OK) as server:
        async with client() as made:
            request = httpx2.Request("POST", server.url, content=b"{", extensions={"timeout": {"read": 0.05}})
            with pytest.raises(httpx2.ReadTimeout):
                await made.handle_async_request(request)


async def test_a_closed_client_has_no_connection_left_not_even_one_of_a_response_that_is_read() -> None:
    with serving(CHUNKS) as server:
        async with client() as made:
            response = await made.handle_async_request(httpx2.Request("POST", server.url, content=b"{}"))
            await made.aclose()
            await server.wait_for_end()
            await response.aclose()


async def test_each_of_many_requests_has_a_connection_of_which_twenty_are_kept() -> None:
    with serving(*[CHUNKS + b"\r\n"] * 44) as server:
        async with client() as made:
            for _ in range(2):
                requests = [httpx2.Request("POST", server.url, content=b"{}") for _ in range(22)]
                responses = [await made.handle_async_request(request) for request in requests]
                for response in responses:
                    assert await response.aread() == WORDS
    assert server.connections == 24


async def test_a_request_has_its_path_its_headers_and_its_length() -> None:
    with serving(CHUNKS + b"\r\n") as server:
        async with client() as made:
            await ask(made, server.url)
    [request] = server.requests
    host = server.url.split("/")[2].encode()
    assert request == b"POST /v1?tenant=7 HTTP/1.1\r\nHost: %b\r\nX-Key: k\r\nContent-Length: 2\r\n\r\n{}" % host


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "a\0b"])
async def test_a_header_with_a_line_end_is_not_sent(value: str) -> None:
    with serving() as server:
        async with client() as made:
            with pytest.raises(httpx2.LocalProtocolError, match="Illegal header value") as refused:
                await ask(made, server.url, value)
    assert value not in str(refused.value)  # it may be a key
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
