"""Fields of JSON that another program wrote: they may be absent, or of any type."""

from __future__ import annotations

from typing import Any


def to_text(value: Any) -> str:
    """Return a text as it is, and an empty text for any other value."""
    return value if isinstance(value, str) else ""
