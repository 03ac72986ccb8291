"""Converts messages of OpenAI's chat completions from and to the JSON of `Message.to_dict`.

https://platform.openai.com/docs/api-reference/chat/create. Reasoning and signatures that compatible endpoints send with
a message become its echo, in the form that `providers.chat_stream` uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from dial_client.messages.citations import parse_citations, to_annotations
from dial_client.messages.left_out import add_note, describe_echo, describe_part
from dial_client.runtime.media_types import normalize_media_type

NAME = "openai"
"""The provider name of an echo that was read from a message, if the caller names no provider."""
_DATA_URL = re.compile(r"data:([^;,]+)(?:;[^;,]+)*;base64,(.*)", re.DOTALL)
_MIME_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
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
    has_media = role == "user"
    message: dict[str, Any] = {"role": role, "content": _write_content(content, notes, has_media=has_media)}
    if role == "tool":
        message["tool_call_id"] = data.get("tool_call_id", "")
        if data.get("is_error"):
            add_note(notes, "the mark of a failed call: only the text of the result says so")
    elif "name" in data:
        message["name"] = data["name"]
    echo = _find_echo(data, notes)
    if calls := data.get("tool_calls"):
        message["content"] = message["content"] or None
        message["tool_calls"] = [_write_call(call, echo) for call in calls]
    if citations := data.get("citations"):
        text = message["content"] if isinstance(message["content"], str) else ""
        message["annotations"] = to_annotations(parse_citations({"citations": citations}), len(text))
    return message | _get_mapping(echo, "reasoning") | _get_mapping(echo, "message")


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
    extras = {call["id"]: extra for call in calls if (extra := _get_extra(call))}
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
    extra = _get_mapping(_get_mapping(echo, "calls"), call["id"])
    function = {"name": call["name"], "arguments": arguments}
    return {**extra, "id": call["id"], "type": "function", "function": function}


def _find_echo(data: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    echo = data.get("echo")
    if echo is None:
        return {}
    if (echo["provider"] == NAME or echo["provider"].startswith("chat:")) and isinstance(echo["data"], Mapping):
        return dict(echo["data"])
    add_note(notes, describe_echo(echo))
    return {}


def _get_mapping(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return dict(value) if isinstance(value, Mapping) else {}


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
        try:
            arguments = json.loads(text or "{}")
        except (ValueError, RecursionError):
            arguments = None
    request = {"id": call["id"], "name": function["name"], "arguments": arguments}
    return request if isinstance(arguments, Mapping) else request | {"arguments": {}, "unreadable": str(text)}


def _get_extra(call: Mapping[str, Any]) -> dict[str, Any]:
    known = ("id", "type", "function", "custom", "index")
    return {name: value for name, value in call.items() if name not in known and value is not None}
