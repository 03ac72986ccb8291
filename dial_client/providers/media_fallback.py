"""What of images and documents an endpoint is shown: each as every endpoint takes it, or a line that says what it was.

One that an endpoint refuses spoils the whole request, and every later one. So what is sent is checked first: base64
that is none, a kind that is none of the few, a PDF that is none, or a size above the limit is told in words. Servers
often name the wrong kind of image, which the Messages API refuses: the first bytes are believed, not the server.
"""

from __future__ import annotations

import binascii
import string
from collections.abc import Sequence
from dataclasses import dataclass

from dial_client.messages import IMAGE_TYPES, PDF, FilePart, ImagePart, Part, TextPart, describe, media_type
from dial_client.providers.tool_call_codec import replace_surrogates

MAX_IMAGE = 5 * 1024 * 1024
"""Characters of base64 an image may have (the Messages API; others take more)."""
MAX_TOTAL = 28 * 1024 * 1024
"""Characters of base64 in one request, and so of one document: the Messages API takes requests of 32 MB."""
MAX_PARTS = 20
"""Images and documents in one request (with more than 20, the Messages API takes only small images)."""

_ALPHABET = (string.ascii_letters + string.digits + "+/").encode()
_MAX_TITLE = 200
_HEADER = 1024
"""Bytes in which a PDF must say that it is one (Adobe's PDF Reference 1.7, implementation note 13)."""


@dataclass(frozen=True, slots=True)
class MediaDescription(TextPart):
    """A line in place of what the model is not shown."""


def describe_media(part: ImagePart | FilePart, why: str = "it cannot be shown to the model") -> MediaDescription:
    """Give the line that stands where an image or a document does not."""
    return MediaDescription(f"[{replace_surrogates(describe(part))}: {why}]")


def to_accepted_part(part: Part, *, images: bool, documents: bool) -> Part:
    """Give a part as every endpoint takes it that takes its kind, or the line in its place.

    Args:
        part: any part.
        images: whether images are taken.
        documents: whether documents are taken.
    """
    if isinstance(part, TextPart):
        return TextPart(replace_surrogates(part.text))
    data = "".join(part.data.split())  # base64 in lines, as in mail
    if not (images or documents) or len(data) > MAX_TOTAL:
        return describe_media(part)
    head = _decode_start(data)
    kind = _detect_image_type(head) or media_type(part.mime_type)
    if images and head and kind in IMAGE_TYPES and len(data) <= MAX_IMAGE:
        return ImagePart(data, kind)
    if documents and b"%PDF-" in head and kind == PDF:
        return FilePart(data, kind, _document_title(part))
    return describe_media(part)


def _decode_start(data: str) -> bytes:
    """Give the first bytes of what is base64 as a whole; nothing where it is not."""
    rest = data.encode("ascii", "replace").translate(None, _ALPHABET)
    if len(data) % 4 or rest not in (b"", b"=", b"==") or not data.endswith(rest.decode()):
        return b""
    return binascii.a2b_base64(data[: _HEADER // 3 * 4])


def _detect_image_type(head: bytes) -> str | None:
    """Give the kind of image the first bytes tell of; None for anything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if head.startswith(b"RIFF") and head[8:12] == b"WEBP" else None


def _document_title(part: ImagePart | FilePart) -> str:
    """Give the name of a document as endpoints want it: one line, not too long, and it says that it is a PDF."""
    name = "" if isinstance(part, ImagePart) else " ".join(replace_surrogates(part.name).split())
    name = name[:_MAX_TITLE].strip() or "document"
    return name if name.lower().endswith(".pdf") else f"{name}.pdf"


def count_expired(sizes: Sequence[int]) -> int:
    """Give how many of a conversation's images and documents are told in words, oldest first.

    As many as the limits want, and then some: whenever one is too many, half of the room is freed. That is found by
    going through the conversation as it grew, so it stays the same until there is no room again: prompt caches, and
    signatures over what came before, last that long.

    Args:
        sizes: of all of them, in their order; characters.
    """
    first = together = 0
    for at, size in enumerate(sizes):
        together += size
        if at - first < MAX_PARTS and together <= MAX_TOTAL:
            continue
        while first < at and (at - first >= MAX_PARTS // 2 or together > MAX_TOTAL // 2):
            together -= sizes[first]
            first += 1
    return first
