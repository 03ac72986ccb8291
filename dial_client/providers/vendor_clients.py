"""Providers that ask a model through a client of the SDK `openai` or `anthropic`: the caller's, or one for a cloud.

The models of clouds are ``azure:DEPLOYMENT``, ``bedrock:ID``, ``vertex:ID`` and ``foundry:ID``. Their clients use the
credentials that the cloud's own tools use: a key, Entra ID, an AWS profile, or Google's application default
credentials. Credentials that do not come from a profile of the configuration are sent only to the cloud's own hosts,
and to the address in the cloud's environment variable.

The client authenticates, and routes requests to the endpoint: its credentials, proxies, hooks and middleware apply.
Request bodies, response parsing, timeouts and the retry policy are the same as in every other provider of this package.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from anyio import to_thread

from dial_client.messages.errors import ConfigError
from dial_client.messages.model import Delta, ModelInfo, ModelRequest, ModelSettings, Provider
from dial_client.providers.chat_api import ChatProvider
from dial_client.providers.http.endpoint import Endpoint, is_same_origin, normalize_key, normalize_url
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.providers.http.response_stream import RawBody
from dial_client.providers.http.sdk_transport import (
    Sdk,
    SdkTransport,
    load_anthropic,
    load_openai,
    read_endpoint,
    read_header,
)
from dial_client.providers.messages_api import MessagesProvider
from dial_client.providers.presets import PRESETS, UNKNOWN, find_preset_by_url
from dial_client.providers.responses_api import ResponsesProvider
from dial_client.settings.config_types import Api, ModelProfile
from dial_client.settings.endpoint_profile import NEWEST_MESSAGES_VERSION, EndpointProfile, apply_quirks

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
        api: ``responses``, or ``chat`` for Chat Completions.
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
        api: str = "responses",
        settings: ModelSettings = _NO_SETTINGS,
        quirks: Mapping[str, Any] = _NO_QUIRKS,
    ) -> None:
        import openai

        if not isinstance(client, openai.AsyncOpenAI):
            raise ConfigError(
                f"OpenAIProvider: {type(client).__name__} is not a supported client",
                hint="pass an openai.AsyncOpenAI or AsyncAzureOpenAI",
            )
        if api not in ("responses", "chat"):
            raise ConfigError(f"OpenAIProvider: there is no API {api!r}", hint="expected 'responses' or 'chat'")
        endpoint = read_endpoint(client, Endpoint(""))
        profile = find_profile(endpoint, Api(api), quirks, "OpenAIProvider")
        transport = SdkTransport(load_openai, lambda: client, endpoint, is_owner=False)
        super().__init__(
            choose_openai_class(Api(api))(model, endpoint, profile, settings=settings, transport=transport)
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


def choose_openai_class(api: Api) -> Callable[..., HttpProvider]:
    """Return the provider class for one of OpenAI's two APIs."""
    return ChatProvider if api is Api.CHAT else ResponsesProvider


def find_profile(endpoint: Endpoint, api: Api, quirks: Mapping[str, Any], where: str) -> EndpointProfile:
    """Return the profile of the client's address, with the user's flags applied to it.

    Raises:
        ConfigError: There is no such flag, or its value is invalid; the error names the setting `where`.
    """
    return apply_quirks(find_preset_by_url(endpoint.base_url).get_profile(api), quirks, where)


def _read_version(client: Any) -> Mapping[str, str]:
    """Return the header with the API version that a client sends; an empty object if it sends none."""
    version = read_header(client.default_headers, _VERSION)
    return {_VERSION: version} if version else {}


_AZURE_VERSION = "2025-04-01-preview"
"""The ``api-version`` of Azure OpenAI if ``OPENAI_API_VERSION`` is not set: the last version that is a date."""

# Customers of AWS have hosts below amazonaws.com too (buckets, load balancers): the form of the name decides.
_BEDROCK_HOST = re.compile(
    r"(?:[\w-]+\.)?bedrock-runtime(?:-fips)?\.[a-z0-9-]+(?:\.vpce)?\.amazonaws\.com(?:\.cn)?", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cloud:
    """A cloud, with the packages and environment variables that its client needs."""

    packages: tuple[str, ...]
    """The packages that authenticate; the extra with the name of the cloud installs them."""
    url_variable: str
    key_variables: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Host names of the cloud; their subdomains match too."""
    host_form: re.Pattern[str] | None = None
    """The pattern of host names of a cloud whose customers may have hosts in the same domain."""
    sign_in: str
    """Advice for the user if there are no credentials."""
    is_key_enough: bool = True
    """True if the packages are not needed when there is a key."""


_CLOUDS: Mapping[str, _Cloud] = MappingProxyType(
    {
        "azure": _Cloud(
            packages=("azure.identity",),
            url_variable="AZURE_OPENAI_ENDPOINT",
            key_variables=("AZURE_OPENAI_API_KEY",),
            hosts=PRESETS["azure"].hosts,
            sign_in="sign in with 'az login', or set AZURE_OPENAI_API_KEY",
        ),
        "bedrock": _Cloud(
            packages=("boto3", "botocore"),
            url_variable="ANTHROPIC_BEDROCK_BASE_URL",
            key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
            host_form=_BEDROCK_HOST,
            sign_in="sign in with 'aws configure' or 'aws sso login', and set AWS_REGION",
            is_key_enough=False,  # botocore parses the event streams
        ),
        "vertex": _Cloud(
            packages=("google.auth", "requests"),
            url_variable="ANTHROPIC_VERTEX_BASE_URL",
            hosts=("googleapis.com",),
            sign_in="sign in with 'gcloud auth application-default login'",
        ),
        "foundry": _Cloud(
            packages=("azure.identity",),
            url_variable="ANTHROPIC_FOUNDRY_BASE_URL",
            key_variables=("ANTHROPIC_FOUNDRY_API_KEY",),
            hosts=("services.ai.azure.com",),
            sign_in="sign in with 'az login', or set ANTHROPIC_FOUNDRY_API_KEY",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class _Access:
    """The address of a cloud's endpoint, and the key for it."""

    where: str
    """The model's name, or the setting of its profile, for error messages."""
    url: str
    """The address; empty if the client chooses it."""
    key: str
    """The key; empty if the client authenticates in another way."""
    environ: Mapping[str, str]

    def read(self, *variables: str) -> str:
        """Return the value of the first variable that is set, without surrounding white space; empty if none is set."""
        values = (self.environ.get(variable, "").strip() for variable in variables)
        return next((value for value in values if value), "")


_Client = tuple[Endpoint, Callable[[], Any]]
"""The endpoint of the client, with the address as far as it is known, and a function that creates the client."""


def open_cloud_model(
    cloud_name: str, where: str, settings: ModelProfile, address: str | None, environ: Mapping[str, str]
) -> Provider:
    """Return the provider for a model of a cloud, without importing the vendor's SDK.

    Args:
        cloud_name: The name of the cloud, one of `presets.CLOUDS`.
        where: The name of the model, or the setting, for error messages.
        settings: The profile, whose `model` is the model's id or deployment.
        address: The endpoint's address; None for the cloud's own.
        environ: The environment variables.

    Raises:
        ConfigError: An address, a region, a key or a package is missing.
    """
    access = _find_access(cloud_name, where, settings, address, environ)
    find_client = {"azure": _find_azure, "bedrock": _find_bedrock, "vertex": _find_vertex, "foundry": _find_foundry}
    endpoint, make_client = find_client[cloud_name](access)
    endpoint = replace(endpoint, key=access.key or endpoint.key, sign_in=_CLOUDS[cloud_name].sign_in)
    api = Api(settings.api or Api.RESPONSES) if cloud_name == "azure" else Api.MESSAGES
    preset = PRESETS["azure"] if cloud_name in ("azure", "foundry") else UNKNOWN
    profile = apply_quirks(preset.get_profile(api), settings.quirks, where)
    load_sdk: Callable[[], Sdk] = load_openai if cloud_name == "azure" else load_anthropic
    make_provider: Callable[..., Provider] = choose_openai_class(api) if cloud_name == "azure" else SdkMessagesProvider
    return make_provider(
        settings.model,
        endpoint,
        profile,
        settings=settings.settings,
        name=f"{cloud_name}:{settings.model}",
        transport=SdkTransport(load_sdk, make_client, endpoint, is_owner=True),
    )


def _find_access(
    cloud_name: str, where: str, settings: ModelProfile, address: str | None, environ: Mapping[str, str]
) -> _Access:
    """Return the address and the key; check that the packages are installed and the credentials fit the address."""
    cloud = _CLOUDS[cloud_name]
    configured_url = environ.get(cloud.url_variable, "").strip()
    configured_url = normalize_url(configured_url, cloud.url_variable) if configured_url else ""
    key = normalize_key(settings.api_key, f"{where}.api_key") if settings.api_key else ""
    # The credentials of a cloud open the whole account, so they never leave the hosts of that cloud.
    if not key and address and not _is_cloud_address(address, configured_url, cloud):
        raise ConfigError(
            f"{where}: {urlsplit(address).hostname} is not a host for the credentials of {cloud_name}",
            hint=f"set {cloud.url_variable} to it, or set api_key in a profile",
        )
    if not key:
        set_keys = ((name, environ.get(name, "").strip()) for name in cloud.key_variables)
        key = next((normalize_key(value, name) for name, value in set_keys if value), "")
    access = _Access(where, address or configured_url, key, environ)
    has_key = bool(key or (cloud_name == "azure" and access.read("AZURE_OPENAI_AD_TOKEN")))
    if not (has_key and cloud.is_key_enough) and not all(map(_is_installed, cloud.packages)):
        keys = [f"set {name}" for name in cloud.key_variables if cloud.is_key_enough]
        hint = ", or ".join([f"pip install 'dial-client[{cloud_name}]'", *keys])
        raise ConfigError(f"{where} needs the extra {cloud_name!r}", hint=hint)
    return access


def _is_cloud_address(address: str, configured_url: str, cloud: _Cloud) -> bool:
    """Return True if an address is on the cloud's own hosts, or has the same origin as `configured_url`."""
    if configured_url and is_same_origin(address, configured_url):
        return True
    parts = urlsplit(address)
    host = parts.hostname or ""
    has_form = cloud.host_form is not None and cloud.host_form.fullmatch(host) is not None
    # Never without TLS, and never by a part of the name only.
    return parts.scheme == "https" and (has_form or any(f".{host}".endswith(f".{name}") for name in cloud.hosts))


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _find_azure(access: _Access) -> _Client:
    if not access.url:
        raise ConfigError(f"{access.where} has no address", hint="set AZURE_OPENAI_ENDPOINT, or set a base URL")
    version = access.read("OPENAI_API_VERSION") or _AZURE_VERSION
    token = "" if access.key else access.read("AZURE_OPENAI_AD_TOKEN")

    def make_client() -> Any:
        from openai import AsyncAzureOpenAI

        sign_in: dict[str, Any] = {"api_key": access.key}
        if not access.key:
            scope = "https://cognitiveservices.azure.com/.default"
            sign_in = {"azure_ad_token": token} if token else {"azure_ad_token_provider": _make_token_provider(scope)}
        client = AsyncAzureOpenAI(azure_endpoint=access.url, api_version=version, max_retries=0, **sign_in)
        client.organization = client.project = None  # the variables for these are for OpenAI's own endpoint
        return client

    hint = "is AZURE_OPENAI_API_KEY right, or has the account the role for this?"
    return Endpoint(access.url, key=token, hint=hint), make_client


def _find_bedrock(access: _Access) -> _Client:
    region = access.read("AWS_REGION", "AWS_DEFAULT_REGION")

    def make_client() -> Any:
        from anthropic import AsyncAnthropicBedrock

        return AsyncAnthropicBedrock(
            aws_region=region or None, base_url=access.url or None, api_key=access.key or None, max_retries=0
        )

    url = access.url or f"https://bedrock-runtime.{f'{region}.' if region else ''}amazonaws.com"
    return Endpoint(url, hint="is the model enabled for these credentials in this region?"), make_client


def _find_vertex(access: _Access) -> _Client:
    region = access.read("CLOUD_ML_REGION")
    project = access.read("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")
    if not region:
        raise ConfigError(f"{access.where} has no region", hint="set CLOUD_ML_REGION, to 'global' for instance")
    if not project:
        raise ConfigError(f"{access.where} has no project", hint="set ANTHROPIC_VERTEX_PROJECT_ID")

    def make_client() -> Any:
        from anthropic import AsyncAnthropicVertex

        return AsyncAnthropicVertex(
            region=region,
            project_id=project,
            base_url=access.url or None,
            access_token=access.key or None,
            max_retries=0,
        )

    host = "aiplatform.googleapis.com" if region == "global" else f"{region}-aiplatform.googleapis.com"
    return Endpoint(access.url or f"https://{host}/v1", hint="is the model enabled in this project?"), make_client


def _find_foundry(access: _Access) -> _Client:
    resource = access.read("ANTHROPIC_FOUNDRY_RESOURCE")
    if not access.url and not resource:
        raise ConfigError(f"{access.where} has no address", hint="set ANTHROPIC_FOUNDRY_RESOURCE, or set a base URL")
    url = access.url or f"https://{resource}.services.ai.azure.com/anthropic"

    def make_client() -> Any:
        from anthropic import AsyncAnthropicFoundry

        if access.key:
            return AsyncAnthropicFoundry(base_url=url, api_key=access.key, max_retries=0)
        provide_token = _make_token_provider("https://ai.azure.com/.default")
        return AsyncAnthropicFoundry(base_url=url, azure_ad_token_provider=provide_token, max_retries=0)

    headers = {"anthropic-version": NEWEST_MESSAGES_VERSION}
    return Endpoint(url, headers, hint="is ANTHROPIC_FOUNDRY_API_KEY right?"), make_client


def _make_token_provider(scope: str) -> Callable[[], Awaitable[str]]:
    """Return a function that returns an Entra ID token, cached or from the default Azure credential."""
    from azure.identity import DefaultAzureCredential, get_bearer_token_provider

    # If a program has not configured logging, failed credential sources would be printed to standard error.
    logging.getLogger("azure.identity").addHandler(logging.NullHandler())
    get_token = get_bearer_token_provider(DefaultAzureCredential(), scope)

    # The credentials of azure-identity block, so they run in a thread.
    async def provide_token() -> str:
        return await to_thread.run_sync(get_token, abandon_on_cancel=True)

    return provide_token
