"""The user's editor (``$VISUAL``, else ``$EDITOR``, else a common one) and pager (``$PAGER``, else ``less``)."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import anyio

from dial_client.cli.streams import process_runner
from dial_client.cli.streams.error_stream import warn
from dial_client.cli.streams.word_wrap import count_cells

_USUAL = ("notepad.exe",) if sys.platform == "win32" else ("editor", "nano", "vi")


def find_editor(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of the editor, without the file; empty if no editor is found."""
    for name in ("VISUAL", "EDITOR"):
        command = environment.get(name, "").strip()
        if command:
            return _split(command)
    return [path for path in map(shutil.which, _USUAL) if path][:1]


def _split(command: str) -> list[str]:
    """Return the words of a command. On Windows a backslash separates folders."""
    try:
        return [word.strip('"') for word in shlex.split(command, posix=sys.platform != "win32")]
    except ValueError:  # an unclosed quote: starting the command reports the error
        return [command]


def edit(text: str) -> str | None:
    """Return the text as the user saved it in an editor; None, with a warning, if that failed."""
    command = find_editor()
    if not command:
        warn("there is no editor: set VISUAL or EDITOR to the name of a program")
        return None
    with tempfile.TemporaryDirectory(prefix="dial-chat-") as folder:
        file = Path(folder, "message.md")
        file.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        try:
            with process_runner.interrupts.ignored():
                code = subprocess.run([*command, str(file)], check=False).returncode
            edited = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            warn(
                f"the editor {command[0]} cannot be started: {error.strerror}; set VISUAL or EDITOR to another program"
            )
            return None
    if code:
        warn(f"the editor {command[0]} ended with exit code {code}: the text is not changed")
        return None
    return edited.removesuffix("\n")


# Seconds that a pager may take to end after it was terminated.
_PATIENCE = 1.0


def find_pager(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of the pager; empty if there is none, or if ``PAGER`` is empty."""
    command = environment.get("PAGER")
    return [path for path in [shutil.which("less")] if path] if command is None else _split(command)


def is_longer(text: str, columns: int, rows: int) -> bool:
    """Return True if a text takes more rows than the screen has above the input line."""
    taken = (max(1, -(-count_cells(line) // max(1, columns))) for line in text.splitlines())
    return sum(taken) > rows - 2


async def page(text: str) -> bool:
    """Show a text in the pager until the user leaves it; return False, with a warning, if the pager cannot start.

    ``LESSSECURE`` keeps `less` from starting other programs, because the text, escaped already, may come from a server.
    """
    command = find_pager()
    environment = {"LESS": "-R"} | os.environ | {"LESSSECURE": "1"}  # -R shows colours
    with tempfile.TemporaryFile() as file, process_runner.interrupts.ignored():
        file.write(f"{text.rstrip()}\n".encode(errors="replace"))
        file.seek(0)
        try:
            process = await anyio.open_process(command, stdin=file, stdout=None, stderr=None, env=environment)
        except OSError as error:
            warn(f"the pager {command[0]} cannot be started: {error.strerror}; set PAGER to another program")
            return False
        async with process:  # kills a pager that has not ended
            try:
                await process.wait()
            finally:
                with suppress(ProcessLookupError), anyio.move_on_after(_PATIENCE, shield=True):
                    process.terminate()
                    await process.wait()
    return True
