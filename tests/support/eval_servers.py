"""Entries of the evaluation's servers for tests that are not about the start of a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.support.program import python_server

ROOT = Path(__file__).parents[2]


def quick_start(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry for the same program that starts faster."""
    command, arguments = entry["command"], entry["args"]
    module, options = (arguments[1], ()) if command == sys.executable else (command.replace("-", "_"), arguments)
    return python_server(module, *options, cwd=str(ROOT))
