"""The models that a person can choose from, the best first: of keys, of servers on this machine, to download.

Every request is free: for a list of models, or for the credit behind a key. All requests together have a timeout.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from anyio import to_thread

from dial_client.cli.models.model_names import LocalModel, choose_hub_model, list_local_models, measure_memory
from dial_client.cli.models.model_search import MISSING_STATUSES, fetch_models, find_credit_problem
from dial_client.cli.streams.download_progress import describe_seconds
from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.providers import open_provider, pin_address
from dial_client.providers.embedded.weights import QWEN, find_cache_folder
from dial_client.providers.http.endpoint import Endpoint, normalize_url, parse_ollama_host
from dial_client.providers.http.http_provider import HttpProvider
from dial_client.providers.presets import KEYS_OF_PRESETS, MODELS_OF_KEYS, PRESETS
from dial_client.settings.config_types import ModelProfile

# Timeout in seconds for all servers and keys together: a port at which nothing listens refuses at once.
SECONDS = 8.0
# The maximum number of models of one server that have a row of their own.
MAX_ROWS = 3
# The environment variable that lists the local servers to ask, as PRESET=URL, in place of the usual addresses.
SERVERS_VARIABLE = "DIAL_LOCAL_SERVERS"
# What the embedded model is, wherever it is offered or used.
DEMONSTRATION = "a demonstration that needs no key: half a billion parameters, often wrong"
_NAMES_OF_PRESETS = {"ollama": "Ollama", "lmstudio": "LM Studio", "llama.cpp": "llama.cpp", "vllm": "vLLM"}
# Seconds of the first answer of the embedded model on two processor cores: docs/embedded-model.md has the parts.
_FIRST_ANSWER_SECONDS = 31.0
# The speed of a common connection, in bytes a second.
_COMMON_SPEED = 10e6


@dataclass(frozen=True, slots=True)
class ModelProposal:
    """A model that can be chosen."""

    name: str
    """The value for ``defaultModel``: a prefix with an id, or the name of a profile."""
    about: str
    profile: Mapping[str, Any] = field(default_factory=dict)
    """The entry of the model in ``models``; empty if the name alone is enough."""
    download: int = 0
    """Bytes that the first question downloads."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Several models, one of which a second question chooses."""

    name: str
    about: str
    models: tuple[ModelProposal, ...] = ()
    """The models; empty for an endpoint whose address is asked for."""


ANOTHER_ENDPOINT = ModelSource("another endpoint", "its address, its key if it needs one, and one of its models")


@dataclass(frozen=True, slots=True)
class ModelOffers:
    """What the question for a model offers."""

    rows: tuple[ModelProposal | ModelSource, ...]
    """The choices, the best first."""
    unusable: tuple[tuple[str, str], ...] = ()
    """What cannot be chosen yet, each with what it needs."""

    @property
    def usual(self) -> ModelProposal | None:
        """The model that Enter chooses: the first one that needs no download, else the demonstration."""
        models = [row for row in self.rows if isinstance(row, ModelProposal)]
        return next((model for model in models if not model.download), models[-1] if models else None)


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A program that serves models on this machine."""

    title: str
    preset: str
    url: str
    """The base URL of its API, up to ``/v1``."""
    is_usual: bool = False
    """Whether the preset, or for Ollama ``OLLAMA_HOST``, has this address already."""


def list_local_servers(environ: Mapping[str, str] = os.environ) -> tuple[LocalServer, ...]:
    """Return the programs that serve models, at their usual addresses or at those of ``DIAL_LOCAL_SERVERS``.

    Raises:
        ConfigError: ``DIAL_LOCAL_SERVERS`` has an entry of another form.
    """
    if (listed := environ.get(SERVERS_VARIABLE)) is not None:
        return tuple(_parse_server(entry.strip()) for entry in listed.split(",") if entry.strip())
    servers = [
        LocalServer(title, preset, PRESETS[preset].url, is_usual=True) for preset, title in _NAMES_OF_PRESETS.items()
    ]
    try:
        servers[0] = replace(servers[0], url=parse_ollama_host(environ.get("OLLAMA_HOST") or "127.0.0.1"))
    except ConfigError:  # an invalid OLLAMA_HOST is reported when a model of Ollama is asked for
        del servers[0]
    return tuple(servers)


def _parse_server(entry: str) -> LocalServer:
    preset, _, url = entry.partition("=")
    if preset not in _NAMES_OF_PRESETS:
        hint = f"write PRESET=URL, with a preset of {', '.join(_NAMES_OF_PRESETS)}"
        raise ConfigError(f"{SERVERS_VARIABLE} has an entry {entry!r}", hint)
    return LocalServer(_NAMES_OF_PRESETS[preset], preset, normalize_url(url, SERVERS_VARIABLE))


async def find_offers(environ: Mapping[str, str] = os.environ, memory: int | None = None) -> ModelOffers:
    """Return everything that can be chosen, and what a choice of the other vendors needs.

    Args:
        environ: The environment variables.
        memory: The bytes of memory of this machine; None to measure them.

    Raises:
        ConfigError: ``DIAL_LOCAL_SERVERS`` has an entry of another form.
    """
    groups: dict[str, list[ModelProposal]] = {}
    unusable: list[tuple[str, str]] = []
    servers = list_local_servers(environ)

    async def ask(server: LocalServer) -> None:
        groups[server.preset] = await list_served_models(server)

    async def try_vendor(name: str, variable: str) -> None:
        groups[name], problem = await _try_key(name, variable, environ)
        if problem:
            unusable.append((name, problem))

    keys = [(name, variable) for name, variable in KEYS_OF_PRESETS.items() if _is_set(name, variable, environ)]
    # A busy machine may import these modules for longer than the servers and vendors have to answer.
    await to_thread.run_sync(importlib.import_module, "dial_client.providers.http.http_client")
    with anyio.move_on_after(SECONDS):
        async with anyio.create_task_group() as group:
            for server in servers:
                group.start_soon(ask, server)
            for name, variable in keys:
                group.start_soon(try_vendor, name, variable)
    silent = [(name, f"did not answer within {SECONDS:g} s") for name, _ in keys if name not in groups]
    rows: list[ModelProposal | ModelSource] = []
    for name in (*KEYS_OF_PRESETS, *(server.preset for server in servers)):
        rows += _group_rows(name, groups.get(name, []))
    downloads, missing = _list_downloads(measure_memory() if memory is None else memory)
    ready = [model for model in downloads if not model.download and model.name != "local"]
    downloadable = [model for model in downloads if model not in ready]
    needs = (*unusable, *silent, *_list_needed_keys(keys), *missing)
    return ModelOffers((*rows, *ready, ANOTHER_ENDPOINT, *downloadable), needs)


def _list_needed_keys(found: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the vendors whose key is not set: those with a usual model in rows of their own, the others in one."""
    needed = [(name, variable) for name, variable in KEYS_OF_PRESETS.items() if (name, variable) not in found]
    known = [(name, f"needs {variable}") for name, variable in needed if variable in MODELS_OF_KEYS]
    names = [name for name, variable in needed if variable not in MODELS_OF_KEYS]
    if not names:
        return known
    variable = KEYS_OF_PRESETS[names[0]]
    return [*known, (f"{names[0]} …", f"{', '.join(names)}: each needs its key, such as {variable}")]


def _is_set(name: str, variable: str, environ: Mapping[str, str]) -> bool:
    return bool(environ.get(variable) or (name == "openai" and environ.get("OPENAI_BASE_URL")))


def _group_rows(name: str, models: Sequence[ModelProposal]) -> list[ModelProposal | ModelSource]:
    """Return a row for each of the first models, and one row for all others."""
    shown = models if len(models) <= MAX_ROWS + 1 else models[:MAX_ROWS]
    more = tuple(models[len(shown) :])
    return [*shown, *([ModelSource(f"{name} …", f"one of {len(more)} more models", more)] if more else [])]


async def _try_key(name: str, variable: str, environ: Mapping[str, str]) -> tuple[list[ModelProposal], str]:
    """Return the models of a vendor whose key is set, the usual one first; and the problem with the key, if any."""
    usual = MODELS_OF_KEYS.get(variable, "").partition(":")[2]
    is_named_by_prefix = bool(usual)
    own_url = is_named_by_prefix and bool(pin_address(f"{name}:-", environ))
    # An endpoint at OPENAI_BASE_URL is seldom OpenAI's own, and has chat completions.
    prefix = "chat" if own_url and name == "openai" else name
    profile = ModelProfile(name, preset=name, model="-", api_key=environ.get(variable))
    try:
        named = f"{prefix}:-" if is_named_by_prefix else name
        provider = open_provider(named, models={} if is_named_by_prefix else {name: profile}, environ=environ)
    except ConfigError as error:
        return [], str(error)
    assert isinstance(provider, HttpProvider)
    endpoint = provider.endpoint
    await provider.aclose()
    try:
        listing = await fetch_models(endpoint)
    except ProviderError as error:
        return [], str(error)
    if listing.status in (401, 403):
        return [], f"{endpoint.host} refuses the key in {variable}"
    if listing.problem and listing.status not in MISSING_STATUSES:
        return [], listing.problem
    ids = [model for model in listing.ids if model.isprintable() and not is_embedding(model)]
    ids = sorted(ids, key=lambda model: model != usual) or ([] if own_url or not usual else [usual])
    if not ids:
        return [], f"{endpoint.host} has no list of models (HTTP {listing.status})"
    if problem := await find_credit_problem(endpoint, ids[0], has_key_limits=name == "openrouter"):
        return [], problem
    about = f"of {endpoint.host}" if own_url else f"{variable} is accepted"
    if is_named_by_prefix:
        return [ModelProposal(f"{prefix}:{model}", about) for model in ids], ""
    keys = {"preset": name, "api_key": f"${{{variable}}}"}
    return [ModelProposal(name_profile(model), f"{name}, {about}", keys | {"model": model}) for model in ids], ""


async def list_served_models(server: LocalServer) -> list[ModelProposal]:
    """Return the models that a local server lists; an empty list if the server does not answer."""
    try:
        listing = await fetch_models(Endpoint(server.url))
    except ProviderError:
        return []
    about, preset = f"{server.title} on this machine", server.preset
    address = {} if server.is_usual else {"base_url": server.url}
    names = [name for name in listing.ids if name.isprintable() and not is_embedding(name)]
    if preset == "ollama" and server.is_usual:
        return [ModelProposal(f"ollama:{name}", about) for name in names]
    return [ModelProposal(name_profile(name), about, {"preset": preset, **address, "model": name}) for name in names]


def is_embedding(model: str) -> bool:
    """Return True if a model makes embeddings, by its id: it cannot answer."""
    return "embed" in model.lower()


def name_profile(model_id: str) -> str:
    """Return the name of a profile for a model: the last part of its id, without colons, which separate prefixes."""
    name = re.sub(r"[^\w.-]+", "-", model_id.rsplit("/", 1)[-1]).strip("-")
    return name if name and name not in ("local", "scripted") else "endpoint"


def describe_name(name: str) -> str:
    """Return what a model is that the user named."""
    return describe_demonstration() if name == "local" else "as you named it"


def describe_demonstration() -> str:
    """Return what the embedded model is, with its download if it is not on this machine."""
    is_here = (find_cache_folder() / QWEN.file).is_file()
    return DEMONSTRATION if is_here else f"{DEMONSTRATION}; its first question {describe_download(QWEN.size)}"


def describe_download(size: int) -> str:
    """Return the size of a download in bytes, and the time that it takes over a common connection."""
    amount = f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
    return f"downloads {amount} (about {describe_seconds(size / _COMMON_SPEED)} at 10 MB/s)"


def _list_downloads(memory: int | None) -> tuple[list[ModelProposal], list[tuple[str, str]]]:
    """Return the models that run in a process of this program, the demonstration last; and what they need."""
    if importlib.util.find_spec("xllamacpp") is None:
        return [], [("local", f"{DEMONSTRATION}; needs pip install 'dial-client[local]'")]
    known = list_local_models(find_cache_folder())
    found = [
        ModelProposal(model.name, f"on this machine; {_describe_answer(model)}")
        for model in known
        if model.installed and model.name != "local"
    ]
    hub = choose_hub_model(memory)
    if hub is not None and hub in known:
        about = f"{hub.about}; {describe_download(hub.size)}; {_describe_answer(hub)}"
        found.append(ModelProposal(hub.name, about, download=hub.size))
    download = 0 if known[0].installed else QWEN.size
    return [*found, ModelProposal("local", describe_demonstration(), download=download)], []


def _describe_answer(model: LocalModel) -> str:
    """Return how long an answer takes, estimated from the size of a model and the number of processor cores."""
    cores = min(os.cpu_count() or 2, 8)  # beyond that, memory is the limit
    seconds = _FIRST_ANSWER_SECONDS * model.size / QWEN.size * 2 / cores
    return f"an answer takes about {describe_seconds(seconds)} on this processor, estimated from its size"
