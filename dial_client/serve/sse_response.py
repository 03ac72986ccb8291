"""Answers that go on: server-sent events, to clients that may be slow, silent or gone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import anyio
from anyio.abc import TaskGroup
from starlette.types import Receive, Scope, Send

from dial_client.events import Event, ServerChanged
from dial_client.sinks import sse_encoder
from dial_client.turns.turn_handle import TurnHandle

PING = 15.0
"""Seconds of silence after which a comment shows that the connection is alive."""
SEND_PATIENCE = 60.0
"""Seconds a client may take to read what was sent."""

BEGUN = ": this turn\n\n"
"""The first line: with it leaves the head of an answer, and who comes back to a silent turn sees that it is there."""

_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}


class SSEResponse:
    """An ASGI answer of server-sent events.

    It begins with the first of them, or when that takes long: what goes wrong before has a status of its own.

    Args:
        lines: the events, each a string that ends in a blank line. They are left as soon as the client is gone.
        headers: sent along.
        at_end: is called in the end, whatever happens.
    """

    def __init__(
        self,
        lines: AsyncGenerator[str, None],
        headers: Mapping[str, str] | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._lines = lines
        self._headers = {**_HEADERS, **(headers or {})}
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """Answer, until the end or until the client is gone."""
        answer = _Answer(self._headers, send)
        failed: Exception | None = None

        async def notice(group: TaskGroup) -> None:
            await gone(receive)
            group.cancel_scope.cancel()

        try:
            async with aclosing(self._lines) as lines, anyio.create_task_group() as group:
                group.start_soon(answer.show_life)
                group.start_soon(notice, group)
                try:
                    async for line in lines:
                        await answer.say(line)
                except Exception as error:  # noqa: BLE001 - raised outside of the group, which would wrap it
                    failed = error
                group.cancel_scope.cancel()
        finally:
            self._at_end()
        if failed is not None:
            raise failed
        await answer.end()


class _Answer:
    """What is sent of one answer."""

    def __init__(self, headers: Mapping[str, str], send: Send) -> None:
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._send = send
        self._has_begun = False
        self._last = anyio.current_time()

    async def say(self, text: str) -> None:
        if not self._has_begun:
            self._has_begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
        with anyio.fail_after(SEND_PATIENCE):
            await self._send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        self._last = anyio.current_time()

    async def show_life(self) -> None:
        while True:
            await anyio.sleep(max(0.0, self._last + PING - anyio.current_time()))
            if anyio.current_time() - self._last >= PING:
                await self.say(": still here\n\n")

    async def end(self) -> None:
        if self._has_begun:  # else the client is gone
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def gone(receive: Receive) -> None:
    """Wait until the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def of_turn(turn: TurnHandle, after: int, model: str) -> AsyncGenerator[str, None]:
    """Give the events of a conversation's turn behind a position, each with an id by which it can be gone on from."""
    chunk = sse_encoder.chunk_of(model, turn.id)
    yield BEGUN
    try:
        async with aclosing(turn.log.events(after)) as events:
            async for at, event in events:
                if text := text_of(event, f"{turn.id}:{at}", chunk):
                    yield text
    except Exception as error:  # noqa: BLE001 - the reader is owed an end of the stream, whatever was wrong
        yield end_of(error, chunk)
    else:
        yield end_of(None, chunk)


def text_of(event: Event, id_: str, chunk: dict[str, object]) -> str:
    """Give an event as it is sent, empty where nothing is sent of it."""
    # Behind the last line of an event's is where a client goes on that has read all of it.
    *first, last = _lines(event, chunk) or ("",)
    return "".join((*first, f"id: {id_}\n{last}")) if last else ""


def end_of(error: Exception | None, chunk: dict[str, object]) -> str:
    """Give the end of a stream: in words, where something was wrong."""
    return "".join(sse_encoder.last_lines(error, chunk) if error is not None else ()) + sse_encoder.DONE


def _lines(event: Event, chunk: dict[str, object]) -> list[str]:
    if isinstance(event, ServerChanged):
        return [f"event: server\ndata: {sse_encoder.to_json({'name': event.name, 'state': event.status})}\n\n"]
    return sse_encoder.lines(event, chunk)


def position(said: str | None, turn: str) -> int:
    """Read a ``Last-Event-ID``; 0, the beginning, where it is of another turn or none at all."""
    of, _, at = (said or "").rpartition(":")
    return int(at) if of == turn and at.isascii() and at.isdigit() and len(at) < 10 else 0
