"""The work of ``dial-chat models``: lists the models of the configured endpoints and of this machine."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import anyio

from dial_client.cli.markdown.themes import StyleName
from dial_client.cli.models.endpoint_trial import try_endpoint
from dial_client.cli.models.model_names import (
    LocalModel,
    list_local_models,
    measure_memory,
    read_fresh_ids,
    store_lists,
)
from dial_client.cli.models.model_proposals import SECONDS, ModelProposal, list_local_servers, list_served_models
from dial_client.cli.models.model_search import fetch_models
from dial_client.cli.options import Options
from dial_client.cli.streams.error_stream import warn
from dial_client.cli.streams.word_wrap import print_lines
from dial_client.cli.trust.configuration_files import find_files, find_profile_name
from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.messages.model import ModelInfo
from dial_client.messages.token_usage import Usage
from dial_client.providers import open_provider, pin_address
from dial_client.providers.embedded.weights import find_cache_folder
from dial_client.providers.http.endpoint import Endpoint
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.text import count_noun
from dial_client.settings import configuration
from dial_client.settings.config_locations import FILE_NAME
from dial_client.settings.config_types import ModelProfile, Settings
from dial_client.turns import prices

_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


@dataclass(frozen=True, slots=True)
class EndpointModels:
    """The models of one endpoint."""

    host: str
    url: str
    prefix: str
    """The prefix of a model id in a name for -m; empty if only a profile can name the endpoint's models."""
    ids: tuple[str, ...] = ()
    problem: str = ""
    """The reason why the endpoint has no list; empty if it has one."""


async def find_endpoints(settings: Settings) -> list[tuple[Endpoint, str]]:
    """Return the endpoints of the profiles and of the vendors whose key is set, each with the prefix of its models.

    An endpoint at ``OPENAI_BASE_URL`` is listed without a key too; its models are named for chat completions.
    """
    found: dict[str, tuple[Endpoint, str]] = {}
    names = [(f"{prefix}:-", f"{prefix}:") for prefix, variable in _KEYS.items() if os.environ.get(variable)]
    if pin_address("chat:-", os.environ):
        names = [("chat:-", "chat:"), *(name for name in names if name[1] != "openai:")]
    for name, prefix in (*names, *((name, "") for name in settings.models)):
        try:
            provider = open_provider(name, models=settings.models)
        except ConfigError:
            continue
        if isinstance(provider, HttpProvider):
            found.setdefault(provider.endpoint.base_url, (provider.endpoint, prefix))
        await provider.aclose()
    return list(found.values())


async def list_endpoints(
    endpoints: list[tuple[Endpoint, str]], *, is_refreshed: bool, is_cached: bool = True
) -> list[EndpointModels]:
    """Return the models of each endpoint, requested concurrently; cached lists are used for a day.

    Args:
        endpoints: The endpoints to list, with their prefixes.
        is_refreshed: Request all lists again, even if they are cached.
        is_cached: Cache the lists.
    """
    cache = {} if is_refreshed else read_fresh_ids()
    listed = [
        EndpointModels(endpoint.host, endpoint.base_url, prefix, cache.get(endpoint.base_url, ()))
        for endpoint, prefix in endpoints
    ]

    async def request(number: int, endpoint: Endpoint) -> None:
        try:
            listing = await fetch_models(endpoint)
        except ProviderError as error:
            listed[number] = replace(listed[number], problem=str(error).removeprefix(f"{endpoint.host} "))
            return
        refused = listing.status in (401, 403)
        refusal = "refuses the key" if endpoint.key else "needs a key"
        problem = refusal if refused else f"has no list of models (HTTP {listing.status})"
        ids = tuple(sorted(filter(str.isprintable, listing.ids)))
        listed[number] = replace(listed[number], ids=ids, problem="" if listing.ids else problem)

    async with anyio.create_task_group() as group:
        for number, (endpoint, _) in enumerate(endpoints):
            if endpoint.base_url not in cache:
                group.start_soon(request, number, endpoint)
    if not is_cached:
        return listed
    fetched = (models for models in listed if models.ids and models.url not in cache)
    store_lists({models.url: (models.prefix, models.ids) for models in fetched})
    return listed


# The maximum number of models of one endpoint that are printed without a search word.
MAX_SHOWN = 12
_MILLION = 1_000_000


async def list_models(options: Options, word: str, *, is_refreshed: bool, as_json: bool) -> None:
    """Print the models of the configuration, of its endpoints, and of this machine.

    Args:
        options: The options of the command line.
        word: A text that the names of the printed models contain; empty for all models.
        is_refreshed: Request the lists of the endpoints again.
        as_json: Print JSON, with all models.

    Raises:
        ConfigError: The configuration is wrong.
    """
    if options.base_url:
        await _list_models_of_address(options.base_url, word, as_json=as_json)
        return
    in_use = find_files(options.config, trust=options.trust)
    if in_use.untrusted is not None:
        warn(f"the {FILE_NAME} of this folder is not trusted: its models are left out")
    settings = configuration.combine(in_use.files, find_profile_name(options))
    listed = await list_endpoints(await find_endpoints(settings), is_refreshed=is_refreshed)
    listed += await _list_served(known=[models.url for models in listed])
    local, memory = list_local_models(find_cache_folder()), measure_memory()
    prices.load_prices()
    listed = [_select(models, word) for models in listed] if as_json else listed
    local = [model for model in local if _has(model.name, word)]
    profiles = {name: profile for name, profile in settings.models.items() if _has(name, word)}
    if as_json:
        print(json.dumps(_as_json(profiles, listed, local, memory), indent=2))
        return
    for name, profile in profiles.items():
        print_lines([f"{to_one_line(name, 60)}: {to_one_line(profile.model or name, 80)}, of your configuration"])
    for models in listed:
        _print_endpoint(models, word)
    _print_local(local, memory)
    if word and not (profiles or local or any(_select(models, word).ids for models in listed)):
        warn(f"no model has {word!r} in its name: `dial-chat models` lists all")
    if not word:
        if memory is not None:
            print(f"\nThis machine has {memory / 1e9:.1f} GB of memory.")
        if importlib.util.find_spec("xllamacpp") is None:
            print_lines(["Models that begin with local need the extra: pip install 'dial-client[local]'"])
        print_lines(
            ["Any other GGUF file: -m local:PATH.gguf, or -m local:hf:OWNER/NAME[/FILE] for one of the model hub."]
        )


async def _list_models_of_address(base_url: str, word: str, *, as_json: bool) -> None:
    """Print the models of one address. The list is not cached: its models have no name without the address.

    Raises:
        ConfigError: The URL is not an address.
    """
    provider = open_provider("chat:-", base_url=base_url)
    assert isinstance(provider, HttpProvider)
    await provider.aclose()
    [models] = await list_endpoints([(provider.endpoint, "")], is_refreshed=True, is_cached=False)
    prices.load_prices()
    if as_json:
        print(json.dumps({"endpoints": _endpoints_as_json([_select(models, word)])}, indent=2))
    else:
        _print_endpoint(models, word, f", each as -m chat:ID --base-url {base_url}")


async def _list_served(known: Sequence[str]) -> list[EndpointModels]:
    """Return the models of the servers that run on this machine, without those at URLs that are known already."""
    servers = [server for server in list_local_servers() if server.url not in known]
    endpoints = [(Endpoint(server.url), "ollama:" if server.preset == "ollama" else "") for server in servers]
    listed: list[EndpointModels] = []
    with anyio.move_on_after(SECONDS):
        listed = await list_endpoints(endpoints, is_refreshed=True, is_cached=False)
    titles = {server.url: server.title for server in servers}
    return [replace(models, host=f"{titles[models.url]} at {models.host}") for models in listed if not models.problem]


async def list_usable_models(settings: Settings, base_url: str | None = None) -> list[ModelProposal]:
    """Return the models that a conversation can switch to, apart from profiles and files: those that endpoints list.

    Args:
        settings: The configuration.
        base_url: The address of ``--base-url``; None for none.
    """
    proposals: list[ModelProposal] = []
    endpoints = [(endpoint, prefix) for endpoint, prefix in await find_endpoints(settings) if prefix]
    with anyio.move_on_after(SECONDS):
        for models in await list_endpoints(endpoints, is_refreshed=False):
            proposals += [ModelProposal(f"{models.prefix}{model}", f"of {models.host}") for model in models.ids]
    with anyio.move_on_after(SECONDS):
        for server in list_local_servers():
            proposals += await list_served_models(server)
    if base_url:
        trial = await try_endpoint(base_url)
        proposals += [trial.propose(model) for model in trial.ids]
    return proposals


def _print_endpoint(models: EndpointModels, word: str, usage: str = ', each for the "model" of a profile') -> None:
    if models.problem:
        problem = to_one_line(models.problem, 200)
        print_lines([f"{models.host}: {problem}"], styles={f": {problem}": "failure"})
        return
    found = _select(models, word).ids
    shown = found if word else found[:MAX_SHOWN]
    count = f"{len(found)} of {count_noun(len(models.ids), 'model')}" if word else count_noun(len(found), "model")
    heading = f"{models.host}: {count}" + ("" if models.prefix else usage)
    print_lines([heading], styles={models.host: "strong"})
    width = max((len(models.prefix) + len(model) for model in shown), default=0)
    rows = (f"  {f'{models.prefix}{model}':<{width}}  {_describe_model(models.url, model)}".rstrip() for model in shown)
    print_lines(rows, width + 4)
    if len(found) > len(shown):
        more = len(found) - len(shown)
        print_lines([f"  … and {more} more: dial-chat models list WORD shows those with WORD in their name"])


def _select(models: EndpointModels, word: str) -> EndpointModels:
    """Return the models that have a word in their name."""
    return replace(models, ids=tuple(model for model in models.ids if _has(f"{models.prefix}{model}", word)))


def _has(name: str, word: str) -> bool:
    return word.lower() in name.lower()


def _describe_model(url: str, model: str) -> str:
    """Return context window and price of a model in one line, if they are known."""
    known = _find_window_and_price(url, model)
    window, price = known["context_window"], known["usd_per_million_tokens"]
    parts = [
        f"{window:,} tokens" if window else "",
        f"${price[0]:g} in, ${price[1]:g} out per million" if price else "",
    ]
    return "  ".join(filter(None, parts))


def _find_window_and_price(url: str, model: str) -> dict[str, Any]:
    info = ModelInfo(model, model, url)
    price = [prices.compute_cost(usage, info) for usage in (Usage(_MILLION), Usage(output_tokens=_MILLION))]
    return {
        "context_window": prices.find_context_window(info),
        "usd_per_million_tokens": None if None in price else price,
    }


def _print_local(found: list[LocalModel], memory: int | None) -> None:
    width = max((len(model.name) for model in found), default=0)
    fits = {
        model.name: "" if memory is None else "fits" if model.fits(memory) else "too large for this machine"
        for model in found
    }
    fits_width = max(map(len, fits.values()), default=0)
    for model in found:
        state = "installed" if model.installed else "not installed"
        about = f"{model.size / 1e9:5.1f} GB  {state:<13}  {fits[model.name]:<{fits_width}}  {model.about}"
        styles: dict[str, StyleName] = {"installed": "success"}
        if not model.installed:
            styles = {"too large for this machine": "failure"}
        print_lines([f"{model.name:<{width}}  {about}".rstrip()], width + 2, styles)


def _as_json(
    profiles: Mapping[str, ModelProfile], listed: list[EndpointModels], local: list[LocalModel], memory: int | None
) -> dict[str, Any]:
    return {
        "profiles": {name: profile.model or name for name, profile in profiles.items()},
        "endpoints": _endpoints_as_json(listed),
        "memory": memory,
        "models": [asdict(model) | {"fits": None if memory is None else model.fits(memory)} for model in local],
    }


def _endpoints_as_json(listed: list[EndpointModels]) -> list[dict[str, Any]]:
    return [
        {
            "host": models.host,
            "problem": models.problem or None,
            "models": [
                {"name": f"{models.prefix}{model}"} | _find_window_and_price(models.url, model) for model in models.ids
            ],
        }
        for models in listed
    ]
