"""The user's editor: ``$VISUAL``, else ``$EDITOR``, else a common editor."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dial_client.cli import process_runner
from dial_client.cli.load_settings import warn

_USUAL = ("notepad.exe",) if sys.platform == "win32" else ("editor", "nano", "vi")


def find_editor(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command of the editor, without the file; empty if no editor is found."""
    for name in ("VISUAL", "EDITOR"):
        command = environment.get(name, "").strip()
        if command:
            # On Windows a backslash separates folders.
            try:
                words = shlex.split(command, posix=sys.platform != "win32")
            except ValueError:  # an unclosed quote: starting the command reports the error
                return [command]
            return [word.strip('"') for word in words]
    return [path for path in map(shutil.which, _USUAL) if path][:1]


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
