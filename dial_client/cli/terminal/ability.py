"""Checks of the terminal: whether a live area can be drawn, and in which colours."""

from __future__ import annotations

import os
import sys

from dial_client.cli.markdown.themes import THEMES
from dial_client.cli.options import Options
from dial_client.cli.tty import can_move_cursor
from dial_client.messages.errors import ConfigError
from dial_client.runtime.text import did_you_mean


def check_theme(name: str) -> None:
    """Check the name of a theme.

    Raises:
        ConfigError: There is no such theme.
    """
    names = ["auto", *THEMES]
    if name not in names:
        hint = did_you_mean(name, names) or f"there are: {', '.join(names)}"
        raise ConfigError(f"there is no theme {name!r}", hint=hint)


def can_draw(options: Options) -> bool:
    """Return True if a live area can be drawn: input and output are a terminal that moves its cursor."""
    if options.plain or not has_colour():
        return False
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams) and can_move_cursor()


def has_colour() -> bool:
    """Return False if the user wants no colours (no-color.org)."""
    return not os.environ.get("NO_COLOR")
