"""Media types of images and documents (RFC 9110, 8.3.1)."""

from __future__ import annotations

from collections.abc import Mapping

# The image types that every model with image input accepts.
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# The document type that every model with document input accepts.
PDF = "application/pdf"


def normalize_media_type(mime_type: str) -> str:
    """Return a MIME type without its parameters, in lower case (RFC 9110, 8.3.1): ``Image/PNG; q=1`` is ``image/png``.

    Two common unregistered types are replaced by the registered types.
    """
    kind = mime_type.partition(";")[0].strip().lower()
    return _REGISTERED.get(kind, kind)


def find_media_type(data: bytes) -> str:
    """Return the type of an image or document that models accept, by its first bytes; empty for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), "")


# The first bytes of each file format that models accept, and its media type.
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", PDF),
)
_REGISTERED: Mapping[str, str] = {"image/jpg": "image/jpeg", "application/x-pdf": "application/pdf"}
