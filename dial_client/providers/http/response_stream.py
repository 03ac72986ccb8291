"""A model's reply as a stream of deltas, read from HTTP responses, or from a script."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import anyio

from dial_client.messages.errors import ProviderError
from dial_client.messages.model import Completion, Delta, FinishReason, ModelRequest, ReasoningChunk, TextChunk
from dial_client.providers.http import provider_errors
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.sse_parser import EventTooLong, InvalidBody, ResponseBodyParser

# The most requests of one reply after its first request.
_MAX_PAUSES = 8
# Seconds to read the rest of a body after its last event: a connection is reused only after its body has ended.
_DRAIN_TIMEOUT = 0.1
# The most bytes of one body that a `RawBody` stores.
MAX_RECORDED = 4 * 1024 * 1024

# Sends the request, or the next request of a paused reply, and returns the body, which may raise `StreamBroken`. Its
# argument is the error that the last response reported in place of a reply: it is raised if no other request can help.
SendRequest = Callable[[ProviderError | None], Awaitable[AsyncGenerator[bytes, None]]]


class StreamParser(Protocol):
    """Parses one reply: converts JSON values to deltas."""

    ended: bool = False
    """True after the last event of the reply."""
    paused: bool = False
    """True if the endpoint needs a request with the reply so far in order to continue it."""
    streams_arguments: bool = False
    """True to return the arguments of calls while the model writes them (`ModelRequest.streams_arguments`)."""

    @property
    def has_calls(self) -> bool:
        """True if at least one tool call has begun."""

    def feed(self, value: Any) -> Sequence[Delta]:
        """Parse the next event, or an unstreamed response.

        Raises:
            StreamedError: The event or the response reports an error.
        """

    def finish(self, notes: Sequence[str]) -> Sequence[Delta]:
        """Return the tool calls of a complete reply, and last the `Completion`, which includes `notes`."""

    def _describe_end(self, finish: FinishReason, stop_reason: str | None = None) -> list[str]:
        """Return notes on a reply that did not end as it should; `stop_reason` is that of the endpoint."""
        notes = []
        if finish is FinishReason.CUT and stop_reason:
            notes.append(f"the reply ended with the unknown stop reason {stop_reason[:40]!r}")
        if finish is not FinishReason.STOP and self.has_calls:
            notes.append("the reply is incomplete: its tool calls are not run")
        return notes


@dataclass(slots=True)
class RawBody:
    """The body of one response, for a recording."""

    api: str
    notes: tuple[str, ...] = ()
    """Notes on the request, from before the response."""
    data: bytearray = field(default_factory=bytearray)
    """The first `MAX_RECORDED` bytes of the body."""
    left_out: int = 0
    """The number of further bytes, which are not stored."""
    broke: str | None = None
    """The error message for a broken connection; None if the connection did not break."""
    ended: bool = False
    """True if the response is over: its body was read to its end, or the connection broke."""
    paused: bool = False
    """True if the reply continues in the next response."""

    def add(self, piece: bytes) -> None:
        """Append bytes of the body."""
        room = MAX_RECORDED - len(self.data)
        self.data += piece[:room]
        self.left_out += max(0, len(piece) - room)


@runtime_checkable
class Recordable(Protocol):
    """A provider whose responses can be recorded unchanged, and parsed again when the recording is played."""

    @property
    def parser_flags(self) -> Mapping[str, Any]:
        """The flags of the profile that affect the parsing of responses, except those with their default values."""

    def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Send the request, and yield the reply as it arrives. The last delta is a `Completion`.

        If the connection breaks after the first delta, the reply ends with a `Completion` of `FinishReason.CUT`.

        Raises:
            ProviderError: The endpoint could not be reached, refused the request, or reported an error, a vendor's
                client could not authenticate, or the connection broke before the first delta.
        """
        return self.generate_recorded(request, None)

    def generate_recorded(self, request: ModelRequest, bodies: list[RawBody] | None) -> AsyncGenerator[Delta, None]:
        """Do the same as `generate`, and append the body of every response to `bodies`."""


class StreamBroken(Exception):
    """The connection broke before the end of the body; `error` is the cause. The exception never leaves the package."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class ResponseStream:
    """One reply, which takes one response, or several if the endpoint pauses.

    Args:
        api: The API of the responses.
        parser: The parser of the reply.
        endpoint: The endpoint that error messages name.
        notes: The notes for the user, to which problems of the response are added.
        bodies: Receives the body of every response; None if nothing is recorded.
    """

    api: str
    parser: StreamParser
    endpoint: Endpoint
    notes: list[str]
    bodies: list[RawBody] | None = None
    _has_output: bool = False

    async def read_deltas(self, send: SendRequest) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of the reply, a `Completion` last.

        If the connection breaks after the first delta, the reply ends with a `Completion` of `FinishReason.CUT`.

        Raises:
            ProviderError: `send` raised it, the response reports an error, or the response contains no reply.
        """
        parser, pauses = self.parser, 0
        refusal: ProviderError | None = None
        while True:
            earlier_notes = len(self.notes)
            pieces, refusal = await send(refusal), None
            body = RawBody(self.api, tuple(self.notes[earlier_notes:]))
            try:
                async with aclosing(self._read_body(pieces, body)) as deltas:
                    async for delta in deltas:
                        yield delta
            except (StreamBroken, ProviderError) as error:
                refusal = self._record_failure(error, body)
            body.ended, body.paused = True, parser.paused
            if refusal is not None:
                continue
            if not parser.paused:
                break
            parser.paused = parser.ended = False
            if pauses == _MAX_PAUSES:
                self.notes.append(f"the endpoint paused more than {_MAX_PAUSES} times")
                break
            pauses += 1
        for delta in self._finish():
            yield delta

    def _record_failure(self, error: StreamBroken | ProviderError, body: RawBody) -> ProviderError | None:
        """Record why a response has ended before its end; return the error that it reported in place of a reply.

        Raises:
            ProviderError: The error ends the reply.
        """
        has_output = self._has_output or self.parser.has_calls
        if isinstance(error, StreamBroken):
            body.broke = str(error.error)
            # Before any output the request can be sent again; after it, the user keeps what arrived.
            if not (has_output or self.parser.ended):
                raise error.error from None
            self.notes.append(f"the reply broke off: {error.error}")
            return None
        if has_output:
            raise error
        # The body of a refusal is no part of a recorded reply.
        if self.bodies is not None:
            self.bodies.remove(body)
        return error

    async def _read_body(self, pieces: AsyncGenerator[bytes, None], body: RawBody) -> AsyncGenerator[Delta, None]:
        """Yield the deltas of a body, which is recorded in `body`."""
        parser, body_parser = self.parser, ResponseBodyParser()
        if self.bodies is not None:
            self.bodies.append(body)
        with _raise_provider_errors(self.endpoint):
            async with aclosing(pieces):
                async for piece in pieces:
                    if self.bodies is not None:
                        body.add(piece)
                    for delta in self._parse(body_parser.feed(piece)):
                        yield delta
                    if body_parser.done or parser.ended:
                        await _read_to_end(pieces)
                        break
            for delta in self._parse(body_parser.finish()):
                yield delta
        if body_parser.invalid_events:
            self.notes.append(f"parts of the reply that could not be read: {body_parser.invalid_events}")
        has_reply = self._has_output or parser.has_calls
        parser.ended = parser.ended or body_parser.done or (body_parser.is_whole_text and has_reply)

    def _parse(self, values: Iterable[Any]) -> Iterator[Delta]:
        """Yield the deltas of the values of one read. Pieces of text that follow each other are joined."""
        kind: type[TextChunk | ReasoningChunk] | None = None
        pieces: list[str] = []
        for value in values:
            try:
                deltas = self.parser.feed(value)
            except provider_errors.StreamedError:
                if kind is not None:
                    yield kind("".join(pieces))
                raise
            for delta in deltas:
                self._has_output = True
                if kind is not None:
                    if isinstance(delta, kind):
                        pieces.append(delta.text)
                        continue
                    yield kind("".join(pieces))
                    kind = None
                if isinstance(delta, TextChunk | ReasoningChunk):
                    kind, pieces = type(delta), [delta.text]
                else:
                    yield delta
        if kind is not None:
            yield kind("".join(pieces))

    def _finish(self) -> Sequence[Delta]:
        """Return the last deltas of the reply.

        Raises:
            ProviderError: No response contained any part of a reply.
        """
        deltas = self.parser.finish(self.notes)
        match deltas[-1]:
            case Completion(FinishReason.CUT, notes=notes) if not (self._has_output or self.parser.has_calls):
                details = "".join(f"; {note}" for note in notes)
                raise ProviderError(f"{self.endpoint.host} sent no reply{details}", code="cut")
        return deltas


@contextmanager
def _raise_provider_errors(endpoint: Endpoint) -> Iterator[None]:
    """Convert parser errors to `ProviderError`, and a body that is too long to `StreamBroken`."""
    try:
        yield
    except provider_errors.StreamedError as error:
        raise provider_errors.build_reported_error(endpoint, error.value) from None
    except InvalidBody as error:
        raise provider_errors.build_invalid_response_error(endpoint, error.text) from None
    except EventTooLong as error:
        raise StreamBroken(provider_errors.build_connection_error(endpoint, error)) from None


async def _read_to_end(pieces: AsyncGenerator[bytes, None]) -> None:
    # Some endpoints keep a stream open after its last event; then the connection is given up.
    with anyio.move_on_after(_DRAIN_TIMEOUT), suppress(StreamBroken):
        async for _ in pieces:
            pass
