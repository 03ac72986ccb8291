"""Mentions of files and folders (``@path``) in typed text, their problems, and their content as message parts."""

from __future__ import annotations

import base64
import difflib
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from dial_client.messages.errors import ConfigError
from dial_client.messages.message import (
    MAX_TEXT,
    FilePart,
    ImagePart,
    Part,
    TextPart,
    build_text_part,
    decode_text_file,
)
from dial_client.runtime.media_types import PDF, find_media_type
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.turns.mentions import MENTION

MAX_CHARS = 8192
_ABSOLUTE = re.compile(r"""['"]?(?:/|~/|file://|[A-Za-z]:[\\/])""")
# The maximum number of files of one message.
MAX_FILES = 20
# The maximum number of names in a folder that are compared with a path that does not exist.
MAX_NAMES = 2000
_PUNCTUATION = ".,;:!?)]}>\"'"
# The start of an explicit path, which cannot be a package name: ``/x``, ``./x``, ``../x``, ``~/x``.
_EXPLICIT = re.compile(r"[~.]{0,2}[/\\]|[A-Za-z]:[\\/]")
_WORD = re.compile(r"[^\s]+" if sys.platform == "win32" else r"(?:\\.|[^\s\\])+")


def build_mentions(pasted: str) -> str:
    """Return mentions (``@path``) if a pasted text consists only of absolute paths of existing files; else empty."""
    text = pasted.strip()
    if len(text) > MAX_CHARS or not _ABSOLUTE.match(text):
        return ""
    try:
        # On Windows a backslash separates folders; elsewhere terminals escape spaces with it.
        words = shlex.split(text, posix=sys.platform != "win32")
    except ValueError:
        words = []
    for paths in ([text], words):
        found = [_to_path(path.strip("'\"")) for path in paths]
        if found and all(found):
            return " ".join(build_mention(path) for path in found) + " "
    return ""


def build_mention(path: str) -> str:
    """Return ``@path``, quoted if the path has spaces or other special characters."""
    return f"@{path}" if re.fullmatch(r"[\w./\\~:+@%=-]+", path) and not path.endswith((".", ":")) else f'@"{path}"'


def _to_path(text: str) -> str:
    """Return the path of an existing file or folder; empty if it does not exist."""
    if text.startswith("file://"):
        parts = urlsplit(text)
        text = url2pathname(parts.path) if sys.platform == "win32" else unquote(parts.path)
    try:
        is_there = os.path.isabs(os.path.expanduser(text)) and Path(text).expanduser().exists()  # noqa: PTH111, PTH117
    except (OSError, ValueError, RuntimeError):
        return ""
    return text if is_there and not any(ord(letter) < 32 or letter == '"' for letter in text) else ""


@dataclass(frozen=True, slots=True)
class FileMention:
    """A file or a folder that a text mentions."""

    written: str
    """The path as it was typed, without quotes."""
    problem: str = ""
    """The reason why it cannot be attached; empty if it is an existing file or folder."""

    @property
    def path(self) -> Path:
        """The path, with the home folder in place of ``~``."""
        return Path(self.written).expanduser()


def find_file_mentions(typed: str, servers: Iterable[str]) -> list[FileMention]:
    """Return the files and folders that a text mentions, each once.

    A word that names no existing file is not a mention (``@dataclass``, ``@types/node``), unless it has the form of a
    path (``./x``, ``/x``, ``~/x``, ``"x"``) or resembles the name of a file: then it is a mention with a `problem`.

    Args:
        typed: The typed text, without pasted or piped text, which is not searched for mentions.
        servers: The names of the servers, whose resources are mentioned in the same way.
    """
    prefixes = tuple(f"{server}:" for server in servers)
    found: list[FileMention] = []
    for start in (mention.end() for mention in MENTION.finditer(typed)):
        if not (prefixes and typed.startswith(prefixes, start)):
            mention = _parse_mention(typed, start)
            found += [mention] if mention else []
    return list(dict.fromkeys(found))


def find_problem(mentions: Iterable[FileMention], within: Path | None = None) -> str:
    """Return the first problem of mentions, in one sentence; empty if all can be attached.

    Args:
        mentions: The mentions of one message.
        within: The folder that the files must be in; None for any folder.
    """
    mentions = list(mentions)
    if len(mentions) > MAX_FILES:
        return f"{len(mentions)} files are mentioned: at most {MAX_FILES} can be attached to a message"
    if within is not None:
        outside = (mention for mention in mentions if not mention.path.resolve().is_relative_to(within.resolve()))
        if mention := next(outside, None):
            advice = "without a terminal only files in it are attached; pipe this one in: dial-chat … < FILE"
            return f"@{_format_path(mention.written)} is outside of the current folder: {advice}"
    return next((mention.problem for mention in mentions if mention.problem), "")


def _parse_mention(text: str, start: int) -> FileMention | None:
    quote = text[start : start + 1]
    if quote in ('"', "'"):
        end = text.find(quote, start + 1)
        path = text[start + 1 : end]
        return _find_existing(path) or _build_missing(path) if end > start + 1 else None
    word = _WORD.match(text, start)
    if word is None:
        return None
    unescaped = word[0] if sys.platform == "win32" else re.sub(r"\\(.)", r"\1", word[0])
    trimmed = unescaped.rstrip(_PUNCTUATION)
    for path in (unescaped, trimmed):
        if path and (mention := _find_existing(path)):
            return mention
    if not trimmed:
        return None
    return _build_missing(trimmed) if _EXPLICIT.match(trimmed) or _find_nearest(trimmed) else None


def _find_existing(written: str) -> FileMention | None:
    path = FileMention(written).path
    try:
        mode = path.stat().st_mode
        problem = "" if os.access(path, os.R_OK) else "cannot be read: permission denied"
    except PermissionError:
        mode, problem = stat.S_IFREG, "cannot be read: permission denied"
    except (OSError, ValueError, RuntimeError):
        return None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        problem = "is neither a file nor a folder"
    return FileMention(written, problem and f"@{_format_path(written)} {problem}")


def _build_missing(written: str) -> FileMention:
    near = _find_nearest(written)
    advice = f": did you mean @{_format_path(near)}?" if near else ""
    return FileMention(written, f"there is no file {_format_path(written)}{advice}")


def _find_nearest(written: str) -> str:
    """Return the path of a file in the same folder with a similar name; empty if there is none."""
    folder, name = os.path.split(written)
    if len(name) < 3:
        return ""
    try:
        entries = os.scandir(Path(folder or ".").expanduser())
        names = [entry.name for entry, _ in zip(entries, range(MAX_NAMES), strict=False)]
    except (OSError, ValueError, RuntimeError):
        return ""
    near = difflib.get_close_matches(name, [found for found in names if "." in found], n=1, cutoff=0.8)
    return os.path.join(folder, near[0]) if near else ""  # noqa: PTH118 - as it was typed


def _format_path(path: str) -> str:
    return to_one_line(path, 300)


# The maximum bytes of an image: the lowest limit of the model APIs.
MAX_IMAGE = 5_000_000
# The maximum bytes of a PDF document.
MAX_DOCUMENT = 15_000_000
# The maximum bytes of all files of one message.
MAX_ALL = 20_000_000
# The maximum entries of a folder that are listed.
MAX_ENTRIES = 300


def read_files(mentions: Sequence[FileMention]) -> list[Part]:
    """Return the parts of a message for the files and folders it mentions.

    Raises:
        ConfigError: A file is too large, has a type that models do not accept, or cannot be read.
    """
    parts: list[Part] = []
    left = MAX_ALL
    for mention in mentions:
        if mention.problem:
            raise ConfigError(mention.problem)
        try:
            if mention.path.is_dir():
                parts.append(_list_folder(mention))
                continue
            data = _read(mention.path)
        except OSError as error:
            raise ConfigError(f"@{_format_path(mention.written)} cannot be read: {error.strerror}") from None
        left -= len(data)
        if left < 0:
            raise ConfigError(f"the files are larger than {_describe_limit(MAX_ALL)} together: attach fewer of them")
        parts.append(_to_part(mention, data))
    return parts


def _read(path: Path) -> bytes:
    """Return the content, cut off one byte above the largest limit. Reading a pipe or a device does not block."""
    limit = max(MAX_TEXT, MAX_IMAGE, MAX_DOCUMENT) + 1
    if sys.platform == "win32":
        with path.open("rb") as file:
            return file.read(limit)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - opens a file descriptor
        return file.read(limit)


def _to_part(mention: FileMention, data: bytes) -> Part:
    kind = find_media_type(data)
    if kind.startswith("image/"):
        _check_size(mention, data, MAX_IMAGE, "an image")
        return ImagePart(base64.b64encode(data).decode(), kind)
    if kind == PDF:
        _check_size(mention, data, MAX_DOCUMENT, "a PDF document")
        return FilePart(base64.b64encode(data).decode(), PDF, to_one_line(mention.path.name, 200))
    text = decode_text_file(data)
    if text is None:
        accepted = "text, PNG, JPEG, GIF and WebP images, and PDF documents can be attached"
        raise ConfigError(f"@{_format_path(mention.written)} has a type that is not supported: {accepted}")
    _check_size(mention, data, MAX_TEXT, "a text file")
    return build_text_part(_format_path(mention.written), text)


def _check_size(mention: FileMention, data: bytes, limit: int, kind: str) -> None:
    if len(data) > limit:
        size = mention.path.stat().st_size
        shown = f"{size / 1e6:.1f} MB" if size >= 1_000_000 else _describe_limit(size)
        raise ConfigError(
            f"@{_format_path(mention.written)} is too large ({shown}): {kind} may have at most {_describe_limit(limit)}"
        )


def _list_folder(mention: FileMention) -> TextPart:
    entries = sorted(os.scandir(mention.path), key=lambda entry: entry.name)
    names = [entry.name + ("/" if entry.is_dir() else "") for entry in entries[:MAX_ENTRIES]]
    rest = [f"… {len(entries) - MAX_ENTRIES} more"] if len(entries) > MAX_ENTRIES else []
    lines = [to_one_line(name, 200) for name in names] + rest
    header = f"[folder {_format_path(mention.written)} with {len(entries)} entries; the user attached the list]"
    return TextPart(sanitize("\n".join([header, *lines, "[end of folder]"])), foreign=True)


def _describe_limit(size: int) -> str:
    return f"{size // 1_000_000} MB" if size >= 1_000_000 else f"{size // 1000} kB"
