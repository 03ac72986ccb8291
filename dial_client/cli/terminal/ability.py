"""What the terminal can do."""

from __future__ import annotations

import os
import sys


def is_able() -> bool:
    """Return True where a live area can be drawn: input and output are a terminal that moves its cursor."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams) and moves_cursor()


def moves_cursor() -> bool:
    """Return False for a terminal that only prints, like one inside an editor."""
    return sys.platform == "win32" or os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def has_colour() -> bool:
    """Return False where the person wants no colours (no-color.org)."""
    return not os.environ.get("NO_COLOR")
