"""Copies a text to the clipboard: with a program, or through the terminal (OSC 52), which also works over ssh."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TextIO

MAX_TERMINAL_BYTES = 74_994
"""The maximum bytes of a text for OSC 52: xterm accepts 100,000 characters of Base64 and escape sequence."""
_TIMEOUT = 5.0
"""Timeout of a clipboard program in seconds."""


def copy(text: str, environment: Mapping[str, str], terminal: TextIO) -> str:
    """Copy a text, and return in a few words how it was copied; empty if it cannot be copied.

    Args:
        text: The text to copy.
        environment: The environment variables, which show the available clipboards.
        terminal: The terminal, which gets the text if no clipboard program works, as over ssh.
    """
    for command in find_programs(environment):
        if _run(command, text):
            return f"by {command[0]}"
    data = text.encode(errors="replace")
    if len(data) > MAX_TERMINAL_BYTES or environment.get("TERM", "dumb") == "dumb" or not terminal.isatty():
        return ""
    terminal.write(to_osc52(data, environment))
    terminal.flush()
    return "through the terminal, if it allows that (OSC 52)"


def find_programs(environment: Mapping[str, str]) -> list[list[str]]:
    """Return the commands that set a clipboard here, the most likely first; over ssh only the command of tmux."""
    candidates: list[list[str]] = []
    if environment.get("TMUX"):
        # tmux ignores OSC 52 of programs by default; with -w it passes the text on to its own terminal.
        candidates.append(["tmux", "load-buffer", "-w", "-"])
    if not environment.get("SSH_CONNECTION"):
        if sys.platform == "darwin":
            candidates.append(["pbcopy"])
        if sys.platform == "win32" or environment.get("WSL_DISTRO_NAME"):
            candidates.append(["clip.exe"])
        if environment.get("WAYLAND_DISPLAY"):
            candidates.append(["wl-copy"])
        if environment.get("DISPLAY"):
            candidates += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
        if environment.get("TERMUX_VERSION"):
            candidates.append(["termux-clipboard-set"])
    return [command for command in candidates if shutil.which(command[0])]


def to_osc52(data: bytes, environment: Mapping[str, str]) -> str:
    """Return the escape sequence that sets the clipboard of the terminal."""
    sequence = f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"
    if environment.get("STY"):  # GNU screen passes on a sequence that is wrapped in short pieces
        pieces = (sequence[at : at + 250] for at in range(0, len(sequence), 250))
        return "".join(f"\x1bP{piece}\x1b\\" for piece in pieces)
    return sequence


def _run(command: list[str], text: str) -> bool:
    """Run a clipboard program. Its output is not read, because `xclip` and `wl-copy` stay in the background."""
    encoding = "utf-16" if command[0] == "clip.exe" else "utf-8"
    try:
        done = subprocess.run(
            command,
            input=text.encode(encoding, errors="replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def find_terminal() -> TextIO:
    """Return the stream of the terminal, even while a screen redirects `sys.stdout`."""
    return sys.__stdout__ or sys.stdout


def read_environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ
