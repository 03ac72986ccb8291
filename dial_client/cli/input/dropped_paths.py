"""Files that are dropped onto the terminal: terminals paste their paths, quoted or escaped."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

MAX_CHARS = 8192
_ABSOLUTE = re.compile(r"""['"]?(?:/|~/|file://|[A-Za-z]:[\\/])""")


def build_mentions(pasted: str) -> str:
    """Return mentions (``@path``) if a pasted text consists only of absolute paths of existing files; else empty."""
    text = pasted.strip()
    if len(text) > MAX_CHARS or not _ABSOLUTE.match(text):
        return ""
    try:
        # On Windows a backslash separates folders; elsewhere terminals escape spaces with it.
        words = shlex.split(text, posix=sys.platform != "win32")
    except ValueError:
        words = []
    for paths in ([text], words):
        found = [_to_path(path.strip("'\"")) for path in paths]
        if found and all(found):
            return " ".join(build_mention(path) for path in found) + " "
    return ""


def build_mention(path: str) -> str:
    """Return ``@path``, quoted if the path has spaces or other special characters."""
    return f"@{path}" if re.fullmatch(r"[\w./\\~:+@%=-]+", path) and not path.endswith((".", ":")) else f'@"{path}"'


def _to_path(text: str) -> str:
    """Return the path of an existing file or folder; empty if it does not exist."""
    if text.startswith("file://"):
        parts = urlsplit(text)
        text = url2pathname(parts.path) if sys.platform == "win32" else unquote(parts.path)
    try:
        is_there = os.path.isabs(os.path.expanduser(text)) and Path(text).expanduser().exists()  # noqa: PTH111, PTH117
    except (OSError, ValueError, RuntimeError):
        return ""
    return text if is_there and not any(ord(letter) < 32 or letter == '"' for letter in text) else ""
