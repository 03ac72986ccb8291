"""SSE responses to clients that are silent, slow or disconnected."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Message

from tests.inner import KEEPALIVE_INTERVAL, EventLog, ProviderError, SSEResponse, StopReason, TurnHandle, stream_turn

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The service is served on asyncio alone."""
    return "asyncio"


SCOPE: dict[str, Any] = {"type": "http"}


class Client:
    """An ASGI client that records the messages of a response."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.keepalive = anyio.Event()
        self.disconnects = anyio.Event()

    async def receive(self) -> Message:
        await self.disconnects.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await anyio.lowlevel.checkpoint()
        self.sent.append(message)
        if message.get("body", b"").startswith(b":"):
            self.keepalive.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def respond(
    client: Client, lines: AsyncGenerator[str, None], keepalive_interval: float = KEEPALIVE_INTERVAL
) -> list[str]:
    """Send the lines as a response, and return the calls of `on_close`."""
    ends: list[str] = []
    with anyio.fail_after(30):
        response = SSEResponse(
            lines,
            on_close=lambda: ends.append("ended"),
            keepalive_interval=keepalive_interval,
            head_delay=keepalive_interval,
        )
        await response(SCOPE, client.receive, client.send)
    return ends


async def test_a_response_starts_with_the_first_line_and_ends_after_the_last() -> None:
    client = Client()

    async def lines() -> AsyncGenerator[str, None]:
        assert client.sent == []
        yield "data: 1\n\n"
        yield "data: 2\n\n"

    assert await respond(client, lines()) == ["ended"]
    assert client.sent[0]["status"] == 200
    assert (client.body, client.sent[-1]["more_body"]) == (b"data: 1\n\ndata: 2\n\n", False)


async def test_a_comment_is_sent_as_keepalive_during_silence() -> None:
    client = Client()

    async def lines() -> AsyncGenerator[str, None]:
        await client.keepalive.wait()
        yield "data: 1\n\n"

    await respond(client, lines(), keepalive_interval=0.0)
    assert client.body.startswith(b": still here\n\n")
    assert b"data: 1\n\n" in client.body


async def test_an_error_before_the_first_line_is_raised_unchanged() -> None:
    client = Client()

    async def lines() -> AsyncGenerator[str, None]:
        if not client.sent:
            raise ProviderError("nobody there")
        yield ""

    with pytest.raises(ProviderError, match="nobody there"):
        await respond(client, lines())
    assert client.sent == []


async def test_a_disconnect_closes_the_stream() -> None:
    client, left = Client(), False

    async def lines() -> AsyncGenerator[str, None]:
        nonlocal left
        try:
            yield "data: 1\n\n"
            client.disconnects.set()
            await anyio.sleep_forever()
        finally:
            left = True

    assert await respond(client, lines()) == ["ended"]
    assert left
    assert client.body == b"data: 1\n\n"


async def test_a_client_that_disconnects_before_the_first_line_gets_no_response() -> None:
    client = Client()
    client.disconnects.set()

    async def lines() -> AsyncGenerator[str, None]:
        await anyio.sleep_forever()
        yield ""

    assert await respond(client, lines()) == ["ended"]
    assert client.sent == []


async def test_a_client_that_does_not_read_is_dropped_after_a_timeout() -> None:
    class Stuck(Client):
        async def send(self, message: Message) -> None:
            if message["type"] == "http.response.body":
                await anyio.sleep_forever()

    ends: list[str] = []

    async def lines() -> AsyncGenerator[str, None]:
        try:
            yield "data: 1\n\n"
        finally:
            ends.append("left")

    client = Stuck()
    with pytest.raises(TimeoutError):
        response = SSEResponse(lines(), on_close=lambda: ends.append("ended"), send_timeout=0.0)
        await response(SCOPE, client.receive, client.send)
    assert ends == ["left", "ended"]


async def test_an_event_waits_for_the_comment_that_is_being_sent() -> None:
    class Hesitant(Client):
        async def send(self, message: Message) -> None:
            if message["type"] == "http.response.start":
                self.keepalive.set()
                await anyio.wait_all_tasks_blocked()
            await super().send(message)

    client = Hesitant()

    async def lines() -> AsyncGenerator[str, None]:
        await client.keepalive.wait()
        yield "data: 1\n\n"

    await respond(client, lines(), keepalive_interval=0.0)
    assert client.sent[0]["type"] == "http.response.start"
    assert client.body.startswith(b": still here\n\ndata: 1\n\n")


async def test_a_comment_that_cannot_be_sent_ends_the_response() -> None:
    class Broken(Client):
        async def send(self, message: Message) -> None:
            raise OSError(message["type"])

    async def silence() -> AsyncGenerator[str, None]:
        await anyio.sleep_forever()
        yield ""

    with pytest.raises(OSError, match=r"http\.response\.start"):
        await respond(Broken(), silence(), keepalive_interval=0.0)


async def never_answers(turn: TurnHandle) -> StopReason:
    await anyio.sleep_forever()
    raise AssertionError


async def test_the_headers_of_a_silent_turn_are_sent_at_once() -> None:
    silent = TurnHandle(never_answers, EventLog())
    client, lines = Client(), stream_turn(silent, 0, "model")
    async with anyio.create_task_group() as group:
        group.start_soon(SSEResponse(lines, {"x-turn-id": silent.id}), SCOPE, client.receive, client.send)
        with anyio.fail_after(60):
            await client.keepalive.wait()
        client.disconnects.set()
    assert client.sent[0]["type"] == "http.response.start"
    assert (b"x-turn-id", silent.id.encode()) in client.sent[0]["headers"]
