"""Finds out whether a GGUF file has a chat template. Without one, the model's server leaves tools out of the prompt."""

from __future__ import annotations

import mmap
from pathlib import Path

METADATA_BYTES = 64 << 20
"""Bytes to search from the start of a file: the metadata, including the vocabulary."""
_KEY = b"tokenizer.chat_template"


def has_chat_template(file: Path) -> bool:
    """Return True if the metadata of a GGUF file has a chat template.

    Raises:
        OSError: The file cannot be read.
    """
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_KEY, 0, METADATA_BYTES) >= 0
