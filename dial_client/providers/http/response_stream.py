"""How a reply is read, wherever its bytes come from: an endpoint, or a script."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import anyio

from dial_client.errors import ProviderError
from dial_client.model import Completion, Delta, FinishReason, ModelRequest
from dial_client.providers.http import provider_errors
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.response_body import BodyReader, NotAResponse
from dial_client.providers.http.sse_parser import EventTooLong

_MAX_PAUSES = 8
"""Times one reply may be taken up again."""
_DRAIN_TIMEOUT = 0.1
"""Seconds for the end of a body whose last event has come: read to its end, its connection serves the next request."""
MAX_KEPT = 4 * 1024 * 1024
"""Bytes of one body that a `RawBody` keeps."""


class StreamParser(Protocol):
    """Reads one reply: plain JSON values in, deltas out."""

    ended: bool
    """The endpoint has said its last word; what follows is of no use."""
    paused: bool
    """The endpoint wants to be asked again, with what it has said so far, to go on."""

    @property
    def has_calls(self) -> bool:
        """Whether at least one call has begun."""
        ...

    def take(self, value: Any) -> Sequence[Delta]:
        """Take the next event, or a whole answer.

        Raises:
            Told: it tells of an error.
        """
        ...

    def end(self, notes: Sequence[str]) -> Sequence[Delta]:
        """Take the end, however it came; give the calls if they are fit to run, and a `Completion` last."""
        ...


@runtime_checkable
class Recordable(Protocol):
    """A provider whose responses can be recorded as they come, and parsed again when the recording is played."""

    @property
    def parser_flags(self) -> Mapping[str, Any]:
        """The flags of the endpoint's profile that decide how its responses are read, if they are not the defaults."""
        ...

    def generate_recorded(self, request: ModelRequest, bodies: list[RawBody] | None) -> AsyncGenerator[Delta, None]:
        """Do as `Provider.generate`, and append the body of every response to `bodies`."""
        ...


class BrokeOff(Exception):
    """The body broke off; `error` says how. Never leaves the package."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class RawBody:
    """What came of one answer, for a recording."""

    wire: str
    notes: tuple[str, ...] = ()
    """What was said of the asking, before anything came."""
    kept: bytearray = field(default_factory=bytearray)
    """The body as it came, at most its first `MAX_KEPT` bytes."""
    left_out: int = 0
    """Bytes beyond those."""
    broke: str | None = None
    """How it broke off, in words."""
    ended: bool = False
    """It was read as far as it is of use."""
    paused: bool = False
    """It ends in a pause: the next answer goes on."""

    def add(self, piece: bytes) -> None:
        """Keep more of it."""
        room = MAX_KEPT - len(self.kept)
        self.kept += piece[:room]
        self.left_out += max(0, len(piece) - room)


@dataclass(slots=True)
class ResponseStream:
    """One reply on its way: answers are asked for until it is whole.

    Args:
        wire: how the answers are written.
        reply: reads what is in them.
        endpoint: whom an error names.
        notes: what the user should know; what reading finds is added.
        bodies: gets every answer as it came; None where nobody records.
    """

    wire: str
    reply: StreamParser
    endpoint: Endpoint
    notes: list[str]
    bodies: list[RawBody] | None = None

    async def deltas(self, ask: Callable[[], Awaitable[AsyncGenerator[bytes, None]]]) -> AsyncGenerator[Delta, None]:
        """Give the reply as it comes, a `Completion` last.

        A reply that breaks off once something has been said ends in a `Completion` of `FinishReason.CUT`.

        Args:
            ask: asks, or asks to go on; gives the pieces of a body, which raise `BrokeOff`.

        Raises:
            ProviderError: what `ask` raises; or it told of an error, or broke off without a word.
        """
        reply, notes = self.reply, self.notes
        said = False
        for _ in range(_MAX_PAUSES + 1):
            before = len(notes)
            pieces = await ask()
            body = RawBody(self.wire, tuple(notes[before:]))
            if self.bodies is not None:
                self.bodies.append(body)
            try:
                async with aclosing(self._read(pieces, body)) as stream:
                    async for delta in stream:
                        said = True
                        yield delta
            except BrokeOff as broken:
                body.broke = str(broken.error)
                if not (said or reply.ended or reply.has_calls):
                    raise broken.error from None
                notes.append(f"the reply broke off: {broken.error}")
            body.ended, body.paused = True, reply.paused
            if not reply.paused:
                break
            reply.paused = reply.ended = False
        else:
            notes.append(f"the endpoint paused more than {_MAX_PAUSES} times")
        deltas = reply.end(notes)
        if not said:
            self._check_something_came(deltas)
        for delta in deltas:
            yield delta

    async def _read(self, pieces: AsyncGenerator[bytes, None], raw: RawBody) -> AsyncGenerator[Delta, None]:
        reply, body, keeps = self.reply, BodyReader(), self.bodies is not None
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if keeps:
                        raw.add(piece)
                    for delta in chain.from_iterable(map(reply.take, body.feed(piece))):
                        yield delta
                    if body.done or reply.ended:
                        await _drain(pieces)
                        break
            for delta in chain.from_iterable(map(reply.take, body.end())):
                yield delta
        except provider_errors.StreamedError as told:
            raise provider_errors.reported(self.endpoint, told.value) from None
        except NotAResponse as error:
            raise provider_errors.not_an_answer(self.endpoint, error.text) from None
        except EventTooLong as error:
            raise BrokeOff(provider_errors.unreachable(self.endpoint, error)) from None
        if body.garbled:
            self.notes.append(f"parts of the reply that could not be read: {body.garbled}")
        reply.ended = reply.ended or body.done

    def _check_something_came(self, deltas: Sequence[Delta]) -> None:
        """A reply that is neither whole nor has anything to keep is no reply."""
        last = deltas[-1]
        if isinstance(last, Completion) and last.finish is FinishReason.CUT and not self.reply.has_calls:
            notes = "".join(f"; {note}" for note in last.notes)
            raise ProviderError(f"{self.endpoint.host} sent nothing that is an answer{notes}", code="cut")


async def _drain(pieces: AsyncGenerator[bytes, None]) -> None:
    with anyio.move_on_after(_DRAIN_TIMEOUT), suppress(BrokeOff):
        async for _ in pieces:
            pass
