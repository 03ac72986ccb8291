"""The content of files that are attached to a message: text as text, images and PDF documents as separate parts."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dial_client.cli.input.file_mentions import FileMention
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

MAX_IMAGE = 5_000_000
"""The maximum bytes of an image: the lowest limit of the model APIs."""
MAX_DOCUMENT = 15_000_000
"""The maximum bytes of a PDF document."""
MAX_ALL = 20_000_000
"""The maximum bytes of all files of one message."""
MAX_ENTRIES = 300
"""The maximum entries of a folder that are listed."""


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
            raise ConfigError(f"@{_format_name(mention)} cannot be read: {error.strerror}") from None
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
        raise ConfigError(f"@{_format_name(mention)} has a type that is not supported: {accepted}")
    _check_size(mention, data, MAX_TEXT, "a text file")
    return build_text_part(_format_name(mention), text)


def _check_size(mention: FileMention, data: bytes, limit: int, kind: str) -> None:
    if len(data) > limit:
        size = mention.path.stat().st_size
        shown = f"{size / 1e6:.1f} MB" if size >= 1_000_000 else f"{size // 1000} kB"
        raise ConfigError(
            f"@{_format_name(mention)} is too large ({shown}): {kind} may have at most {_describe_limit(limit)}"
        )


def _list_folder(mention: FileMention) -> TextPart:
    entries = sorted(os.scandir(mention.path), key=lambda entry: entry.name)
    names = [entry.name + ("/" if entry.is_dir() else "") for entry in entries[:MAX_ENTRIES]]
    rest = [f"… {len(entries) - MAX_ENTRIES} more"] if len(entries) > MAX_ENTRIES else []
    lines = [to_one_line(name, 200) for name in names] + rest
    header = f"[folder {_format_name(mention)} with {len(entries)} entries; the user attached the list]"
    return TextPart(sanitize("\n".join([header, *lines, "[end of folder]"])), foreign=True)


def _format_name(mention: FileMention) -> str:
    return to_one_line(mention.written, 300)


def _describe_limit(size: int) -> str:
    return f"{size // 1_000_000} MB" if size >= 1_000_000 else f"{size // 1000} kB"
