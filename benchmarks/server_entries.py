"""The entries of the raw servers of the benchmarks; any host can read them. It needs the standard library only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

QUESTION = "What do the records say?"
Servers = Mapping[str, Mapping[str, Any]]


def server_entries(count: int = 1, *, tools: int = 1, start_delay: float = 0.0, call_delay: float = 0.0) -> Servers:
    """Return entries of raw servers; `tools` is the number of tools of each server, and delays are in seconds."""
    script = str(Path(__file__).with_name("stdio_server.py"))
    delays = ["--start-delay", str(start_delay), "--call-delay", str(call_delay)]
    names = [f"server{number}" for number in range(count)]
    return {
        name: {
            "command": sys.executable,
            "args": ["-I", "-S", script, name, "--tools", str(tools), *delays],
            "autoApprove": ["*"],
        }
        for name in names
    }
