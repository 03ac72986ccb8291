"""One exchange over HTTP, the same for every wire: ask, learn from a refusal, read the reply as it comes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import anyio
from anyio import to_thread

from dial_client.errors import ProviderError
from dial_client.logs import get_logger
from dial_client.messages import ToolSpec
from dial_client.model import Completion, Delta, FinishReason, ModelRequest, ToolChoice
from dial_client.providers import failures
from dial_client.providers.body import BodyReader, NotAnAnswer
from dial_client.providers.calls import to_bytes
from dial_client.providers.connection import Connection
from dial_client.providers.endpoint import Endpoint
from dial_client.providers.event_stream import EventTooLong
from dial_client.providers.lessons import MAX_LESSONS, Lessons, without_echoes
from dial_client.providers.profile import Profile

if TYPE_CHECKING:
    import httpx2

log = get_logger(__name__)

_ONE_PIECE_TIMEOUT = 600.0
"""Seconds for an answer that comes in one piece: nothing is heard while it is written."""
_MAX_PAUSES = 8
"""Times one reply may be taken up again."""
_DRAIN_TIMEOUT = 0.1
"""Seconds for the end of a body whose last event has come: read to its end, its connection serves the next request."""


class Reply(Protocol):
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


class HttpProvider(ABC):
    """A `Provider` over HTTP, under asyncio; each wire says how things are written and read.

    Args:
        model: the model's id at the endpoint.
        endpoint: where it is.
        profile: how the endpoint differs from others of its wire.
        temperature: sent where the endpoint takes it; None for the model's own.
        max_tokens: tokens of a reply where a request does not say; None for the profile's.
    """

    wire: ClassVar[str]
    sdk: ClassVar[Literal["openai", "anthropic"]] = "openai"
    required: ClassVar[frozenset[str]] = frozenset()
    """Fields of the body this wire cannot do without."""

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        profile: Profile,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.model = model
        self.name = f"{self.wire}:{model}@{endpoint.host}"
        self._endpoint = endpoint
        self._connection = Connection(endpoint, self.sdk)
        self._lessons = Lessons(profile, self.required)
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._unsaid: list[str] = []
        if temperature is not None and not profile.sampling:
            self._unsaid.append("the endpoint takes no temperature: it is not sent")
        self._offered_for: tuple[tuple[ToolSpec, ...], int] | None = None
        self._offered: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    @abstractmethod
    def _path(self) -> str:
        """Give the path behind the endpoint's address."""

    @abstractmethod
    def _fields(self, request: ModelRequest, *, has_tools: bool) -> dict[str, Any]:
        """Give the body's fields, apart from the tools."""

    @abstractmethod
    def _tool(self, tool: ToolSpec) -> dict[str, Any]:
        """Give a tool in the form of the wire."""

    @abstractmethod
    def _reply(self) -> Reply:
        """Make a reader for the next reply."""

    def _going_on(self, fields: dict[str, Any], _reply: Any) -> dict[str, Any]:
        """Give the fields with what the reply said before a pause; only one wire has pauses."""
        return fields

    def preload(self) -> None:
        """Import the SDK and make its client: for a worker thread, while something else is waited for."""
        self._connection.preload()

    async def warm(self) -> None:
        """Do `preload` in a worker thread."""
        await to_thread.run_sync(self.preload, abandon_on_cancel=True)

    async def aclose(self) -> None:
        """Close all connections; may be called twice."""
        await self._connection.aclose()

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model, and give its reply as it comes, a `Completion` last.

        A reply that breaks off once something has been said ends in a `Completion` of `FinishReason.CUT`.

        Raises:
            ProviderError: the endpoint could not be reached, refused, told of an error, or broke off without a word.
        """
        reply = self._reply()
        notes, self._unsaid = self._unsaid, []
        said = False
        for _ in range(_MAX_PAUSES + 1):
            response, request = await self._ask(request, reply, notes)
            try:
                async with aclosing(self._read(response, reply, notes)) as stream:
                    async for delta in stream:
                        said = True
                        yield delta
            except _BrokeOff as error:
                broken = failures.unreachable(self._endpoint, error.__cause__)
                if not (said or reply.ended or reply.has_calls):
                    raise broken from None
                notes.append(f"the reply broke off: {broken}")
            if not reply.paused:
                break
            reply.paused = reply.ended = False
        else:
            notes.append(f"the endpoint paused more than {_MAX_PAUSES} times")
        deltas = reply.end(notes)
        if not said:
            self._check_something_came(deltas, reply)
        for delta in deltas:
            yield delta

    async def _ask(self, request: ModelRequest, reply: Reply, notes: list[str]) -> tuple[httpx2.Response, ModelRequest]:
        """Send the request; what a refusal teaches is put right, and the request that was taken is given back."""
        for attempt in range(MAX_LESSONS + 1):
            tools, encoded = self._tools(request)
            fields = self._going_on(self._fields(request, has_tools=bool(tools)), reply)
            fields = {name: value for name, value in fields.items() if name not in self._lessons.left_out}
            timeout = self._lessons.profile.idle_timeout if fields.get("stream") else _ONE_PIECE_TIMEOUT
            body = _joined(fields | dict(self._lessons.profile.extra_body), encoded)
            try:
                return await self._connection.post(self._path(), body, idle_timeout=timeout), request
            except ProviderError as error:
                note = self._lessons.learn(error, request, fields, tools)
                if note is None:
                    bare = without_echoes(error, request)
                    if bare is None:
                        raise
                    request, note = bare, "the endpoint no longer takes its own earlier reasoning: it is left out"
                if attempt == MAX_LESSONS:
                    raise
                log.debug("lesson_learned", provider=self.name, status=error.status)
                notes.append(note)
        raise AssertionError("unreachable")

    async def _read(self, response: httpx2.Response, reply: Reply, notes: list[str]) -> AsyncGenerator[Delta, None]:
        body = BodyReader()
        try:
            with self._told_in_words():
                async with aclosing(response.aiter_bytes()) as pieces:
                    async for piece in pieces:
                        for delta in chain.from_iterable(map(reply.take, body.feed(piece))):
                            yield delta
                        if body.done or reply.ended:
                            await _drain(pieces)
                            break
                for delta in chain.from_iterable(map(reply.take, body.end())):
                    yield delta
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
        if body.garbled:
            notes.append(f"parts of the reply that could not be read: {body.garbled}")
        reply.ended = reply.ended or body.done

    def _check_something_came(self, deltas: Sequence[Delta], reply: Reply) -> None:
        """A reply that is neither whole nor has anything to keep is no reply."""
        last = deltas[-1]
        if isinstance(last, Completion) and last.finish is FinishReason.CUT and not reply.has_calls:
            notes = "".join(f"; {note}" for note in last.notes)
            raise ProviderError(f"{self._endpoint.host} sent nothing that is an answer{notes}", code="cut")

    @contextmanager
    def _told_in_words(self) -> Iterator[None]:
        import httpx2

        try:
            yield
        except failures.Told as told:
            raise failures.reported(self._endpoint, told.value) from None
        except NotAnAnswer as error:
            raise failures.not_an_answer(self._endpoint, error.text) from None
        except (httpx2.HTTPError, httpx2.StreamError, EventTooLong) as error:
            raise _BrokeOff from error

    def _tools(self, request: ModelRequest) -> tuple[tuple[ToolSpec, ...], bytes]:
        """Give the tools that are offered, and their JSON, written once for as long as they stay the same."""
        if request.tool_choice is ToolChoice.NONE and not self._lessons.profile.tool_choice:
            return (), b""
        bad = self._lessons.bad_tools
        key = self._offered_for
        if key is None or key[0] is not request.tools or key[1] != len(bad):
            kept = tuple(tool for tool in request.tools if tool.name not in bad)
            self._offered_for = (request.tools, len(bad))
            self._offered = (kept, to_bytes([self._tool(tool) for tool in kept]) if kept else b"")
        return self._offered

    def _limit(self, request: ModelRequest) -> int | None:
        """Give the tokens the reply may have; None for the model's own limit."""
        wanted = request.max_tokens or self._max_tokens or self._lessons.profile.max_tokens
        most = self._lessons.max_tokens
        return wanted if most is None or wanted is None else min(wanted, most)

    def _sampled(self) -> dict[str, Any]:
        """Give the fields that say how words are drawn."""
        if self._temperature is None or not self._lessons.profile.sampling:
            return {}
        return {"temperature": self._temperature}


class _BrokeOff(Exception):
    """The body broke off; the cause says how."""


def _joined(fields: dict[str, Any], tools: bytes) -> bytes:
    body = to_bytes(fields)
    return b"".join((body[:-1], b',"tools":', tools, b"}")) if tools else body


async def _drain(pieces: AsyncGenerator[bytes, None]) -> None:
    import httpx2

    with anyio.move_on_after(_DRAIN_TIMEOUT), suppress(httpx2.HTTPError):
        async for _ in pieces:
            pass
