"""Responses with server-sent events, for clients that may be slow, silent or disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

import anyio
from starlette.types import Receive, Scope, Send

from dial_client.messages.events import Event, ServerChanged, StatusChanged
from dial_client.messages.message import Role
from dial_client.runtime.light_lock import LightLock
from dial_client.serve.http_messages import parse_number
from dial_client.sinks import sse_encoder
from dial_client.sinks.stream_forms import StreamForm
from dial_client.turns.status_text import find_code
from dial_client.turns.turn_handle import TurnHandle

# Seconds without an event after which a comment keeps the connection alive.
KEEPALIVE_INTERVAL = 15.0
KEEPALIVE = ": still here\n\n"
# Seconds after which the head of an answer for another program is sent, although there is no event yet. Until then an
# error of the model's endpoint keeps its status (429, 400), which clients read to decide whether to repeat the request.
HEAD_DELAY = 2.0
# Seconds in which a client must read the sent data.
SEND_TIMEOUT = 60.0

# The first line of a turn's stream: sends the response head at once, before the turn's next event.
OPENING_COMMENT = ": this turn\n\n"

_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}


@dataclass
class SSEResponse:
    """An ASGI response with server-sent events, for one request.

    The response starts with the first event or keepalive. An exception before that leads to an ordinary error response,
    and an exception after it to the events of `encode_failure`.
    """

    events: AsyncGenerator[str, None]
    """Encoded events, each ending in a blank line. The generator is closed when the client disconnects."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of the response."""
    on_close: Callable[[], None] = lambda: None
    """Called when the response ends, also after an error."""
    keepalive_interval: float = KEEPALIVE_INTERVAL
    """Seconds without an event after which a comment keeps the connection alive."""
    send_timeout: float = SEND_TIMEOUT
    """Seconds in which the client must read the sent data."""
    keepalive: str = KEEPALIVE
    """The comment, or an event that clients ignore."""
    encode_failure: Callable[[Exception], str] | None = None
    """Returns the last events of a response that fails after its start; None to break the connection."""
    head_delay: float = KEEPALIVE_INTERVAL
    """Seconds without a first event after which a comment sends the head."""
    _has_started: bool = field(default=False, init=False)
    _last_sent: float = field(default=0.0, init=False)
    # Held while something is sent: an event must not come before the head that a comment sends.
    _sending: LightLock = field(default_factory=LightLock, init=False)
    _failure: Exception | None = field(default=None, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - required by ASGI
        """Send the events until they end or the client disconnects."""
        self._last_sent = anyio.current_time()
        try:
            async with aclosing(self.events) as events:
                with anyio.CancelScope() as open_scope:
                    # The task of a group would take 3 KB more as long as the stream is open.
                    watch = asyncio.create_task(self._watch(receive, send, open_scope.cancel))
                    try:
                        async for event in events:
                            await self._send_text(event, send)
                    finally:
                        watch.cancel()
        except Exception as error:  # noqa: BLE001 - raised below, or sent to the client
            self._failure = error
        finally:
            self.on_close()
        if self._failure is not None:
            if self.encode_failure is None or not self._has_started:
                raise self._failure
            await self._send_text(self.encode_failure(self._failure), send)
        if self._has_started:  # otherwise the client disconnected before the first event
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_text(self, text: str, send: Send) -> None:
        async with self._sending:
            if not self._has_started:
                self._has_started = True
                headers = [(name.encode(), value.encode()) for name, value in {**_HEADERS, **self.headers}.items()]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            with anyio.fail_after(self.send_timeout):
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        self._last_sent = anyio.current_time()

    async def _watch(self, receive: Receive, send: Send, cancel: Callable[[], None]) -> None:
        """Send comments during silence; call `cancel` once the client has left, or a comment cannot be sent."""
        try:
            while True:
                interval = self.keepalive_interval if self._has_started else self.head_delay
                try:
                    async with asyncio.timeout_at(self._last_sent + interval):
                        return await call_on_disconnect(receive, cancel)
                except TimeoutError:
                    is_silent = anyio.current_time() - self._last_sent >= interval
                if is_silent:
                    await self._send_text(self.keepalive, send)
        except Exception as error:  # noqa: BLE001 - raised in the request
            self._failure = error
            cancel()


async def call_on_disconnect(receive: Receive, cancel: Callable[[], None]) -> None:
    """Wait until the client has closed its connection, then call `cancel`."""
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel()


async def stream_turn(turn: TurnHandle, after: int, model: str) -> AsyncGenerator[str, None]:
    """Yield the encoded events of a conversation's turn after a position, each with an id for ``Last-Event-ID``."""
    yield OPENING_COMMENT
    async with aclosing(read_turn(turn, after, model)) as events:
        async for _, text in events:
            if text:
                yield text


async def read_turn(turn: TurnHandle, after: int, model: str) -> AsyncGenerator[tuple[int | None, str], None]:
    """Yield the positions and the encoded events of a turn after a position; the end of the stream has no position.

    The text of events that are not sent is empty.
    """
    chunk = sse_encoder.build_head(model, turn.id)
    try:
        async with aclosing(turn.log.events(after)) as events:
            async for position, event in events:
                yield position, encode_event(event, f"{turn.id}:{position}", chunk)
    except Exception as error:  # noqa: BLE001 - any failure must end the stream for the client
        yield None, encode_end(error, chunk)
    else:
        yield None, encode_end(None, chunk)


async def read_for_front_end(
    turn: TurnHandle, form: StreamForm, after: int = 0
) -> AsyncGenerator[tuple[int | None, str], None]:
    """Yield the positions and the encoded events of a turn as `read_turn` does, until it ends or waits for a person.

    Args:
        turn: The turn.
        form: The form of the stream, and where it goes on.
        after: Events up to this position were read already.
    """
    failure: Exception | None = None
    question = turn.recorder.question
    continues = bool(question) and question[-1].role is Role.TOOL
    encoder = form.build_encoder(turn.id, turn.conversation_id, continues=continues)
    is_silent, begin = form.resumes > 0, "" if after else encoder.begin()
    try:
        async with aclosing(turn.log.events()) as events:
            async for position, event in events:
                text = encoder.encode(event, position)
                if is_silent:
                    if position < form.resumes or not encoder.frames.is_waiting():
                        continue
                    is_silent, text = False, encoder.begin()
                    begin = ""
                if position > after:
                    yield position, begin + text
                    begin = ""
                if encoder.frames.is_waiting(form.resumes):
                    yield None, encoder.pause()
                    return
    except Exception as error:  # noqa: BLE001 - any failure must end the stream for the client
        failure = error
    yield None, begin + encoder.end(failure)


def encode_event(event: Event, id_: str, chunk: dict[str, object]) -> str:
    """Return the encoded event; an empty string for events that are not sent."""
    # The id is on the last line only: a client that resumes after this id has received the whole event.
    *first, last = _encode_lines(event, chunk) or ("",)
    return "".join((*first, f"id: {id_}\n{last}")) if last else ""


def encode_end(error: Exception | None, chunk: dict[str, object]) -> str:
    """Return the end of a stream, with an error event if the turn failed."""
    return "".join(sse_encoder.encode_error(error, chunk) if error is not None else ()) + sse_encoder.DONE


def _encode_lines(event: Event, chunk: dict[str, object]) -> list[str]:
    if isinstance(event, ServerChanged):
        return [f"event: server\ndata: {sse_encoder.to_json({'name': event.name, 'state': event.status})}\n\n"]
    if isinstance(event, StatusChanged):
        return [f"event: status\ndata: {sse_encoder.to_json({'text': event.text, **find_code(event.text)})}\n\n"]
    return sse_encoder.encode_event(event, chunk)


def parse_last_event_id(value: str | None, turn: str) -> int:
    """Return the position in a ``Last-Event-ID``; 0 (the start) if the header is missing or names another turn."""
    turn_id, _, position = (value or "").rpartition(":")
    return (parse_number(position) or 0) if turn_id == turn else 0
