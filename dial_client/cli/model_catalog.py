"""The models that the configured endpoints list under ``GET /models``; the lists are cached for a day.

find_endpoints    the endpoints of profiles, and of API keys in the environment
list_endpoints    the models of endpoints, requested concurrently
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import anyio

from dial_client.cli.doctor.endpoint_probe import fetch_models
from dial_client.cli.model_list_cache import read_fresh_ids, store_lists
from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.providers import open_provider
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.settings.config_types import Settings

_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """An endpoint that serves models."""

    endpoint: Endpoint
    prefix: str
    """The prefix of a model id in a name for -m; empty if only a profile can name the endpoint's models."""


@dataclass(frozen=True, slots=True)
class EndpointModels:
    """The models of one endpoint."""

    host: str
    url: str
    prefix: str
    ids: tuple[str, ...] = ()
    problem: str = ""
    """The reason why the endpoint has no list; empty if it has one."""


async def find_endpoints(settings: Settings) -> list[ModelEndpoint]:
    """Return the endpoints of the profiles, and of the vendors whose key is in the environment."""
    found: dict[str, ModelEndpoint] = {}
    names = [(f"{prefix}:-", f"{prefix}:") for prefix, variable in _KEYS.items() if os.environ.get(variable)]
    for name, prefix in (*names, *((name, "") for name in settings.models)):
        try:
            provider = open_provider(name, models=settings.models)
        except ConfigError:
            continue
        if isinstance(provider, HttpProvider):
            found.setdefault(provider.endpoint.base_url, ModelEndpoint(provider.endpoint, prefix))
        await provider.aclose()
    return list(found.values())


async def list_endpoints(endpoints: Sequence[ModelEndpoint], *, is_refreshed: bool = False) -> list[EndpointModels]:
    """Return the models of each endpoint, requested concurrently; cached lists are used for a day.

    Args:
        endpoints: The endpoints to list.
        is_refreshed: Request all lists again, even if they are cached.
    """
    cache = {} if is_refreshed else read_fresh_ids()
    results: dict[int, EndpointModels] = {}

    async def ask(number: int, model_endpoint: ModelEndpoint) -> None:
        results[number] = await _ask(model_endpoint)

    async with anyio.create_task_group() as group:
        for number, model_endpoint in enumerate(endpoints):
            url = model_endpoint.endpoint.base_url
            if url in cache:
                results[number] = EndpointModels(model_endpoint.endpoint.host, url, model_endpoint.prefix, cache[url])
            else:
                group.start_soon(ask, number, model_endpoint)
    listed = [results[number] for number in range(len(endpoints))]
    fetched = (models for models in listed if models.ids and models.url not in cache)
    store_lists({models.url: (models.prefix, models.ids) for models in fetched})
    return listed


async def _ask(model_endpoint: ModelEndpoint) -> EndpointModels:
    endpoint = model_endpoint.endpoint
    models = EndpointModels(endpoint.host, endpoint.base_url, model_endpoint.prefix)
    try:
        listing = await fetch_models(endpoint)
    except ProviderError as error:
        return replace(models, problem=str(error).removeprefix(f"{endpoint.host} "))
    if listing.ids:
        return replace(models, ids=tuple(sorted(filter(str.isprintable, listing.ids))))
    refused = listing.status in (401, 403)
    return replace(models, problem="refuses the key" if refused else f"has no list of models (HTTP {listing.status})")
