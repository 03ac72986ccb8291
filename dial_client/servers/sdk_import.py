"""The import of the SDK of MCP, which every part of the package that may be the first to need the SDK begins with."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pydantic import BaseModel

# Two threads, of which the second takes the settings of the first for the usual ones, would keep those.
_DEFERRAL = threading.Lock()


def import_sdk(package: Literal["mcp", "mcp_types"] = "mcp") -> None:
    """Import the SDK of MCP, whose 540 pydantic models are then built when each is first used.

    Their validators are a third of the time of the import, and a process needs few of them. Models that other threads
    define meanwhile may be built later, too, which changes nothing else.

    Args:
        package: The SDK, or its types alone.
    """
    if package not in sys.modules:
        with defer_builds():
            import_module(package)


@contextmanager
def defer_builds() -> Iterator[None]:
    """Let pydantic build each model and adapter that is defined meanwhile when it is first used."""
    from pydantic import BaseModel, TypeAdapter

    with _DEFERRAL:
        # An adapter has its setting from its type, and a union has none: pydantic asks the property in its place.
        is_deferred = vars(TypeAdapter).get("_defer_build")
        rebuild = vars(BaseModel)["model_rebuild"]
        BaseModel.model_config["defer_build"] = True
        BaseModel.model_rebuild = classmethod(partial(_rebuild, rebuild.__func__))  # type: ignore[assignment, method-assign]
        if is_deferred is not None:
            TypeAdapter._defer_build = True  # type: ignore[assignment, method-assign]  # noqa: SLF001 - no option
        try:
            yield
        finally:
            BaseModel.model_config.pop("defer_build", None)
            BaseModel.model_rebuild = rebuild  # type: ignore[method-assign]
            if is_deferred is not None:
                TypeAdapter._defer_build = is_deferred  # type: ignore[method-assign]  # noqa: SLF001


def _rebuild(rebuild: Callable[..., bool | None], model: type[BaseModel], **options: Any) -> bool | None:
    """Rebuild a model as pydantic would, but for those of the SDK (mcp 2.3) that its module asks for at its end.

    These are four, because of their references to later types, at once "rather than at first use", which for pydantic
    is another call, with options. A client needs none of them for its first calls.
    """
    if model.__module__ == "mcp_types._types" and not options:
        return None
    # The names of a function's types are searched in the frame of its caller, which is one further away.
    options["_parent_namespace_depth"] = options.get("_parent_namespace_depth", 2) + 1
    return rebuild(model, **options)
