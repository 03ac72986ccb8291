"""The parts of messages in requests: texts, images and files as ``data:`` URLs."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dial_client.messages.message import (
    MAX_TEXT,
    Content,
    FilePart,
    ImagePart,
    Part,
    TextPart,
    build_text_part,
    decode_text_file,
)
from dial_client.runtime.media_types import PDF
from dial_client.runtime.safe_text import to_one_line
from dial_client.serve.http_messages import HttpError
from dial_client.serve.model_api.answer_request import build_error

_MAX_NAME = 200
_REASONING = frozenset({"thinking", "redacted_thinking", "reasoning"})
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,", re.IGNORECASE)


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


def parse_content(content: Any, path: str) -> Content:
    """Parse a message's content: a string, or parts of type ``text``, ``image_url`` and ``file``; None is empty text.

    Args:
        content: The value in the request.
        path: The path of the value in the request, for error messages.

    Raises:
        HttpError: The value is not valid content.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise build_error(path, "must be a string or a list of parts")
    return tuple(
        _parse_part(part, f"{path}[{index}]")
        for index, part in enumerate(content)
        # The model's own reasoning, which clients send back: endpoints accept only what they have signed themselves.
        if not (isinstance(part, Mapping) and part.get("type") in _REASONING)
    )


def _parse_part(part: Any, path: str) -> Part:
    kind = part.get("type") if isinstance(part, Mapping) else None
    match kind:
        case "text" | "refusal" if isinstance(part.get(kind), str):
            return TextPart(part[kind])
        case "image_url" if isinstance(part.get("image_url"), Mapping | str):
            image = part["image_url"]
            url = image if isinstance(image, str) else image.get("url")
            mime_type, data = parse_data_url(url, f"{path}.image_url.url")
            return ImagePart(data, mime_type)
        case "file" if isinstance(part.get("file"), Mapping):
            file = part["file"]
            mime_type, data = parse_data_url(file.get("file_data"), f"{path}.file.file_data")
            return FilePart(data, mime_type, str(file.get("filename") or ""))
        case "input_audio" | "audio":
            raise build_error(path, "is audio, which is not supported: send its text")
        case _:
            raise build_error(path, "must be a part of type text, image_url or file")


def parse_data_url(url: Any, path: str) -> tuple[str, str]:
    """Return the media type and the base64 data of a URL.

    Raises:
        HttpError: It is not a ``data:`` URL in base64.
    """
    head = _DATA_URL.match(url) if isinstance(url, str) else None
    if head is None:
        raise build_error(path, "must be a data: URL in base64")
    data = url[head.end() :]
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise build_error(path, "is not base64") from None
    return head[1].lower(), data
