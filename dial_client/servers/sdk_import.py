"""The import of the SDK of MCP, which every part of the package that may be the first to need the SDK begins with."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Literal

_IMPORT = threading.Lock()


def import_sdk(package: Literal["mcp", "mcp_types"] = "mcp") -> None:
    """Import the SDK of MCP, whose 540 pydantic models are then built when each is first used.

    Their validators are a third of the time of the import, and a process needs few of them. Models that other threads
    define meanwhile may be built later, too, which changes nothing else.

    Args:
        package: The SDK, or its types alone.
    """
    with _IMPORT:  # two threads, of which the second takes the setting of the first for the usual one, would keep it
        if package in sys.modules:
            return
        from pydantic import BaseModel, TypeAdapter

        # An adapter has its setting from its type, and a union has none: pydantic asks the property in its place.
        is_deferred = vars(TypeAdapter).get("_defer_build")
        BaseModel.model_config["defer_build"] = True
        if is_deferred is not None:
            TypeAdapter._defer_build = True  # type: ignore[assignment, method-assign]  # noqa: SLF001 - no option
        try:
            import_module(package)
        finally:
            BaseModel.model_config.pop("defer_build", None)
            if is_deferred is not None:
                TypeAdapter._defer_build = is_deferred  # type: ignore[method-assign]  # noqa: SLF001
