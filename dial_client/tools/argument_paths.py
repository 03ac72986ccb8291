"""Paths in the arguments of a call, and whether they are inside given folders.

Servers interpret the same text as different files: they may resolve ``..`` before or after symbolic links, expand
``~``, decode a ``file:`` URI, or do none of this. A path is therefore checked in all these interpretations. An allow
rule matches only if every interpretation is inside the folder; a restriction matches if any interpretation is. Hard
links, and links that change between the decision and the call, are not detected.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

MAX_PATH = 8192
"""Maximum characters of a path that any system opens; Linux accepts 4096."""
MAX_DECODED = 4
"""Maximum number of times that percent-encoding is decoded."""

_FILE_URI = re.compile(r"file:", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""The scheme of a URI (RFC 3986, 3.1), or the host of ``host:path``. A single letter is a drive instead."""
_GLOB = re.compile(r"[*?\[]")
_AROUND = " \t\r\n\"'"


def find_current_folder() -> str:
    """Return the working folder of the host; empty if it has been deleted."""
    try:
        return os.getcwd()  # noqa: PTH109 - a text
    except OSError:
        return ""


def lies_within(value: Any, folders: Iterable[str], bases: Iterable[str]) -> bool:
    """Return whether a value consists of one or more paths that are certainly inside one of the folders.

    Args:
        value: The value of an argument, in JSON types. Every text in a list or an object has to be such a path.
        folders: Absolute paths; ``*`` and ``?`` match parts of a name, ``**`` matches any number of folders.
        bases: The absolute folders against which a relative path may be resolved; if empty, no relative path is inside
            a folder.
    """
    texts, folders, bases = list(_walk(value)), tuple(folders), tuple(bases)
    return bool(texts) and all(isinstance(text, str) and _is_within(text, folders, bases) for text in texts)


def may_reach(value: Any, folders: Iterable[str], bases: Iterable[str]) -> bool:
    """Return whether a value may be or contain a path into one of the folders. The arguments are as in `lies_within`.

    Case is ignored, and a path that cannot be resolved counts as a path into every folder.
    """
    folders, bases = tuple(folders), tuple(bases)
    return any(isinstance(text, str) and _may_reach(text, folders, bases) for text in _walk(value))


def _walk(value: Any) -> Iterator[Any]:
    """Yield the values within lists and objects, including the keys of objects."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            pending += [*current, *current.values()]
        elif isinstance(current, list | tuple):
            pending += current
        else:
            yield current


def _is_within(text: str, folders: tuple[str, ...], bases: tuple[str, ...]) -> bool:
    text = text.strip(_AROUND)
    is_uri = _FILE_URI.match(text) is not None
    if not text or len(text) > MAX_PATH or (_SCHEME.match(text) and not is_uri):
        return False
    readings = _find_readings(text)
    if is_uri and ".." not in re.split(r"[/\\]", unquote(text)) and "%" not in unquote(text):
        readings = {reading for reading in readings if not _FILE_URI.match(reading)}  # not a file name for any server
    paths = [_to_absolute(reading, bases) for reading in readings]
    try:
        places = {place for path in set().union(*paths) for place in _find_places(path)}
        allowed = [variant for folder in folders for variant in _find_variants(folder)]
    except (OSError, ValueError):
        return False
    return all(paths) and bool(places) and all(any(_is_in(place, folder) for folder in allowed) for place in places)


def _may_reach(text: str, folders: tuple[str, ...], bases: tuple[str, ...]) -> bool:
    try:
        paths = {path for reading in _find_readings(text) for path in _to_absolute(reading, bases)}
        places = {place for path in paths for place in _find_places(path)}
        forbidden = [variant for folder in folders for variant in _find_variants(folder)]
    except (OSError, ValueError):
        return True
    if any(_is_in(_fold(place), _fold(folder)) for place in places for folder in forbidden):
        return True
    identities = {found for folder in forbidden if not _GLOB.search(folder) for found in _find_identity(folder)}
    return bool(identities) and any(_is_below(place, identities) for place in places)


def _find_readings(text: str) -> set[str]:
    """Return the paths that a server may understand by a text."""
    if len(text) > MAX_PATH:  # a server that resolves ``..`` itself may shorten the path
        long = [text, unquote(text), *(_from_uri(text[uri.start() :]) for uri in [_FILE_URI.search(text)] if uri)]
        shorter = [os.path.normpath(path) for path in long]
        return {reading for path in shorter if len(path) <= MAX_PATH for reading in _find_readings(path)}
    found = {text, text.strip(_AROUND)}
    uris = [uri.start() for uri in _FILE_URI.finditer(text)]
    found |= {_from_uri(text[at:]) for at in (*uris[:1], *uris[-1:])}  # also within another URI: ``jar:file:/…``
    found |= {unquote(text[at + len("file:") :]) for at in uris[:1]}
    for path in tuple(found):
        decoded = path
        for _ in range(MAX_DECODED):
            found.add(decoded := unquote(decoded))
    found |= {path.replace("\\", "/") for path in found}
    found |= {os.path.expandvars(path) for path in found}
    found |= {os.path.expanduser(path) for path in found}  # noqa: PTH111 - Path.expanduser raises for unknown users
    return {path for path in found if path}


def _from_uri(uri: str) -> str:
    """Return the path of a file URI (RFC 8089), whatever host it names."""
    from urllib.request import url2pathname

    return url2pathname(re.sub(r"^//[^/\\]*", "", uri[len("file:") :]))


def _to_absolute(path: str, bases: tuple[str, ...]) -> set[str]:
    """Return the absolute path for each folder against which it may be resolved."""
    if os.path.isabs(path):  # noqa: PTH117 - texts are compared
        return {path}
    return {os.path.join(base, path) for base in bases if base}  # noqa: PTH118 - ``..`` and ``//`` stay


def _find_places(path: str) -> set[str]:
    """Return the targets of a path: normalized as text, and with links resolved before and after ``..``."""
    lexical = os.path.normpath(path)
    resolved = {os.path.realpath(written) for written in (path, lexical) if len(written) <= MAX_PATH}
    return {_normalize(place) for place in (lexical, *resolved)}


def _find_variants(folder: str) -> set[str]:
    """Return a folder as written and with its links resolved; in a glob only links before the first wildcard."""
    parts = PurePath(folder).parts
    fixed = next((at for at, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    if not fixed:
        return {_normalize(folder)}
    head, tail = os.path.join(*parts[:fixed]), parts[fixed:]  # noqa: PTH118
    return {_normalize(os.path.join(place, *tail)) for place in _find_places(head)}  # noqa: PTH118


def _normalize(path: str) -> str:
    """Return a path in its form for comparisons; on POSIX systems ``//etc`` becomes ``/etc``."""
    return re.sub(r"^//+", "/", path) if sys.platform != "win32" else os.path.normcase(path)


def _is_in(path: str, folder: str) -> bool:
    """Return whether a path is the folder or inside it; neither may contain ``..``."""
    parts, pattern = PurePath(path).parts, PurePath(folder).parts
    return _is_matched(parts, pattern) if _GLOB.search(folder) else parts[: len(pattern)] == pattern


def _is_matched(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether the first parts of a path match a pattern."""
    reached = _skip_wildcards({0}, pattern)
    for part in parts:
        if len(pattern) in reached:
            return True
        stays = {at for at in reached if pattern[at] == "**"}
        ahead = {at + 1 for at in reached - stays if part == pattern[at] or fnmatchcase(part, pattern[at])}
        reached = _skip_wildcards(stays | ahead, pattern)
    return len(pattern) in reached


def _skip_wildcards(reached: set[int], pattern: tuple[str, ...]) -> set[int]:
    """Add the positions in a pattern that are reached if ``**`` matches no folder."""
    for at, part in enumerate(pattern):
        if part == "**" and at in reached:
            reached.add(at + 1)
    return reached


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _find_identity(path: str) -> Iterator[tuple[int, int]]:
    """Yield the device and inode of a file or folder; nothing if there is none."""
    with suppress(OSError, ValueError):
        found = os.stat(path)  # noqa: PTH116 - a text
        yield found.st_dev, found.st_ino


def _is_below(place: str, identities: set[tuple[int, int]]) -> bool:
    """Return whether a path is one of the folders or inside one, even under a mounted or shortened name."""
    if len(place) > MAX_PATH:
        return False
    return any(
        found in identities for folder in (place, *PurePath(place).parents) for found in _find_identity(str(folder))
    )
