"""Finds the models that can be used now: by API keys in the environment, on local servers, and embedded.

The requests to endpoints are free: for the list of models, and empty requests that show which APIs there are.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import anyio

from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.providers.http.endpoint import Endpoint, parse_ollama_host
from dial_client.providers.http.transport import FetchedResponse, HttpTransport
from dial_client.providers.presets import MODELS_OF_KEYS, PRESETS
from dial_client.settings.config_types import Api

# Timeout in seconds of one request and its response.
SECONDS = 8.0
# Statuses of an address that does not exist.
_MISSING_STATUSES = (404, 405, 501)
_PATHS = {Api.MESSAGES: "/messages", Api.RESPONSES: "/responses", Api.CHAT: "/chat/completions"}


@dataclass(frozen=True, slots=True)
class ModelListing:
    """The response of an endpoint to the request for its models."""

    status: int
    ids: tuple[str, ...] = ()
    """The models; empty if the response has none."""
    is_page: bool = False
    """True if the response is a web page instead of JSON."""
    date: datetime | None = None
    """The time of the response, by the clock of the endpoint."""


async def fetch_models(endpoint: Endpoint) -> ModelListing:
    """Request an endpoint's models (``GET /models``).

    Raises:
        ProviderError: The endpoint cannot be reached, or a proxy cannot be used.
    """
    query = dict(endpoint.query) | ({"limit": "1000"} if _is_anthropic(endpoint) else {})  # the default is a page of 20
    response = await _fetch(replace(endpoint, query=query), "GET", find_models_path(endpoint))
    date = _parse_date(response.headers.get("date", ""))
    return ModelListing(response.status, tuple(_parse_ids(response.body)), _is_page(response), date)


async def find_wires(endpoint: Endpoint) -> Mapping[Api, str]:
    """Return the APIs that an endpoint has, each with its base URL: the configured URL, or this URL with ``/v1``.

    Each API gets a request without content, which it rejects: no model runs.
    """
    found: dict[Api, str] = {}

    async def probe(wire: Api) -> None:
        path = _PATHS[wire]
        bases = [endpoint.base_url]
        if not endpoint.base_url.endswith("/v1"):
            if wire is Api.MESSAGES:
                path = f"/v1{path}"
            else:
                bases.append(f"{endpoint.base_url}/v1")
        for base in bases:
            if await _has_api(replace(endpoint, base_url=base), path):
                found[wire] = base
                return

    async with anyio.create_task_group() as group:
        for wire in Api:
            group.start_soon(probe, wire)
    return {wire: found[wire] for wire in Api if wire in found}


def find_models_path(endpoint: Endpoint) -> str:
    """Return the path of the list of models, relative to the endpoint's base URL."""
    return "/v1/models" if _is_anthropic(endpoint) and not endpoint.base_url.endswith("/v1") else "/models"


async def _has_api(endpoint: Endpoint, path: str) -> bool:
    """Return True if an API responds at a path. A 404 whose text mentions a model is a response of an API."""
    try:
        response = await _fetch(endpoint, "POST", path, b"{}")
    except ProviderError:
        return False
    if _is_page(response):
        return False
    return response.status not in _MISSING_STATUSES or b"model" in response.body.lower()


def _is_page(response: FetchedResponse) -> bool:
    """Return True if a successful response is a web page; error pages of proxies and servers do not count."""
    return response.status < 300 and response.body.lstrip()[:1] == b"<"


async def _fetch(endpoint: Endpoint, method: str, path: str, body: bytes | None = None) -> FetchedResponse:
    transport = HttpTransport(endpoint)
    try:
        return await transport.fetch(method, path, body=body, timeout=SECONDS)
    finally:
        with anyio.CancelScope(shield=True):
            await transport.aclose()


def _is_anthropic(endpoint: Endpoint) -> bool:
    return "anthropic-version" in endpoint.headers


def _parse_ids(body: bytes) -> Iterator[str]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return
    for model in value.get("data", ()) if isinstance(value, dict) and isinstance(value.get("data"), list) else ():
        if isinstance(model, dict) and isinstance(model.get("id"), str):
            yield model["id"]


def _parse_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


# Timeout in seconds for all local servers together, which are requested concurrently.
LOCAL_SECONDS = 1.0
# The maximum number of models of one server that are proposed.
_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class ModelProposal:
    """A model that can be chosen."""

    name: str
    """The value for ``defaultModel``: a prefix with an id, or the name of a profile."""
    about: str
    profile: Mapping[str, Any] = field(default_factory=dict)
    """The entry of the model in ``models``; empty if the name alone is enough."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A program that serves models on this machine."""

    title: str
    preset: str
    url: str
    """The base URL of its API, up to ``/v1``."""


def list_local_servers(environ: Mapping[str, str] = os.environ) -> tuple[LocalServer, ...]:
    """Return the programs that serve models, at their usual addresses."""
    servers = [
        LocalServer(title, preset, PRESETS[preset].url)
        for title, preset in (("LM Studio", "lmstudio"), ("llama.cpp", "llama.cpp"), ("vLLM", "vllm"))
    ]
    with suppress(ConfigError):  # an invalid OLLAMA_HOST is reported when a model of Ollama is asked for
        servers.insert(0, LocalServer("Ollama", "ollama", parse_ollama_host(environ.get("OLLAMA_HOST") or "127.0.0.1")))
    return tuple(servers)


async def find_models(
    servers: Sequence[LocalServer] | None = None,
    environ: Mapping[str, str] = os.environ,
    seconds: float = LOCAL_SECONDS,
) -> list[ModelProposal]:
    """Return the models that can be chosen, the best first: keys, local servers, the embedded model.

    Args:
        servers: The local servers to ask; None for the usual servers.
        environ: The environment variables.
        seconds: The timeout for all local servers together.
    """
    by_key = [
        ModelProposal(model, f"{variable} is set")
        for variable, model in MODELS_OF_KEYS.items()
        if environ.get(variable)
    ]
    chosen_servers = list_local_servers(environ) if servers is None else servers
    answers: dict[LocalServer, list[ModelProposal]] = {server: [] for server in chosen_servers}

    async def ask(server: LocalServer) -> None:
        answers[server] = await _list_models(server)

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as group:
            for server in chosen_servers:
                group.start_soon(ask, server)
    served = [proposal for proposals in answers.values() for proposal in proposals]
    embedded = [ModelProposal("local", "the embedded model")] if importlib.util.find_spec("xllamacpp") else []
    return [*by_key, *served, *embedded]


async def _list_models(server: LocalServer) -> list[ModelProposal]:
    """Return the models that a local server lists; an empty list if the server does not answer."""
    try:
        listing = await fetch_models(Endpoint(server.url))
    except ProviderError:
        return []
    about, preset = f"{server.title} on this machine", server.preset
    names = [name for name in listing.ids if name.isprintable()]
    return [
        ModelProposal(f"ollama:{name}", about)
        if preset == "ollama"
        else ModelProposal(preset, f"{about}: {name}", {"preset": preset, "model": name})
        for name in names[:_MAX_LISTED]
        if "embed" not in name
    ]
