"""The content of replies of the Chat Completions API: text, parts, images and audio, as deltas and notes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dial_client.messages.message import FilePart, ImagePart
from dial_client.messages.model import Delta, MediaChunk, ReasoningChunk, TextChunk
from dial_client.providers.tool_call_codec import to_json_text
from dial_client.runtime.json_fields import to_text
from dial_client.runtime.safe_text import to_one_line

_DATA_URL = re.compile(r"data:([^;,]{1,100})(?:;[^;,]{1,100})*?;base64,", re.ASCII)
_MAX_NOTES = 20


class ChatContent:
    """The content of one reply, as far as it has been received."""

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}
        self._audio_chars = 0

    @property
    def notes(self) -> list[str]:
        """Notes on content that neither the text nor a media part shows."""
        size = max(1, self._audio_chars * 3 // 4000)
        audio = [f"the endpoint sent audio, about {size} kB: only its transcript is kept"] if self._audio_chars else []
        return [*self._notes, *audio]

    def parse(self, content: Any) -> list[Delta]:
        """Return the deltas of content: a text, a list of parts, or any other JSON value (some gateways)."""
        if isinstance(content, str):
            return [TextChunk(content)] if content else []
        if isinstance(content, list):
            return [delta for part in content for delta in self._parse_part(part)]
        if isinstance(content, Mapping) and ("type" in content or "text" in content):
            return self._parse_part(content)
        return [] if content is None else [TextChunk(to_json_text(content))]

    def parse_media(self, delta: Mapping[str, Any]) -> list[Delta]:
        """Return the deltas of the images and the audio, which are fields beside the content."""
        images = delta.get("images")
        deltas = [piece for image in (images if isinstance(images, list) else ()) for piece in self._parse_image(image)]
        audio = delta.get("audio")
        if isinstance(audio, Mapping):
            self._audio_chars += len(to_text(audio.get("data")))
            if transcript := to_text(audio.get("transcript")):
                deltas.append(TextChunk(transcript))
        return deltas

    def note(self, note: str) -> None:
        """Add a note, unless it was added before."""
        if len(self._notes) < _MAX_NOTES:
            self._notes[note] = None

    def _parse_part(self, part: Any) -> list[Delta]:
        if isinstance(part, str):
            return [TextChunk(part)] if part else []
        if not isinstance(part, Mapping):
            return [TextChunk(to_json_text(part))]
        kind = to_text(part.get("type"))
        if kind == "thinking":
            text = _join_thinking(part.get("thinking"))
            return [ReasoningChunk(text)] if text else []
        if kind in ("image_url", "image"):
            return self._parse_image(part)
        if isinstance(part.get("text"), str):
            return [TextChunk(part["text"])] if part["text"] else []
        self.note(f"a part of the reply is not shown (type {to_one_line(kind, 40) or 'unknown'})")
        return []

    def _parse_image(self, image: Any) -> list[Delta]:
        inner = image.get("image_url", image) if isinstance(image, Mapping) else image
        url = to_text(inner.get("url")) if isinstance(inner, Mapping) else to_text(inner)
        if (part := parse_data_url(url)) is not None:
            return [MediaChunk(part)]
        if url:
            self.note(f"the reply has an image that is not fetched: {to_one_line(url, 300)}")
        return []


def parse_data_url(url: str) -> ImagePart | FilePart | None:
    """Return the image or file in a ``data:`` URL; None for any other URL."""
    found = _DATA_URL.match(url)
    if found is None or len(url) == found.end():
        return None
    mime_type, data = found[1].lower(), url[found.end() :]
    return ImagePart(data, mime_type) if mime_type.startswith("image/") else FilePart(data, mime_type)


def _join_thinking(thinking: Any) -> str:
    pieces = thinking if isinstance(thinking, list) else [{"text": thinking}]
    return "".join(to_text(piece.get("text")) for piece in pieces if isinstance(piece, Mapping))
