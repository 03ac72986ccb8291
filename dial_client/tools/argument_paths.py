"""Paths in the arguments of a call, and whether they are inside given folders.

Servers interpret the same text as different files: they may resolve ``..`` before or after symbolic links, expand
``~``, decode a ``file:`` URI, or do none of this. A path is therefore checked in all these interpretations (readings).
An allow rule matches only if every reading is inside the folder; a restriction matches if any reading is. Hard links,
and links that change between the decision and the call, are not detected.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

from dial_client.runtime.lazy_pattern import compile_lazily

# Maximum characters of a path that any system opens; Linux accepts 4096.
MAX_PATH = 8192
# Maximum number of times that percent-encoding is decoded.
MAX_DECODED = 4

_FILE_URI = compile_lazily(r"file:", re.IGNORECASE)
# The scheme of a URI (RFC 3986, 3.1), or the host of ``host:path``. A single letter is a drive instead.
_SCHEME = compile_lazily(r"[A-Za-z][A-Za-z0-9+.-]+:")
_GLOB = compile_lazily(r"[*?\[]")
# Characters that servers may strip from both ends of a path.
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
    texts, folders, bases = list(walk_values(value)), tuple(folders), tuple(bases)
    # A value without any text (an empty list) proves nothing, so an allow rule must not match it.
    return bool(texts) and all(isinstance(text, str) and _is_within(text, folders, bases) for text in texts)


def may_reach(value: Any, folders: Iterable[str], bases: Iterable[str]) -> bool:
    """Return whether a value may be or contain a path into one of the folders. The arguments are as in `lies_within`.

    Case is ignored, and a path that cannot be resolved counts as a path into every folder.
    """
    folders, bases = tuple(folders), tuple(bases)
    return any(isinstance(text, str) and _may_reach(text, folders, bases) for text in walk_values(value))


def walk_values(value: Any) -> Iterator[Any]:
    """Yield the values within lists and objects, including the keys of objects: a server may read a path from a key."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, Mapping):
            pending += [*current, *current.values()]
        elif isinstance(current, list | tuple):
            pending += current
        else:
            yield current


def _is_within(text: str, folders: tuple[str, ...], bases: tuple[str, ...]) -> bool:
    """Return whether a text is certainly a path inside one of the folders: each doubt makes it False."""
    text = text.strip(_AROUND)
    is_file_uri = _FILE_URI.match(text) is not None
    # Another scheme than `file:` (`http://…`, `host:path`) names no file of this machine, or one that is not known.
    if not text or len(text) > MAX_PATH or (_SCHEME.match(text) and not is_file_uri):
        return False
    readings = _find_readings(text)
    decoded = unquote(text)
    if is_file_uri and "%" not in decoded and ".." not in re.split(r"[/\\]", decoded):
        # No server takes a whole URI as a file name. Only if it hides `..` or further encoding is it kept as a reading.
        readings = {reading for reading in readings if not _FILE_URI.match(reading)}
    paths: set[str] = set()
    for reading in readings:
        absolute = _to_absolute(reading, bases)
        # A relative reading whose base is unknown could be anywhere.
        if not absolute:
            return False
        paths |= absolute
    try:
        targets = {target for path in paths for target in _find_targets(path)}
        allowed = [form for folder in folders for form in _find_folder_forms(folder)]
    except (OSError, ValueError):
        # What this machine cannot resolve (a null byte, a loop of links) a server may still open.
        return False
    return bool(targets) and all(any(_is_in(target, folder) for folder in allowed) for target in targets)


def _may_reach(text: str, folders: tuple[str, ...], bases: tuple[str, ...]) -> bool:
    """Return whether any reading of a text may be inside one of the folders: each doubt makes it True."""
    try:
        paths = {path for reading in _find_readings(text) for path in _to_absolute(reading, bases)}
        targets = {target for path in paths for target in _find_targets(path)}
        forbidden = [form for folder in folders for form in _find_folder_forms(folder)]
    except (OSError, ValueError):
        # A path that cannot be resolved here may be resolved by the server, so the restriction holds.
        return True
    # Case and Unicode form are ignored, because macOS and Windows open `/ETC` and `/etc` as one folder.
    if any(_is_in(_fold(target), _fold(folder)) for target in targets for folder in forbidden):
        return True
    # The names may differ although the folder is the same (a bind mount, a short name of Windows), the inode does not.
    identities = {found for folder in forbidden if not _GLOB.search(folder) for found in _find_identity(folder)}
    if not identities:
        return False
    # Each folder above a target is compared, so that mounted and shortened names count too.
    places = (str(folder) for path in targets if len(path) <= MAX_PATH for folder in (path, *PurePath(path).parents))
    return any(found in identities for place in places for found in _find_identity(place))


def _find_readings(text: str) -> set[str]:
    """Return the paths that a server may understand by a text."""
    if len(text) > MAX_PATH:
        # Too long to be a path, but perhaps short for servers that resolve `..` first.
        written = [text, unquote(text)]
        if uri := _FILE_URI.search(text):
            written.append(_from_uri(text[uri.start() :]))
        shortened = (os.path.normpath(path) for path in written)
        return {reading for path in shortened if len(path) <= MAX_PATH for reading in _find_readings(path)}
    # As it is, and without the quotes and spaces that a shell or a parser removes.
    readings = {text, text.strip(_AROUND)}
    readings |= _find_uri_paths(text)
    # Percent-encoding, decoded once or repeatedly: `%252e%252e` is `..` for a server that decodes twice.
    for path in tuple(readings):
        for _ in range(MAX_DECODED):
            path = unquote(path)  # noqa: PLW2901 - decoded again
            readings.add(path)
    # A backslash separates folders for servers on Windows, and for those that normalize paths.
    readings |= {path.replace("\\", "/") for path in readings}
    # `$HOME` and `~` reach the home folder if the server runs a shell or expands paths.
    readings |= {os.path.expandvars(path) for path in readings}
    readings |= {os.path.expanduser(path) for path in readings}  # noqa: PTH111 - Path.expanduser raises for unknown users
    return readings - {""}


def _find_uri_paths(text: str) -> set[str]:
    """Return the paths of the file URIs in a text, which may be inside another URI: ``jar:file:/…!/…``."""
    starts = [uri.start() for uri in _FILE_URI.finditer(text)]
    if not starts:
        return set()
    # Of nested URIs, servers use the outermost or the innermost one. Some only cut `file:` off.
    return {_from_uri(text[starts[0] :]), _from_uri(text[starts[-1] :]), unquote(text[starts[0] + len("file:") :])}


def _from_uri(uri: str) -> str:
    """Return the path of a file URI (RFC 8089), whatever host it names."""
    from urllib.request import url2pathname

    return url2pathname(re.sub(r"^//[^/\\]*", "", uri[len("file:") :]))


def _to_absolute(path: str, bases: tuple[str, ...]) -> set[str]:
    """Return the absolute path for each folder against which it may be resolved."""
    if os.path.isabs(path):  # noqa: PTH117 - texts are compared
        return {path}
    return {os.path.join(base, path) for base in bases if base}  # noqa: PTH118 - ``..`` and ``//`` stay


def _find_targets(path: str) -> set[str]:
    """Return the targets of a path: normalized as text, and with links resolved before and after ``..``.

    ``link/../x`` is beside the link for one server, and beside the link's target for another.
    """
    lexical = os.path.normpath(path)
    resolved = {os.path.realpath(written) for written in (path, lexical) if len(written) <= MAX_PATH}
    return {_normalize(target) for target in (lexical, *resolved)}


def _find_folder_forms(folder: str) -> set[str]:
    """Return a folder as written and with its links resolved; in a glob only links before the first wildcard."""
    parts = PurePath(folder).parts
    fixed = next((index for index, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    if not fixed:
        return {_normalize(folder)}
    head, tail = os.path.join(*parts[:fixed]), parts[fixed:]  # noqa: PTH118
    return {_normalize(os.path.join(target, *tail)) for target in _find_targets(head)}  # noqa: PTH118


def _normalize(path: str) -> str:
    """Return a path in its form for comparisons; on POSIX systems ``//etc`` becomes ``/etc``."""
    return re.sub(r"^//+", "/", path) if sys.platform != "win32" else os.path.normcase(path)


def _is_in(path: str, folder: str) -> bool:
    """Return whether a path is the folder or inside it; neither may contain ``..``."""
    # Parts are compared, not texts: `/data-old` is not inside `/data`.
    parts, pattern = PurePath(path).parts, PurePath(folder).parts
    return _is_matched(parts, pattern) if _GLOB.search(folder) else parts[: len(pattern)] == pattern


def _is_matched(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether the first parts of a path match a pattern, in time proportional to both lengths.

    `reached` has the positions in the pattern at which the parts so far may end, so that ``**/**/**`` costs no
    exponential time.
    """
    reached = _skip_wildcards({0}, pattern)
    for part in parts:
        if len(pattern) in reached:
            return True
        stays = {index for index in reached if pattern[index] == "**"}
        # A folder with a literal `*` or `[` in its name matches itself too.
        ahead = {index + 1 for index in reached - stays if part == pattern[index] or fnmatchcase(part, pattern[index])}
        reached = _skip_wildcards(stays | ahead, pattern)
    return len(pattern) in reached


def _skip_wildcards(reached: set[int], pattern: tuple[str, ...]) -> set[int]:
    """Add the positions in a pattern that are reached if ``**`` matches no folder."""
    for index, part in enumerate(pattern):
        if part == "**" and index in reached:
            reached.add(index + 1)
    return reached


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _find_identity(path: str) -> Iterator[tuple[int, int]]:
    """Yield the device and inode of a file or folder; nothing if there is none."""
    with suppress(OSError, ValueError):
        found = os.stat(path)  # noqa: PTH116 - a text
        yield found.st_dev, found.st_ino
