"""Whether a GGUF file has a chat template of its own. Without one, its server leaves the tools out of the prompt."""

from __future__ import annotations

import mmap
from pathlib import Path

METADATA_BYTES = 64 << 20
"""Bytes from the beginning of a file that are searched: the metadata, with the vocabulary."""
_KEY = b"tokenizer.chat_template"


def has_chat_template(file: Path) -> bool:
    """Return whether the metadata of a GGUF file names a chat template.

    Raises:
        OSError: the file cannot be read.
    """
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_KEY, 0, METADATA_BYTES) >= 0
