"""The user's pager: ``$PAGER``, else ``less``. It reads the text from an unnamed temporary file."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping

from dial_client.cli import process_runner
from dial_client.cli.load_settings import warn
from dial_client.cli.word_wrap import count_cells

_POLL = 0.2
"""Seconds between two calls of `check`."""
_PATIENCE = 1.0
"""Seconds that a pager may take to end after it was terminated."""


def find_pager(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of the pager; empty if there is none, or if ``PAGER`` is empty."""
    command = environment.get("PAGER")
    if command is not None:
        try:
            return [word.strip('"') for word in shlex.split(command, posix=sys.platform != "win32")]
        except ValueError:  # an unclosed quote: starting the command reports the error
            return [command]
    return [path for path in [shutil.which("less")] if path]


def is_longer(text: str, columns: int, rows: int) -> bool:
    """Return True if a text takes more rows than the screen has above the input line."""
    left = rows - 2
    for line in text.splitlines():
        left -= max(1, -(-count_cells(line) // max(1, columns)))
        if left < 0:
            return True
    return False


def page(text: str, check: Callable[[], None]) -> bool:
    """Show a text in the pager until the user leaves it; return False, with a warning, if the pager cannot start.

    ``LESSSECURE`` keeps `less` from starting other programs, because the text may come from a server.

    Args:
        text: The text, escaped already.
        check: Is called repeatedly; an exception that it raises ends the pager.
    """
    command = find_pager()
    environment = os.environ | {"LESSSECURE": "1"}
    with tempfile.TemporaryFile() as file, process_runner.interrupts.ignored():
        file.write(f"{text.rstrip()}\n".encode(errors="replace"))
        file.seek(0)
        try:
            process = subprocess.Popen(command, stdin=file, env=environment)
        except OSError as error:
            warn(f"the pager {command[0]} cannot be started: {error.strerror}; set PAGER to another program")
            return False
        with process:
            try:
                _wait(process, check)
            finally:
                _end(process)
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a pager that still runs; kill it if it does not end."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(process: subprocess.Popen[bytes], check: Callable[[], None]) -> None:
    while True:
        check()
        try:
            process.wait(_POLL)
        except subprocess.TimeoutExpired:
            continue
        return
