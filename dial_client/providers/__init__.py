"""Providers of models: a module for each API. `open_provider` returns the provider for a model's name.

A key from the environment is sent only to the address that it belongs to: ``OPENAI_API_KEY`` to OpenAI's own hosts and
to ``OPENAI_BASE_URL``, if that is set; ``ANTHROPIC_API_KEY`` (else ``ANTHROPIC_AUTH_TOKEN``) and ``DIAL_API_KEY``
likewise. Any other address (``--base-url``, ``base_url`` of a profile) gets the ``api_key`` of the profile, or a
placeholder if there is none. ``OPENAI_ORG_ID``, ``OPENAI_PROJECT_ID`` and the vendors' ``…_CUSTOM_HEADERS`` are sent
only to the vendor's own hosts. No SDK reads these variables, except for the models of clouds (`vendor_clients`), whose
clients authenticate as is usual for their cloud.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from urllib.parse import urlsplit

from dial_client.messages.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    OUTPUT_FORMAT_UNSUPPORTED,
    SEARCH_UNSUPPORTED,
    TOOLS_UNSUPPORTED,
    ConfigError,
    ProviderError,
)
from dial_client.messages.model import (
    Completion,
    Delta,
    Downloading,
    ModelInfo,
    ModelRequest,
    OnDownload,
    Preparable,
    Provider,
)
from dial_client.providers.http.endpoint import (
    NO_KEY,
    Endpoint,
    is_same_origin,
    normalize_key,
    normalize_url,
    parse_ollama_host,
)
from dial_client.providers.presets import CLOUDS, PRESETS, Preset, find_preset, find_preset_by_url
from dial_client.runtime.logs import get_logger
from dial_client.runtime.text import find_nearest
from dial_client.settings.config_types import Api, ModelProfile
from dial_client.settings.endpoint_profile import EndpointProfile, apply_quirks

_NO_MODELS: Mapping[str, ModelProfile] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Vendor:
    """The API and the address of a model prefix (``openai:``), and the environment variables for them."""

    api: Api
    url: str
    """The default address; empty if there is none."""
    url_variable: str
    key_variables: tuple[str, ...] = ()
    preset: Preset | None = None
    """The preset of the endpoint; None to find the preset by the address's host."""

    @property
    def is_dial(self) -> bool:
        """True for a DIAL core, which has all three APIs."""
        return self.preset is PRESETS["dial"]


_OPENAI = _Vendor(Api.RESPONSES, PRESETS["openai"].url, "OPENAI_BASE_URL", ("OPENAI_API_KEY",))
_CHAT = replace(_OPENAI, api=Api.CHAT)
_ANTHROPIC = _Vendor(
    Api.MESSAGES, PRESETS["anthropic"].url, "ANTHROPIC_BASE_URL", ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
)
_OLLAMA = _Vendor(Api.CHAT, PRESETS["ollama"].url, "OLLAMA_HOST", (), PRESETS["ollama"])
_DIAL = _Vendor(Api.CHAT, "", "DIAL_URL", ("DIAL_API_KEY",), PRESETS["dial"])

_PREFIXES = {"openai": _OPENAI, "anthropic": _ANTHROPIC, "chat": _CHAT, "ollama": _OLLAMA, "dial": _DIAL}
_WIRES = {Api.CHAT: _CHAT, Api.RESPONSES: _OPENAI, Api.MESSAGES: _ANTHROPIC}


def open_provider(
    model: str,
    *,
    models: Mapping[str, ModelProfile] = _NO_MODELS,
    base_url: str | None = None,
    environ: Mapping[str, str] | None = None,
    on_progress: OnDownload | None = None,
    fallback_models: Sequence[str | Provider] = (),
) -> Provider:
    """Return the provider for a model's name, without opening a connection.

    Args:
        model: A key of `models`, ``openai:ID``, ``anthropic:ID``, ``chat:ID``, ``ollama:ID``, ``dial:ID``,
            ``azure:DEPLOYMENT``, ``bedrock:ID``, ``vertex:ID``, ``foundry:ID``, ``local``, ``local:PATH.gguf``,
            ``local:hf:REPO[/FILE]``, or ``scripted:FILE``. Any ID is accepted.
        models: The profiles of the configuration.
        base_url: The endpoint's address; None for the default address of the model's prefix or profile.
        environ: Environment variables; None for those of this process.
        on_progress: Called while the weights of an embedded model are downloaded.
        fallback_models: The models to ask, in this order, when the model cannot answer; empty for those of its profile.

    Raises:
        ConfigError: There is no such model, or its address or key is missing or wrong.
    """
    environ = os.environ if environ is None else environ
    provider = _open_model(model, models, base_url, environ, on_progress)
    profile = models.get(model)
    if not fallback_models and profile is not None:
        fallback_models = profile.fallback_models or ()
    return add_fallback_models(provider, fallback_models, models, environ)


def add_fallback_models(
    provider: Provider,
    fallback_models: Sequence[str | Provider],
    models: Mapping[str, ModelProfile] = _NO_MODELS,
    environ: Mapping[str, str] | None = None,
) -> Provider:
    """Return a provider that asks fallback models when `provider` cannot answer; `provider` itself without such models.

    Args:
        provider: The provider to ask first.
        fallback_models: The fallback models, as for `open_provider`. Fallback models in their own profiles are ignored.
        models: The profiles of the configuration, which `fallback_models` may name.
        environ: Environment variables; None for those of this process.

    Raises:
        ConfigError: There is no such model, or its address or key is missing or wrong.
    """
    if isinstance(fallback_models, str):
        raise ConfigError("fallback models must be a list, not a string", hint=f"[{fallback_models!r}]")
    if not fallback_models:
        return provider

    environ = os.environ if environ is None else environ
    opened = [_open_model(m, models, None, environ) if isinstance(m, str) else m for m in fallback_models]
    return FallbackProvider([provider, *opened])


def pin_address(model: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return a profile with the address that the environment sets for a model; empty if it sets none.

    The profile works in a shell without the variable of the address; it names the key as ``${VARIABLE}``.

    Raises:
        ConfigError: The variable has no address.
    """
    prefix, _, model_id = model.partition(":")
    vendor = _PREFIXES.get(prefix)
    if vendor is None or not environ.get(vendor.url_variable, "").strip():
        return {}
    url = _find_default_url(vendor, environ)
    if url == vendor.url:
        return {}
    kind = {"preset": prefix} if vendor.preset is not None else {"api": str(vendor.api.value)}
    key = next((variable for variable in vendor.key_variables if environ.get(variable, "").strip()), None)
    return kind | {"base_url": url, "model": model_id} | ({"api_key": f"${{{key}}}"} if key else {})


def _open_model(
    model: str,
    models: Mapping[str, ModelProfile],
    base_url: str | None,
    environ: Mapping[str, str],
    on_progress: OnDownload | None = None,
) -> Provider:
    address = normalize_url(base_url, "the base URL") if base_url else None
    if settings := models.get(model):
        return _from_settings(settings, address, environ)
    prefix, _, model_id = model.partition(":")
    if prefix in ("local", "scripted"):
        if address is not None:
            raise ConfigError(f"{prefix} models accept no base URL", hint="leave the base URL out")
        if prefix == "local":
            from dial_client.providers.embedded.local_provider import LocalProvider

            return LocalProvider(model_id or None, on_progress)
        if not model_id:
            raise ConfigError("'scripted:' has no file name", hint="expected scripted:FILE")
        from dial_client.providers.scripted import ScriptedProvider

        return ScriptedProvider.from_file(model_id)
    if (problem := find_name_problem(model, models)) is not None:
        raise problem
    vendor = _PREFIXES.get(prefix)
    if vendor is None:
        from dial_client.providers.vendor_clients import open_cloud_model

        return open_cloud_model(prefix, model, ModelProfile(model, model=model_id.strip()), address, environ)
    endpoint, profile = _build_endpoint(vendor, model, address, environ)
    return _choose_provider_class(vendor)(model_id.strip(), endpoint, profile)


def _from_settings(settings: ModelProfile, address: str | None, environ: Mapping[str, str]) -> Provider:
    where = f"models.{settings.name}"
    if address is None and settings.base_url:
        address = normalize_url(settings.base_url, f"{where}.base_url")
    # An Azure endpoint with a configured address needs no vendor client, only a header with the key.
    if settings.preset in CLOUDS and not (settings.preset == "azure" and address):
        from dial_client.providers.vendor_clients import open_cloud_model

        named_settings = replace(settings, model=settings.model or settings.name)
        return open_cloud_model(settings.preset, where, named_settings, address, environ)
    vendor = _find_vendor(settings, where)
    endpoint, profile = _build_endpoint(vendor, where, address, environ, settings)
    make_provider = _choose_provider_class(vendor, settings)
    return make_provider(settings.model or settings.name, endpoint, profile, settings=settings.settings)


def _find_vendor(settings: ModelProfile, where: str) -> _Vendor:
    """Return the vendor of a profile, found by its preset if it names one, and else by its API."""
    if settings.preset is None:
        return _WIRES[Api(settings.api or Api.CHAT)]
    preset = find_preset(settings.preset, where)
    vendors = (vendor for vendor in _PREFIXES.values() if (vendor.preset or find_preset_by_url(vendor.url)) is preset)
    vendor = next(vendors, None) or _Vendor(preset.api, preset.url, "")
    return vendor if vendor.is_dial else replace(vendor, api=Api(settings.api or vendor.api), preset=preset)


def _choose_provider_class(vendor: _Vendor, settings: ModelProfile | None = None) -> Callable[..., Provider]:
    if vendor.is_dial:
        from dial_client.providers.dial import DialProvider

        return partial(DialProvider, api=settings.api, fixed=frozenset(settings.quirks)) if settings else DialProvider
    if vendor.api is Api.MESSAGES:
        from dial_client.providers.messages_api import MessagesProvider

        return MessagesProvider
    if vendor.api is Api.RESPONSES:
        from dial_client.providers.responses_api import ResponsesProvider

        return ResponsesProvider
    from dial_client.providers.chat_api import ChatProvider

    return ChatProvider


def _build_endpoint(
    vendor: _Vendor, where: str, address: str | None, environ: Mapping[str, str], settings: ModelProfile | None = None
) -> tuple[Endpoint, EndpointProfile]:
    """Return the endpoint with its headers, and its profile; errors name the setting `where`."""
    default_url = _find_default_url(vendor, environ)
    url = address or default_url
    if not url:
        named_by = f"set {vendor.url_variable}, or " if vendor.url_variable else ""
        raise ConfigError(f"{where} has no address", hint=f"{named_by}set a base URL")
    profile = (vendor.preset or find_preset_by_url(url)).get_profile(vendor.api)
    profile = apply_quirks(profile, settings.quirks, where) if settings is not None else profile
    key, hint = _find_key(vendor, where, url, default_url, environ, settings)
    header_value = f"Bearer {key or NO_KEY}" if profile.key_header.lower() == "authorization" else key or NO_KEY
    headers = {profile.key_header.lower(): header_value}
    if vendor.api is Api.MESSAGES:
        headers["anthropic-version"] = profile.api_version
    if _is_vendor_host(vendor, url):
        headers = _read_environment_headers(vendor, environ) | headers
    # The headers of the profile are the most specific choice of the user.
    headers |= {name.lower(): value for name, value in profile.headers.items()}
    query = {"api-version": profile.api_version} if profile.api_version and vendor.api is not Api.MESSAGES else {}
    return Endpoint(url, headers, query, key=key, hint=hint), profile


def _find_default_url(vendor: _Vendor, environ: Mapping[str, str]) -> str:
    """Return the address that the environment sets, or else the vendor's default address."""
    url = environ.get(vendor.url_variable, "").strip()
    if not url:
        return vendor.url
    return parse_ollama_host(url) if (vendor.preset is PRESETS["ollama"]) else normalize_url(url, vendor.url_variable)


def _find_key(
    vendor: _Vendor, where: str, url: str, default_url: str, environ: Mapping[str, str], settings: ModelProfile | None
) -> tuple[str, str]:
    """Return the key for an address, and a hint for the user in case the key is refused."""
    if settings is not None and settings.api_key:
        return normalize_key(settings.api_key, f"{where}.api_key"), f"is {where}.api_key right?"
    variables = vendor.key_variables
    # A key of the environment is for its vendor. An address from a shared file or a flag must not receive it.
    if variables and (_is_vendor_host(vendor, url) or (default_url and is_same_origin(url, default_url))):
        for variable in variables:
            if key := environ.get(variable, "").strip():
                return normalize_key(key, variable), f"is {variable} right?"
        if _is_vendor_host(vendor, url):
            alternative = f", or name another endpoint: --base-url, or {vendor.url_variable}"
            raise ConfigError(
                f"{where} needs a key", hint=f"set {variables[0]}{alternative if vendor.api is Api.CHAT else ''}"
            )
        return "", f"no key was sent: set {variables[0]}"
    return "", 'no key was sent: name this address under "models", with its "api_key"'


def _is_vendor_host(vendor: _Vendor, url: str) -> bool:
    """Return True if an address is on the vendor's own host, or on a subdomain of that host, such as a region."""
    own, parts = urlsplit(vendor.url), urlsplit(url)
    if not vendor.key_variables or not own.hostname or not parts.hostname:
        return False
    # The dot keeps out hosts that only end in the same letters.
    is_same_host = parts.hostname == own.hostname or parts.hostname.endswith(f".{own.hostname}")
    # Not over plain http, and not to another service on the same host.
    return is_same_host and (parts.scheme, parts.port) == (own.scheme, own.port)


def _read_environment_headers(vendor: _Vendor, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the environment sets for the vendor's own hosts."""
    if vendor.url == _ANTHROPIC.url:
        return _parse_custom_headers(environ.get("ANTHROPIC_CUSTOM_HEADERS", ""))
    variables = {"openai-organization": "OPENAI_ORG_ID", "openai-project": "OPENAI_PROJECT_ID"}
    headers = {header: value for header, variable in variables.items() if (value := environ.get(variable, "").strip())}
    return headers | _parse_custom_headers(environ.get("OPENAI_CUSTOM_HEADERS", ""))


def _parse_custom_headers(text: str) -> dict[str, str]:
    # A line with control characters could smuggle in another header.
    lines = (line.partition(":") for line in text.splitlines() if line.isascii() and line.isprintable())
    return {name.strip().lower(): value.strip() for name, _, value in lines if name.strip() and value.strip()}


def find_name_problem(model: str, models: Collection[str]) -> ConfigError | None:
    """Return the error of a name that names no model, with the nearest name as the hint; None if it names one.

    Args:
        model: The name.
        models: The names of the profiles of the configuration.
    """
    prefix, _, model_id = model.partition(":")
    if model in models or prefix in ("local", "scripted"):
        return None
    if prefix not in _PREFIXES and prefix not in CLOUDS:
        return _build_unknown_model_error(model, models)
    return None if model_id.strip() else ConfigError(f"{model!r} has no model ID", hint=f"expected {prefix}:ID")


def _build_unknown_model_error(model: str, models: Collection[str]) -> ConfigError:
    prefix, colon, model_id = model.partition(":")
    vendors = {"claude": "anthropic", "gpt": "openai"}
    vendor = next((vendors[start] for start in vendors if model.startswith(start)), None)
    names = [*_PREFIXES, *CLOUDS, "local", "scripted", *models]
    similar = find_nearest(prefix, names)
    if vendor and not colon:
        hint = f"did you mean {vendor}:{model}?"
    elif similar in models or similar == "local":
        hint = f"did you mean {similar}?"
    elif similar:
        hint = f"did you mean {similar}:{model_id or 'ID'}?"
    else:
        hint = (
            "expected openai:ID, anthropic:ID, chat:ID, ollama:ID, dial:ID, azure:DEPLOYMENT, bedrock:ID, vertex:ID, "
            "foundry:ID, local, scripted:FILE, or a profile's name"
        )
        hint = f"{hint}: {', '.join(models)}" if models else hint
    return ConfigError(f"there is no model {model!r}", hint=hint)


def is_recording(model: str | Provider | None) -> bool:
    """Return True if a model or a model's name is a recording."""
    if isinstance(model, str):
        return is_recording_name(model)
    scripted = sys.modules.get("dial_client.providers.scripted")  # if it is not loaded, no instance can exist
    return scripted is not None and isinstance(model, scripted.ScriptedProvider) and model.servers is not None


def is_recorded_server(target: object) -> bool:
    """Return True if a server is a recorded server, which `recording.replay` returns."""
    script = sys.modules.get("dial_client.providers.script_format")
    return script is not None and isinstance(target, script.RecordedServer)


def is_recording_name(model: str) -> bool:
    """Return True if a model's name names a recording."""
    prefix, _, path = model.partition(":")
    if prefix != "scripted":
        return False
    from dial_client.providers.script_format import is_recording_file

    return is_recording_file(path)


log = get_logger(__name__)

# Seconds for which a model that failed is asked only after the other models.
PAUSE = 60.0

# HTTP statuses that refuse the request itself, which another model would receive unchanged.
_REQUEST_REFUSAL_STATUSES = frozenset({400, 413, 422})
# Codes of errors after which the same model receives a changed request.
_ADAPTABLE_CODES = frozenset(
    {CONTEXT_LENGTH_EXCEEDED, OUTPUT_FORMAT_UNSUPPORTED, SEARCH_UNSUPPORTED, TOOLS_UNSUPPORTED}
)


@dataclass(eq=False, slots=True)
class _Candidate:
    """A model, with the record of its last failure."""

    provider: Provider
    paused_until: float = 0.0
    """The end of the pause after a failure, in seconds of the clock."""
    error: str = ""
    """The message of the last error; empty if there was none."""


class FallbackProvider:
    """Asks its models in order, until one of them can answer.

    The next model is asked if a model fails before the first delta of its reply: the endpoint cannot be reached, is
    still busy or broken after all retries, refuses the key, or does not have the model. The next model is not asked if
    the endpoint refuses the request itself. For `PAUSE` seconds, a model that failed is asked only after the others, so
    that later requests of a turn do not wait for it again.

    Args:
        providers: The providers of the models, in the order in which they are asked; at least one.
        clock: The function that returns the time in seconds.
    """

    def __init__(self, providers: Sequence[Provider], clock: Callable[[], float] = time.monotonic) -> None:
        self._candidates = [_Candidate(provider) for provider in providers]
        self._clock = clock

    @property
    def info(self) -> ModelInfo:
        """The known properties of the model that is asked next, with the secrets of all models."""
        secrets = (secret for candidate in self._candidates for secret in candidate.provider.info.secrets)
        return replace(self._sort_candidates()[0].provider.info, secrets=tuple(dict.fromkeys(secrets)))

    @property
    def needs_download(self) -> bool:
        """Whether the first model has to be downloaded."""
        provider = self._candidates[0].provider
        return isinstance(provider, Downloading) and provider.needs_download

    async def prepare(self) -> None:
        """Prepare the first model. The other models are prepared when they are asked."""
        provider = self._candidates[0].provider
        if isinstance(provider, Preparable):
            await provider.prepare()

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the models one after the other, and yield the first reply that begins.

        Raises:
            ProviderError: No model could answer, the request was refused, or the connection broke during a reply.
        """
        errors: list[ProviderError] = []
        for candidate in self._sort_candidates():
            has_begun = False
            try:
                async with aclosing(candidate.provider.generate(request)) as deltas:
                    async for delta in deltas:
                        has_begun = True
                        yield self._with_origin(delta, candidate) if isinstance(delta, Completion) else delta
            except ProviderError as error:
                # The user has read the beginning of a reply: another model would begin a different one.
                if has_begun or error.code in _ADAPTABLE_CODES or error.status in _REQUEST_REFUSAL_STATUSES:
                    raise
                self._pause(candidate, error)
                errors.append(error)
            else:
                candidate.paused_until = 0.0
                return
        raise _join(errors)

    async def aclose(self) -> None:
        """Close all models."""
        for candidate in self._candidates:
            await candidate.provider.aclose()

    def _sort_candidates(self) -> list[_Candidate]:
        """Return the models in the current order: those that failed less than `PAUSE` seconds ago are last."""
        now = self._clock()
        return sorted(self._candidates, key=lambda candidate: candidate.paused_until > now)

    def _pause(self, candidate: _Candidate, error: ProviderError) -> None:
        # Otherwise each request of the turn would wait for the same failure again.
        candidate.paused_until = self._clock() + max(PAUSE, error.retry_after or 0.0)
        candidate.error = str(error)
        log.warning("model_fallback", provider=candidate.provider.info.name, status=error.status, code=error.code)

    def _with_origin(self, completion: Completion, answering: _Candidate) -> Completion:
        """Return the `Completion` with the model that answered, and a note on each earlier model that failed."""
        info = answering.provider.info
        if answering is self._candidates[0]:
            return replace(completion, info=info)
        before = self._candidates[: self._candidates.index(answering)]
        notes = (
            f"{info.name} answered in place of {candidate.provider.info.name}: {candidate.error}"
            for candidate in before
            if candidate.error
        )
        return replace(completion, info=info, notes=(*notes, *completion.notes))


def _join(errors: Sequence[ProviderError]) -> ProviderError:
    """Return one error for all models, with the status and the code of the first error."""
    first = errors[0]
    if len(errors) == 1:
        return first
    text = "; then ".join(str(error) for error in errors)
    return ProviderError(text, status=first.status, code=first.code, retry_after=first.retry_after)
