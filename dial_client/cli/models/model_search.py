"""Finds the models that can be used now: by API keys in the environment, on local servers, and embedded."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from dial_client.cli.models.endpoint_probe import fetch_models
from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.providers.http.endpoint import Endpoint, parse_ollama_host
from dial_client.providers.presets import MODELS_OF_KEYS, PRESETS

SECONDS = 1.0
"""Timeout in seconds for all local servers together, which are requested concurrently."""
_MAX_LISTED = 5
"""The maximum number of models of one server that are proposed."""


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
    servers: Sequence[LocalServer] | None = None, environ: Mapping[str, str] = os.environ, seconds: float = SECONDS
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
    answers: dict[int, list[ModelProposal]] = {}
    chosen_servers = list_local_servers(environ) if servers is None else servers

    async def ask(number: int, server: LocalServer) -> None:
        answers[number] = await _list_models(server)

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as group:
            for number, server in enumerate(chosen_servers):
                group.start_soon(ask, number, server)
    served = [proposal for number in sorted(answers) for proposal in answers[number]]
    embedded = [ModelProposal("local", "the embedded model")] if importlib.util.find_spec("xllamacpp") else []
    return [*by_key, *served, *embedded]


async def _list_models(server: LocalServer) -> list[ModelProposal]:
    """Return the models that a local server lists; an empty list if the server does not answer."""
    try:
        listing = await fetch_models(Endpoint(server.url))
    except ProviderError:
        return []
    names = [name for name in listing.ids if name.isprintable()]
    return [_build_proposal(server, name) for name in names[:_MAX_LISTED] if "embed" not in name]


def _build_proposal(server: LocalServer, model: str) -> ModelProposal:
    about = f"{server.title} on this machine"
    if server.preset == "ollama":
        return ModelProposal(f"ollama:{model}", about)
    return ModelProposal(server.preset, f"{about}: {model}", {"preset": server.preset, "model": model})
