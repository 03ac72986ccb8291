"""What a conversion leaves out, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client.text.safe_text import one_line


def add_note(notes: list[str], what: str) -> None:
    """Add a sentence on something that is left out; the same sentence is added once."""
    note = f"left out: {what}"
    if note not in notes:
        notes.append(note)


def describe_part(part: Mapping[str, Any], notes: list[str]) -> str:
    """Return the words in place of an image or a file, and add a note on it.

    Args:
        part: an image or a file in the form of `Message.to_dict`.
        notes: gets the note.
    """
    name = ", ".join(one_line(text, 120) for text in (part.get("name", ""), part["mime_type"]) if text)
    text = f"{part['type']}{f' {name}' if name else ''}, about {max(1, len(part['data']) * 3 // 4000)} kB"
    add_note(notes, f"a part that is no text ({text})")
    return f"[{text}]"


def describe_echo(echo: Mapping[str, Any]) -> str:
    """Return what an echo for another provider holds: reasoning, or blocks of the Messages API without thinking."""
    data = echo["data"]
    kinds = [block.get("type") for block in data if isinstance(block, Mapping)] if isinstance(data, list) else []
    is_reasoning = not kinds or any(kind in ("thinking", "redacted_thinking", "reasoning") for kind in kinds)
    return f"the {'reasoning' if is_reasoning else 'blocks'} of {echo['provider']}"
