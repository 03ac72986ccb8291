"""The names of models that are known without a request; and the cache of the lists of endpoints."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dial_client.runtime.private_files import write_private

FRESH_SECONDS = 24 * 3600.0
"""Seconds for which a cached list is used without a new request."""
MAX_BYTES = 4 * 1024 * 1024
"""The maximum size of the file in bytes; a larger file is ignored."""


def read_fresh_ids() -> dict[str, tuple[str, ...]]:
    """Return the model ids of lists cached in the last day, by the URL of their endpoint."""
    now = time.time()
    return {url: tuple(entry["ids"]) for url, entry in _read().items() if 0 <= now - entry["at"] < FRESH_SECONDS}


def read_cached_names() -> list[str]:
    """Return the names for -m of all cached models, whatever their age."""
    return [f"{entry['prefix']}{model}" for entry in _read().values() if entry["prefix"] for model in entry["ids"]]


def store_lists(lists: Mapping[str, tuple[str, tuple[str, ...]]]) -> None:
    """Add lists of models to the cache file; if it cannot be written, nothing is cached.

    Args:
        lists: The prefix of model names and the model ids, by the URL of the endpoint.
    """
    if not lists:
        return
    now = time.time()
    new = {url: {"at": now, "prefix": prefix, "ids": list(ids)} for url, (prefix, ids) in lists.items()}
    with suppress(OSError):
        write_private(_find_path(), json.dumps(_read() | new).encode())


def _find_path() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("dial-client"), "endpoint-models.json")


def _read() -> dict[str, dict[str, Any]]:
    """Return the cached entries by the URL of their endpoint; none if the file cannot be read."""
    try:
        with _find_path().open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        value = json.loads(data) if len(data) <= MAX_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}
    entries = value.items() if isinstance(value, dict) else ()
    return {url: entry for url, entry in entries if _is_entry(entry)}


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("at"), int | float)
        and isinstance(entry.get("prefix"), str)
        and isinstance(entry.get("ids"), list)
        and all(isinstance(model, str) for model in entry["ids"])
    )


PREFIXES = {
    "anthropic:": "Anthropic's Messages API",
    "azure:": "a deployment of Azure",
    "bedrock:": "Amazon Bedrock",
    "chat:": "any OpenAI-compatible endpoint",
    "dial:": "a DIAL core",
    "foundry:": "Microsoft Foundry",
    "ollama:": "Ollama on this machine",
    "openai:": "OpenAI's Responses API",
    "scripted:": "a file of replies, or a recording",
    "vertex:": "Google Vertex AI",
}
"""The prefixes of model names, before the model's id, with descriptions."""


def list_known_models(profiles: Iterable[str]) -> dict[str, str]:
    """Return the names of models that are known without a request, with descriptions.

    Args:
        profiles: The names of the configuration's models.
    """
    from dial_client.cli.models.local_models import list_local_models
    from dial_client.providers.embedded.weights import find_cache_folder

    local = {model.name: "on this machine" for model in list_local_models(find_cache_folder()) if model.installed}
    own = dict.fromkeys(profiles, "of your configuration")
    listed = dict.fromkeys(read_cached_names(), "of your endpoint")
    return own | {"local": "the embedded model"} | local | listed | PREFIXES
