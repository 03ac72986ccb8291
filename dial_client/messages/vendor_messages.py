"""Converts messages of OpenAI's chat completions and Anthropic's Messages API from and to the JSON of a `Message`.

https://platform.openai.com/docs/api-reference/chat/create: reasoning and signatures that compatible endpoints send with
a message become its echo, in the form that `providers.chat_api` uses.
https://platform.claude.com/docs/en/api/messages: if a model message has other blocks than text and calls (thinking,
citations, tools of the endpoint), its echo contains all its blocks, in the form that `providers.messages_api` uses.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dial_client.messages.citations import Citation, parse_block_citation, parse_citations, to_annotations
from dial_client.runtime.json_fields import find_object
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.media_types import IMAGE_TYPES, PDF, normalize_media_type
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


# The provider name of an echo that was read from a message, if the caller names no provider.
OPENAI = "openai"
_DATA_URL = compile_lazily(r"data:([^;,]+)(?:;[^;,]+)*;base64,(.*)", re.DOTALL)
_MIME_TYPE = compile_lazily(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_REASONING = ("reasoning", "reasoning_content", "reasoning_details", "thinking")
_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_OWN_FIELDS = {"role", "content", "tool_calls", "tool_call_id", "name", "annotations", "refusal", *_REASONING}


def write_openai(data: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return a message of chat completions.

    Args:
        data: The message in the form of `Message.to_dict`.
        notes: Receives a note on each part that this API cannot represent.
    """
    role, content = data["role"], data["content"]
    message: dict[str, Any] = {"role": role, "content": _write_content(content, notes, has_media=role == "user")}
    if role == "tool":
        message["tool_call_id"] = data.get("tool_call_id", "")
        if data.get("is_error"):
            add_note(notes, "the mark of a failed call: only the text of the result says so")
    elif "name" in data:
        message["name"] = data["name"]
    echo = _find_echo(data, notes, OPENAI, "chat:", Mapping) or {}
    if calls := data.get("tool_calls"):
        message["content"] = message["content"] or None
        message["tool_calls"] = [_write_call(call, echo) for call in calls]
    if citations := data.get("citations"):
        text = message["content"] if isinstance(message["content"], str) else ""
        message["annotations"] = to_annotations(parse_citations({"citations": citations}), len(text))
    return {**message, **find_object(echo, "reasoning"), **find_object(echo, "message")}


def read_openai(data: Mapping[str, Any], provider: str, notes: list[str]) -> dict[str, Any]:
    """Return a message in the form that `Message.from_dict` reads.

    Args:
        data: A message of chat completions.
        provider: The name of the provider to which reasoning and signatures are sent back.
        notes: Receives a note on each part that a `Message` cannot represent.

    Raises:
        ValueError: The role is unknown, or a part is of the wrong type.
    """
    role = _ROLES.get(str(data.get("role")))
    if role is None:
        raise ValueError(
            f"not a message of chat completions: its role is {data.get('role')!r}, not {', '.join(_ROLES)}"
        )
    content = data.get("content")
    message: dict[str, Any] = {"role": role, "content": _read_content(content, notes)}
    if not content and isinstance(data.get("refusal"), str):
        message["content"] = data["refusal"]
    calls = list(data.get("tool_calls") or ())
    if calls:
        message["tool_calls"] = [_read_call(call) for call in calls]
    message |= {name: data[name] for name in ("tool_call_id", "name", "annotations") if data.get(name) is not None}
    known = ("id", "type", "function", "custom", "index")
    rest = ((call["id"], {key: value for key, value in call.items() if key not in known}) for call in calls)
    extras = {call_id: extra for call_id, values in rest if (extra := _drop_unset(values))}
    reasoning = {name: data[name] for name in _REASONING if data.get(name)}
    if echo := {name: value for name, value in (("reasoning", reasoning), ("calls", extras)) if value}:
        message["echo"] = {"provider": provider, "data": echo}
    for name in sorted(set(data) - _OWN_FIELDS):
        if data[name] not in (None, [], {}, ""):
            add_note(notes, f"the field {name!r} of a message of the {role}")
    return message


def _write_content(content: Any, notes: list[str], *, has_media: bool) -> Any:
    if isinstance(content, str):
        return content
    if has_media and any(part["type"] != "text" for part in content):
        return [_write_part(part, notes) for part in content]
    texts = [part["text"] if part["type"] == "text" else describe_part(part, notes) for part in content]
    return "\n".join(texts)


def _write_part(part: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    mime_type = normalize_media_type(part["mime_type"])
    if not _MIME_TYPE.fullmatch(mime_type):
        return {"type": "text", "text": describe_part(part, notes)}
    url = f"data:{mime_type};base64,{part['data']}"
    if part["type"] == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    formats = {kind: name for name, kind in _AUDIO.items()}
    if mime_type in formats:
        return {"type": "input_audio", "input_audio": {"data": part["data"], "format": formats[mime_type]}}
    return {"type": "file", "file": {"filename": part["name"], "file_data": url}}


def _write_call(call: Mapping[str, Any], echo: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("unreadable") or json.dumps(call["arguments"], ensure_ascii=False)
    extra = find_object(find_object(echo, "calls"), call["id"])
    function = {"name": call["name"], "arguments": arguments}
    return {**extra, "id": call["id"], "type": "function", "function": function}


def _find_echo(message: Mapping[str, Any], notes: list[str], name: str, prefix: str, kind: type) -> Any:
    """Return the data of an echo of one of the API's providers; None if there is none, or it is of another API."""
    echo = message.get("echo")
    if echo is None:
        return None
    data = echo["data"]
    if (echo["provider"] == name or echo["provider"].startswith(prefix)) and isinstance(data, kind):
        return data
    kinds = [block.get("type") for block in data if isinstance(block, Mapping)] if isinstance(data, list) else []
    # Blocks of the Messages API may contain no thinking.
    is_reasoning = not kinds or any(found in ("thinking", "redacted_thinking", "reasoning") for found in kinds)
    add_note(notes, f"the {'reasoning' if is_reasoning else 'blocks'} of {echo['provider']}")
    return None


def _read_content(content: Any, notes: list[str]) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    return [_read_part(part, notes) for part in content]


def _read_part(part: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    kind = part["type"]
    if kind in ("text", "input_text", "output_text", "refusal"):
        return {"type": "text", "text": part["refusal" if kind == "refusal" else "text"]}
    if kind == "image_url" and (found := _DATA_URL.fullmatch(part["image_url"]["url"])):
        return {"type": "image", "data": found[2], "mime_type": found[1]}
    if kind == "file" and (found := _DATA_URL.fullmatch(part["file"].get("file_data", ""))):
        return {"type": "file", "data": found[2], "mime_type": found[1], "name": part["file"].get("filename", "")}
    if kind == "input_audio" and part["input_audio"]["format"] in _AUDIO:
        audio = part["input_audio"]
        return {"type": "file", "data": audio["data"], "mime_type": _AUDIO[audio["format"]], "name": ""}
    url = part["image_url"]["url"] if kind == "image_url" else ""
    add_note(notes, f"a part of the type {kind!r}{', which has a URL instead of data' if url else ''}")
    return {"type": "text", "text": f"[{kind}{f': {url}' if url else ''}]"}


def _read_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call["custom"]
    text = function.get("arguments", function.get("input"))
    arguments: Any = text
    if isinstance(text, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(text or "{}")
    request = {"id": call["id"], "name": function["name"], "arguments": arguments}
    return request if isinstance(arguments, Mapping) else request | {"arguments": {}, "unreadable": str(text)}


# The provider name of an echo that was read from a message, if the caller names no provider.
ANTHROPIC = "anthropic"
_PLAIN_TEXT = "text/plain"


def write_anthropic(data: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return a message of the Messages API; the result of a call becomes a message of the user.

    Args:
        data: The message in the form of `Message.to_dict`.
        notes: Receives a note on each part that this API cannot represent.
    """
    role, content = data["role"], data["content"]
    if role == "assistant":
        blocks = list(_find_echo(data, notes, ANTHROPIC, "messages:", list) or ())
        return {"role": role, "content": blocks or _write_reply(data, notes)}
    written = content if isinstance(content, str) else [_write_block(part, notes) for part in content]
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


def _write_reply(data: Mapping[str, Any], notes: list[str]) -> Any:
    content, calls = data["content"], data.get("tool_calls", ())
    if data.get("citations"):
        add_note(notes, "the citations: this API only accepts citations that it has signed itself")
    content = _write_content(content, notes, has_media=False)
    if not calls:
        return content
    if any("unreadable" in call for call in calls):
        add_note(notes, "arguments of a call that are not a JSON object")
    uses = [{"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]} for call in calls]
    return [*([{"type": "text", "text": content}] if content else []), *uses]


def _write_block(part: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    kind, data = normalize_media_type(part["mime_type"]), part["data"]
    if part["type"] == "image" and kind in IMAGE_TYPES:
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    title = {"title": part["name"]} if part.get("name") else {}
    if part["type"] == "file" and kind == PDF:
        return {"type": "document", "source": {"type": "base64", "media_type": PDF, "data": data}, **title}
    if part["type"] == "file" and kind == _PLAIN_TEXT:
        with suppress(binascii.Error, ValueError):
            source = {"type": "text", "media_type": kind, "data": base64.b64decode(data, validate=True).decode()}
            return {"type": "document", "source": source, **title}
    return {"type": "text", "text": describe_part(part, notes)}


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
    bare = [_drop_unset(block) for block in blocks]
    if bare not in (_write_reply(message, []), [{"type": "text", "text": text}]):
        message["echo"] = {"provider": provider, "data": blocks}
    return message


def _drop_unset(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


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
    source = find_object(block, "source")
    if kind == "image" and source.get("type") == "base64":
        return {"type": "image", "data": source["data"], "mime_type": source["media_type"]}
    if kind == "document" and source.get("type") in ("base64", "text"):
        data = source["data"]
        data = data if source["type"] == "base64" else base64.b64encode(data.encode("utf-8", "replace")).decode()
        return {"type": "file", "data": data, "mime_type": source["media_type"], "name": block.get("title") or ""}
    address = source.get("url", "")
    add_note(notes, f"a block of the type {kind!r}{', which has a URL instead of data' if address else ''}")
    return {"type": "text", "text": f"[{kind}{f': {address}' if address else ''}]"}
