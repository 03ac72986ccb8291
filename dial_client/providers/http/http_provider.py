"""One exchange over HTTP, the same for every wire: ask, learn from a refusal, read the reply as it comes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar

import anyio
from anyio import to_thread

from dial_client.errors import ProviderError
from dial_client.logs import get_logger
from dial_client.messages import ToolSpec
from dial_client.model import Delta, ModelInfo, ModelRequest, ToolChoice, ToolFormat
from dial_client.providers import schema_dialects
from dial_client.providers.endpoint_profile import EndpointProfile
from dial_client.providers.http import provider_errors
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.provider_errors import ASKED_AGAIN, CALL_UNREADABLE, SEARCH_UNSUPPORTED
from dial_client.providers.http.response_stream import BrokeOff, RawBody, ResponseStream, StreamParser
from dial_client.providers.http.transport import HttpTransport
from dial_client.providers.request_adaptation import MAX_LESSONS, RequestAdaptation, without_echoes
from dial_client.providers.tool_call_codec import to_bytes
from dial_client.providers.tool_name_mapping import ToolNameMapping

if TYPE_CHECKING:
    import httpx2

log = get_logger(__name__)

_ONE_PIECE_TIMEOUT = 600.0
"""Seconds for an answer that comes in one piece: nothing is heard while it is written."""


class HttpProvider(ABC):
    """A `Provider` over HTTP; each wire says how things are written and read.

    Args:
        model: the model's id at the endpoint.
        endpoint: where it is.
        profile: how the endpoint differs from others of its wire.
        temperature: sent where the endpoint takes it; None for the model's own.
        max_tokens: tokens of a reply where a request does not say; None for the profile's.
        name: the provider's name; None for the API, the model and the host.
    """

    wire: ClassVar[str]
    search_tool: ClassVar[Mapping[str, Any] | None] = None
    """What has to be on offer for the endpoint to search among tools; None where the wire knows no such thing."""
    required: ClassVar[frozenset[str]] = frozenset()
    """Fields of the body this wire cannot do without."""

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        profile: EndpointProfile,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        name: str | None = None,
    ) -> None:
        self._model = model
        self._name = name or f"{self.wire}:{model}@{endpoint.host}"
        self._endpoint = endpoint
        self._connection = HttpTransport(endpoint)
        self._lessons = RequestAdaptation(profile, self.required)
        self._names = ToolNameMapping(profile.tool_name_re, profile.tool_name_len)
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._unsaid: list[str] = []
        if temperature is not None and not profile.sampling:
            self._unsaid.append("the endpoint takes no temperature: it is not sent")
        self._offered_for: tuple[tuple[ToolSpec, ...], int, str] | None = None
        self._offered: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    @property
    def info(self) -> ModelInfo:
        """What is known of the model; what its endpoint has refused since is part of it."""
        profile = self._lessons.profile
        return ModelInfo(
            self._name,
            self._model,
            self._endpoint.base_url,
            tool_format=ToolFormat.REACT if profile.tools == "text" else None,
            searches_tools=self.search_tool is not None and profile.tool_search,
            secrets=self._endpoint.secrets,
        )

    @abstractmethod
    def _path(self) -> str:
        """Give the path behind the endpoint's address."""

    @abstractmethod
    def _fields(self, request: ModelRequest, notes: list[str], *, has_tools: bool) -> dict[str, Any]:
        """Give the body's fields, apart from the tools; `notes` are told what of the messages is not shown."""

    @abstractmethod
    def _tool(self, tool: ToolSpec) -> dict[str, Any]:
        """Give a tool in the form of the wire."""

    @abstractmethod
    def _reply(self) -> StreamParser:
        """Make a reader for the next reply."""

    def _going_on(self, fields: dict[str, Any], _reply: Any) -> dict[str, Any]:
        """Give the fields with what the reply said before a pause; only one wire has pauses."""
        return fields

    def preload(self) -> None:
        """Import what HTTP needs and make its client: for a worker thread, while something else is waited for."""
        self._connection.preload()

    async def prepare(self) -> None:
        """Do `preload` in a worker thread."""
        await to_thread.run_sync(self.preload, abandon_on_cancel=True)

    async def aclose(self) -> None:
        """Close all connections; may be called twice."""
        await self._connection.aclose()

    def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model, and give its reply as it comes, a `Completion` last.

        A reply that breaks off once something has been said ends in a `Completion` of `FinishReason.CUT`.

        Raises:
            ProviderError: the endpoint could not be reached, refused, told of an error, or broke off without a word.
        """
        return self.generate_recorded(request, None)

    def generate_recorded(self, request: ModelRequest, bodies: list[RawBody] | None) -> AsyncGenerator[Delta, None]:
        """Do as `generate`, and append the body of every response to `bodies`."""
        if self._names.is_needed:
            request = self._names.outwards(request)
            self._unsaid += self._names.notes
            self._names.notes.clear()
        notes, self._unsaid = self._unsaid, []
        reading = ResponseStream(self.wire, self._reply(), self._endpoint, notes, bodies)

        async def ask() -> AsyncGenerator[bytes, None]:
            nonlocal request
            response, request = await self._ask(request, reading.reply, notes)
            return self._pieces(response)

        deltas = reading.deltas(ask)
        return self._names.back(deltas) if self._names.is_needed else deltas

    @property
    def parser_flags(self) -> Mapping[str, Any]:
        """The flags of the endpoint's profile that decide how its responses are read, if they are not the defaults."""
        return self._lessons.profile.parser_flags()

    async def _ask(
        self, request: ModelRequest, reply: StreamParser, notes: list[str]
    ) -> tuple[httpx2.Response, ModelRequest]:
        """Send the request; what a refusal teaches is put right, and the request that was taken is given back."""
        for attempt in range(MAX_LESSONS + 1):
            tools, encoded = self._tools(request)
            fields = self._going_on(self._fields(request, notes, has_tools=bool(tools)), reply)
            fields = {name: value for name, value in fields.items() if name not in self._lessons.left_out}
            timeout = self._lessons.profile.idle_timeout if fields.get("stream") else _ONE_PIECE_TIMEOUT
            body = _joined(fields | dict(self._lessons.profile.extra_body), encoded)
            try:
                response = await self._connection.post(
                    self._path(), body, idle_timeout=timeout, notes=notes, on_wait=request.on_wait
                )
            except ProviderError as error:
                if self._lessons.cannot_search(error, tools):
                    error.code = SEARCH_UNSUPPORTED
                    raise
                note = self._lessons.learn(error, request, fields, tools)
                if note is None and error.code == CALL_UNREADABLE and ASKED_AGAIN not in notes:
                    note = ASKED_AGAIN
                elif note is None:
                    bare = without_echoes(error, request)
                    if bare is None:
                        raise
                    request, note = bare, "the endpoint no longer takes its own earlier reasoning: it is left out"
                if attempt == MAX_LESSONS:
                    raise
                log.debug("lesson_learned", provider=self._name, status=error.status)
                notes.append(self._names.told(note))
            else:
                return response, request
        raise AssertionError("unreachable")

    async def _pieces(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        """Give the body as it comes.

        Raises:
            BrokeOff: it did.
        """
        import httpx2

        try:
            async with aclosing(response.aiter_bytes()) as pieces:
                async for piece in pieces:
                    yield piece
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise BrokeOff(provider_errors.unreachable(self._endpoint, error)) from None
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    def _tools(self, request: ModelRequest) -> tuple[tuple[ToolSpec, ...], bytes]:
        """Give the tools that are offered, and their JSON, written once for as long as they stay the same."""
        if request.tool_choice is ToolChoice.NONE and not self._lessons.profile.tool_choice:
            return (), b""
        bad, profile = self._lessons.bad_tools, self._lessons.profile
        key = self._offered_for
        if key is None or key[0] is not request.tools or key[1:] != (len(bad), profile.schema_dialect):
            kept = tuple(tool for tool in request.tools if tool.name not in bad)
            self._offered_for = (request.tools, len(bad), profile.schema_dialect)
            spoken = (schema_dialects.spoken(tool, profile.schema_dialect, strict=profile.strict) for tool in kept)
            written = [self._tool(tool) for tool in spoken]
            if any(tool.deferred for tool in kept):  # last: endpoints speak of tools by their places
                written.append(dict(self.search_tool or {}))
            self._offered = (kept, to_bytes(written) if kept else b"")
        return self._offered

    def _limit(self, request: ModelRequest) -> int | None:
        """Give the tokens the reply may have; None for the model's own limit."""
        wanted = request.max_tokens or self._max_tokens or self._lessons.profile.max_tokens
        if wanted is None:
            return None
        return min(limit for limit in (wanted, self._max_tokens, self._lessons.max_tokens) if limit is not None)

    def _sampled(self) -> dict[str, Any]:
        """Give the fields that say how words are drawn."""
        if self._temperature is None or not self._lessons.profile.sampling:
            return {}
        return {"temperature": self._temperature}


def _joined(fields: dict[str, Any], tools: bytes) -> bytes:
    body = to_bytes(fields)
    return b"".join((body[:-1], b',"tools":', tools, b"}")) if tools else body
