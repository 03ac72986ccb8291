"""Parses requests for chat completions (OpenAI's API reference, "Create chat completion")."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.messages.message import (
    MAX_TEXT,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallRequest,
    ToolSpec,
    build_text_part,
    decode_text_file,
)
from dial_client.runtime.json_fields import find_object
from dial_client.runtime.media_types import PDF
from dial_client.runtime.safe_text import to_one_line
from dial_client.schema import provider_schema
from dial_client.serve.http_messages import HttpError
from dial_client.turns.output_type import build_output_type

_MAX_NAME = 200


def to_text_parts(content: Content) -> Content:
    """Return a message's content with its text files as text parts. PDF documents and other files are not changed.

    Raises:
        HttpError: A text file is too large.
    """
    return content if isinstance(content, str) else tuple(_to_text_part(part) for part in content)


def _to_text_part(part: Part) -> Part:
    if not isinstance(part, FilePart) or part.mime_type == PDF:
        return part
    data = base64.b64decode(part.data)
    text = decode_text_file(data)
    if text is None:
        return part
    name = to_one_line(part.name, _MAX_NAME) or "without a name"
    if len(data) > MAX_TEXT:
        raise HttpError(
            413, f"{name} is too large: a text file may have at most {MAX_TEXT // 1000} kB", "file_too_large"
        )
    return build_text_part(name, text)


# Tools per request, as in OpenAI's API.
MAX_TOOLS = 128

_ROLES = {**{role.value: role for role in Role}, "developer": Role.SYSTEM}
# Parameters with the values that are supported, and the problem of any other value.
_RESTRICTED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "n": ((1,), "can only be 1: there is one answer"),
    "modalities": ((["text"],), 'can only be ["text"]'),
    "tool_choice": (("auto", "none"), 'can only be "auto" or "none": the tools of this server are always offered too'),
    "functions": ((), "is not supported: use tools"),
    "function_call": ((), "is not supported: use tool_choice"),
}
_SUPPORTED = frozenset(
    {
        "model", "messages", "stream", "stream_options", "tools", "tool_choice", "n", "max_tokens",
        "max_completion_tokens", "response_format", "modalities", "functions", "function_call",
    }
)  # fmt: skip
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,", re.IGNORECASE)
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ChatCompletionRequest:
    """A request for a chat completion."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    """The client's own tools."""
    stream: bool
    include_usage: bool
    max_tokens: int | None
    ignored: tuple[str, ...]
    """Names of parameters that have no effect."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the answer; None for an answer in text."""


def parse_request(body: Mapping[str, Any], model: str) -> ChatCompletionRequest:
    """Parse the body of a request.

    Args:
        body: The JSON object.
        model: The name of this server's model.

    Raises:
        HttpError: The request is invalid, for another model, or uses a parameter that is not supported.
    """
    if (requested := body.get("model", model)) != model:
        message = f"there is no model {requested!r} here: the model is {model!r}"
        raise HttpError(404, message, "model_not_found", param="model")
    for name, (supported, problem) in _RESTRICTED.items():
        if body.get(name) is not None and body[name] not in supported:
            raise _build_error(name, problem)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _build_error("messages", "must be a list with at least one message")
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise _build_error("max_tokens", "must be a number greater than 0")
    return ChatCompletionRequest(
        tuple(_parse_message(message, f"messages[{at}]") for at, message in enumerate(messages)),
        () if body.get("tool_choice") == "none" else _parse_tools(body.get("tools") or []),
        stream=body.get("stream") is True,
        include_usage=find_object(body, "stream_options").get("include_usage") is True,
        max_tokens=limit,
        schema=_parse_response_format(body.get("response_format")),
        ignored=tuple(sorted(name for name, value in body.items() if name not in _SUPPORTED and value is not None)),
    )


def _parse_response_format(format_: Any) -> Mapping[str, Any] | None:
    """Return the JSON Schema of the answer; None for an answer in text."""
    kind = format_.get("type") if isinstance(format_, Mapping) else None
    if format_ is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise _build_error("response_format", "must be of type text, json_object or json_schema")
    definition = find_object(format_, "json_schema")
    schema = definition.get("schema")
    if not isinstance(schema, Mapping):
        raise _build_error("response_format.json_schema.schema", "must be a JSON Schema")
    try:
        build_output_type(schema)
    except (ConfigError, TypeError) as error:
        raise _build_error("response_format.json_schema.schema", f"cannot be used: {error}") from None
    name = definition.get("name")
    return {"title": name, **schema} if isinstance(name, str) else schema


def _parse_tools(tools: Any) -> tuple[ToolSpec, ...]:
    if not isinstance(tools, list) or len(tools) > MAX_TOOLS:
        raise _build_error("tools", f"must be a list of at most {MAX_TOOLS} tools")
    specs: dict[str, ToolSpec] = {}
    for at, tool in enumerate(tools):
        path = f"tools[{at}]"
        function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
        if not isinstance(function, Mapping):
            raise _build_error(path, "must be of type function and have a function")
        spec = _parse_tool(function, path)
        if spec.name in specs:
            raise _build_error(f"{path}.function.name", "is a duplicate")
        specs[spec.name] = spec
    return tuple(specs.values())


def _parse_tool(function: Mapping[str, Any], path: str) -> ToolSpec:
    name, description = function.get("name"), function.get("description") or ""
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise _build_error(f"{path}.function.name", "must have 1 to 64 letters, digits, _ and -")
    if not isinstance(description, str):
        raise _build_error(f"{path}.function.description", "must be a string")
    parameters = function.get("parameters") or {}
    try:
        fit = provider_schema.adapt(parameters)
    except provider_schema.Unsupported as error:
        raise _build_error(f"{path}.function.parameters", f"cannot be offered: {error}") from None
    description = "\n\n".join([description, *fit.hints]).strip()
    return ToolSpec(name, description, fit.schema, tool=name, original_schema=parameters)


def _parse_message(message: Any, path: str) -> Message:
    role = _ROLES.get(str(message.get("role"))) if isinstance(message, Mapping) else None
    if role is None:
        raise _build_error(f"{path}.role", f"must be one of {', '.join(_ROLES)}")
    content = parse_content(message.get("content"), f"{path}.content")
    if role is Role.TOOL:
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str):
            raise _build_error(f"{path}.tool_call_id", "must be the id of a tool call")
        return Message(role, content, tool_call_id=call_id)
    calls = message.get("tool_calls") or [] if role is Role.ASSISTANT else []
    if not isinstance(calls, list):
        raise _build_error(f"{path}.tool_calls", "must be a list of calls")
    requests = tuple(_parse_call(call, f"{path}.tool_calls[{at}]") for at, call in enumerate(calls))
    return Message(role, content, requests)


def _parse_call(call: Any, path: str) -> ToolCallRequest:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise _build_error(path, "must be of type function and have a function")
    id_, name, text = call.get("id"), function.get("name"), function.get("arguments")
    if not isinstance(id_, str) or not isinstance(name, str) or not isinstance(text, str):
        raise _build_error(path, "must have an id, and a function with a name and arguments, all of them strings")
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCallRequest(id_, name, {}, text)
    return ToolCallRequest(id_, name, arguments)


def parse_content(content: Any, path: str) -> Content:
    """Parse a message's content: a string, or parts of type ``text``, ``image_url`` and ``file``; None is empty text.

    Args:
        content: The value in the request.
        path: The path of the value in the request, for error messages.

    Raises:
        HttpError: The value is not valid content.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise _build_error(path, "must be a string or a list of parts")
    return tuple(_parse_part(part, f"{path}[{at}]") for at, part in enumerate(content))


def _parse_part(part: Any, path: str) -> Part:
    kind = part.get("type") if isinstance(part, Mapping) else None
    match kind:
        case "text" | "refusal" if isinstance(part.get(kind), str):
            return TextPart(part[kind])
        case "image_url" if isinstance(part.get("image_url"), Mapping):
            mime_type, data = _parse_data_url(part["image_url"].get("url"), f"{path}.image_url.url")
            return ImagePart(data, mime_type)
        case "file" if isinstance(part.get("file"), Mapping):
            file = part["file"]
            mime_type, data = _parse_data_url(file.get("file_data"), f"{path}.file.file_data")
            return FilePart(data, mime_type, str(file.get("filename") or ""))
        case _:
            raise _build_error(path, "must be a part of type text, image_url or file")


def _parse_data_url(url: Any, path: str) -> tuple[str, str]:
    """Return the media type and the base64 data of a URL."""
    head = _DATA_URL.match(url) if isinstance(url, str) else None
    if head is None:
        raise _build_error(path, "must be a data: URL in base64; other URLs are not fetched")
    data = url[head.end() :]
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _build_error(path, "is not base64") from None
    return head[1].lower(), data


def _build_error(path: str, problem: str) -> HttpError:
    return HttpError(400, f"{path} {problem}", "invalid_request", param=path)
