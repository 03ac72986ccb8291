"""Line input on a terminal without cursor movement (`TERM=dumb`): the terminal itself edits and echoes the line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TextIO

import anyio

from dial_client.cli import process_runner

MAX_BYTES = 4096
"""The maximum size of a line in bytes, which POSIX terminals enforce."""


def can_move_cursor() -> bool:
    """Return False for a terminal that cannot move its cursor, such as one inside an editor."""
    return sys.platform == "win32" or os.environ.get("TERM", "") not in ("", "dumb", "unknown")


async def read_line(prompt: str, output: TextIO, *, hidden: bool = False) -> str:
    """Return the next line, without its line break.

    Args:
        prompt: The text to print before the line.
        output: The stream of the terminal to write to.
        hidden: Do not echo the typed characters.

    Raises:
        EOFError: Ctrl-D in an empty line.
        KeyboardInterrupt: Ctrl-C.
    """
    output.write(prompt)
    output.flush()
    keyboard = sys.stdin.fileno()
    received = b""
    with _without_echo(keyboard, output) if hidden else nullcontext():
        while not received.endswith(b"\n"):
            with process_runner.interrupts.scope() as scope:
                await anyio.wait_readable(keyboard)
            if scope.cancelled_caught:
                output.write("\n")
                raise KeyboardInterrupt
            data = os.read(keyboard, MAX_BYTES)
            if not data:
                output.write("\n")
                if not received:
                    raise EOFError
                break  # Ctrl-D twice after some text, or the terminal was closed
            received += data
    return received.decode(errors="replace").rstrip("\r\n")


async def read_sent_line() -> str | None:
    """Return the next line of the terminal, without its line break; None for Ctrl-D. No prompt is printed."""
    keyboard = sys.stdin.fileno()
    await anyio.wait_readable(keyboard)
    data = os.read(keyboard, MAX_BYTES)
    return data.decode(errors="replace").rstrip("\r\n") if data else None


@contextmanager
def _without_echo(keyboard: int, output: TextIO) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    import termios

    terminal_modes = termios.tcgetattr(keyboard)
    silent = [*terminal_modes]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(keyboard, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, terminal_modes)
        output.write("\n")
        output.flush()
