"""Providers that ask a model through a client of the SDK `openai` or `anthropic`: the caller's, or one for a cloud.

The models of clouds are ``azure:DEPLOYMENT``, ``bedrock:ID``, ``vertex:ID`` and ``foundry:ID``. Their clients use the
credentials that the cloud's own tools use: a key, Entra ID, an AWS profile, or Google's application default
credentials. Credentials that do not come from a profile of the configuration are sent only to the cloud's own hosts,
and to the address in the cloud's environment variable.

The client authenticates, and routes requests to the endpoint: its credentials, proxies, hooks and middleware apply.
Request bodies, response parsing, timeouts and the retry policy are the same as in every other provider of this package:
responses are read as bytes, so no SDK types are created, and the SDK's own retries are off.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import jiter
from anyio import to_thread

from dial_client.messages.errors import ConfigError, DialError
from dial_client.messages.model import Delta, ModelInfo, ModelRequest, ModelSettings, Provider
from dial_client.providers.chat_api import ChatProvider
from dial_client.providers.http import provider_errors, retry_policy
from dial_client.providers.http.endpoint import Endpoint, is_same_origin, normalize_key, normalize_url
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.providers.http.response_stream import RawBody, Recordable
from dial_client.providers.http.transport import CONNECT_TIMEOUT, RequestTransport
from dial_client.providers.messages_api import MessagesProvider
from dial_client.providers.presets import PRESETS, UNKNOWN, find_preset_by_url
from dial_client.providers.responses_api import ResponsesProvider
from dial_client.providers.tool_call_codec import to_json_bytes
from dial_client.runtime.json_fields import to_object
from dial_client.settings.config_types import Api, ModelProfile
from dial_client.settings.endpoint_profile import NEWEST_MESSAGES_VERSION, EndpointProfile, apply_quirks

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncAnthropicBedrock, AsyncAnthropicBedrockMantle, AsyncAnthropicVertex
    from openai import AsyncOpenAI

_NO_QUIRKS: Mapping[str, Any] = MappingProxyType({})
_NO_SETTINGS = ModelSettings()
_VERSION = "anthropic-version"


class ClientProvider(Recordable):
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
        transport = SdkTransport("openai", lambda: client, endpoint, is_owner=False)
        super().__init__(
            choose_openai_class(Api(api))(model, endpoint, profile, settings=settings, transport=transport)
        )


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

        # Callers without a type checker may pass any type.
        if not isinstance(getattr(client, "messages", None), AsyncMessages):
            raise ConfigError(
                f"AnthropicProvider: {type(client).__name__} is not a supported client",
                hint="pass an anthropic.AsyncAnthropic, AsyncAnthropicBedrock, AsyncAnthropicVertex or "
                "AsyncAnthropicFoundry",
            )
        version = read_header(client.default_headers, _VERSION)
        endpoint = read_endpoint(client, Endpoint("", {_VERSION: version} if version else {}))
        profile = find_profile(endpoint, Api.MESSAGES, quirks, "AnthropicProvider")
        transport = SdkTransport("anthropic", lambda: client, endpoint, is_owner=False)
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


# The ``api-version`` of Azure OpenAI if ``OPENAI_API_VERSION`` is not set: the last version that is a date.
_AZURE_VERSION = "2025-04-01-preview"

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
    key_variable: str = ""
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
            key_variable="AZURE_OPENAI_API_KEY",
            hosts=PRESETS["azure"].hosts,
            sign_in="sign in with 'az login', or set AZURE_OPENAI_API_KEY",
        ),
        "bedrock": _Cloud(
            packages=("boto3", "botocore"),
            url_variable="ANTHROPIC_BEDROCK_BASE_URL",
            key_variable="AWS_BEARER_TOKEN_BEDROCK",
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
            key_variable="ANTHROPIC_FOUNDRY_API_KEY",
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


# The endpoint of the client, with the address as far as it is known, and a function that creates the client.
_Client = tuple[Endpoint, Callable[[], Any]]


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
    key = key or normalize_key(environ.get(cloud.key_variable, ""), cloud.key_variable)
    access = _Access(where, address or configured_url, key, environ)
    has_key = bool(key or (cloud_name == "azure" and access.read("AZURE_OPENAI_AD_TOKEN")))
    if not (has_key and cloud.is_key_enough) and not all(map(_is_installed, cloud.packages)):
        hint = f"pip install 'dial-client[{cloud_name}]'"
        hint += f", or set {cloud.key_variable}" if cloud.key_variable and cloud.is_key_enough else ""
        raise ConfigError(f"{where} needs the extra {cloud_name!r}", hint=hint)
    find_client = {"azure": _find_azure, "bedrock": _find_bedrock, "vertex": _find_vertex, "foundry": _find_foundry}
    endpoint, make_client = find_client[cloud_name](access)
    endpoint = replace(endpoint, key=access.key or endpoint.key, sign_in=_CLOUDS[cloud_name].sign_in)
    api = Api(settings.api or Api.RESPONSES) if cloud_name == "azure" else Api.MESSAGES
    preset = PRESETS["azure"] if cloud_name in ("azure", "foundry") else UNKNOWN
    profile = apply_quirks(preset.get_profile(api), settings.quirks, where)
    make_provider: Callable[..., Provider] = choose_openai_class(api) if cloud_name == "azure" else SdkMessagesProvider
    return make_provider(
        settings.model,
        endpoint,
        profile,
        settings=settings.settings,
        name=f"{cloud_name}:{settings.model}",
        transport=SdkTransport(
            "openai" if cloud_name == "azure" else "anthropic", make_client, endpoint, is_owner=True
        ),
    )


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


CONTENT_TYPE = "application/vnd.amazon.eventstream"


async def convert_to_sse(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the events of a stream as server-sent events. Exception frames become events of the type ``error``.

    Raises:
        ValueError: A frame is damaged.
    """
    from botocore.eventstream import EventStreamBuffer, ParserError

    buffer = EventStreamBuffer()
    async with aclosing(pieces):
        async for piece in pieces:
            buffer.add_data(piece)
            try:
                events = [_to_sse(event.headers, event.payload) for event in buffer]
            except ParserError as error:
                raise ValueError(f"a frame of the event stream is damaged: {error}") from None
            if data := b"".join(events):
                yield data


def _to_sse(headers: Mapping[str, Any], payload: bytes) -> bytes:
    """Return a frame as a server-sent event; empty bytes for a frame without a chunk."""
    if headers.get(":message-type") != "event":
        kind = headers.get(":exception-type") or headers.get(":error-code") or "error"
        message = headers.get(":error-message") or to_object(provider_errors.parse_json(payload)).get("message") or ""
        return _write_event(to_json_bytes({"type": "error", "error": {"type": str(kind), "message": str(message)}}))
    chunk = to_object(provider_errors.parse_json(payload)).get("bytes")
    return _write_event(base64.b64decode(chunk)) if isinstance(chunk, str) else b""


def _write_event(data: bytes) -> bytes:
    # A line break would end the event's line. In JSON, line breaks are only white space.
    return b"data: %s\n\n" % b" ".join(data.splitlines())


if TYPE_CHECKING:
    import httpx2


class SdkTransport(RequestTransport):
    """A transport that sends requests through a vendor's client.

    Args:
        sdk_name: The SDK of the client: ``openai`` or ``anthropic``.
        make_client: The function that returns the client; called once, in a worker thread, and again after `aclose`.
        endpoint: The address that errors name until the client is created, and additional headers of requests.
        is_owner: True if `aclose` closes the client, because no other code uses it.
    """

    def __init__(self, sdk_name: str, make_client: Callable[[], Any], endpoint: Endpoint, *, is_owner: bool) -> None:
        super().__init__(endpoint)
        self._sdk_name = sdk_name
        self._make_client = make_client
        self._is_owner = is_owner

    def _create_client(self) -> Any:
        try:
            client = self._make_client()
        except DialError:
            raise
        except Exception as error:
            raise provider_errors.build_client_error(self.endpoint, error) from error
        self.endpoint = read_endpoint(client, self.endpoint)
        return client

    async def aclose(self) -> None:
        """Close the client if this transport owns it. The next request creates a new client."""
        client = self._client
        # A client of the caller stays open: other code may use it.
        if client is not None and self._is_owner:
            self._client = None
            await client.close()

    async def _send(self, path: str, body: bytes, idle_timeout: float) -> httpx2.Response | retry_policy.FailedRequest:
        client = await self._get_client()
        sdk = importlib.import_module(self._sdk_name)
        import httpx2

        options = {
            "headers": dict(self.endpoint.headers),
            # Two retry policies would multiply each other.
            "max_retries": 0,
            "timeout": httpx2.Timeout(idle_timeout, connect=CONNECT_TIMEOUT),
            # As for every endpoint: a redirect would carry the key to another host.
            "follow_redirects": False,
        }
        # The body is passed as an object, not as bytes, because clients for clouds move some of its fields to the path.
        fields = jiter.from_json(body)
        try:
            stream = await client.post(
                path, cast_to=object, body=fields, options=options, stream=True, stream_cls=sdk.AsyncStream[object]
            )
        except sdk.APIStatusError as error:
            refused = error.response
            return self._build_refusal(refused.status_code, refused.headers, refused.content)
        except sdk.APIConnectionError as error:
            return self._build_connection_failure(error.__cause__ or error)
        except Exception as error:
            raise provider_errors.build_client_error(self.endpoint, error) from error
        response: httpx2.Response = stream.response
        return response

    async def read_body(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        """Yield the body of a response as server-sent events or JSON."""
        import httpx2

        pieces = response.aiter_bytes()
        if response.headers.get("content-type", "").startswith(CONTENT_TYPE):
            pieces = convert_to_sse(pieces)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece
        except (httpx2.HTTPError, httpx2.StreamError):
            raise
        except Exception as error:
            # The SDK client may have been created with another HTTP client, which raises its own errors.
            raise httpx2.ReadError(str(error)) from error


def read_endpoint(client: Any, endpoint: Endpoint) -> Endpoint:
    """Return an endpoint with the address of a client, and with its key, so that errors mask the key."""
    keys = (getattr(client, name, None) for name in ("api_key", "auth_token", "access_token"))
    key = endpoint.key or next((key for key in keys if isinstance(key, str) and key), "")
    return replace(endpoint, base_url=str(client.base_url).rstrip("/"), key=key)


def read_header(headers: Mapping[str, Any], name: str) -> str:
    """Return the value of a client's header; empty if the client does not send the header."""
    return next((value for key, value in headers.items() if key.lower() == name and isinstance(value, str)), "")
