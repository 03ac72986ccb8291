"""Converts messages of Anthropic's Messages API from and to the JSON of `Message.to_dict`.

https://platform.claude.com/docs/en/api/messages. If a model message has other blocks than text and calls (thinking,
citations, tools of the endpoint), its echo contains all its blocks, in the form that `providers.messages_stream` uses.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dial_client.messages.citations import Citation, parse_block_citation
from dial_client.messages.left_out import add_note, describe_echo, describe_part
from dial_client.runtime.media_types import IMAGE_TYPES, PDF, normalize_media_type

NAME = "anthropic"
"""The provider name of an echo that was read from a message, if the caller names no provider."""
_PLAIN_TEXT = "text/plain"


def write_anthropic(data: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return a message of the Messages API; the result of a call becomes a message of the user.

    Args:
        data: The message in the form of `Message.to_dict`.
        notes: Receives a note on each part that this API cannot represent.
    """
    role, content = data["role"], data["content"]
    if role == "assistant":
        return {"role": role, "content": _find_echo(data, notes) or _write_reply(data, notes)}
    written = content if isinstance(content, str) else [_write_part(part, notes) for part in content]
    if role != "tool":
        return {"role": role, "content": written}
    result = {"type": "tool_result", "tool_use_id": data.get("tool_call_id", ""), "content": written}
    return {"role": "user", "content": [result | ({"is_error": True} if data.get("is_error") else {})]}


def read_anthropic(
    data: Mapping[str, Any], names: Mapping[str, str], provider: str, notes: list[str]
) -> list[dict[str, Any]]:
    """Return messages in the form that `Message.from_dict` reads: several for a message with results of several calls.

    Args:
        data: A message of the Messages API.
        names: The tool name of each earlier call, by the call's id.
        provider: The name of the provider to which thinking and signatures are sent back.
        notes: Receives a note on each part that a `Message` cannot represent.

    Raises:
        ValueError: The role is unknown, or a block is of the wrong type.
    """
    role, content = data.get("role"), data.get("content")
    if role not in ("system", "user", "assistant"):
        raise ValueError(f"not a message of the Messages API: its role is {role!r}, not system, user or assistant")
    if content is None or isinstance(content, str):
        return [{"role": role, "content": content or ""}]
    if role == "assistant":
        return [_read_reply(list(content), provider)]
    return list(_read_user_blocks(role, content, names, notes))


def _find_echo(data: Mapping[str, Any], notes: list[str]) -> list[Any]:
    echo = data.get("echo")
    if echo is None:
        return []
    if (echo["provider"] == NAME or echo["provider"].startswith("messages:")) and isinstance(echo["data"], list):
        return list(echo["data"])
    add_note(notes, describe_echo(echo))
    return []


def _write_reply(data: Mapping[str, Any], notes: list[str]) -> Any:
    content, calls = data["content"], data.get("tool_calls", ())
    if data.get("citations"):
        add_note(notes, "the citations: this API only accepts citations that it has signed itself")
    if not isinstance(content, str):
        texts = [part["text"] if part["type"] == "text" else describe_part(part, notes) for part in content]
        content = "\n".join(texts)
    if not calls:
        return content
    if any("unreadable" in call for call in calls):
        add_note(notes, "arguments of a call that are not a JSON object")
    uses = [{"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]} for call in calls]
    return [*([{"type": "text", "text": content}] if content else []), *uses]


def _write_part(part: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    kind, data = normalize_media_type(part["mime_type"]), part["data"]
    if part["type"] == "image" and kind in IMAGE_TYPES:
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    title = {"title": part["name"]} if part.get("name") else {}
    if part["type"] == "file" and kind == PDF:
        return {"type": "document", "source": {"type": "base64", "media_type": PDF, "data": data}, **title}
    if part["type"] == "file" and kind == _PLAIN_TEXT and (text := _decode(data)) is not None:
        return {"type": "document", "source": {"type": "text", "media_type": _PLAIN_TEXT, "data": text}, **title}
    return {"type": "text", "text": describe_part(part, notes)}


def _decode(data: str) -> str | None:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _read_reply(blocks: list[Mapping[str, Any]], provider: str) -> dict[str, Any]:
    """Return the model's message; text after a block of another type is a new paragraph, as in a streamed reply."""
    text, is_paragraph = "", False
    citations: list[Citation] = []
    calls = []
    for block in blocks:
        if block["type"] != "text":
            is_paragraph = bool(text)
            if block["type"] == "tool_use":
                calls.append({"id": block["id"], "name": block["name"], "arguments": block["input"]})
            continue
        text += "\n\n" if is_paragraph else ""
        start, is_paragraph = len(text), False
        text += block["text"]
        found = map(parse_block_citation, block.get("citations") or ())
        citations += [citation.at(start, len(text)) for citation in found if citation is not None]
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    if citations:
        message["citations"] = [citation.to_dict() for citation in citations]
    # Blocks of the SDK contain None for unset fields.
    bare = [{name: value for name, value in block.items() if value is not None} for block in blocks]
    if bare not in (_write_reply(message, []), [{"type": "text", "text": text}]):
        message["echo"] = {"provider": provider, "data": blocks}
    return message


def _read_user_blocks(
    role: str, blocks: Sequence[Mapping[str, Any]], names: Mapping[str, str], notes: list[str]
) -> Iterator[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] != "tool_result":
            parts.append(_read_block(block, notes))
            continue
        if parts:
            yield {"role": role, "content": parts}
            parts = []
        yield _read_result(block, names, notes)
    if parts or not blocks:
        yield {"role": role, "content": parts}


def _read_result(block: Mapping[str, Any], names: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    content = block.get("content") or ""
    message = {
        "role": "tool",
        "content": content if isinstance(content, str) else [_read_block(part, notes) for part in content],
        "tool_call_id": block["tool_use_id"],
        "is_error": block.get("is_error") is True,
    }
    name = names.get(block["tool_use_id"])
    return message if name is None else message | {"name": name}


def _read_block(block: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    kind = block["type"]
    if kind == "text":
        return {"type": "text", "text": block["text"]}
    source = block.get("source")
    source = source if isinstance(source, Mapping) else {}
    if kind == "image" and source.get("type") == "base64":
        return {"type": "image", "data": source["data"], "mime_type": source["media_type"]}
    if kind == "document" and source.get("type") in ("base64", "text"):
        data = source["data"]
        data = data if source["type"] == "base64" else base64.b64encode(data.encode("utf-8", "replace")).decode()
        return {"type": "file", "data": data, "mime_type": source["media_type"], "name": block.get("title") or ""}
    address = source.get("url", "")
    add_note(notes, f"a block of the type {kind!r}{', which has a URL instead of data' if address else ''}")
    return {"type": "text", "text": f"[{kind}{f': {address}' if address else ''}]"}
