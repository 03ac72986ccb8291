"""The base class of providers over HTTP: sends a request, adapts it after a refusal, and reads the reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import anyio
from anyio import to_thread

from dial_client.messages.errors import CALL_UNREADABLE, OUTPUT_FORMAT_UNSUPPORTED, SEARCH_UNSUPPORTED, ProviderError
from dial_client.messages.message import ToolSpec
from dial_client.messages.model import (
    Delta,
    ModelInfo,
    ModelRequest,
    ModelSettings,
    OutputFormat,
    StructuredOutput,
    ToolChoice,
    ToolFormat,
)
from dial_client.providers.http import provider_errors
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.provider_errors import RETRY_NOTE
from dial_client.providers.http.response_stream import RawBody, Recordable, ResponseStream, StreamBroken, StreamParser
from dial_client.providers.http.transport import HttpTransport, RequestTransport
from dial_client.providers.media_refusals import MediaTrial
from dial_client.providers.request_adaptation import (
    FORCED_CHOICE_NOTE,
    MAX_ADAPTATIONS,
    RequestAdaptation,
    ToolNameMapping,
    drop_echoes,
)
from dial_client.providers.server_tools import build_server_tools
from dial_client.providers.tool_call_codec import to_json_bytes
from dial_client.runtime.logs import get_logger
from dial_client.schema import provider_schema
from dial_client.settings.endpoint_profile import EndpointProfile

if TYPE_CHECKING:
    import httpx2

log = get_logger(__name__)

_NO_SETTINGS = ModelSettings()
_NO_SETTING = "the endpoint accepts no {}: none is sent"

# The number of tools from which on the JSON of tools that may be gone is forgotten.
_MAX_ENCODED = 2_000
# Seconds to wait for an unstreamed response, which arrives only after the model has written its whole reply.
_UNSTREAMED_TIMEOUT = 600.0


@dataclass(slots=True)
class _Asked:
    """The request of one reply. A refusal may replace it by another one."""

    request: ModelRequest
    trial: MediaTrial = field(default_factory=MediaTrial)
    fields: dict[str, Any] = field(default_factory=dict)
    """The fields of the body that was sent last, without the tools."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools that were sent last."""
    adaptations: int = 0


class HttpProvider(Recordable, ABC):
    """A `Provider` over HTTP. The subclass for each API builds its requests and parses its responses.

    Args:
        model: The model's id at the endpoint.
        endpoint: The address, with its headers.
        profile: The flags that say how the endpoint deviates from its API.
        settings: The settings for requests that have none of their own. `max_tokens` also bounds those of requests.
        name: The provider's name; None for a name built from the API, the model and the host.
        transport: The transport of requests, whose endpoint replaces `endpoint`; None for an `HttpTransport`.
    """

    api: ClassVar[str]
    search_tool: ClassVar[Mapping[str, Any] | None] = None
    """The tool definition that enables the endpoint's own tool search; None for an API without tool search."""
    required: ClassVar[frozenset[str]] = frozenset()
    """Fields that every request of this API must have."""
    absent_settings: ClassVar[frozenset[str]] = frozenset()
    """The `ModelSettings` that this API does not have."""

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        profile: EndpointProfile,
        *,
        settings: ModelSettings = _NO_SETTINGS,
        name: str | None = None,
        transport: RequestTransport | None = None,
    ) -> None:
        self._model = model
        self._name = name or f"{self.api}:{model}@{endpoint.host}"
        self._transport = transport or HttpTransport(endpoint)
        self._adaptation = RequestAdaptation(profile, self.required)
        self._names = ToolNameMapping(profile.tool_name_re, profile.tool_name_len)
        self._server_tools = build_server_tools(profile.server_tools, self.api)
        self._settings = settings
        self._pending_notes = [_NO_SETTING.format(name) for name in self._list_unsupported(settings)]
        # The profile and the endpoint that the information was built from, and the information.
        self._info: tuple[EndpointProfile, Endpoint, ModelInfo] | None = None
        self._encoded_for: tuple[tuple[ToolSpec, ...], int, str, bool] | None = None
        self._encoded: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")
        # The JSON of the tools offered with the current profile, by their identities: a search adds a few tools.
        self._encoded_tools: dict[int, tuple[ToolSpec, bytes]] = {}
        self._encoded_with = profile

    @property
    def endpoint(self) -> Endpoint:
        """The address of the model, with its headers, which contain the key."""
        return self._transport.endpoint

    @property
    def info(self) -> ModelInfo:
        """The known properties of the model, including the features that its endpoint has refused so far."""
        profile, endpoint = self._adaptation.profile, self.endpoint
        # Read several times in each round, and changed only by a refusal of the endpoint.
        known = self._info
        if known is not None and known[0] is profile and known[1] is endpoint:
            return known[2]
        info = ModelInfo(
            self._name,
            self._model,
            endpoint.base_url,
            tool_format=ToolFormat.REACT if profile.tools == "text" else None,
            fenced_calls=profile.fenced_calls,
            writes_code=profile.writes_code,
            searches_tools=self.search_tool is not None and profile.tool_search,
            structured_output=StructuredOutput(profile.structured_output),
            secrets=endpoint.secrets,
            prices=profile.prices,
        )
        self._info = (profile, endpoint, info)
        return info

    @abstractmethod
    def _get_path(self) -> str:
        """Return the path of requests, which is appended to the endpoint's address."""

    @abstractmethod
    def _build_fields(self, request: ModelRequest, notes: list[str], *, has_tools: bool) -> dict[str, Any]:
        """Return the body's fields except the tools. `notes` receives notes on content that the model is not shown."""

    @abstractmethod
    def _encode_tool(self, tool: ToolSpec) -> dict[str, Any]:
        """Return the API's definition of a tool."""

    @abstractmethod
    def _create_parser(self) -> StreamParser:
        """Return a parser for the next reply."""

    def _add_paused_reply(self, fields: dict[str, Any], parser: Any) -> dict[str, Any]:  # noqa: ARG002 - for subclasses
        """Return the fields with the reply so far, if the reply is paused. Only the Messages API pauses replies."""
        return fields

    def _adapt_headers(self, error: ProviderError, notes: list[str]) -> str | None:  # noqa: ARG002 - for subclasses
        """Adapt the headers of further requests to a refusal, and return a note for the user; None without change."""
        return None

    async def prepare(self) -> None:
        """Import and create the HTTP client in a worker thread."""
        await to_thread.run_sync(self._transport.preload, abandon_on_cancel=True)

    async def aclose(self) -> None:
        """Close all connections; may be called twice."""
        await self._transport.aclose()

    def generate_recorded(self, request: ModelRequest, bodies: list[RawBody] | None) -> AsyncGenerator[Delta, None]:
        """Do the same as `generate`, and append the body of every response to `bodies`."""
        if self._names.is_needed:
            request = self._names.to_endpoint(request)
            self._pending_notes += self._names.notes
            self._names.notes.clear()
        notes, self._pending_notes = self._pending_notes, []
        parser = self._create_parser()
        parser.streams_arguments = request.streams_arguments
        stream = ResponseStream(self.api, parser, self.endpoint, notes, bodies)
        deltas = stream.read_deltas(partial(self._send, _Asked(request), parser, notes))
        return self._names.restore_calls(deltas) if self._names.is_needed else deltas

    @property
    def parser_flags(self) -> Mapping[str, Any]:
        """The flags of the profile that affect the parsing of responses, except those with their default values."""
        return self._adaptation.profile.get_parser_flags()

    async def _send(
        self, asked: _Asked, parser: StreamParser, notes: list[str], refusal: ProviderError | None
    ) -> AsyncGenerator[bytes, None]:
        """Send the request, adapted after each refusal, and return the body of the response.

        `asked` keeps the request that was accepted, for the next request of a paused reply. `refusal` is the error that
        the last response reported with status 2xx.
        """
        structured = self._adaptation.profile.structured_output
        offers_tools = bool(asked.request.tools) and asked.request.allows_calls
        if asked.request.output_format is not None and (
            structured == "none" or (structured == "without_tools" and offers_tools)
        ):
            # The request was built for another model, which could not answer (`FallbackProvider`).
            raise ProviderError("the endpoint does not support structured output", code=OUTPUT_FORMAT_UNSUPPORTED)
        while True:
            if refusal is not None:
                note = self._adapt_request(refusal, asked, notes)
                # Each adaptation leaves out something, so only an endpoint with changing refusals comes here.
                if asked.adaptations == MAX_ADAPTATIONS:
                    raise refusal
                asked.adaptations += 1
                log.debug("request_adapted", provider=self._name, status=refusal.status)
                _add_notes(notes, [self._names.restore_names(note)])
            request = self._adaptation.media.hide(asked.request, asked.trial)
            content_notes: list[str] = []
            asked.tools, encoded_tools = self._encode_tools(request)
            fields = self._build_fields(request, content_notes, has_tools=bool(encoded_tools))
            fields = self._add_paused_reply(fields, parser)
            # What was refused once is left out from then on: asking again would cost a request each time.
            fields = {name: value for name, value in fields.items() if name not in self._adaptation.dropped_fields}
            asked.fields, profile = fields, self._adaptation.profile
            timeout = profile.idle_timeout if fields.get("stream") else _UNSTREAMED_TIMEOUT
            body = _join_body(_merge(fields, profile.extra_body), encoded_tools)
            try:
                response = await self._transport.post(
                    self._get_path(),
                    body,
                    idle_timeout=timeout,
                    notes=notes,
                    on_wait=request.on_wait,
                    patience=request.patience,
                )
            except ProviderError as error:
                refusal = error
                continue
            self._adaptation.media.accept(asked.trial)
            _add_notes(notes, content_notes)
            return self._read_body(response)

    def _adapt_request(self, error: ProviderError, asked: _Asked, notes: list[str]) -> str:
        """Change the request to send after a refusal, and return a note that describes the change.

        Raises:
            ProviderError: The refusal itself, if no change of the request can help.
        """
        request = asked.request
        if note := self._adapt_headers(error, notes):
            return note
        if self._adaptation.check_output_refusal(error, request):
            error.code = OUTPUT_FORMAT_UNSUPPORTED
            raise error
        if self._adaptation.check_search_refusal(error, asked.tools):
            error.code = SEARCH_UNSUPPORTED
            raise error
        if note := self._adaptation.adapt(error, request, asked.fields, asked.tools, asked.trial):
            return note
        # Once only: a model that writes a broken call twice would do so again. The parser repeats it in a stream.
        if error.code == CALL_UNREADABLE and error.status is not None and RETRY_NOTE not in notes:
            return RETRY_NOTE
        # Last, because the model loses its earlier reasoning.
        if (without := drop_echoes(error, request)) is not None:
            asked.request = without
            return "the endpoint no longer accepts its own earlier reasoning: it is left out"
        raise error

    async def _read_body(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives.

        Raises:
            StreamBroken: The connection broke before the end of the body.
        """
        import httpx2

        try:
            async with aclosing(self._transport.read_body(response)) as pieces:
                async for piece in pieces:
                    yield piece
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise StreamBroken(provider_errors.build_connection_error(self.endpoint, error)) from None
        finally:
            # A cancelled turn must close its response too: an open one keeps its connection for minutes.
            with anyio.CancelScope(shield=True):
                await response.aclose()

    def _encode_tools(self, request: ModelRequest) -> tuple[tuple[ToolSpec, ...], bytes]:
        """Return the tools to offer, and their JSON. The JSON is cached until the tools change."""
        profile, dropped = self._adaptation.profile, self._adaptation.dropped_tools
        # An endpoint that ignores tool_choice would call a tool that it is offered.
        if not request.allows_calls and not profile.tool_choice:
            return (), b""
        key = self._encoded_for
        options = (len(dropped), profile.schema_dialect, request.endpoint_tools)
        # Compared by identity: comparing the schemas of hundreds of tools would cost more than the request.
        if key is None or key[0] is not request.tools or key[1:] != options:
            if self._encoded_with is not profile or len(self._encoded_tools) > _MAX_ENCODED:
                self._encoded_with = profile
                self._encoded_tools.clear()
            tools = tuple(tool for tool in request.tools if tool.name not in dropped)
            encoded = [self._encode_once(tool, profile) for tool in tools]
            if any(tool.deferred for tool in tools):  # last, because endpoints refer to tools by index
                encoded.append(to_json_bytes(self.search_tool or {}))
            encoded += [to_json_bytes(tool) for tool in self._server_tools.tools if request.endpoint_tools]
            self._encoded_for = (request.tools, *options)
            self._encoded = (tools, b"[%b]" % b",".join(encoded) if encoded else b"")
        return self._encoded

    def _encode_once(self, tool: ToolSpec, profile: EndpointProfile) -> bytes:
        """Return the JSON of a tool in the endpoint's dialect."""
        if (known := self._encoded_tools.get(id(tool))) is None:
            definition = self._encode_tool(to_dialect(tool, profile.schema_dialect, strict=profile.strict))
            known = self._encoded_tools[id(tool)] = (tool, to_json_bytes(definition))
        return known[1]

    def _list_unsupported(self, settings: ModelSettings) -> list[str]:
        """Return the names of those settings that the endpoint does not have."""
        profile = self._adaptation.profile
        absent = set(self.absent_settings)
        if not profile.sampling:
            absent |= {"temperature", "top_p"}
        if not profile.max_tokens_field:
            absent.add("max_tokens")
        return sorted(name for name in absent if getattr(settings, name) is not None)

    def _choose_settings(self, request: ModelRequest, notes: list[str], *, has_tools: bool) -> ModelSettings:
        """Return the settings to send: those of the request, or of the provider, without those the endpoint lacks.

        `tool_choice` is None if nothing is sent. `notes` receives a note on each setting of the request that is left
        out.
        """
        settings = request.settings
        if self._settings is not _NO_SETTINGS:
            settings = settings.with_defaults(self._settings)
        left_out = dict.fromkeys(self._list_unsupported(settings))
        _add_notes(notes, map(_NO_SETTING.format, self._list_unsupported(request.settings)))
        limits = (settings.max_tokens or self._adaptation.profile.max_tokens, self._settings.max_tokens)
        max_tokens = min((limit for limit in (*limits, self._adaptation.max_tokens) if limit), default=None)
        thinking = self._adaptation.choose_thinking(settings.thinking)
        choice = self._choose_tool(request, notes, has_tools=has_tools)
        chosen: dict[str, Any] = {"max_tokens": max_tokens, "thinking": thinking, "tool_choice": choice, **left_out}
        changed = {name: value for name, value in chosen.items() if value != getattr(settings, name)}
        return replace(settings, **changed) if changed else settings

    def _choose_tool(self, request: ModelRequest, notes: list[str], *, has_tools: bool) -> str | None:
        """Return the value of ``tool_choice``: ``none``, ``required``, or a tool's name; None if nothing is sent."""
        choice, profile = request.settings.tool_choice, self._adaptation.profile
        if choice in (None, ToolChoice.AUTO):
            return None
        if choice == ToolChoice.NONE:
            return choice if has_tools else None
        offered = {tool.name for tool in request.tools} - self._adaptation.dropped_tools
        if not (profile.tool_choice and profile.forced_choice):
            _add_notes(notes, [FORCED_CHOICE_NOTE])
        elif choice in offered or (choice == ToolChoice.REQUIRED and has_tools):
            return choice
        else:
            missing = "any tool" if choice == ToolChoice.REQUIRED else choice
            _add_notes(notes, [f"tool_choice is left out: the request does not offer {missing}"])
        return None


def to_dialect(tool: ToolSpec, dialect: str, *, strict: bool = False) -> ToolSpec:
    """Return a tool with its parameters in a dialect (`provider_schema.to_dialect`), and lost constraints in words."""
    parameters, lost = provider_schema.to_dialect(tool.input_schema, dialect, strict=strict)
    if parameters is tool.input_schema:
        return tool
    description = "\n\n".join(part for part in (tool.description, lost) if part)
    return replace(tool, input_schema=parameters, description=description)


def build_output_schema(form: OutputFormat, profile: EndpointProfile) -> dict[str, Any]:
    """Return the schema of a structured answer as OpenAI's APIs define it: with its name, and perhaps strict."""
    is_full = profile.schema_dialect == "full" and profile.structured_output == "with_tools"
    schema, is_strict = provider_schema.to_output_schema(form.schema, "openai" if is_full else profile.schema_dialect)
    about = {"description": form.description} if form.description else {}
    return {"name": form.name, "schema": schema, "strict": is_strict, **about}


def build_sampling_fields(settings: ModelSettings) -> dict[str, float]:
    """Return the fields that control sampling, which have the same names in all APIs."""
    fields = {"temperature": settings.temperature, "top_p": settings.top_p, "seed": settings.seed}
    return {name: value for name, value in fields.items() if value is not None}


def _add_notes(notes: list[str], new: Iterable[str]) -> None:
    """Add the notes that are not there yet: a request is built again after each refusal."""
    notes += [note for note in new if note not in notes]


def _merge(fields: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a body merged with the user's extra fields; objects in both (``text``) are merged too."""
    merged = {**fields, **extra}
    for name in fields.keys() & extra.keys():
        if isinstance(fields[name], Mapping) and isinstance(extra[name], Mapping):
            merged[name] = {**fields[name], **extra[name]}
    return merged


def _join_body(fields: dict[str, Any], tools: bytes) -> bytes:
    body = to_json_bytes(fields)
    # Tools are most of a body and stay the same in a turn, so their JSON is inserted, not encoded again.
    return b"".join((body[:-1], b',"tools":', tools, b"}")) if tools else body
