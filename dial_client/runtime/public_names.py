"""The public names of a module, each imported from the module that defines it when it is first used (PEP 562).

The stub beside the module, which type checkers read, is the only list of these names. Each is a line of its own:
``from dial_client.messages.limits import Limits as Limits``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

# This module runs at every start, so it imports nothing for its annotations.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import Any


# The modules with public names, which `attach_names` looks through for a name that is in another one of them.
_PUBLIC = ("dial_client", "dial_client.extend", "dial_client.serve", "dial_client.testing")


def find_modules(spec: ModuleSpec) -> dict[str, str]:
    """Return the names in the stub of a module, each with the module that defines it."""
    loader: Any = spec.loader
    stub = loader.get_data(f"{str(spec.origin).rpartition('.')[0]}.pyi").decode()
    imports = [line.split() for line in stub.splitlines() if line.startswith("from ")]
    return {name: module for _, module, _, name, *_ in imports}


def attach_names(namespace: dict[str, Any]) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` for the module whose ``globals()`` these are.

    A name of another public module is an `ImportError` that says where it is: Python shows the text of no
    `AttributeError` for ``from dial_client import NAME``.
    """
    modules = find_modules(namespace["__spec__"])

    def get_attribute(name: str) -> object:
        if name not in modules:
            if home := _find_home(name):
                raise ImportError(f"{name} is in another module: from {home} import {name}", name=name)
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        namespace[name] = getattr(import_module(modules[name]), name)
        return namespace[name]

    def list_attributes() -> list[str]:
        return sorted({*namespace, *modules})

    return sorted(modules), get_attribute, list_attributes


def _find_home(name: str) -> str:
    """Return the public module with a name; empty for none."""
    if name.startswith("_"):
        return ""
    specs = (find_spec(module) for module in _PUBLIC)
    return next((spec.name for spec in specs if spec is not None and name in find_modules(spec)), "")
