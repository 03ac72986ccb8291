"""Media types of images and documents (RFC 9110, 8.3.1)."""

from __future__ import annotations

from collections.abc import Mapping

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image types that every model with image input accepts."""
PDF = "application/pdf"
"""The document type that every model with document input accepts."""


def media_type(mime_type: str) -> str:
    """Return a MIME type without its parameters, in lower case (RFC 9110, 8.3.1): ``Image/PNG; q=1`` is ``image/png``.

    Two common unregistered types are replaced by the registered types.
    """
    kind = mime_type.partition(";")[0].strip().lower()
    return _REGISTERED.get(kind, kind)


_REGISTERED: Mapping[str, str] = {"image/jpg": "image/jpeg", "application/x-pdf": "application/pdf"}
