"""The content of a tool result, as the model reads it: converted, shortened, and stored in full to be read on."""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from dial_client.messages.message import NO_OUTPUT, Content, FilePart, ImagePart, Part, TextPart, extract_text
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.media_types import IMAGE_TYPES, PDF, find_media_type, normalize_media_type
from dial_client.runtime.safe_text import sanitize

if TYPE_CHECKING:
    from mcp_types import CallToolResult

# Stores a text that is too long for the model, and returns its id; None if it cannot be stored.
StoreResult = Callable[[str], str | None]

# The name of the host's tool that reads stored texts.
READ_RESULT = "read_result"
# Maximum characters of all texts together; above it, the least recently read text is dropped.
MAX_CHARS = 32_000_000
MAX_MATCHES = 20
# Characters of a page that are reserved for the line with its offsets.
_HEAD_CHARS = 300
# Characters shown on both sides of a match.
_CONTEXT = 150
_CHANGE_NOTE = "[The user changed the arguments before the call."


def to_content(result: CallToolResult, remark: str = "") -> Content:
    """Convert a result to content: text, images and PDF documents are kept, any other block becomes a line of text.

    The line names the kind of content, its URI or type, and its size.

    Structured content is used only if there is no text, because servers send the same content in both forms
    (MCP 2026-07-28, server/tools: structured content SHOULD be mirrored as text).

    Args:
        result: The result as the server sent it.
        remark: A note for the model, appended to the content.
    """
    parts = [to_part(block) for block in result.content]
    has_text = any(isinstance(part, TextPart) and part.text.strip() for part in parts)
    if not has_text and result.structured_content is not None:
        parts.append(TextPart(sanitize(json.dumps(result.structured_content, ensure_ascii=False))))
    return join_parts([*parts, TextPart(sanitize(remark))])


def add_change_note(content: Content, changes: str) -> Content:
    """Return the content of a result after a note for the model: with which changed arguments the call ran."""
    note = f"{_CHANGE_NOTE} It ran with: {changes}]"
    return f"{note}\n{content}" if isinstance(content, str) else (TextPart(note), *content)


def drop_change_note(text: str) -> str:
    """Return the text of a result without the note that `add_change_note` added, if it has one."""
    return text.partition("\n")[2] if text.startswith(_CHANGE_NOTE) else text


def measure_answer(result: CallToolResult) -> int:
    """Return the size of a result in bytes, with texts in UTF-8 and attachments in base64, as the server sent it."""
    return sum(map(_measure_block, result.content))


def _measure_block(block: Any) -> int:
    match block.type:
        case "text":
            return len(block.text.encode("utf-8", "surrogatepass"))
        case "image" | "audio":
            return len(block.data)
        case "resource":
            resource = block.resource
            text = getattr(resource, "text", None)
            return len(resource.blob) if text is None else len(text.encode("utf-8", "surrogatepass"))
        case _:
            return 0


def join_parts(parts: Sequence[Part]) -> Content:
    """Return the parts of a result without empty texts; if all parts are texts, as one text."""
    kept = tuple(part for part in parts if not isinstance(part, TextPart) or part.text.strip())
    if not kept:
        return NO_OUTPUT
    if all(isinstance(part, TextPart) for part in kept):
        return "\n".join(part.text for part in kept if isinstance(part, TextPart))
    return kept


def to_part(block: Any) -> Part:
    """Convert a content block to a part: text, an image or a PDF document, or a line that describes the block."""
    match block.type:
        case "text":
            return TextPart(sanitize(block.text))
        case "image":
            return ImagePart(block.data, block.mime_type)
        case "audio":
            return TextPart(
                sanitize(f"[audio, {block.mime_type}, {_format_size(block.data)}: it cannot be shown here]")
            )
        case "resource_link":
            about = f", {block.mime_type}" if block.mime_type else ""
            return TextPart(sanitize(f"[resource {block.name}: {block.uri}{about}]"))
        case "resource" if hasattr(block.resource, "text"):
            return TextPart(sanitize(f"[resource {block.resource.uri}]\n{block.resource.text}"))
        case "resource":
            return convert_blob(block.resource.uri, block.resource.mime_type or "", block.resource.blob)
        case kind:
            return TextPart(sanitize(f"[content of an unknown kind: {kind}]"))


def convert_blob(uri: str, mime_type: str, blob: str) -> Part:
    """Convert the binary contents of a resource to a part: an image or a PDF document, or a line that describes it.

    Args:
        uri: The URI of the resource.
        mime_type: The media type that the server states; empty if there is none.
        blob: The contents in base64.
    """
    kind = normalize_media_type(mime_type)
    if kind in IMAGE_TYPES:
        return ImagePart(blob, kind)
    if kind == PDF:
        return FilePart(blob, kind, _find_file_name(uri))
    return TextPart(
        sanitize(f"[resource {uri}, {mime_type or 'binary'}, {_format_size(blob)}: it cannot be shown here]")
    )


def convert_bytes(data: bytes) -> Part:
    """Convert a file to a part by its first bytes: an image or a PDF document, or a line with its size."""
    mime_type = find_media_type(data)
    if not mime_type:
        return TextPart(f"[binary data, {len(data):,} bytes: it cannot be shown here]")
    encoded = b64encode(data).decode()
    return FilePart(encoded, mime_type) if mime_type == PDF else ImagePart(encoded, mime_type)


def _find_file_name(uri: str) -> str:
    """Return the last part of a URI's path, the file name; the URI if it has no path."""
    try:
        path = urlsplit(uri).path
    except ValueError:  # what servers send need not be a URI
        return sanitize(uri)
    return sanitize(unquote(path).rstrip("/").rpartition("/")[2] or uri)


def _format_size(base64: str) -> str:
    return f"{len(base64) * 3 // 4 - base64.count('=', -2):,} bytes"


def cut(content: Content, max_chars: int, more: str = "") -> Content:
    """Cut the text of a result to its start and end, `max_chars` characters together, with a note of its full size.

    Args:
        content: The result.
        max_chars: Maximum characters of its text.
        more: A hint how to read the rest, added to the note.
    """
    if isinstance(content, str):
        return _cut_text(content, max_chars, more)
    remaining_chars = max_chars
    skipped = 0
    kept: list[Part] = []
    for part in content:
        if not isinstance(part, TextPart):
            kept.append(part)
        elif remaining_chars or not part.text:
            kept.append(replace(part, text=_cut_text(part.text, remaining_chars, more)))
            remaining_chars = max(0, remaining_chars - len(part.text))
        else:
            skipped += len(part.text)
    if skipped:
        kept.append(TextPart(f"[… {skipped:,} more characters are left out here{more} …]"))
    return tuple(kept)


def _cut_text(text: str, max_chars: int, more: str) -> str:
    if len(text) <= max_chars:
        return text
    head = max_chars * 3 // 4
    tail = max_chars - head
    end = len(text) - tail
    left_out = text.count("\n", head, end)
    all_lines = text.count("\n") + (not text.endswith("\n"))
    lines = f"{left_out:,} of {all_lines:,} lines, " if left_out else ""
    gap = f"\n[… {lines}{end - head:,} of {len(text):,} characters are left out here{more} …]\n"
    return text[:head] + gap + text[end:]


# The note in a text that was cut.
_GAP = compile_lazily(
    r"\[… (?:([\d,]+) of ([\d,]+) lines, )?([\d,]+) of ([\d,]+) characters are left out here[^\n]*…\]"
)


def describe_cut(text: str) -> str:
    """Return how much of a result the model received, as ``782 of 5,000 lines``; empty if the text was not cut."""
    if (found := _GAP.search(text)) is None:
        return ""
    left_lines, lines, left_chars, chars = (int((number or "0").replace(",", "")) for number in found.groups())
    return f"{lines - left_lines:,} of {lines:,} lines" if lines else f"{chars - left_chars:,} of {chars:,} characters"


def shorten(content: Content, max_chars: int, store_result: StoreResult | None) -> Content:
    """Return the content; a text that is too long is cut to its start and end, with a hint how to read the rest.

    Args:
        content: The content for the model.
        max_chars: Maximum characters of its text.
        store_result: Stores the full text; None if the model cannot read stored texts.
    """
    text = extract_text(content)
    key = store_result(text) if len(text) > max_chars and store_result is not None else None
    more = f'; {READ_RESULT}(id="{key}", offset={max_chars * 3 // 4}) reads on, with search="…" it finds' if key else ""
    return cut(content, max_chars, more)


class ResultStore:
    """Texts with random ids, so that conversations that share a client cannot read each other's texts.

    A text of an owner is not there for others, also if they know its id. The texts are kept in memory only, and lost
    when the client ends.
    """

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        # The texts by their ids, each with its owner, which may be empty.
        self._texts: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._size = 0

    def has(self, key: str, owner: str = "") -> bool:
        """Return whether an owner can read a text."""
        return self._texts.get(key, (None, ""))[0] in ("", owner)

    def __len__(self) -> int:
        return len(self._texts)

    def keep(self, text: str, owner: str = "") -> str | None:
        """Store a text of an owner, and return its id; None if the text alone exceeds the size of the store."""
        if len(text) > self._max_chars:
            return None
        key = secrets.token_hex(6)
        self._texts[key] = owner, text
        self._size += len(text)
        while self._size > self._max_chars:
            _, (_, dropped) = self._texts.popitem(last=False)
            self._size -= len(dropped)
        return key

    def read(self, arguments: Mapping[str, Any], max_chars: int, owner: str = "") -> str | None:
        """Return the answer of the tool `READ_RESULT`: a page, or places of some words; None if no text is stored.

        Args:
            arguments: The arguments of the tool, which fit its schema: ``id``, and ``offset`` or ``search``.
            max_chars: Maximum characters of the answer, at least `_HEAD_CHARS`.
            owner: The person that the turn is for.
        """
        key, length = arguments["id"], max(_HEAD_CHARS, max_chars - _HEAD_CHARS)
        if words := arguments.get("search"):
            return self.find_matches(key, words, length, owner)
        return self.read_page(key, arguments.get("offset") or 0, length, owner)

    def read_page(self, key: str, offset: int, length: int, owner: str = "") -> str | None:
        """Return a page below a line with its offsets and the offset of the next page; None if the text is not stored.

        Args:
            key: The id that `keep` returned.
            offset: Characters before the page; a negative number counts from the end.
            length: Characters of the page.
            owner: The person that the turn is for.
        """
        text = self._find(key, owner)
        if text is None:
            return None
        begin = max(0, len(text) + offset) if offset < 0 else min(offset, len(text))
        end = min(begin + length, len(text))
        next_page = f"; the next page begins at offset {end}" if end < len(text) else "; this is the end"
        return f"[characters {begin:,} to {end:,} of {len(text):,}{next_page}]\n{text[begin:end]}"

    def find_matches(self, key: str, words: str, length: int, owner: str = "") -> str | None:
        """Return the first matches of some words, ignoring case, with the text around them; None if no text is stored.

        Args:
            key: The id that `keep` returned.
            words: The exact words to find, not a pattern.
            length: Maximum characters of the returned text.
            owner: The person that the turn is for.
        """
        text = self._find(key, owner)
        if text is None:
            return None
        places = _find_places(text, words)
        if not places:
            return f"[{words!r} is not in these {len(text):,} characters]"
        shown: list[str] = []
        room = length
        for offset in places[:MAX_MATCHES]:
            around = text[max(0, offset - _CONTEXT) : offset + len(words) + _CONTEXT]
            shown.append(f"[offset {offset}] …{' '.join(around.split())}…")
            room -= len(shown[-1])
            if room <= 0:
                break
        more = f", the first {len(shown)} of them" if len(shown) < len(places) else ""
        return "\n".join([f"[{len(places):,} places{more}]", *shown])[:length]

    def _find(self, key: str, owner: str) -> str | None:
        if not self.has(key, owner):
            return None
        self._texts.move_to_end(key)
        return self._texts[key][1]


def _find_places(text: str, words: str) -> list[int]:
    """Return the offsets of all matches that do not overlap. Case counts if lower case changes the text's length."""
    lowered, looked_for = text.lower(), words.lower()
    if len(lowered) != len(text):
        lowered, looked_for = text, words
    if not looked_for:
        return []
    return [found.start() for found in re.finditer(re.escape(looked_for), lowered)]
