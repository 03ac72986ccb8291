"""The provider for DIAL core: one address with many deployments, each asked through the best API that it supports.

``GET /openai/deployments/{id}`` returns the description of a deployment, with its interfaces and parameters
(https://github.com/epam/ai-dial-core, docs/dynamic-settings/models.md). The description is requested once. A deployment
without a description is asked through the Chat Completions API, which every deployment supports.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import anyio

from dial_client.messages.errors import TOOLS_UNSUPPORTED, ProviderError
from dial_client.messages.message import Message, ProviderState, Role, TextPart
from dial_client.messages.model import Completion, Delta, ModelInfo, ModelRequest, ModelSettings, ToolFormat
from dial_client.providers.chat_api import ChatProvider
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.providers.http.response_stream import RawBody, Recordable
from dial_client.providers.http.transport import HttpTransport
from dial_client.providers.messages_api import MessagesProvider
from dial_client.providers.responses_api import ResponsesProvider
from dial_client.runtime.json_fields import to_object
from dial_client.runtime.logs import get_logger
from dial_client.settings.config_types import Api
from dial_client.settings.endpoint_profile import MESSAGES, EndpointProfile

log = get_logger(__name__)

_NO_SETTINGS = ModelSettings()
# Timeout in seconds of the request for a deployment's description.
_DESCRIPTION_TIMEOUT = 5.0


class DialProvider(Recordable):
    """A provider for a deployment of a DIAL core.

    Args:
        model: The deployment's id, which may contain slashes (``applications/…``).
        endpoint: The address of the core, with its headers.
        profile: The flags of the core. Its `EndpointProfile.api_version` applies to chat completions only.
        api: The API to use; None for the best one that the deployment supports.
        fixed: Names of the profile's flags that the deployment's description must not change.
        settings: The settings for requests that have none of their own. `max_tokens` also bounds those of requests.
    """

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        profile: EndpointProfile,
        *,
        api: Api | None = None,
        fixed: frozenset[str] = frozenset(),
        settings: ModelSettings = _NO_SETTINGS,
    ) -> None:
        self._model = model
        self._name = f"dial:{model}@{endpoint.host}"  # the same for every API: the echo contains its API
        self._endpoint = endpoint
        self._profile = profile
        self._api = None if api is None else Api(api)
        self._fixed = fixed
        self._settings = settings
        self._features: Mapping[str, Any] = {}
        self._inner: HttpProvider | None = None
        self._opening = anyio.Lock()

    @property
    def info(self) -> ModelInfo:
        """The known properties of the deployment."""
        return ModelInfo(
            self._name,
            self._model,
            self._endpoint.base_url,
            tool_format=ToolFormat.REACT if self._profile.tools == "text" else None,
            fenced_calls=self._profile.fenced_calls,
            secrets=self._endpoint.secrets,
            prices=self._profile.prices,
        )

    @property
    def parser_flags(self) -> Mapping[str, Any]:
        """The flags of the profile that affect the parsing of responses, except those with their default values."""
        return self._profile.get_parser_flags()

    async def prepare(self) -> None:
        """Request the description of the deployment, and create its HTTP client."""
        await (await self._choose_provider()).prepare()

    async def aclose(self) -> None:
        """Close all connections; may be called twice."""
        if self._inner is not None:
            await self._inner.aclose()

    async def generate_recorded(
        self, request: ModelRequest, bodies: list[RawBody] | None
    ) -> AsyncGenerator[Delta, None]:
        """Do the same as `generate`, and append the body of every response to `bodies`."""
        inner = await self._choose_provider()
        if request.tools and self._features.get("tools") is False and self._profile.tools != "native":
            raise ProviderError(
                f"{self._endpoint.host} says that {self._model} does not support tools; "
                'a profile with "tools": "native" offers them nevertheless',
                code=TOOLS_UNSUPPORTED,
            )
        request = replace(request, messages=tuple(self._unwrap_echo(message, inner) for message in request.messages))
        if self._features.get("system_prompt") is False:
            request = _move_instructions_to_messages(request)
        async with aclosing(inner.generate_recorded(request, bodies)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Completion) and delta.echo is not None:
                    yield replace(delta, echo={"wire": inner.api, "echo": delta.echo})
                else:
                    yield delta

    def _unwrap_echo(self, message: Message, inner: HttpProvider) -> Message:
        """Return a message with the echo for the API in use, without an echo that belongs to another API."""
        if message.echo is None or message.echo.provider != self._name:
            return message
        echo = message.echo.data
        # The state of one API is invalid in the requests of another.
        if not isinstance(echo, dict) or echo.get("wire") != inner.api:
            return message.without_echo()
        return replace(message, echo=ProviderState(inner.info.name, echo.get("echo")))

    async def _choose_provider(self) -> HttpProvider:
        async with self._opening:
            if self._inner is None:
                description = await self._fetch_description()
                self._features = to_object(description.get("features"))
                self._inner = self._open_provider(self._api or _choose_api(description, self._features))
                log.debug("deployment", model=self._model, api=self._inner.api, described=bool(description))
            return self._inner

    async def _fetch_description(self) -> dict[str, Any]:
        """Return the description of the deployment; an empty object, and no error, if it cannot be fetched."""
        # The version in the query is that of chat completions.
        transport = HttpTransport(replace(self._endpoint, query={}))
        try:
            description = await transport.get(
                f"/openai/deployments/{quote(self._model, safe='')}", timeout=_DESCRIPTION_TIMEOUT
            )
        except ProviderError as error:
            log.debug("deployment_not_described", model=self._model, status=error.status, code=error.code)
            return {}
        finally:
            with anyio.CancelScope(shield=True):
                await transport.aclose()
        return to_object(description)

    def _open_provider(self, api: Api) -> HttpProvider:
        core, profile = self._endpoint, self._apply_description(api)
        if api is Api.RESPONSES:
            endpoint = replace(core, base_url=f"{core.base_url}/openai/v1", query={})
            return ResponsesProvider(self._model, endpoint, profile, settings=self._settings)
        if api is Api.MESSAGES:
            headers = dict(core.headers) | {"anthropic-version": MESSAGES.api_version}
            endpoint = replace(core, base_url=f"{core.base_url}/anthropic", query={}, headers=headers)
            profile = replace(profile, max_tokens=profile.max_tokens or MESSAGES.max_tokens)
            return MessagesProvider(self._model, endpoint, profile, settings=self._settings)
        return _DeploymentProvider(self._model, core, profile, settings=self._settings)

    def _apply_description(self, api: Api) -> EndpointProfile:
        """Return the profile, changed as the deployment's description requires, except for fixed flags."""
        description = self._features
        flags: dict[str, Any] = {}
        if description.get("temperature") is False or description.get("custom_temperature_supported") is False:
            flags["sampling"] = False
        if description.get("parallel_tool_calls") is False:
            flags["parallel"] = "omit"
        if api is not Api.CHAT:
            flags["documents"] = True
        else:
            if description.get("content_parts") is False:
                flags["images"] = False
            if description.get("max_completion_tokens_supported") is True:
                flags["max_tokens_field"] = "max_completion_tokens"
            elif description.get("max_tokens_supported") is False:
                flags["max_tokens_field"] = None
        return replace(self._profile, **{name: flag for name, flag in flags.items() if name not in self._fixed})


class _DeploymentProvider(ChatProvider):
    """A provider for chat completions with a separate path for each deployment, as in Azure OpenAI."""

    def _get_path(self) -> str:
        return f"/openai/deployments/{quote(self._model, safe='')}/chat/completions"


def _choose_api(description: Mapping[str, Any], features: Mapping[str, Any]) -> Api:
    """Return the API of a deployment that supports the most features.

    The Responses API has priority: OpenAI's current models support tools with reasoning only there. The Messages API is
    second: it accepts thinking with its signature. OpenAI's deployments may offer the Messages API too, by translation.
    """
    interfaces = description.get("interfaces")
    interfaces = interfaces if isinstance(interfaces, list) else [interfaces]
    if "openaiResponses" in interfaces or features.get("responses_api") is True:
        return Api.RESPONSES
    return Api.MESSAGES if "anthropicMessages" in interfaces else Api.CHAT


def _move_instructions_to_messages(request: ModelRequest) -> ModelRequest:
    """Return the request with its instructions moved to the beginning of the first user message."""
    text, messages = request.instruction_text, list(request.messages)
    first = next((index for index, message in enumerate(messages) if message.role is Role.USER), None)
    if first is None:
        messages.insert(0, Message.user(text))
    elif text:
        content = messages[first].content
        both = f"{text}\n\n{content}" if isinstance(content, str) else (TextPart(f"{text}\n\n"), *content)
        messages[first] = replace(messages[first], content=both)
    return replace(request, instructions=(), messages=tuple(messages)) if text else request
