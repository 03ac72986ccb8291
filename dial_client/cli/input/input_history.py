"""The history of the input line: one file for all runs, with entries of several lines."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from prompt_toolkit.history import History

MAX_ENTRIES = 2000
"""The maximum number of entries that are offered, the latest first."""
MAX_READ = 2 * 1024 * 1024
"""The maximum bytes that are read from the end of the file."""
MAX_ENTRY = 20_000
"""The maximum characters of a stored entry; a longer entry is offered in this run only."""


class InputHistory(History):
    """A history without lines that begin with a space, and without repeated lines.

    The file has the format of `prompt_toolkit.history.FileHistory`.

    Args:
        path: The file; None to keep the entries of this run only.
        stored: Converts an entry to the text to store; an empty text is not stored.
    """

    def __init__(self, path: Path | None, stored: Callable[[str], str] = str) -> None:
        super().__init__()
        self._path = path
        self._stored = stored

    def append_string(self, string: str) -> None:
        """Add an entry, unless it begins with a space or repeats the latest one."""
        if string.strip() and not string.startswith(" ") and self._loaded_strings[:1] != [string]:
            super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        """Return the stored entries, the latest first, each once."""
        return list(dict.fromkeys(reversed(_parse(self._read_tail()))))[:MAX_ENTRIES]

    def store_string(self, string: str) -> None:
        """Append an entry to the file, which only its owner can read. Errors of the file system are ignored."""
        text = self._stored(string)
        if self._path is None or not text or len(text) > MAX_ENTRY:
            return
        lines = "".join(f"+{line}\n" for line in text.split("\n"))
        entry = f"\n# {datetime.now().astimezone().isoformat(' ', 'seconds')}\n{lines}"
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with open(descriptor, "ab") as file:  # noqa: PTH123 - opens a file descriptor
                file.write(entry.encode(errors="replace"))

    def _read_tail(self) -> str:
        """Return the last part of the file, from the beginning of an entry."""
        if self._path is None:
            return ""
        try:
            with self._path.open("rb") as file:
                start = max(0, file.seek(0, os.SEEK_END) - MAX_READ)
                file.seek(start)
                text = file.read(MAX_READ).decode(errors="replace")
        except OSError:
            return ""
        return text if start == 0 else text[max(text.find("\n#"), 0) :]


def _parse(text: str) -> list[str]:
    """Return the entries, the oldest first: runs of lines that begin with ``+``."""
    runs = re.findall(r"(?:^\+.*(?:\n|\Z))+", text, re.MULTILINE)
    return ["\n".join(line[1:] for line in run.removesuffix("\n").split("\n")) for run in runs]
