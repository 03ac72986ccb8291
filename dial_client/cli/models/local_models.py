"""The models on this machine, and models of the hub to try; `LocalModel.fits` compares them with the memory."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from dial_client.providers.embedded.weights import QWEN

CONTEXT_BYTES = 700_000_000
"""Bytes of memory that a model needs in addition to its file, for the context window and the runtime."""
RESERVED = 0.25
"""The share of the memory that is left to other programs."""


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


_HUB = (
    LocalModel("local:hf:bartowski/Llama-3.2-3B-Instruct-GGUF", 2_020_000_000, installed=False, about="3 B"),
    LocalModel("local:hf:bartowski/Qwen_Qwen3-4B-GGUF", 2_500_000_000, installed=False, about="4 B, thinks first"),
    LocalModel("local:hf:bartowski/Qwen_Qwen3-8B-GGUF", 5_030_000_000, installed=False, about="8 B, thinks first"),
)
"""Models of the hub whose own chat templates support tool calls. The sizes are those of the preferred files."""


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
