"""The public names of a module, each imported from the module that defines it when it is first used (PEP 562).

The stub beside the module, which type checkers read, is the only list of these names. Each is a line of its own:
``from dial_client.messages.limits import Limits as Limits``.
"""

from __future__ import annotations

from importlib import import_module

# This module runs at every start, so it imports nothing for its annotations.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import Any


def find_modules(spec: ModuleSpec) -> dict[str, str]:
    """Return the names in the stub of a module, each with the module that defines it."""
    loader: Any = spec.loader
    stub = loader.get_data(f"{str(spec.origin).rpartition('.')[0]}.pyi").decode()
    imports = [line.split() for line in stub.splitlines() if line.startswith("from ")]
    return {name: module for _, module, _, name, *_ in imports}


def attach_names(namespace: dict[str, Any]) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` for the module whose ``globals()`` these are."""
    modules = find_modules(namespace["__spec__"])

    def get_attribute(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        namespace[name] = getattr(import_module(modules[name]), name)
        return namespace[name]

    def list_attributes() -> list[str]:
        return sorted({*namespace, *modules})

    return sorted(modules), get_attribute, list_attributes
