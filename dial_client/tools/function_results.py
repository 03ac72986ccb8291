"""Converts the value that a function returns to content for the model."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from dial_client.messages.message import NO_OUTPUT, Content, FilePart, ImagePart, Part, TextPart
from dial_client.runtime.media_types import PDF, find_media_type
from dial_client.runtime.safe_text import sanitize


@runtime_checkable
class _Drawable(Protocol):
    """An object that notebooks show as an image, by IPython's display protocol."""

    def _repr_png_(self) -> Any: ...


def to_content(value: Any) -> Content:
    """Return a value as content: text unchanged, images, documents and parts as parts, anything else as JSON.

    Images are bytes in PNG, JPEG, GIF or WebP format, and objects that notebooks show as an image, such as those of
    Pillow and Matplotlib. A list or tuple that contains such parts becomes one part for each item.

    Raises:
        ValueError: The value contains itself, or cannot be written as JSON.
    """
    part = _to_part(value)
    if part is not None:
        return (part,)
    if isinstance(value, list | tuple) and any(_to_part(item) is not None for item in value):
        return tuple(_to_part(item) or TextPart(_to_text(item)) for item in value)
    return _to_text(value)


def _to_part(value: Any) -> Part | None:
    """Return an image, a document or a part; None for anything else."""
    if isinstance(value, TextPart):
        return replace(value, text=sanitize(value.text))
    if isinstance(value, ImagePart | FilePart):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return _convert_file(bytes(value))
    image = value._repr_png_() if isinstance(value, _Drawable) and not isinstance(value, type) else None
    return _convert_file(image) if isinstance(image, bytes) else None


def _convert_file(data: bytes) -> Part:
    mime_type = find_media_type(data)
    if not mime_type:
        return TextPart(f"[binary data, {len(data):,} bytes: it cannot be shown here]")
    encoded = b64encode(data).decode()
    return FilePart(encoded, mime_type) if mime_type == PDF else ImagePart(encoded, mime_type)


def _to_text(value: Any) -> str:
    if value is None:
        return NO_OUTPUT
    if isinstance(value, str):
        return sanitize(value) or NO_OUTPUT
    from pydantic_core import to_json

    # Pydantic writes models, dataclasses, dates, enums and sets; the fallback writes other objects as text.
    return sanitize(to_json(value, fallback=str, bytes_mode="base64", inf_nan_mode="constants").decode())
