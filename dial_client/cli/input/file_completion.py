"""Completion of paths in mentions (``@path``): entries of a folder, and files anywhere below the working folder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dial_client.cli.input.file_mentions import build_mention
from dial_client.runtime.safe_text import to_one_line

# The maximum entries that a search below the working folder checks.
MAX_SCANNED = 5000
# The maximum number of proposed paths.
MAX_FOUND = 50
_SKIPPED = {"node_modules", "__pycache__", "venv", "site-packages", "target", "dist"}


@dataclass(frozen=True, slots=True)
class Proposal:
    """One completion."""

    text: str
    """The completed text, which replaces the last `replaced` characters."""
    replaced: int
    """The number of characters before the cursor to replace."""
    about: str = ""

    @property
    def is_safe(self) -> bool:
        """Whether the displayed form is the text itself, because a completed line is sent without a further look."""
        text = self.text.rstrip(" ")
        return text == to_one_line(text, len(text) + 1)


def propose_files(typed: str) -> list[Proposal]:
    """Return the completions of a path.

    Args:
        typed: The text between the ``@`` and the cursor.
    """
    quote = typed[:1] if typed[:1] in ('"', "'") else ""
    path = typed[1:] if quote else _unescape(typed)
    if path is None or (quote and quote in path):
        return []
    names = [*_find_in_folder(path)]
    if len(path) >= 2 and not re.search(r"[/\\~]", path):
        known = {name.rstrip("/") for name, _ in names}
        names += [(name, about) for name, about in _find_below(path) if name.rstrip("/") not in known]
    return [Proposal(_format_path(name, quote), len(typed), about) for name, about in names[:MAX_FOUND] if name != path]


def _unescape(typed: str) -> str | None:
    """Return the path of an unquoted mention; None if the mention ends before the cursor."""
    if sys.platform == "win32":
        return None if re.search(r"\s", typed) else typed
    return None if re.search(r"(?<!\\)\s", typed) else re.sub(r"\\(.)", r"\1", typed)


def _format_path(name: str, quote: str) -> str:
    """Return a path as it is written after the ``@``; the quote of a folder stays open."""
    if quote and not name.endswith("/"):
        return f"{quote}{name}{quote}"
    mention = f"{quote}{name}" if quote else build_mention(name)[1:]
    return mention.removesuffix('"') if name.endswith("/") else mention


def _find_in_folder(path: str) -> Iterator[tuple[str, str]]:
    """Yield the folder entries that begin with the last part of a path, each with its kind."""
    folder, prefix = os.path.split(path)
    try:
        entries = sorted(os.scandir(Path(folder or ".").expanduser()), key=lambda entry: entry.name.lower())
    except (OSError, ValueError, RuntimeError):
        return
    start = folder if folder.endswith(("/", "\\")) or not folder else f"{folder}/"
    for entry in entries:
        matches = entry.name.lower().startswith(prefix.lower())
        if matches and (not entry.name.startswith(".") or prefix.startswith(".")) and '"' not in entry.name:
            yield (f"{start}{entry.name}/", "folder") if entry.is_dir() else (f"{start}{entry.name}", "")


def _find_below(part: str) -> Iterator[tuple[str, str]]:
    """Yield files below the working folder whose name contains `part`; hidden and generated files are left out."""
    scanned = 0
    for folder, folders, files in os.walk("."):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        scanned += len(folders) + len(files)
        for name in sorted(files):
            if part.lower() in name.lower() and not name.startswith(".") and '"' not in name:
                yield Path(folder, name).as_posix(), ""
        if scanned > MAX_SCANNED:
            return
