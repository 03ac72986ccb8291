"""What a call would change in a file, as a diff: the old text is among the arguments, or in a file that can be read.

The names of the arguments are those of the usual tools for files; a tool that means something else by them is shown
with its arguments as they are behind "view all".
"""

from __future__ import annotations

import difflib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dial_client.settings.config_types import ServerSettings
from dial_client.text.safe_text import visible
from dial_client.tools.argument_paths import current_folder, lies_within

MAX_BYTES = 256 * 1024
"""Of a file that is compared."""
MAX_LINES = 1_000
"""Lines that differ, before and after; more are not compared, because that would take long."""
CONTEXT = 3
_PATHS = ("path", "file_path", "filePath", "filepath", "file", "filename", "file_name", "target_file", "relative_path")
_CONTENTS = ("content", "contents", "text", "file_text", "new_content")
_PAIRS = (
    *(("oldText", "newText"), ("old_text", "new_text"), ("old_string", "new_string"), ("oldString", "newString")),
    *(("old_str", "new_str"), ("search", "replace")),
)


@dataclass(frozen=True, slots=True)
class FileChange:
    """A diff that is shown in place of an argument."""

    argument: str
    title: str
    lines: tuple[str, ...]
    """As `difflib.unified_diff` marks them: " ", "+", "-" or "@" before each line."""
    replaces: tuple[str, ...] = ()
    """Further arguments that it shows."""
    unchanged: int = 0
    """Unchanged lines of the arguments that are too far from a change to be among the lines."""


def find_changes(arguments: Mapping[str, Any], settings: ServerSettings | None) -> list[FileChange]:
    """Return the changes that a call would make, as far as they are known. Reads the file that is named.

    Args:
        arguments: of the call.
        settings: of the server; files are read in its roots, in the folders among its arguments, and in the
            current folder.
    """
    changes = [change for pair in _find_pairs(arguments) if (change := _compare(*pair)) is not None]
    changes += [change for name, items in arguments.items() if (change := _compare_edits(name, items)) is not None]
    path = next((arguments[name] for name in _PATHS if isinstance(arguments.get(name), str)), None)
    name = next((name for name in _CONTENTS if isinstance(arguments.get(name), str)), None)
    if not changes and path is not None and name is not None and (old := _read(path, settings)) is not None:
        lines = diff(old, arguments[name])
        if lines is not None:
            unchanged = _count_left_out(old, arguments[name], lines)
            changes.append(FileChange(name, "compared with the file as it is", tuple(lines), unchanged=unchanged))
    return changes


def names_same_file(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return True if changed arguments name the same file as before, by the usual names of such arguments."""
    return all(before.get(name) == after.get(name) for name in _PATHS)


def _find_pairs(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for old, new in _PAIRS:
        before, after = arguments.get(old), arguments.get(new)
        if isinstance(before, str) and isinstance(after, str):
            yield old, new, before, after


def _compare(old: str, new: str, before: str, after: str) -> FileChange | None:
    """Return the change of a replacement; None if the arguments themselves are to be shown."""
    lines = diff(before, after)
    if lines is None:
        return None
    return FileChange(old, f"replaced by {new}", tuple(lines), (new,), _count_left_out(before, after, lines))


def find_edits(asked: Mapping[str, Any], edited: Mapping[str, Any]) -> list[FileChange]:
    """Return the arguments that a person has changed, beside those that the model asked for.

    One that is too long to be compared is missing.
    """
    texts = [(name, _to_text(asked[name]), _to_text(value)) for name, value in edited.items() if name in asked]
    compared = ((name, before, after, diff(before, after)) for name, before, after in texts)
    return [
        FileChange(name, "changed by you", tuple(lines), unchanged=_count_left_out(before, after, lines))
        for name, before, after, lines in compared
        if lines is not None
    ]


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _compare_edits(name: str, items: Any) -> FileChange | None:
    """Return the change of a list of edits; None if an argument is none."""
    if not isinstance(items, list) or not items or not all(isinstance(item, Mapping) for item in items):
        return None
    lines: list[str] = []
    unchanged = 0
    for item in items:
        pairs = list(_find_pairs(item))
        if len(pairs) != 1 or len(item) != 2:
            return None
        before, after = pairs[0][2:]
        compared = diff(before, after)
        if compared is None:
            return None
        lines += [*(["@"] if lines else []), *compared]
        unchanged += _count_left_out(before, after, compared)
    title = f"{len(items):,} {'replacement' if len(items) == 1 else 'replacements'}"
    return FileChange(name, title, tuple(lines), unchanged=unchanged)


def _count_left_out(old: str, new: str, lines: Sequence[str]) -> int:
    """Return how many lines of the new text are not among the lines of its diff: each of them is unchanged."""
    return len(_split(old, new)[1]) - sum(line[0] in " +" for line in lines)


def _split(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the lines of both texts, with invisible characters written out.

    A line break at the end of a text begins an empty line only where the other text does not end in one.
    """
    ends = all(text.endswith("\n") for text in (old, new) if text)
    before, after = ((visible(text).removesuffix("\n") if ends else visible(text)) for text in (old, new))
    return before.split("\n") if old else [], after.split("\n") if new else []


def diff(old: str, new: str) -> list[str] | None:
    """Return the lines of a diff, with invisible characters written out.

    None if it would be too long, and if there is no difference: then it would hide the text.
    """
    before, after = _split(old, new)
    start = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
    if before == after:
        return None
    start = max(0, start - CONTEXT)
    if max(len(before), len(after)) - start > MAX_LINES:
        return None
    lines = difflib.unified_diff(before[start:], after[start:], n=CONTEXT, lineterm="")
    found = [line for at, line in enumerate(lines) if at > 1 and not line.startswith("@@")]
    return found or None


def _read(path: str, settings: ServerSettings | None) -> str | None:
    """Return the text of a file that the server may be meant to change; None if it is not to be read."""
    own = settings.cwd if settings is not None else None
    bases = [own or current_folder()]
    folders = [*bases, current_folder(), *_server_folders(settings)]
    try:
        if not lies_within(path, [folder for folder in folders if folder], bases):
            return None
        file = Path(bases[0], path)
        found = file.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            return None
        return file.read_bytes()[:MAX_BYTES].decode("utf-8").replace("\r\n", "\n")
    except (OSError, ValueError):
        return None


def _server_folders(settings: ServerSettings | None) -> Sequence[str]:
    if settings is None:
        return ()
    roots = [root for root in settings.roots or () if os.path.isabs(root)]  # noqa: PTH117 - texts are compared
    return [
        *roots,
        *(argument for argument in settings.args if Path(argument).is_absolute() and Path(argument).is_dir()),
    ]
