"""Providers that ask a model through an existing client of the SDK `openai` or `anthropic`.

The client authenticates, and routes requests to the endpoint: its credentials, proxies, hooks and middleware apply.
Request bodies, response parsing, timeouts and the retry policy are the same as in every other provider of this package.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dial_client.messages.errors import ConfigError
from dial_client.messages.model import Delta, ModelInfo, ModelRequest, ModelSettings
from dial_client.providers.chat_api import ChatProvider
from dial_client.providers.endpoint_profile import EndpointProfile, apply_quirks
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.providers.http.response_stream import RawBody
from dial_client.providers.http.sdk_transport import (
    SdkTransport,
    load_anthropic,
    load_openai,
    read_endpoint,
    read_header,
)
from dial_client.providers.messages_api import MessagesProvider
from dial_client.providers.presets import find_preset_by_url
from dial_client.providers.responses_api import ResponsesProvider
from dial_client.settings.config_types import Api

if TYPE_CHECKING:
    from anthropic import (
        AsyncAnthropic,
        AsyncAnthropicBedrock,
        AsyncAnthropicBedrockMantle,
        AsyncAnthropicVertex,
    )
    from openai import AsyncOpenAI

_NO_QUIRKS: Mapping[str, Any] = MappingProxyType({})
_NO_SETTINGS = ModelSettings()
_VERSION = "anthropic-version"


class ClientProvider:
    """A `Provider` that delegates to an `HttpProvider` whose transport is a vendor's client."""

    def __init__(self, inner: HttpProvider) -> None:
        self._inner = inner

    @property
    def info(self) -> ModelInfo:
        """The known properties of the model, including the features that its endpoint has refused so far."""
        return self._inner.info

    @property
    def parser_flags(self) -> Mapping[str, Any]:
        """The flags of the profile that affect the parsing of responses, except those with their default values."""
        return self._inner.parser_flags

    async def prepare(self) -> None:
        """Import the SDK in a worker thread."""
        await self._inner.prepare()

    def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Send the request, and yield the reply as it arrives. The last delta is a `Completion`.

        Raises:
            ProviderError: The client could not authenticate, the endpoint could not be reached, refused the request, or
                reported an error, or the connection broke before the first delta.
        """
        return self._inner.generate(request)

    def generate_recorded(self, request: ModelRequest, bodies: list[RawBody] | None) -> AsyncGenerator[Delta, None]:
        """Do the same as `generate`, and append the body of every response to `bodies`."""
        return self._inner.generate_recorded(request, bodies)

    async def aclose(self) -> None:
        """Leave the client open, because it belongs to the caller."""
        await self._inner.aclose()


class OpenAIProvider(ClientProvider):
    """A model that is asked through a client of the SDK `openai`: `AsyncOpenAI`, `AsyncAzureOpenAI` or a subclass.

    Args:
        client: The client, which stays open when the provider is closed.
        model: The model's id, or the name of its deployment.
        wire: The API: ``responses``, or ``chat`` for Chat Completions.
        settings: The settings for requests that have none of their own. `max_tokens` also bounds those of requests.
        quirks: The flags that say how the endpoint deviates from its API, as ``quirks`` in a profile.

    Raises:
        ConfigError: The client is not an `AsyncOpenAI`, or an option has an invalid value.
    """

    def __init__(
        self,
        client: AsyncOpenAI,
        model: str,
        *,
        wire: str = "responses",
        settings: ModelSettings = _NO_SETTINGS,
        quirks: Mapping[str, Any] = _NO_QUIRKS,
    ) -> None:
        import openai

        if not isinstance(client, openai.AsyncOpenAI):
            raise ConfigError(
                f"OpenAIProvider: {type(client).__name__} is not a supported client",
                hint="pass an openai.AsyncOpenAI or AsyncAzureOpenAI",
            )
        if wire not in ("responses", "chat"):
            raise ConfigError(f"OpenAIProvider: there is no wire {wire!r}", hint="expected 'responses' or 'chat'")
        endpoint = read_endpoint(client, Endpoint(""))
        profile = find_profile(endpoint, Api(wire), quirks, "OpenAIProvider")
        transport = SdkTransport(load_openai, lambda: client, endpoint, is_owner=False)
        super().__init__(
            choose_openai_class(Api(wire))(model, endpoint, profile, settings=settings, transport=transport)
        )


@runtime_checkable
class _MessagesClient(Protocol):
    """A client with an API of messages; that of an asynchronous client of `anthropic` is an ``AsyncMessages``."""

    @property
    def messages(self) -> object: ...


class AnthropicProvider(ClientProvider):
    """A model that is asked through a client of the SDK `anthropic`, for Anthropic itself or for a cloud.

    Args:
        client: An `AsyncAnthropic`, `AsyncAnthropicBedrock`, `AsyncAnthropicVertex`, `AsyncAnthropicFoundry`, or any
            other client with the Messages API. The client stays open when the provider is closed.
        model: The model's id, in the form that the cloud uses.
        settings: The settings for requests that have none of their own. `max_tokens` also bounds those of requests.
        quirks: The flags that say how the endpoint deviates from its API, as ``quirks`` in a profile.

    Raises:
        ConfigError: The client has no Messages API, or an option has an invalid value.
    """

    def __init__(
        self,
        client: AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicBedrockMantle | AsyncAnthropicVertex,
        model: str,
        *,
        settings: ModelSettings = _NO_SETTINGS,
        quirks: Mapping[str, Any] = _NO_QUIRKS,
    ) -> None:
        from anthropic.resources.messages import AsyncMessages

        given: object = client  # callers without a type checker may pass any type
        if not (isinstance(given, _MessagesClient) and isinstance(given.messages, AsyncMessages)):
            raise ConfigError(
                f"AnthropicProvider: {type(client).__name__} is not a supported client",
                hint="pass an anthropic.AsyncAnthropic, AsyncAnthropicBedrock, AsyncAnthropicVertex or "
                "AsyncAnthropicFoundry",
            )
        endpoint = read_endpoint(client, Endpoint("", _read_version(client)))
        profile = find_profile(endpoint, Api.MESSAGES, quirks, "AnthropicProvider")
        transport = SdkTransport(load_anthropic, lambda: client, endpoint, is_owner=False)
        super().__init__(SdkMessagesProvider(model, endpoint, profile, settings=settings, transport=transport))


class SdkMessagesProvider(MessagesProvider):
    """A provider for the Messages API through a client of `anthropic`, which adapts the path to its endpoint."""

    def _get_path(self) -> str:
        return "/v1/messages"


def choose_openai_class(wire: Api) -> Callable[..., HttpProvider]:
    """Return the provider class for one of OpenAI's two APIs."""
    return ChatProvider if wire is Api.CHAT else ResponsesProvider


def find_profile(endpoint: Endpoint, wire: Api, quirks: Mapping[str, Any], where: str) -> EndpointProfile:
    """Return the profile of the client's address, with the user's flags applied to it.

    Raises:
        ConfigError: There is no such flag, or its value is invalid; the error names the setting `where`.
    """
    return apply_quirks(find_preset_by_url(endpoint.base_url).get_profile(wire), quirks, where)


def _read_version(client: Any) -> Mapping[str, str]:
    """Return the header with the API version that a client sends; an empty object if it sends none."""
    version = read_header(client.default_headers, _VERSION)
    return {_VERSION: version} if version else {}
