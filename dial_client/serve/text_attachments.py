"""Converts text files that the user attaches to text parts of the message."""

from __future__ import annotations

import base64

from dial_client.messages.message import MAX_TEXT, Content, FilePart, Part, build_text_part, decode_text_file
from dial_client.runtime.media_types import PDF
from dial_client.runtime.safe_text import to_one_line
from dial_client.serve.http_responses import HttpError

_MAX_NAME = 200


def to_text_parts(content: Content) -> Content:
    """Return a message's content with its text files as text parts. PDF documents and other files are not changed.

    Raises:
        HttpError: A text file is too large.
    """
    return content if isinstance(content, str) else tuple(_to_text_part(part) for part in content)


def _to_text_part(part: Part) -> Part:
    if not isinstance(part, FilePart) or part.mime_type == PDF:
        return part
    data = base64.b64decode(part.data)
    text = decode_text_file(data)
    if text is None:
        return part
    name = to_one_line(part.name, _MAX_NAME) or "without a name"
    if len(data) > MAX_TEXT:
        raise HttpError(
            413, f"{name} is too large: a text file may have at most {MAX_TEXT // 1000} kB", "file_too_large"
        )
    return build_text_part(name, text)
