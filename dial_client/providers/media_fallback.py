"""Conversion of images and documents to forms that every endpoint accepts, or else to descriptions.

If an endpoint refuses one part, it refuses the whole request, and every later request of the conversation. So parts are
checked first: a part with invalid base64, an unknown type, invalid PDF data or too large a size is replaced by a
description. MCP servers often declare a wrong image type, which the Messages API refuses, so the first bytes of an
image determine its type.
"""

from __future__ import annotations

import binascii
import string
from collections.abc import Sequence
from dataclasses import dataclass

from dial_client.messages.message import FilePart, ImagePart, Part, TextPart, describe
from dial_client.runtime.media_types import IMAGE_TYPES, PDF, find_media_type, normalize_media_type
from dial_client.runtime.surrogates import replace_surrogates

MAX_IMAGE = 5 * 1024 * 1024
"""The most base64 characters of an image (the limit of the Messages API; other APIs accept more)."""
MAX_TOTAL = 28 * 1024 * 1024
"""The most base64 characters of all media in one request, and of one document: the Messages API accepts 32 MB."""
MAX_PARTS = 20
"""The most images and documents in one request. With more than 20, the Messages API accepts only small images."""

_ALPHABET = (string.ascii_letters + string.digits + "+/").encode()
_MAX_TITLE = 200
_HEADER = 1024
"""The first bytes of a PDF, which must contain its header (Adobe's PDF Reference 1.7, implementation note 13)."""


@dataclass(frozen=True, slots=True)
class MediaDescription(TextPart):
    """The description that replaces an image or a document that the model is not shown."""


def describe_media(part: ImagePart | FilePart, why: str = "it cannot be shown to the model") -> MediaDescription:
    """Return the description that replaces an image or a document."""
    return MediaDescription(f"[{replace_surrogates(describe(part))}: {why}]")


def to_accepted_part(part: Part, *, images: bool, documents: bool) -> Part:
    """Return a part in the form that endpoints accept, or else its description.

    Args:
        part: Any part.
        images: True if the endpoint accepts images.
        documents: True if the endpoint accepts documents.
    """
    if isinstance(part, TextPart):
        return TextPart(replace_surrogates(part.text))
    data = "".join(part.data.split())  # base64 may be split into lines, as in mail
    if not (images or documents) or len(data) > MAX_TOTAL:
        return describe_media(part)
    head = _decode_start(data)
    detected = find_media_type(head)
    mime_type = detected if detected in IMAGE_TYPES else normalize_media_type(part.mime_type)
    if images and head and mime_type in IMAGE_TYPES and len(data) <= MAX_IMAGE:
        return ImagePart(data, mime_type)
    if documents and b"%PDF-" in head and mime_type == PDF:
        return FilePart(data, mime_type, _build_title(part))
    return describe_media(part)


def _decode_start(data: str) -> bytes:
    """Return the first decoded bytes of valid base64; empty bytes if it is invalid."""
    padding = data.encode("ascii", "replace").translate(None, _ALPHABET)
    if len(data) % 4 or padding not in (b"", b"=", b"==") or not data.endswith(padding.decode()):
        return b""
    return binascii.a2b_base64(data[: _HEADER // 3 * 4])


def _build_title(part: ImagePart | FilePart) -> str:
    """Return the name of a document in the form that endpoints accept: one short line that ends with ``.pdf``."""
    name = "" if isinstance(part, ImagePart) else " ".join(replace_surrogates(part.name).split())
    name = name[:_MAX_TITLE].strip() or "document"
    return name if name.lower().endswith(".pdf") else f"{name}.pdf"


def count_expired(sizes: Sequence[int]) -> int:
    """Return how many of a conversation's images and documents are replaced by descriptions, the oldest first.

    Whenever a limit is exceeded, half of it is freed. The function replays the conversation from its beginning, so the
    number stays the same until a limit is exceeded again. Until then, prompt caches, and signatures over earlier
    messages, stay valid.

    Args:
        sizes: The sizes of all images and documents in order, in base64 characters.
    """
    first = total = 0
    for at, size in enumerate(sizes):
        total += size
        if at - first < MAX_PARTS and total <= MAX_TOTAL:
            continue
        while first < at and (at - first >= MAX_PARTS // 2 or total > MAX_TOTAL // 2):
            total -= sizes[first]
            first += 1
    return first
