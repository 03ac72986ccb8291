"""Providers for models of clouds: ``azure:DEPLOYMENT``, ``bedrock:ID``, ``vertex:ID`` and ``foundry:ID``.

The vendors' clients authenticate with the credentials that the cloud's own tools use: a key, Entra ID, an AWS profile,
or Google's application default credentials. Credentials that do not come from a profile of the configuration are sent
only to the cloud's own hosts, and to the address in the cloud's environment variable.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from anyio import to_thread

from dial_client.messages.errors import ConfigError
from dial_client.messages.model import ModelSettings, Provider
from dial_client.providers.endpoint_profile import NEWEST_MESSAGES_VERSION, apply_quirks
from dial_client.providers.http.endpoint import Endpoint, is_same_origin, normalize_key, normalize_url
from dial_client.providers.http.sdk_transport import Sdk, SdkTransport, load_anthropic, load_openai
from dial_client.providers.presets import PRESETS, UNKNOWN
from dial_client.providers.vendor_clients import SdkMessagesProvider, choose_openai_class
from dial_client.settings.config_types import Api, ModelProfile

_AZURE_VERSION = "2025-04-01-preview"
"""The ``api-version`` of Azure OpenAI if ``OPENAI_API_VERSION`` is not set: the last version that is a date."""

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
    wire = Api(settings.api or Api.RESPONSES) if cloud_name == "azure" else Api.MESSAGES
    preset = PRESETS["azure"] if cloud_name in ("azure", "foundry") else UNKNOWN
    profile = apply_quirks(preset.get_profile(wire), settings.quirks, where)
    load_sdk: Callable[[], Sdk] = load_openai if cloud_name == "azure" else load_anthropic
    make_provider: Callable[..., Provider] = choose_openai_class(wire) if cloud_name == "azure" else SdkMessagesProvider
    return make_provider(
        settings.model,
        endpoint,
        profile,
        settings=ModelSettings(temperature=settings.temperature, max_tokens=settings.max_tokens),
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

    async def provide_token() -> str:
        return await to_thread.run_sync(get_token, abandon_on_cancel=True)

    return provide_token
