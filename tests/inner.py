"""Imports an inner name of the package when a test asks for it; `inner.pyi` is the list, which type checkers read."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORTS = {
    alias.asname: (statement.module, alias.name)
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(statement, ast.ImportFrom) and statement.module
    for alias in statement.names
}


def __getattr__(name: str) -> Any:
    if name not in _IMPORTS:
        raise AttributeError(f"{name} is not in tests/inner.pyi: add the line that imports it from its module")
    module, attribute = _IMPORTS[name]
    found = import_module(module)
    # A module that nothing has imported yet is no attribute of its package.
    return getattr(found, attribute) if hasattr(found, attribute) else import_module(f"{module}.{attribute}")
