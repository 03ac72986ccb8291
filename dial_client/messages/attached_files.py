"""Text files that the user attaches to a message."""

from __future__ import annotations

import codecs

from dial_client.messages.message import TextPart
from dial_client.runtime.safe_text import sanitize

MAX_TEXT = 256_000
"""The maximum bytes of a text file."""

_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def decode_text_file(data: bytes) -> str | None:
    """Return the text of a file, with line feeds at the ends of lines; None if the file is not text."""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.replace("\r\n", "\n")


def build_text_part(name: str, text: str) -> TextPart:
    """Return the part of a message for an attached text file; the page finds the file by this form."""
    return TextPart(sanitize(f"[file {name}; the user attached it]\n{text}\n[end of file]"), foreign=True)
