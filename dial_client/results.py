"""What a tool gave back, as the model reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dial_client.messages import Content, ImagePart, Part, TextPart

if TYPE_CHECKING:
    from mcp_types import CallToolResult

NO_OUTPUT = "(no output)"


def content_of(result: CallToolResult) -> Content:
    """Turn a result into content: text as it is, images as they are, the rest as a line that says what and where.

    Structured content is used only where there is no text: servers send both to say the same thing
    (MCP 2026-07-28, server/tools: structured content SHOULD be mirrored as text).
    """
    parts = [_part(block) for block in result.content]
    has_text = any(isinstance(part, TextPart) and part.text.strip() for part in parts)
    if not has_text and result.structured_content is not None:
        parts.append(TextPart(json.dumps(result.structured_content, ensure_ascii=False)))
    return _joined(part for part in parts if not isinstance(part, TextPart) or part.text.strip())


def _joined(parts: Iterable[Part]) -> Content:
    kept = tuple(parts)
    if not kept:
        return NO_OUTPUT
    if all(isinstance(part, TextPart) for part in kept):
        return "\n".join(part.text for part in kept if isinstance(part, TextPart))
    return kept


def _part(block: Any) -> Part:
    match block.type:
        case "text":
            return TextPart(block.text)
        case "image":
            return ImagePart(block.data, block.mime_type)
        case "audio":
            return TextPart(f"[audio, {block.mime_type}, {_size(block.data)}: it cannot be shown here]")
        case "resource_link":
            about = f", {block.mime_type}" if block.mime_type else ""
            return TextPart(f"[resource {block.name}: {block.uri}{about}]")
        case "resource":
            return TextPart(_embedded(block.resource))
        case other:
            return TextPart(f"[content of an unknown kind: {other}]")


def _embedded(resource: Any) -> str:
    text = getattr(resource, "text", None)
    if text is not None:
        return f"[resource {resource.uri}]\n{text}"
    kind = resource.mime_type or "binary"
    return f"[resource {resource.uri}, {kind}, {_size(resource.blob)}: it cannot be shown here]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4 - base64.count('=', -2):,} bytes"


def cut(content: Content, max_chars: int) -> Content:
    """Cut the text of a result to a head and a tail that are `max_chars` characters together, and say its true size."""
    if isinstance(content, str):
        return _cut_text(content, max_chars)
    left = max_chars
    skipped = 0
    kept: list[Part] = []
    for part in content:
        if not isinstance(part, TextPart):
            kept.append(part)
        elif left or not part.text:
            kept.append(TextPart(_cut_text(part.text, left)))
            left = max(0, left - len(part.text))
        else:
            skipped += len(part.text)
    if skipped:
        kept.append(TextPart(f"[… {skipped:,} more characters are left out here …]"))
    return tuple(kept)


def _cut_text(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    head = max_chars * 3 // 4
    tail = max_chars - head
    gap = f"\n[… {len(text) - head - tail:,} of {len(text):,} characters are left out here …]\n"
    return text[:head] + gap + (text[-tail:] if tail else "")
