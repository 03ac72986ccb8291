"""The content of prompts: the blocks of an editor as the message of a user, and messages as blocks again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from acp.exceptions import RequestError
from acp.helpers import ContentBlock, image_block, text_block
from acp.schema import (
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from dial_client.messages.message import (
    MAX_TEXT,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    TextPart,
    build_text_part,
)
from dial_client.runtime.safe_text import sanitize, to_one_line

# The lines in an address: ``L7``, ``L7:9``, ``L7-L9``.
_LINES = re.compile(r"L(\d{1,9})(?:[:-]L?(\d{1,9}))?")


def read_prompt(blocks: Sequence[ContentBlock]) -> Content:
    """Return the content of a user's message.

    A resource that is only named is a path in the text: the model's tools can read it. What an editor embeds is
    attached.

    Raises:
        RequestError: The prompt is empty, has a sound, or an embedded text is too large.
    """
    parts = [part for block in blocks for part in _read_block(block)]
    if not any(not isinstance(part, TextPart) or part.text.strip() for part in parts):
        raise RequestError.invalid_params({"problem": "the prompt is empty"})
    texts: list[Part] = []
    for part in parts:  # text and the names in it are one text, in which mentions are found
        previous = texts[-1] if texts else None
        if isinstance(part, TextPart) and isinstance(previous, TextPart) and not (part.foreign or previous.foreign):
            texts[-1] = TextPart(previous.text + part.text)
        else:
            texts.append(part)
    return texts[0].text if len(texts) == 1 and isinstance(texts[0], TextPart) else tuple(texts)


def _read_block(block: ContentBlock) -> Iterator[Part]:
    match block:
        case TextContentBlock():
            yield TextPart(block.text)
        case ImageContentBlock():
            yield ImagePart(block.data, block.mime_type)
        case ResourceContentBlock():
            yield TextPart(to_one_line(name_place(block.uri), MAX_TEXT))
        case EmbeddedResourceContentBlock():
            yield from _read_resource(block)
        case _:
            raise RequestError.invalid_params({"problem": "sounds are not supported: send their text"})


def _read_resource(block: EmbeddedResourceContentBlock) -> Iterator[Part]:
    resource = block.resource
    name = to_one_line(name_place(resource.uri), 500)
    if not isinstance(resource, TextResourceContents):
        yield FilePart(resource.blob, resource.mime_type or "application/octet-stream", name)
        return
    if len(resource.text) > MAX_TEXT:
        raise RequestError.invalid_params({"problem": f"{name} is too large: at most {MAX_TEXT:,} characters"})
    yield build_text_part(name, resource.text)


def name_place(uri: str) -> str:
    """Return the path that an address names, with its lines, or the address if it names none.

    Zed names a selection or a symbol ``zed:///agent/selection?path=%2Fa%2Fb.py#L2:5``; the tools know paths only.
    """
    parsed = urlsplit(uri)
    if parsed.scheme == "file":
        path = unquote(parsed.path)
    elif parsed.scheme == "zed":
        path = dict(parse_qsl(parsed.query)).get("path", "")
    else:
        path = ""
    if not path:
        return uri
    lines = _LINES.fullmatch(parsed.fragment)
    shown = f", lines {lines[1]} to {lines[2]}" if lines and lines[2] else f", line {lines[1]}" if lines else ""
    return f"{Path(path[1:] if path[2:3] == ':' else path)}{shown}"  # /C:/folder is C:/folder


def to_blocks(message: Message) -> list[ContentBlock]:
    """Return the content of a stored message; files that are no images as a line."""
    if isinstance(message.content, str):
        return [text_block(sanitize(message.content))] if message.content else []
    return [_to_block(part) for part in message.content]


def _to_block(part: Part) -> ContentBlock:
    match part:
        case TextPart(text):
            return text_block(sanitize(text))
        case ImagePart(data, mime_type):
            return image_block(data, mime_type)
        case FilePart(_, mime_type, name):
            return text_block(f"[{to_one_line(name or mime_type, 200)}]")
