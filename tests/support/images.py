"""Images for tests, as small as their formats allow: what is checked is the header."""

from __future__ import annotations

import base64
import struct
import zlib


def encode(content: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(content).decode()


def png(width: int = 1, height: int = 1) -> bytes:
    """Return a black image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + bytes(-(-width // 8))) * height)
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def jpeg(width: int = 1, height: int = 1, metadata: int = 0) -> bytes:
    """Return the header of an image, behind so many segments of metadata of 65,535 bytes each."""
    segment = b"\xff\xe1\xff\xff" + bytes(0xFFFD)
    frame = b"\xff\xc0\x00\x0b\x08" + struct.pack(">HH", height, width) + b"\x01\x01\x11\x00"
    return b"\xff\xd8" + b"\xff\xe0\x00\x04\x00\x00" + segment * metadata + b"\xff" + frame + b"\xff\xd9"


def gif(width: int = 1, height: int = 1) -> bytes:
    """Return the header of an image."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def webp(width: int = 1, height: int = 1, kind: bytes = b"VP8 ") -> bytes:
    """Return the header of a lossy (``VP8 ``), lossless (``VP8L``) or extended (``VP8X``) image."""
    data = {
        b"VP8 ": b"\x10\x02\x00\x9d\x01\x2a" + struct.pack("<HH", width, height),
        b"VP8L": b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14),
        b"VP8X": b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
    }[kind]
    body = b"WEBP" + kind + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


PIXEL = encode(png())
