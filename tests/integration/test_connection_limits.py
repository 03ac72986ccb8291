"""Limits of connections and request bodies, and rejection of ambiguous requests, on real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import anyio
import pytest
from anyio.abc import SocketStream

from tests.inner import (
    MAX_CONNECTIONS,
    UNCOUNTED,
    AccessPolicy,
    ConnectionLimits,
    compute_max_connections,
    find_client,
    parse_proxy,
)
from tests.integration.test_conversation_routes import Maths
from tests.integration.test_serve_security import WAITS, raw, rest
from tests.support.http_service import TOKEN, read_events, serve

pytestmark = pytest.mark.anyio

AUTH = f"Authorization: Bearer {TOKEN}\r\n"
SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        "Content-Length: 0\r\ntransfer-encoding:  Chunked \r\n",
    ],
    ids=["length first", "coding first", "no length"],
)
@pytest.mark.parametrize("path", ["/conversations", "/healthz", "/", "/nothing"])
async def test_a_body_with_two_lengths_is_refused_and_smuggles_no_request(framing: str, path: str) -> None:
    async with serve([]) as server:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{AUTH}{framing}\r\n"
        answer = await rest(await raw(server, f"{head}0\r\n\r\n{SMUGGLED}"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    "framing",
    [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: " + "9" * 5_000 + "\r\n",
    ],
)
async def test_an_invalid_length_is_refused_and_smuggles_no_request(framing: str) -> None:
    async with serve([]) as server:
        head = f"POST /conversations HTTP/1.1\r\nHost: localhost\r\n{AUTH}{framing}\r\n"
        answer = await rest(await raw(server, f"{head}0\r\n\r\n{SMUGGLED}"))
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ", b"HTTP/1.1 413 "))
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_a_transfer_coding_in_http_1_0_is_refused() -> None:
    async with serve([]) as server:
        head = f"POST /conversations HTTP/1.0\r\nHost: localhost\r\n{AUTH}Connection: keep-alive\r\n"
        answer = await rest(await raw(server, f"{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_requests_with_one_length_reuse_a_connection() -> None:
    async with serve([]) as server:
        chunked = f"POST /conversations HTTP/1.1\r\nHost: localhost\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n"
        counted = (
            f"POST /conversations HTTP/1.1\r\nHost: localhost\r\n{AUTH}Connection: close\r\nContent-Length: 2\r\n\r\n"
        )
        answer = await rest(await raw(server, f"{chunked}2\r\n{{}}\r\n0\r\n\r\n{counted}{{}}"))
    assert answer.count(b"HTTP/1.1 201 ") == 2


async def test_idle_connections_without_a_token_do_not_block_clients() -> None:
    many = 1_100
    # No connection is closed for its age, however long the machine takes for so many of them.
    limits = ConnectionLimits(1_000, 100, grace=0)
    async with serve([], limits=limits, head_timeout=600) as server, AsyncExitStack() as stack:
        first = await stack.enter_async_context(await raw(server, ""))
        await answered(first)
        idle = [await stack.enter_async_context(await raw(server, "")) for _ in range(many)]
        assert (await server.http.get("/servers")).status_code == 200
        # The connection that has sent the token is still open, and so are the latest connections without it.
        await answered(first)
        assert await is_closed(idle[0])
        assert await is_closed(idle[many - 150])
        await answered(idle[-1])


async def test_a_new_connection_above_the_limit_closes_the_longest_idle_connection() -> None:
    async with serve([], limits=ConnectionLimits(3, 100)) as server, AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(await raw(server, "")) for _ in range(3)]
        for stream in (*streams, streams[0]):
            await answered(stream)
        latest = await stack.enter_async_context(await raw(server, ""))
        await answered(latest)
        assert await is_closed(streams[1])
        await answered(streams[0])


async def test_a_busy_connection_is_not_closed_for_a_new_connection() -> None:
    maths = Maths()
    limits = ConnectionLimits(2, 100)
    async with serve([WAITS, "Done."], {"maths": maths.server}, limits=limits, allow=["*"]) as server:
        where = await server.conversation()
        async with (
            server.http.stream("POST", f"{where}/chat", json={"text": "Wait!"}) as stream,
            AsyncExitStack() as stack,
        ):
            await maths.gate.begun.wait()
            *_, latest = [await stack.enter_async_context(await raw(server, "")) for _ in range(5)]
            await answered(latest)
            maths.gate.open.set()
            events = [event async for event in read_events(stream)]
    assert events[-1].data == "[DONE]"
    assert events[-2].data["stop_reason"] == "answered"


async def test_bodies_of_all_requests_share_one_limit() -> None:
    maths = Maths()
    text = "x" * (UNCOUNTED + 60_000)
    policy = AccessPolicy(TOKEN, max_total_bodies=100_000)
    async with serve(
        [WAITS, "Done.", "Hello.", "Hello."], {"maths": maths.server}, policy=policy, allow=["*"]
    ) as server:
        where, second = await server.conversation(), await server.conversation()
        async with server.http.stream("POST", f"{where}/chat", json={"text": text}) as stream:
            await maths.gate.begun.wait()
            refused = await server.http.post(f"{second}/chat", json={"text": text, "stream": False})
            pieces = await server.http.post(f"{second}/chat", content=chunks_of(text))
            small = await server.http.post(f"{second}/chat", json={"text": "Hi", "stream": False})
            maths.gate.open.set()
            assert [event.data async for event in read_events(stream)][-1] == "[DONE]"
        again = await server.http.post(f"{second}/chat", json={"text": text, "stream": False})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert refused.json()["error"]["code"] == pieces.json()["error"]["code"] == "too_many_bodies"
    assert (small.status_code, again.status_code) == (200, 200)


async def chunks_of(text: str) -> AsyncIterator[bytes]:
    whole = json.dumps({"text": text, "stream": False}).encode()
    for at in range(0, len(whole), 10_000):
        yield whole[at : at + 10_000]


async def test_a_body_without_a_token_does_not_count_towards_the_limit() -> None:
    async with serve([], policy=AccessPolicy(TOKEN, max_total_bodies=UNCOUNTED)) as server:
        head = f"POST /conversations HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10 * UNCOUNTED}\r\n\r\n"
        async with await raw(server, head) as stream:
            assert b" 401 " in await stream.receive()
            title = {"title": "x" * (UNCOUNTED + 100)}
            assert (await server.http.post("/conversations", json=title)).status_code == 201


@pytest.mark.parametrize(
    ("files", "connections"),
    [(None, MAX_CONNECTIONS), (1_048_576, MAX_CONNECTIONS), (1_024, 768), (256, 192), (64, 16)],
)
def test_the_limit_of_open_files_limits_connections(files: int | None, connections: int) -> None:
    assert compute_max_connections(files) == connections


class NewConnection:
    """A connection without a request."""

    is_idle = True

    def __init__(
        self, name: int, dropped: list[int], address: str | None = "10.0.0.1", *, has_unread: bool = False
    ) -> None:
        self.drop = lambda: dropped.append(name)
        self.address = address
        self.has_unread = has_unread


def test_connections_that_are_opened_at_once_have_time_to_send_the_token() -> None:
    now = 0.0
    dropped: list[int] = []
    limits = ConnectionLimits(1_000, 100, grace=2.0, clock=lambda: now)
    connections = [NewConnection(index, dropped) for index in range(300)]
    for connection in connections:
        limits.add(connection)
    assert dropped == []
    for connection in connections[:150]:
        limits.mark_authenticated(connection)
    now = 2.0
    limits.add(NewConnection(300, dropped))
    # Those that have sent nothing meanwhile are too many again, the oldest first.
    assert dropped == list(range(150, 201))


def test_a_connection_whose_token_waits_to_be_read_is_not_dropped() -> None:
    """A busy process reads late what its clients have sent in time."""
    dropped: list[int] = []
    limits = ConnectionLimits(1_000, 1, grace=0.0)
    for index in range(4):
        limits.add(NewConnection(index, dropped, has_unread=index % 2 == 0))
    assert dropped == [1]


def test_the_connections_of_a_proxy_count_for_its_clients() -> None:
    dropped: list[int] = []
    limits = ConnectionLimits(1_000, 2, grace=0.0)
    connections = [NewConnection(index, dropped, None) for index in range(9)]
    for connection in connections:
        limits.add(connection)
    assert dropped == []
    for index, connection in enumerate(connections):
        limits.assign(connection, "10.0.0.2" if index < 4 else f"10.0.1.{index}")
    assert dropped == [0, 1]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("127.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("127.0.0.1", "1.2.3.4, 203.0.113.7, 10.1.1.1", "203.0.113.7"),
        ("203.0.113.9", "1.2.3.4", ""),
        ("127.0.0.1", "", ""),
        ("127.0.0.1", "unknown", ""),
        ("127.0.0.1", "10.1.1.1", ""),
    ],
)
def test_only_a_proxy_names_the_client(peer: str, forwarded: str, client: str) -> None:
    """An address before that of the first unknown hop may be invented by the client."""
    assert find_client(peer, forwarded, [parse_proxy("127.0.0.1"), parse_proxy("10.0.0.0/8")]) == client


def test_connections_below_the_limit_may_wait() -> None:
    now = 0.0
    dropped: list[int] = []
    limits = ConnectionLimits(1_000, 100, grace=2.0, clock=lambda: now)
    for index in range(100):
        limits.add(NewConnection(index, dropped))
        now += 10.0
    assert dropped == []


def test_new_connections_beyond_the_total_limit_replace_those_of_their_own_address() -> None:
    dropped: list[int] = []
    limits = ConnectionLimits(200, 100, clock=lambda: 0.0)
    for index in range(300):
        limits.add(NewConnection(index, dropped))
    assert dropped == list(range(100))


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "", True),
    ],
)
def test_an_ipv6_prefix_of_64_bits_counts_as_one_address(first: str, second: str, is_one: bool) -> None:
    class Connection:
        is_idle = True
        has_unread = False

        def __init__(self, address: str, drop: Callable[[], None]) -> None:
            self.address = address
            self.drop = drop

    dropped: list[str] = []
    limits = ConnectionLimits(10, 1, grace=0)
    limits.add(Connection(first, lambda: dropped.append(first)))
    limits.add(Connection(second, lambda: dropped.append(second)))
    assert dropped == ([first] if is_one else [])


async def answered(stream: SocketStream) -> None:
    """Send a request with the token and read the whole response; the connection stays open."""
    await stream.send(f"GET /servers HTTP/1.1\r\nHost: localhost\r\n{AUTH}\r\n".encode())
    answer = b""
    while not answer.endswith(b"}"):
        answer += await stream.receive()
    assert answer.startswith(b"HTTP/1.1 200 ")


async def is_closed(stream: SocketStream) -> bool:
    with anyio.move_on_after(10):
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True
    return False
