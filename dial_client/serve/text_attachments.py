"""Converts text files that the user attaches to text parts of the message."""

from __future__ import annotations

import base64
import codecs

from dial_client.messages.message import Content, FilePart, Part, TextPart
from dial_client.serve.http_responses import HttpError
from dial_client.text.media_types import PDF
from dial_client.text.safe_text import one_line, safe

MAX_TEXT = 256_000
"""Maximum size in bytes of a text file."""
_MAX_NAME = 200
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def to_text_parts(content: Content) -> Content:
    """Return a message's content with its text files as text parts. PDF documents and other files are not changed.

    Raises:
        HttpError: a text file is too large.
    """
    return content if isinstance(content, str) else tuple(_to_text_part(part) for part in content)


def _to_text_part(part: Part) -> Part:
    if not isinstance(part, FilePart) or part.mime_type == PDF:
        return part
    data = base64.b64decode(part.data)
    text = _decode(data)
    if text is None:
        return part
    name = one_line(part.name, _MAX_NAME) or "without a name"
    if len(data) > MAX_TEXT:
        raise HttpError(
            413, f"{name} is too large: a text file may have at most {MAX_TEXT // 1000} kB", "file_too_large"
        )
    return TextPart(safe(f"[file {name}; the user attached it]\n{text}\n[end of file]"), foreign=True)


def _decode(data: bytes) -> str | None:
    """Return the text of a file; None if it is not text."""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.replace("\r\n", "\n")
