"""The models that are known without a request: on this machine, to download, and in cached lists of endpoints."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dial_client.providers.embedded.weights import QWEN, find_cache_folder
from dial_client.runtime.private_files import read_json_object, write_private

# Seconds for which a cached list is used without a new request.
FRESH_SECONDS = 24 * 3600.0
# The maximum size of the file in bytes; a larger file is ignored.
MAX_BYTES = 4 * 1024 * 1024


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
    return {url: entry for url, entry in read_json_object(_find_path(), MAX_BYTES).items() if _is_entry(entry)}


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("at"), int | float)
        and isinstance(entry.get("prefix"), str)
        and isinstance(entry.get("ids"), list)
        and all(isinstance(model, str) for model in entry["ids"])
    )


# The prefixes of model names, before the model's id, with descriptions.
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


def list_known_models(profiles: Iterable[str]) -> dict[str, str]:
    """Return the names of models that are known without a request, with descriptions.

    Args:
        profiles: The names of the configuration's models.
    """
    local = dict.fromkeys(list_installed(), "on this machine")
    own = dict.fromkeys(profiles, "of your configuration")
    listed = dict.fromkeys(read_cached_names(), "of your endpoint")
    return own | {"local": "the embedded model"} | local | listed | PREFIXES


# Bytes of memory that a model needs in addition to its file, for the context window and the runtime.
CONTEXT_BYTES = 700_000_000
# The share of the memory that is left to other programs.
RESERVED = 0.25


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that is on this machine, or can be downloaded."""

    name: str
    """The name for the option ``-m``."""
    size: int
    """The size of the file in bytes."""
    installed: bool
    about: str = ""

    def fits(self, memory: int) -> bool:
        """Return True if the model fits into a machine with `memory` bytes of memory."""
        return self.size + CONTEXT_BYTES <= memory * (1 - RESERVED)


# Models of the hub whose own chat templates support tool calls. The sizes are those of the preferred files.
_HUB = (
    LocalModel("local:hf:bartowski/Qwen_Qwen3-1.7B-GGUF", 1_280_000_000, installed=False, about="1.7 B, thinks first"),
    LocalModel("local:hf:bartowski/Llama-3.2-3B-Instruct-GGUF", 2_020_000_000, installed=False, about="3 B"),
    LocalModel("local:hf:bartowski/Qwen_Qwen3-4B-GGUF", 2_500_000_000, installed=False, about="4 B, thinks first"),
    LocalModel("local:hf:bartowski/Qwen_Qwen3-8B-GGUF", 5_030_000_000, installed=False, about="8 B, thinks first"),
)


def list_local_models(folder: Path) -> list[LocalModel]:
    """Return the default model, the models that were downloaded from the hub into a folder, and further ones to try."""
    own = folder / QWEN.file
    found = [LocalModel("local", QWEN.size, own.is_file(), about="0.5 B, the default")]
    for file in sorted((folder / "hf").glob("*/**/*.gguf")) if (folder / "hf").is_dir() else ():
        if file.parent.name != ".cache" and ".part" not in str(file.relative_to(folder)):
            repository, *inner = file.relative_to(folder / "hf").parts
            name = "/".join([repository.replace("--", "/", 1), *inner])
            found.append(LocalModel(f"local:hf:{name}", file.stat().st_size, installed=True))
    installed = [model.name for model in found if model.installed]
    return found + [model for model in _HUB if not any(name.startswith(f"{model.name}/") for name in installed)]


# The models of the hub that are recommended, each with the bytes of memory from which it is.
_RECOMMENDED = ((7_500_000_000, "Qwen3-4B-"), (3_700_000_000, "Qwen3-1.7B-"))


def choose_hub_model(memory: int | None) -> LocalModel | None:
    """Return the model of the hub for a machine with so many bytes of memory: 4 B from 8 GB, 1.7 B from 4 GB."""
    part = next((part for least, part in _RECOMMENDED if memory is not None and memory >= least), None)
    return next((model for model in _HUB if part is not None and part in model.name), None)


def list_installed() -> list[str]:
    """Return the names of the models on this machine."""
    return [model.name for model in list_local_models(find_cache_folder()) if model.installed]


def measure_memory() -> int | None:
    """Return the bytes of memory of this machine; None if the system does not report them."""
    if sys.platform == "win32":
        return _measure_windows_memory()
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _measure_windows_memory() -> int | None:
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *(
                (name, ctypes.c_ulonglong)
                for name in ("total", "free", "page", "page_free", "virtual", "virtual_free", "extended_free")
            ),
        )

    status = Status()
    status.length = ctypes.sizeof(Status)
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009 - only Windows has it
    return int(status.total) if kernel.GlobalMemoryStatusEx(ctypes.byref(status)) else None
