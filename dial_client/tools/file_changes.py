"""Diffs of the file changes that a call would make; the old text is in the arguments, or in a file that can be read.

Arguments are recognized by the names that file tools commonly use. If a tool uses such a name for something else, the
approver can still show the original arguments with "view all".
"""

from __future__ import annotations

import difflib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dial_client.runtime.safe_text import escape_unseen
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.argument_paths import find_current_folder, lies_within

# Maximum size of a file that is compared, in bytes.
MAX_BYTES = 256 * 1024
# Maximum lines, from the first difference on, of each text in a comparison; longer texts would take too long.
MAX_LINES = 1_000
# The titles of a comparison with a file, and of one with no text, because there is no such file.
COMPARED, NEW = "compared with the file as it is", "new file"
# The title in place of a diff if the file has the lines already.
SAME = "no line changes: the file has these lines already"
# Unchanged lines shown around each change.
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
    """The lines of the diff, each with the mark of `difflib.unified_diff`: " ", "+", "-" or "@"; with none, the
    argument itself is shown too."""
    replaces: tuple[str, ...] = ()
    """The names of further arguments whose values the diff contains."""
    unchanged: int = 0
    """The number of unchanged lines that are not in `lines`, because they are too far from a change."""


@dataclass(frozen=True, slots=True)
class FileTexts:
    """A text in a file that a call would replace, for programs that draw the difference themselves."""

    path: str
    """The absolute path."""
    old: str | None
    """The text that is replaced; None for a new file."""
    new: str


def find_path(arguments: Mapping[str, Any], settings: ServerSettings | None) -> str | None:
    """Return the absolute path of the file that a call names; None if it names none."""
    path = next((arguments[name] for name in _PATHS if isinstance(arguments.get(name), str)), None)
    if not path or "\0" in path:
        return None
    folder = settings.cwd if settings is not None else None
    return str(Path(folder or find_current_folder(), path))


def find_file_texts(arguments: Mapping[str, Any], settings: ServerSettings | None) -> list[FileTexts]:
    """Return the texts that a call would replace in a file; a whole file is read where `find_changes` may read it."""
    path = find_path(arguments, settings)
    if path is None:
        return []
    pairs = [(before, after) for _, _, before, after in _find_pairs(arguments)]
    pairs += [pair for name, items in arguments.items() for pair in _compare_edits(name, items)[1]]
    if pairs:
        return [FileTexts(path, before, after) for before, after in pairs]
    name = next((name for name in _CONTENTS if isinstance(arguments.get(name), str)), None)
    found = _read(path, settings) if name is not None else None
    if name is None or found is None:
        return []
    old, title = found
    return [FileTexts(path, None if title == NEW else old, arguments[name])]


def find_changes(arguments: Mapping[str, Any], settings: ServerSettings | None) -> list[FileChange]:
    """Return the known changes that a call would make; reads the file that the arguments name.

    Args:
        arguments: The arguments of the call.
        settings: The server's entry. Files are read only in its working folder, its roots, the folders among its
            arguments, and the current folder.
    """
    pairs = list(_find_pairs(arguments))
    known = [
        (_compare(old, f"replaced by {new}", before, after, (new,)), [(before, after)])
        for old, new, before, after in pairs
    ]
    known += [_compare_edits(name, items) for name, items in arguments.items()]
    changes = [(change, replacements) for change, replacements in known if change is not None]
    path = next((arguments[name] for name in _PATHS if isinstance(arguments.get(name), str)), None)
    name = next((name for name in _CONTENTS if isinstance(arguments.get(name), str)), None)
    if path is None or not (changes or name) or (found := _read(path, settings)) is None:
        return [change for change, _ in changes]
    old, title = found
    if changes:
        return [_show_in_file(change, replacements, old) for change, replacements in changes]
    if name is None:
        return []
    before, after = _split(old, arguments[name])
    if title == COMPARED and before == after:
        return [FileChange(name, SAME, ())]
    change = _compare(name, title, old, arguments[name])
    return [] if change is None else [change]


def _show_in_file(change: FileChange, replacements: Sequence[tuple[str, str]], text: str) -> FileChange:
    """Return a change with the lines of the file around it; unchanged if the old texts do not occur exactly once."""
    after = text
    for old, new in replacements:
        if not old or after.count(old) != 1:
            return change
        after = after.replace(old, new)
    if (lines := diff(text, after)) is None:
        return change
    shown = {line[1:] for line in lines}
    left_out = sum(line not in shown for old, new in replacements for line in _split(old, new)[1])
    return replace(change, lines=tuple(lines), unchanged=left_out)


def names_same_file(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether changed arguments name the same file as before, in the arguments with common names for paths."""
    return all(before.get(name) == after.get(name) for name in _PATHS)


def _find_pairs(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for old, new in _PAIRS:
        before, after = arguments.get(old), arguments.get(new)
        if isinstance(before, str) and isinstance(after, str):
            yield old, new, before, after


def _compare(argument: str, title: str, before: str, after: str, replaces: tuple[str, ...] = ()) -> FileChange | None:
    """Return the change between two texts; None if the arguments should be shown instead."""
    lines = diff(before, after)
    if lines is None:
        return None
    # All lines of the new text that are not in the diff are unchanged.
    left_out = len(_split(before, after)[1]) - sum(line[0] in " +" for line in lines)
    return FileChange(argument, title, tuple(lines), replaces, left_out)


def find_edits(requested: Mapping[str, Any], edited: Mapping[str, Any]) -> list[FileChange]:
    """Return the arguments that the user has changed, compared with those that the model requested.

    Arguments that are too long to be compared are left out.
    """
    changes = (
        _compare(name, "changed by you", _to_text(requested[name]), _to_text(value))
        for name, value in edited.items()
        if name in requested
    )
    return [change for change in changes if change is not None]


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _compare_edits(name: str, items: Any) -> tuple[FileChange | None, list[tuple[str, str]]]:
    """Return the change of a list of edits, with the edits; None as the change if the argument is no such list."""
    if not isinstance(items, list) or not items or not all(isinstance(item, Mapping) for item in items):
        return None, []
    lines: list[str] = []
    edits: list[tuple[str, str]] = []
    unchanged = 0
    for item in items:
        pairs = list(_find_pairs(item))
        # An edit with a further field may do more than the diff shows, so the user sees the arguments themselves.
        if len(pairs) != 1 or len(item) != 2 or (change := _compare(name, "", *pairs[0][2:])) is None:
            return None, []
        edits.append(pairs[0][2:])
        lines += [*(["@"] if lines else []), *change.lines]
        unchanged += change.unchanged
    title = f"{len(items):,} {'replacement' if len(items) == 1 else 'replacements'}"
    return FileChange(name, title, tuple(lines), unchanged=unchanged), edits


def _split(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the lines of both texts, with invisible characters written out.

    If both texts end in a line break, it is removed; if only one does, it counts as the start of an empty line.
    """
    ends = all(text.endswith("\n") for text in (old, new) if text)
    before, after = ((escape_unseen(text).removesuffix("\n") if ends else escape_unseen(text)) for text in (old, new))
    return before.split("\n") if old else [], after.split("\n") if new else []


def diff(old: str, new: str) -> list[str] | None:
    """Return the lines of a diff, with invisible characters written out.

    None if it would be too long, or if there is no difference, because an empty diff would hide the text.
    """
    before, after = _split(old, new)
    if before == after:
        return None
    shorter = min(len(before), len(after))
    pairs = enumerate(zip(before, after, strict=False))
    start = next((index for index, pair in pairs if pair[0] != pair[1]), shorter)
    ends = zip(reversed(before[start:]), reversed(after[start:]), strict=False)
    end = next((index for index, pair in enumerate(ends) if pair[0] != pair[1]), shorter - start)
    start, end = max(0, start - CONTEXT), max(0, end - CONTEXT)
    before, after = before[start : len(before) - end], after[start : len(after) - end]
    if max(len(before), len(after)) > MAX_LINES:
        return None
    # The first three lines are the headers of the diff and of its first part. The numbers in those of further parts
    # would count from `start`.
    _, _, _, *lines = difflib.unified_diff(before, after, n=CONTEXT, lineterm="")
    return ["@" if line.startswith("@@") else line for line in lines]


def _read(path: str, settings: ServerSettings | None) -> tuple[str, str] | None:
    """Return the text of a file in the folders of the server, and the title of a comparison with this text.

    The text is empty if there is no such file. The result is None if the file must not or cannot be read.
    """
    working_folder = settings.cwd if settings is not None else None
    bases = [working_folder or find_current_folder()]
    folders = [*bases, find_current_folder()]
    if settings is not None:
        folders += [root for root in settings.roots or () if os.path.isabs(root)]  # noqa: PTH117 - texts are compared
        folders += [path for path in settings.args if Path(path).is_absolute() and Path(path).is_dir()]
    try:
        # The model chose the path: only files that the server may read anyway are shown at the question.
        if not lies_within(path, [folder for folder in folders if folder], bases):
            return None
        file = Path(bases[0], path)
        status = file.stat()
        # A device or a pipe might block the question, or be changed by reading it.
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            return None
        old = file.read_bytes()[:MAX_BYTES].decode("utf-8").replace("\r\n", "\n")
    except FileNotFoundError:
        return "", NEW
    except (OSError, ValueError):
        return None
    return old, COMPARED
