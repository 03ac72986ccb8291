"""Notes on the parts of a message that a conversion leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client.runtime.safe_text import to_one_line


def add_note(notes: list[str], omitted: str) -> None:
    """Add the note that `omitted` is left out, unless the notes contain it already."""
    note = f"left out: {omitted}"
    if note not in notes:
        notes.append(note)


def describe_part(part: Mapping[str, Any], notes: list[str]) -> str:
    """Return a text that replaces an image or a file, and add a note that it is left out.

    Args:
        part: The image or file in the form of `Message.to_dict`.
        notes: The list to which the note is added.
    """
    name = ", ".join(to_one_line(text, 120) for text in (part.get("name", ""), part["mime_type"]) if text)
    text = f"{part['type']}{f' {name}' if name else ''}, about {max(1, len(part['data']) * 3 // 4000)} kB"
    add_note(notes, f"a part that is not text ({text})")
    return f"[{text}]"


def describe_echo(echo: Mapping[str, Any]) -> str:
    """Return what an echo for another provider contains: reasoning, or blocks of the Messages API without thinking."""
    data = echo["data"]
    kinds = [block.get("type") for block in data if isinstance(block, Mapping)] if isinstance(data, list) else []
    is_reasoning = not kinds or any(kind in ("thinking", "redacted_thinking", "reasoning") for kind in kinds)
    return f"the {'reasoning' if is_reasoning else 'blocks'} of {echo['provider']}"
