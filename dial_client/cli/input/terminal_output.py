"""Runs a program in a pseudo-terminal connected to the terminal, and keeps a copy of its output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from dial_client.runtime.safe_text import sanitize

MAX_KEPT = 1_000_000
"""The maximum bytes of an output that are kept, from its end."""
MAX_REST = 65_536
"""The maximum bytes that are read after the program has ended: they hold its last output, and the limit stops the
output of programs that it left in the background."""
_POLL = 0.2
"""Seconds between two checks of the terminal's size."""
_OPEN_TERMINAL = 'exec 0<>"$1" 1>&0 2>&0; shift; exec "$@"'
"""A shell script that makes a pseudo-terminal the controlling terminal of a new session by opening it."""


def to_plain_text(output: bytes) -> str:
    """Return an output as the screen finally shows it: without colours and overwritten progress."""
    text = output.decode(errors="replace").replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return sanitize("\n".join(lines)).strip("\n")


def run_in_this_terminal(arguments: list[str], check: Callable[[], None]) -> tuple[int, bytes]:
    """Run a program to its end, and return its exit code and the end of its output.

    If there is a terminal, the program runs in a pseudo-terminal, and only the program gets Ctrl-C. On Windows, and
    without a terminal, the program writes into a pipe.

    Args:
        arguments: The name of the program, and its arguments.
        check: Is called repeatedly; an exception that it raises ends the program.
    """
    if sys.platform == "win32" or not os.isatty(0):
        code, output = _run_with_pipe(arguments)
    else:
        code, output = _run_with_pseudo_terminal(arguments, check)
    if output and not output.endswith(b"\n"):
        _show(b"\n", bytearray())
    return code, output


def _run_with_pipe(arguments: list[str]) -> tuple[int, bytes]:
    kept = bytearray()
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        while data := os.read(process.stdout.fileno(), 65536):
            _show(data, kept)
    return process.returncode, bytes(kept)


def _show(data: bytes, kept: bytearray) -> None:
    kept += data
    del kept[:-MAX_KEPT]
    with suppress(OSError):
        while data:
            data = data[os.write(1, data) :]


if sys.platform != "win32":
    import select
    import termios
    import tty

    def _run_with_pseudo_terminal(arguments: list[str], check: Callable[[], None]) -> tuple[int, bytes]:
        ours, theirs = os.openpty()
        terminal_modes, size = termios.tcgetattr(0), termios.tcgetwinsize(0)
        kept = bytearray()
        try:
            termios.tcsetattr(theirs, termios.TCSANOW, terminal_modes)
            termios.tcsetwinsize(theirs, size)
            process = subprocess.Popen(
                ["/bin/sh", "-c", _OPEN_TERMINAL, "sh", os.ttyname(theirs), *arguments],
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
            with process:
                try:
                    tty.setraw(0)
                    _copy(ours, process, kept, check)
                finally:
                    if process.poll() is None:
                        process.kill()
            return process.returncode, bytes(kept)
        finally:
            with suppress(OSError, termios.error):  # the terminal may be gone
                termios.tcsetattr(0, termios.TCSADRAIN, terminal_modes)
            os.close(ours)
            os.close(theirs)

    def _copy(
        pseudo_terminal: int, process: subprocess.Popen[bytes], kept: bytearray, check: Callable[[], None]
    ) -> None:
        """Copy keys to the program and its output to the terminal, until the program has ended."""
        size, has_keys, rest = termios.tcgetwinsize(0), True, MAX_REST
        while True:
            check()
            is_running = process.poll() is None
            wait_for = [pseudo_terminal, 0] if has_keys else [pseudo_terminal]
            readable, _, _ = select.select(wait_for, [], [], _POLL if is_running else 0)
            if pseudo_terminal in readable:
                data = os.read(pseudo_terminal, 65536)
                _show(data, kept)
                rest -= 0 if is_running else len(data)
            elif not is_running:
                return
            if rest <= 0:
                return
            if 0 in readable:
                keys = os.read(0, 1024)
                has_keys = bool(keys)
                os.write(pseudo_terminal, keys)
            if size != (size := termios.tcgetwinsize(0)):
                termios.tcsetwinsize(pseudo_terminal, size)
