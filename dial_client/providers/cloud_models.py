"""Models of clouds by name: ``azure:DEPLOYMENT``, ``bedrock:ID``, ``vertex:ID`` and ``foundry:ID``.

The vendors' clients sign in with what the cloud's own tools use: a key, Entra ID, an AWS profile, Google's application
default credentials. Credentials that are not from a profile go to the cloud's own hosts, and to the address that the
cloud's environment variable names; to no other.
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

from dial_client.errors import ConfigError
from dial_client.model import Provider
from dial_client.providers.endpoint_profile import NEWEST_MESSAGES_VERSION, apply_quirks
from dial_client.providers.http.endpoint import Endpoint, is_same_origin, normalize_key, normalize_url
from dial_client.providers.http.sdk_transport import Sdk, SdkTransport, load_anthropic, load_openai
from dial_client.providers.presets import PRESETS, UNKNOWN
from dial_client.providers.vendor_clients import SdkMessagesProvider, choose_openai_class
from dial_client.settings.config_types import ModelSettings, Wire

_AZURE_VERSION = "2025-04-01-preview"
"""The ``api-version`` of Azure OpenAI if ``OPENAI_API_VERSION`` does not name one: the last that is a date."""

_BEDROCK_HOST = re.compile(
    r"(?:[\w-]+\.)?bedrock-runtime(?:-fips)?\.[a-z0-9-]+(?:\.vpce)?\.amazonaws\.com(?:\.cn)?", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cloud:
    """A cloud, and what is installed and set for it."""

    packages: tuple[str, ...]
    """What signs in; the extra of the same name as the cloud brings them."""
    url_variable: str
    key_variables: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Host names of the cloud; subdomains count too."""
    host_form: re.Pattern[str] | None = None
    """The form of its host names, where customers of the cloud get hosts in the same domain."""
    sign_in: str
    """What the user can do without credentials."""
    is_key_enough: bool = True
    """With a key the packages are not needed."""


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
            is_key_enough=False,  # botocore reads its streams
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
    """The address of a cloud, and the key for it."""

    where: str
    """The name or the profile, for error messages."""
    url: str
    """Empty for the address that the client chooses."""
    key: str
    """Empty if the client signs in otherwise."""
    environ: Mapping[str, str]

    def read(self, *variables: str) -> str:
        """Return the first of these variables that is set, without blanks around it; empty if none is."""
        values = (self.environ.get(variable, "").strip() for variable in variables)
        return next((value for value in values if value), "")


_Client = tuple[Endpoint, Callable[[], Any]]
"""Where the client goes as far as that is known, and a function that makes it."""


def open_cloud_model(
    cloud_name: str, where: str, settings: ModelSettings, address: str | None, environ: Mapping[str, str]
) -> Provider:
    """Return the provider for a model of a cloud. Nothing is imported yet.

    Args:
        cloud_name: one of `presets.CLOUDS`.
        where: the name of the model, or the setting, for error messages.
        settings: the profile; its `model` is the id or the deployment.
        address: the address in place of the cloud's own.
        environ: the environment.

    Raises:
        ConfigError: an address, a region, a key or a package is missing.
    """
    access = _find_access(cloud_name, where, settings, address, environ)
    find_client = {"azure": _find_azure, "bedrock": _find_bedrock, "vertex": _find_vertex, "foundry": _find_foundry}
    endpoint, make_client = find_client[cloud_name](access)
    endpoint = replace(endpoint, key=access.key or endpoint.key, sign_in=_CLOUDS[cloud_name].sign_in)
    wire = Wire(settings.wire or Wire.RESPONSES) if cloud_name == "azure" else Wire.MESSAGES
    preset = PRESETS["azure"] if cloud_name in ("azure", "foundry") else UNKNOWN
    profile = apply_quirks(preset.get_profile(wire), settings.quirks, where)
    load_sdk: Callable[[], Sdk] = load_openai if cloud_name == "azure" else load_anthropic
    make_provider: Callable[..., Provider] = choose_openai_class(wire) if cloud_name == "azure" else SdkMessagesProvider
    return make_provider(
        settings.model,
        endpoint,
        profile,
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        name=f"{cloud_name}:{settings.model}",
        transport=SdkTransport(load_sdk, make_client, endpoint, is_owner=True),
    )


def _find_access(
    cloud_name: str, where: str, settings: ModelSettings, address: str | None, environ: Mapping[str, str]
) -> _Access:
    """Return the address and the key; check that what signs in is installed, and goes to no foreign address."""
    cloud = _CLOUDS[cloud_name]
    home = environ.get(cloud.url_variable, "").strip()
    home = normalize_url(home, cloud.url_variable) if home else ""
    key = normalize_key(settings.api_key, f"{where}.api_key") if settings.api_key else ""
    if not key and address and not _is_home(address, home, cloud):
        raise ConfigError(
            f"{where}: {urlsplit(address).hostname} is not an address that the credentials of {cloud_name} are for",
            hint=f"set {cloud.url_variable} to it, or give an api_key in a profile",
        )
    if not key:
        set_keys = ((name, environ.get(name, "").strip()) for name in cloud.key_variables)
        key = next((normalize_key(value, name) for name, value in set_keys if value), "")
    access = _Access(where, address or home, key, environ)
    has_key = bool(key or (cloud_name == "azure" and access.read("AZURE_OPENAI_AD_TOKEN")))
    if not (has_key and cloud.is_key_enough) and not all(map(_is_installed, cloud.packages)):
        keys = [f"set {name}" for name in cloud.key_variables if cloud.is_key_enough]
        hint = ", or ".join([f"pip install 'dial-client[{cloud_name}]'", *keys])
        raise ConfigError(f"{where} needs the extra {cloud_name!r}", hint=hint)
    return access


def _is_home(address: str, home: str, cloud: _Cloud) -> bool:
    """Return True if an address is the cloud's own, or the one that the environment names."""
    if home and is_same_origin(address, home):
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
        raise ConfigError(f"{access.where} has no address", hint="set AZURE_OPENAI_ENDPOINT, or give a base URL")
    version = access.read("OPENAI_API_VERSION") or _AZURE_VERSION
    token = "" if access.key else access.read("AZURE_OPENAI_AD_TOKEN")

    def make_client() -> Any:
        from openai import AsyncAzureOpenAI

        sign_in: dict[str, Any] = {"api_key": access.key}
        if not access.key:
            scope = "https://cognitiveservices.azure.com/.default"
            sign_in = {"azure_ad_token": token} if token else {"azure_ad_token_provider": _make_token_provider(scope)}
        client = AsyncAzureOpenAI(azure_endpoint=access.url, api_version=version, max_retries=0, **sign_in)
        client.organization = client.project = None  # those of the environment are OpenAI's own
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
        raise ConfigError(f"{access.where} has no address", hint="set ANTHROPIC_FOUNDRY_RESOURCE, or give a base URL")
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
    """Return a function that returns a token of Entra ID, from the cache or from the identity that is found."""
    from azure.identity import DefaultAzureCredential, get_bearer_token_provider

    # Where a program has set up no logging, what was tried in vain would be printed.
    logging.getLogger("azure.identity").addHandler(logging.NullHandler())
    get_token = get_bearer_token_provider(DefaultAzureCredential(), scope)

    async def provide_token() -> str:
        return await to_thread.run_sync(get_token, abandon_on_cancel=True)

    return provide_token
