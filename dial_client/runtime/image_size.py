"""The size of an image in pixels, read from the header of a PNG, JPEG, GIF or WebP."""

from __future__ import annotations

import binascii
from collections.abc import Callable

# Returns the bytes from a position on, fewer at the end of the image.
_Read = Callable[[int, int], bytes]

# Segments of a JPEG before its frame: each has up to 64 kB of metadata.
_MAX_SEGMENTS = 1000
# The markers of a frame, which has the size; C4, C8 and CC in their range are tables (ITU T.81, table B.1).
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def find_image_size(data: str) -> tuple[int, int] | None:
    """Return width and height of an image; None if the data is no image, or its header is damaged.

    Args:
        data: The image in valid base64, without white space. Only the parts that are needed are decoded.
    """

    def read(start: int, length: int) -> bytes:
        first = start // 3
        content = binascii.a2b_base64(data[first * 4 : -(-(start + length) // 3) * 4])
        return content[start - first * 3 :][:length]

    width, height = _read_size(read)
    return (width, height) if width and height else None


def _read_size(read: _Read) -> tuple[int, int]:
    head = read(0, 30)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR" and len(head) >= 24:
        return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    if head.startswith((b"GIF87a", b"GIF89a")) and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if head.startswith(b"\xff\xd8\xff"):
        return _read_jpeg_size(read)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _read_webp_size(head)
    return 0, 0


def _read_jpeg_size(read: _Read) -> tuple[int, int]:
    position = 2
    for _ in range(_MAX_SEGMENTS):
        head = read(position, 9)
        if len(head) < 9 or head[0] != 0xFF:
            return 0, 0
        if head[1] == 0xFF:  # a fill byte
            position += 1
            continue
        if head[1] in _FRAMES:
            return int.from_bytes(head[7:9]), int.from_bytes(head[5:7])
        position += 2 + int.from_bytes(head[2:4])
    return 0, 0


def _read_webp_size(head: bytes) -> tuple[int, int]:
    if head[12:16] == b"VP8 " and head[23:26] == b"\x9d\x01\x2a" and len(head) >= 30:
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    if head[12:16] == b"VP8L" and head[20:21] == b"\x2f" and len(head) >= 25:
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if head[12:16] == b"VP8X" and len(head) >= 30:
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return 0, 0
