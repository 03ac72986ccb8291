"""The first lines of a conversation: the model, the servers with their tools, the folder and the configuration."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from dial_client import __version__
from dial_client.cli.markdown.themes import THEMES
from dial_client.cli.options import Options
from dial_client.cli.streams.tty import can_move_cursor
from dial_client.cli.streams.word_wrap import count_cells, fit
from dial_client.messages.errors import ConfigError
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.text import count_noun, suggest_name
from dial_client.servers.status import ServerState, ServerStatus


def check_theme(name: str) -> None:
    """Check the name of a theme.

    Raises:
        ConfigError: There is no such theme.
    """
    names = ["auto", *THEMES]
    if name not in names:
        raise ConfigError(f"there is no theme {name!r}", hint=suggest_name(name, names))


def can_draw(options: Options) -> bool:
    """Return True if a live area can be drawn: input and output are a terminal that moves its cursor."""
    if options.plain:
        return False
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream is not None and stream.isatty() for stream in streams) and can_move_cursor()


MAX_TEXT = 600
# A width in columns that shortens no line, for lines that are wrapped later.
UNCUT = 10_000
_HELP_HINTS = (" · /help lists the commands", " · /help")
_SHOWS_WHY = " (/servers shows why)"


def format_program_line(model: str, columns: int) -> str:
    """Return the line with the program and the model."""
    line = f"dial-chat {__version__} · model {to_one_line(model, MAX_TEXT)}"
    hint = next((hint for hint in _HELP_HINTS if count_cells(line + hint) < columns), "")
    return fit(f"{line}{hint}", columns - 1)


def format_folder_line(configuration: str, columns: int) -> str:
    """Return the line with the folder and the configuration.

    The home folder is shown as ``~``, and a configuration in the folder by its relative path. In a narrow terminal the
    beginning of the folder is left out.
    """
    home, folder = str(Path.home()), str(Path.cwd())
    shown_folder = to_one_line(shorten_path(folder, home), MAX_TEXT)
    name = to_one_line(shorten_path(configuration, home), MAX_TEXT)
    name = name.removeprefix(f"{shown_folder}/")
    parts = Path(shown_folder).parts
    forms = [shown_folder, *(Path("…", *parts[start:]) for start in range(1, len(parts)))]
    lines = [f"folder {form} · configuration {name}" for form in forms]
    return next((line for line in lines if count_cells(line) < columns), fit(lines[-1], columns - 1))


def format_instructions_line(names: str, columns: int) -> str:
    """Return the line with the files whose instructions the model reads; the home folder is shown as ``~``."""
    home = str(Path.home())
    shown = ", ".join(to_one_line(shorten_path(name, home), MAX_TEXT) for name in names.split(", "))
    return fit(f"instructions {shown}", columns - 1)


def format_servers_line(servers: Mapping[str, ServerStatus], tools: int, columns: int) -> str:
    """Return the line with the number of servers in each state, and the number of tools."""
    if not servers:
        return "no servers, no tools"
    states = [status.state for status in servers.values()]
    ready = sum(state in (ServerState.READY, ServerState.SLEEPING) for state in states)
    parts = [f"{count_noun(ready, 'server')} ready"]
    if starting := states.count(ServerState.STARTING) + states.count(ServerState.RESTARTING):
        parts.append(f"{starting} starting")
    if failed := states.count(ServerState.FAILED):
        parts.append(f"{failed} failed{_SHOWS_WHY}")
    if disabled := states.count(ServerState.DISABLED):
        parts.append(f"{disabled} disabled")
    line = f"{', '.join(parts)} · {count_noun(tools, 'tool')} available"
    return fit(line if count_cells(line) < columns else line.replace(_SHOWS_WHY, " (/servers)"), columns - 1)


def format_settled_servers(servers: Mapping[str, ServerStatus]) -> str:
    """Return the numbers of ready and failed servers, as the start of a line about starting servers; else empty."""
    states = [status.state for status in servers.values()]
    ready = sum(state in (ServerState.READY, ServerState.SLEEPING) for state in states)
    failed = states.count(ServerState.FAILED)
    parts = [*([f"{ready} ready"] if ready else []), *([f"{failed} failed"] if failed else [])]
    return f"{', '.join(parts)}, " if parts else ""


def shorten_path(path: str, home: str) -> str:
    """Return a path with ``~`` in place of the home folder."""
    return f"~{path.removeprefix(home)}" if home != "/" and f"{path}/".startswith(f"{home}/") else path
