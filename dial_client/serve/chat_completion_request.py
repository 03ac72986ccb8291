"""Reads what clients of OpenAI's chat completions send (API reference, "Create chat completion")."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.messages import Content, FilePart, ImagePart, Message, Part, Role, TextPart, ToolCallRequest, ToolSpec
from dial_client.schema import provider_schema
from dial_client.serve.http_responses import HttpError

MAX_TOOLS = 128
"""Tools of the caller's own: what OpenAI takes."""

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
}
_HEEDED = frozenset(
    {
        "model", "messages", "stream", "stream_options", "tools", "tool_choice", "n", "max_tokens",
        "max_completion_tokens", "response_format", "modalities", "functions", "function_call",
    }
)  # fmt: skip
_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,", re.IGNORECASE)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ChatCompletionRequest:
    """A request for a completion."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    """The caller's own."""
    stream: bool
    include_usage: bool
    max_tokens: int | None
    ignored: tuple[str, ...]
    """Parameters that have no effect here."""


def read(body: Mapping[str, Any], model: str) -> ChatCompletionRequest:
    """Read a request to this model.

    Raises:
        Refusal: it is none, it is for another model, or it wants what cannot be had here.
    """
    if (named := body.get("model", model)) != model:
        raise HttpError(404, f"there is no model {named!r} here: it is {model!r}", "model_not_found", param="model")
    _refuse_what_cannot_be_had(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "is a list of messages, at least one")
    options = body.get("stream_options")
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise _wrong("max_tokens", "is a number greater than 0")
    return ChatCompletionRequest(
        tuple(_message(one, f"messages[{at}]") for at, one in enumerate(messages)),
        () if body.get("tool_choice") == "none" else _tools(body.get("tools") or []),
        stream=body.get("stream") is True,
        include_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        max_tokens=limit,
        ignored=tuple(sorted(name for name, value in body.items() if name not in _HEEDED and value is not None)),
    )


def _refuse_what_cannot_be_had(body: Mapping[str, Any]) -> None:
    if body.get("n") not in (None, 1):
        raise _wrong("n", "can only be 1: there is one answer")
    wanted = body.get("response_format")
    if wanted is not None and (not isinstance(wanted, Mapping) or wanted.get("type") != "text"):
        raise _wrong("response_format", "can only be text")
    if body.get("modalities") not in (None, ["text"]):
        raise _wrong("modalities", 'can only be ["text"]')
    if body.get("tool_choice") not in (None, "auto", "none"):
        raise _wrong("tool_choice", 'can only be "auto" or "none": the tools behind this endpoint are on offer too')
    for old, new in (("functions", "tools"), ("function_call", "tool_choice")):
        if body.get(old) is not None:
            raise _wrong(old, f"is not taken any more: use {new}")


def _tools(given: Any) -> tuple[ToolSpec, ...]:
    if not isinstance(given, list) or len(given) > MAX_TOOLS:
        raise _wrong("tools", f"is a list of at most {MAX_TOOLS} tools")
    found: dict[str, ToolSpec] = {}
    for at, one in enumerate(given):
        where = f"tools[{at}]"
        function = one.get("function") if isinstance(one, Mapping) and one.get("type") == "function" else None
        if not isinstance(function, Mapping):
            raise _wrong(where, "is of type function, and has one")
        tool = _tool(function, where)
        if tool.name in found:
            raise _wrong(f"{where}.function.name", "is there twice")
        found[tool.name] = tool
    return tuple(found.values())


def _tool(function: Mapping[str, Any], where: str) -> ToolSpec:
    name, about = function.get("name"), function.get("description") or ""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(f"{where}.function.name", "is 1 to 64 letters, digits, _ and -")
    if not isinstance(about, str):
        raise _wrong(f"{where}.function.description", "is a text")
    parameters = function.get("parameters") or {}
    try:
        fit = provider_schema.fit(parameters)
    except provider_schema.Unsupported as why:
        raise _wrong(f"{where}.function.parameters", f"cannot be offered: {why}") from None
    return ToolSpec(name, "\n\n".join([about, *fit.hints]).strip(), fit.schema, tool=name, original_schema=parameters)


def _message(given: Any, where: str) -> Message:
    role = _ROLES.get(str(given.get("role"))) if isinstance(given, Mapping) else None
    if role is None:
        raise _wrong(f"{where}.role", f"is one of {', '.join(_ROLES)}")
    content = content_of(given.get("content"), f"{where}.content")
    if role is Role.TOOL:
        call = given.get("tool_call_id")
        if not isinstance(call, str):
            raise _wrong(f"{where}.tool_call_id", "is the id of the call that is answered")
        return Message(role, content, tool_call_id=call)
    calls = given.get("tool_calls") or [] if role is Role.ASSISTANT else []
    if not isinstance(calls, list):
        raise _wrong(f"{where}.tool_calls", "is a list of calls")
    return Message(role, content, tuple(_call(one, f"{where}.tool_calls[{at}]") for at, one in enumerate(calls)))


def _call(given: Any, where: str) -> ToolCallRequest:
    function = given.get("function") if isinstance(given, Mapping) else None
    if not isinstance(function, Mapping):
        raise _wrong(where, "is of type function, and has one")
    id_, name, arguments = given.get("id"), function.get("name"), function.get("arguments")
    if not isinstance(id_, str) or not isinstance(name, str) or not isinstance(arguments, str):
        raise _wrong(where, "has an id, and a function with a name and arguments, all of them texts")
    try:
        said = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        said = None
    return ToolCallRequest(id_, name, said) if isinstance(said, dict) else ToolCallRequest(id_, name, {}, arguments)


def content_of(given: Any, where: str) -> Content:
    """Read a message's content: a text, or parts of type ``text``, ``image_url`` and ``file``; None is no text.

    Raises:
        Refusal: it is none; `where` says where it stands in the request.
    """
    if given is None or isinstance(given, str):
        return given or ""
    if not isinstance(given, Sequence):
        raise _wrong(where, "is a text, or a list of parts")
    return tuple(_part(one, f"{where}[{at}]") for at, one in enumerate(given))


def _part(given: Any, where: str) -> Part:
    kind = given.get("type") if isinstance(given, Mapping) else None
    match kind:
        case "text" | "refusal" if isinstance(given.get(kind), str):
            return TextPart(given[kind])
        case "image_url" if isinstance(given.get("image_url"), Mapping):
            mime_type, data = _data(given["image_url"].get("url"), f"{where}.image_url.url")
            return ImagePart(data, mime_type)
        case "file" if isinstance(given.get("file"), Mapping):
            file = given["file"]
            mime_type, data = _data(file.get("file_data"), f"{where}.file.file_data")
            return FilePart(data, mime_type, str(file.get("filename") or ""))
        case _:
            raise _wrong(where, "is a part of type text, image_url or file")


def _data(url: Any, where: str) -> tuple[str, str]:
    head = _DATA.match(url) if isinstance(url, str) else None
    if head is None:
        raise _wrong(where, "is a data: URL in base64; nothing is fetched from elsewhere")
    data = url[head.end() :]
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong(where, "is no base64") from None
    return head[1].lower(), data


def _wrong(where: str, what: str) -> HttpError:
    return HttpError(400, f"{where} {what}", "invalid_request", param=where)
