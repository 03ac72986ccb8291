"""DIAL core: one address, many deployments, each behind the wire it speaks best.

What a deployment is, its core says itself: ``GET /openai/deployments/{id}`` tells which interfaces it has and which
parameters it takes (https://github.com/epam/ai-dial-core, docs/dynamic-settings/models.md). That is asked once. A core
that does not say is asked in chat completions, which every deployment has had from the beginning.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import anyio

from dial_client.errors import ProviderError
from dial_client.logs import get_logger
from dial_client.messages import Echo, Message, Role, TextPart
from dial_client.model import Completion, Delta, ModelInfo, ModelRequest, ToolFormat
from dial_client.providers.chat_api import ChatProvider
from dial_client.providers.endpoint_profile import MESSAGES, EndpointProfile
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.providers.http.provider_errors import TOOLS_UNSUPPORTED
from dial_client.providers.http.response_stream import RawBody
from dial_client.providers.http.transport import HttpTransport
from dial_client.providers.messages_api import MessagesProvider
from dial_client.providers.responses_api import ResponsesProvider
from dial_client.settings.config_types import Wire

log = get_logger(__name__)

_DESCRIPTION_TIMEOUT = 5.0
"""Seconds a core has to say what a deployment is."""


class DialProvider:
    """Asks a deployment of a DIAL core.

    Args:
        model: the deployment's id; may have slashes (``applications/…``).
        endpoint: the core.
        profile: what is known of it; its `EndpointProfile.api_version` is that of chat completions.
        wire: the only wire to use; None for the one the deployment speaks best.
        fixed: flags of the profile that hold whatever the deployment says of itself.
        temperature: sent where the deployment takes it.
        max_tokens: tokens of a reply where a request does not say.
    """

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        profile: EndpointProfile,
        *,
        wire: Wire | None = None,
        fixed: frozenset[str] = frozenset(),
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self._model = model
        self._name = f"dial:{model}@{endpoint.host}"  # of every API: the echo says which API it is of
        self._endpoint = endpoint
        self._profile = profile
        self._wire = None if wire is None else Wire(wire)
        self._fixed = fixed
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._features: Mapping[str, Any] = {}
        self._inner: HttpProvider | None = None
        self._choosing = anyio.Lock()

    @property
    def info(self) -> ModelInfo:
        """What is known of the deployment."""
        return ModelInfo(
            self._name,
            self._model,
            self._endpoint.base_url,
            tool_format=ToolFormat.REACT if self._profile.tools == "text" else None,
            secrets=self._endpoint.secrets,
        )

    @property
    def parser_flags(self) -> Mapping[str, Any]:
        """The flags of the profile that decide how responses are read, if they are not the defaults."""
        return self._profile.parser_flags()

    async def prepare(self) -> None:
        """Ask the core what the deployment is, and make the HTTP client for it."""
        await (await self._chosen()).prepare()

    async def aclose(self) -> None:
        """Close all connections; may be called twice."""
        if self._inner is not None:
            await self._inner.aclose()

    def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the deployment, and give its reply as it comes, a `Completion` last.

        Raises:
            ProviderError: as `HttpProvider.generate`; or the deployment says that it has no tools.
        """
        return self.generate_recorded(request, None)

    async def generate_recorded(
        self, request: ModelRequest, bodies: list[RawBody] | None
    ) -> AsyncGenerator[Delta, None]:
        """Do as `generate`, and append the body of every response to `bodies`."""
        inner = await self._chosen()
        if request.tools and self._features.get("tools") is False and self._profile.tools != "native":
            raise ProviderError(
                f"{self._endpoint.host} says that {self._model} takes no tools; "
                'a profile with "tools": "native" offers them all the same',
                code=TOOLS_UNSUPPORTED,
            )
        request = replace(request, messages=tuple(self._inwards(message, inner) for message in request.messages))
        if self._features.get("system_prompt") is False:
            request = _with_instructions_in_messages(request)
        async with aclosing(inner.generate_recorded(request, bodies)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Completion) and delta.echo is not None:
                    yield replace(delta, echo={"wire": inner.wire, "echo": delta.echo})
                else:
                    yield delta

    def _inwards(self, message: Message, inner: HttpProvider) -> Message:
        """Give a message with the echo as its wire gave it; without, where it came over another wire."""
        if message.echo is None or message.echo.provider != self._name:
            return message
        said = message.echo.data
        if not isinstance(said, dict) or said.get("wire") != inner.wire:
            return message.without_echo()
        return replace(message, echo=Echo(inner.info.name, said.get("echo")))

    async def _chosen(self) -> HttpProvider:
        async with self._choosing:
            if self._inner is None:
                said = await self._described()
                features = said.get("features")
                self._features = features if isinstance(features, dict) else {}
                self._inner = self._over(self._wire or _choose_wire(said, self._features))
                log.debug("deployment", model=self._model, wire=self._inner.wire, described=bool(said))
            return self._inner

    async def _described(self) -> dict[str, Any]:
        """Give what the core says of the deployment; nothing where it does not say: that alone ends no turn."""
        connection = HttpTransport(replace(self._endpoint, query={}))
        try:
            said = await connection.get(
                f"/openai/deployments/{quote(self._model, safe='')}", timeout=_DESCRIPTION_TIMEOUT
            )
        except ProviderError as error:
            log.debug("deployment_not_described", model=self._model, status=error.status, code=error.code)
            return {}
        finally:
            with anyio.CancelScope(shield=True):
                await connection.aclose()
        return said if isinstance(said, dict) else {}

    def _over(self, wire: Wire) -> HttpProvider:
        core, profile = self._endpoint, self._with_features(wire)
        options: dict[str, Any] = {"temperature": self._temperature, "max_tokens": self._max_tokens}
        if wire is Wire.RESPONSES:
            endpoint = replace(core, base_url=f"{core.base_url}/openai/v1", query={})
            return ResponsesProvider(self._model, endpoint, profile, **options)
        if wire is Wire.MESSAGES:
            headers = dict(core.headers) | {"anthropic-version": MESSAGES.api_version}
            endpoint = replace(core, base_url=f"{core.base_url}/anthropic", query={}, headers=headers)
            profile = replace(profile, max_tokens=profile.max_tokens or MESSAGES.max_tokens)
            return MessagesProvider(self._model, endpoint, profile, **options)
        return _DeploymentProvider(self._model, core, profile, **options)

    def _with_features(self, wire: Wire) -> EndpointProfile:
        """Give the profile with what the deployment says of itself, but for the flags that are fixed."""
        said = self._features
        flags: dict[str, Any] = {}
        if said.get("temperature") is False or said.get("custom_temperature_supported") is False:
            flags["sampling"] = False
        if said.get("parallel_tool_calls") is False:
            flags["parallel"] = "omit"
        if wire is not Wire.CHAT:
            flags["documents"] = True
        else:
            if said.get("content_parts") is False:
                flags["images"] = False
            if said.get("max_completion_tokens_supported") is True:
                flags["max_tokens_field"] = "max_completion_tokens"
            elif said.get("max_tokens_supported") is False:
                flags["max_tokens_field"] = ""
        return replace(self._profile, **{name: flag for name, flag in flags.items() if name not in self._fixed})


class _DeploymentProvider(ChatProvider):
    """Asks in chat completions, where each deployment has a path of its own, as at Azure."""

    def _path(self) -> str:
        return f"/openai/deployments/{quote(self._model, safe='')}/chat/completions"


def _choose_wire(said: Mapping[str, Any], features: Mapping[str, Any]) -> Wire:
    """Give the wire that carries most.

    Responses before all: OpenAI's current models have tools beside reasoning there only. Then Messages, where thinking
    goes back with its signature. A deployment of OpenAI's may have Messages too, through a translator: hence the order.
    """
    interfaces = said.get("interfaces")
    interfaces = interfaces if isinstance(interfaces, list) else [interfaces]
    if "openaiResponses" in interfaces or features.get("responses_api") is True:
        return Wire.RESPONSES
    return Wire.MESSAGES if "anthropicMessages" in interfaces else Wire.CHAT


def _with_instructions_in_messages(request: ModelRequest) -> ModelRequest:
    """Return the request with its instructions at the beginning of the first user message."""
    text = request.instruction_text
    if not text:
        return request
    messages = list(request.messages)
    first = next((index for index, message in enumerate(messages) if message.role is Role.USER), None)
    if first is None:
        return replace(request, instructions=(), messages=(Message.user(text), *messages))
    content = messages[first].content
    both = f"{text}\n\n{content}" if isinstance(content, str) else (TextPart(f"{text}\n\n"), *content)
    messages[first] = replace(messages[first], content=both)
    return replace(request, instructions=(), messages=tuple(messages))
