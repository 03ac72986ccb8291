"""What Linux says of processes."""

from __future__ import annotations

import os
from pathlib import Path


def list_children(parent: int) -> list[int]:
    """Return the ids of the processes that a process has started, and that run."""
    found = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [process for process in found if int(_read_stat(process)[1]) == parent]


def read_processor_seconds(process: int) -> float:
    """Return the processor time of a process and of those of its children that have ended."""
    return sum(int(ticks) for ticks in _read_stat(process)[11:15]) / os.sysconf("SC_CLK_TCK")


def _read_stat(process: int) -> list[str]:
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended meanwhile
        return ["0"] * 20
    return text.rpartition(")")[2].split()
