"""Parses requests of OpenAI's Responses API (API reference, "Create a model response").

Newer clients send fields and items that this server does not know: these have no effect. Tools that OpenAI's endpoint
runs itself, such as web search, are left out. Both are named in the response's header ``x-ignored-parameters``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dial_client.messages.message import Content, FilePart, ImagePart, Message, Part, Role, TextPart, ToolSpec
from dial_client.messages.model import ModelSettings, ToolChoice
from dial_client.runtime.json_fields import find_text, to_list, to_object, to_text
from dial_client.serve.http_messages import read_flag, read_list, read_object
from dial_client.serve.model_api.answer_request import (
    AnswerRequest,
    build_error,
    check_choice,
    check_schema,
    collect_tools,
    parse_call,
    parse_tool,
    read_activity,
    read_count,
    read_fraction,
    read_plain,
    read_thinking,
    to_tool_name,
)
from dial_client.serve.model_api.message_parts import parse_data_url
from dial_client.serve.model_api.offered_models import NamedModel
from dial_client.serve.model_api.request_history import RequestHistory

# The argument that contains the free text of a custom tool's call.
CUSTOM_INPUT = "input"
_CUSTOM_SCHEMA = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string"}},
    "required": [CUSTOM_INPUT],
    "additionalProperties": False,
}
_ROLES = {"user": Role.USER, "system": Role.SYSTEM, "developer": Role.SYSTEM, "assistant": Role.ASSISTANT}
# Parameters that would change what the answer is, and why they are refused.
_REFUSED: Mapping[str, str] = {
    "background": "is not supported: the answer is sent in the response",
    "conversation": "is not supported: send previous_response_id, or all items in input",
    "prompt": "is not supported: there are no stored prompts here",
}
# Parameters that concern only the endpoint that runs the model, or say what is always so.
_WITHOUT_EFFECT = frozenset(
    {
        "background", "client_metadata", "conversation", "include", "metadata", "moderation", "prompt",
        "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "service_tier",
        "stream_options", "top_logprobs", "truncation", "user",
    }
)  # fmt: skip
_SUPPORTED = frozenset(
    {
        "input", "instructions", "max_output_tokens", "model", "previous_response_id", "reasoning", "store", "stream",
        "temperature", "text", "tool_choice", "tools", "top_p", "parallel_tool_calls",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A client's tool, as the items of its calls name it."""

    name: str
    namespace: str = ""
    is_custom: bool = False
    """True for a tool with free text in place of arguments."""

    @property
    def key(self) -> str:
        """`ToolSpec.tool`: the name that is unique among the tools of a request."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A request for a response."""

    answer: AnswerRequest
    tools: Mapping[str, ClientTool]
    """The client's tools by `ToolSpec.tool`."""
    echoed: Mapping[str, Any] = field(default_factory=dict)
    """The parameters that the response repeats."""


@dataclass(frozen=True, slots=True)
class _Tools:
    specs: tuple[ToolSpec, ...]
    by_key: Mapping[str, ClientTool]
    left_out: tuple[str, ...]


def parse_request(
    body: Mapping[str, Any],
    items: Sequence[Any],
    headers: Mapping[str, str],
    model: NamedModel,
    server_tools: Sequence[ToolSpec],
) -> ResponsesRequest:
    """Parse a request.

    Args:
        body: The JSON object.
        items: The items of the conversation: those of earlier responses and of the body's ``input``.
        headers: The headers of the request.
        model: The model that the body names.
        server_tools: The tools of the servers, which the request may name.

    Raises:
        HttpError: The request is invalid, or uses a parameter that is not supported.
    """
    for name, problem in _REFUSED.items():
        if body.get(name):
            raise build_error(name, problem)
    if not items:
        raise build_error("input", "must be a text or a list with at least one item")
    tools = _parse_tools([*read_list(body, "tools"), *_find_added_tools(items)])
    choice, allowed = _parse_tool_choice(body.get("tool_choice"))
    specs = tools.specs
    hidden: frozenset[str] = frozenset()
    if allowed is not None:
        specs = tuple(spec for spec in specs if tools.by_key[spec.tool].name in allowed)
        hidden = frozenset(tool.name for tool in server_tools if {tool.name, tool.server}.isdisjoint(allowed))
    check_choice(choice, specs, server_tools)
    messages, unknown = _parse_items(items, server_tools)
    if (instructions := body.get("instructions")) not in (None, ""):
        messages = (Message(Role.SYSTEM, _parse_content(instructions, "instructions")), *messages)
    read_flag(body, "store", default=True)
    ignored = {name for name, value in body.items() if name not in _SUPPORTED | _WITHOUT_EFFECT and value is not None}
    answer = AnswerRequest(
        model,
        messages,
        specs,
        ModelSettings(
            temperature=read_fraction(body.get("temperature"), "temperature", 2),
            top_p=read_fraction(body.get("top_p"), "top_p", 1),
            max_tokens=read_count(body.get("max_output_tokens"), "max_output_tokens"),
            thinking=read_thinking(read_object(body, "reasoning").get("effort"), "reasoning.effort"),
            tool_choice=choice,
            parallel_calls=read_flag(body, "parallel_tool_calls", default=True),
        ),
        stream=read_flag(body, "stream", default=False),
        hidden_tools=hidden,
        schema=_parse_format(read_object(body, "text").get("format")),
        activity=read_activity(headers),
        is_plain=read_plain(headers),
        ignored=(*sorted(ignored), *tools.left_out, *unknown),
    )
    return ResponsesRequest(answer, tools.by_key, _find_echoed(body))


def list_input(body: Mapping[str, Any]) -> list[Any]:
    """Return the items of a request's ``input``.

    Raises:
        HttpError: It is neither a text nor a list.
    """
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    if given is not None and not isinstance(given, list):
        raise build_error("input", "must be a text or a list with at least one item")
    return given or []


def _find_echoed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a response repeats, with the API's own values for those that are missing."""
    defaults: dict[str, Any] = {
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": None,
        "store": True,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
    }
    return {name: default if body.get(name) is None else body[name] for name, default in defaults.items()}


def _find_added_tools(items: Iterable[Any]) -> list[Any]:
    """Return the tools that items of the conversation add."""
    kinds = ("additional_tools", "tool_search_output")
    return [tool for item in items if to_object(item).get("type") in kinds for tool in to_list(item.get("tools"))]


def _parse_tools(tools: Sequence[Any]) -> _Tools:
    specs: list[ToolSpec] = []
    by_key: dict[str, ClientTool] = {}
    left_out: list[str] = []
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        definition = to_object(tool)
        match definition.get("type"):
            case "function" | "custom":
                flat = [("", definition, path)]
            case "namespace":
                inner = enumerate(to_list(definition.get("tools")))
                name = to_text(definition.get("name"))
                flat = [(name, to_object(part), f"{path}.tools[{place}]") for place, part in inner]
            case "mcp":
                problem = "names an MCP server: this server connects to those of its own configuration only"
                raise build_error(path, problem)
            case str(kind):
                left_out.append(f"{path} ({kind})")
                continue
            case _:
                raise build_error(path, "must be an object with a type")
        for namespace, part, place in flat:
            known, spec = _parse_client_tool(namespace, part, place)
            specs.append(spec)
            by_key[known.key] = known
    return _Tools(collect_tools(specs), by_key, tuple(left_out))


def _parse_client_tool(namespace: str, definition: Mapping[str, Any], path: str) -> tuple[ClientTool, ToolSpec]:
    name, description = definition.get("name"), definition.get("description")
    known = ClientTool(to_text(name), namespace, definition.get("type") == "custom")
    parameters = definition.get("parameters")
    if known.is_custom:
        parameters = _CUSTOM_SCHEMA
        if grammar := find_text(definition.get("format"), "definition"):
            description = f"{to_text(description)}\n\nThe text has to follow this grammar:\n{grammar}".strip()
    return known, parse_tool(known.key if isinstance(name, str) else name, description, parameters, path)


def _parse_tool_choice(choice: Any) -> tuple[str | None, frozenset[str] | None]:
    """Return `ModelSettings.tool_choice`, and the names of the tools and servers that may be used; None for all."""
    if choice is None or choice == ToolChoice.AUTO:
        return None, None
    if isinstance(choice, str) and choice in list(ToolChoice):
        return choice, None
    kind, name = to_object(choice).get("type"), find_text(choice, "name")
    if kind in ("function", "custom", "mcp") and name:
        return to_tool_name(name), None
    if kind == "allowed_tools" and choice.get("mode") in ("auto", "required"):
        names = frozenset(find_text(tool, "name", "server_label") for tool in to_list(choice.get("tools")))
        return (ToolChoice.REQUIRED if choice["mode"] == "required" else None), names
    problem = 'must be "auto", "none", "required", or an object of type function, custom or allowed_tools'
    raise build_error("tool_choice", problem)


def _parse_format(format_: Any) -> Mapping[str, Any] | None:
    """Return the JSON Schema of the answer; None for an answer in text."""
    match to_object(format_).get("type"):
        case None | "text":
            return None
        case "json_object":
            return {"type": "object"}
        case "json_schema":
            schema = check_schema(format_.get("schema"), "text.format.schema")
            name = format_.get("name")
            return {"title": name, **schema} if isinstance(name, str) else schema
        case _:
            raise build_error("text.format", "must be of type text, json_object or json_schema")


def _parse_items(items: Sequence[Any], server_tools: Sequence[ToolSpec]) -> tuple[tuple[Message, ...], list[str]]:
    """Return the messages of the conversation, and the items that have no effect."""
    history = RequestHistory(server_tools)
    unknown = []
    for index, item in enumerate(items):
        path = f"input[{index}]"
        if not isinstance(item, Mapping):
            raise build_error(path, "must be an item of the conversation")
        kind = item.get("type") or ("message" if "role" in item else None)
        match kind:
            case "message":
                _add_message(history, item, path)
            case "function_call" | "custom_tool_call":
                history.add_call(_parse_call(item, path))
            case "function_call_output" | "custom_tool_call_output":
                call_id = item.get("call_id")
                if not isinstance(call_id, str):
                    raise build_error(f"{path}.call_id", "must be the id of a call")
                history.add_result(call_id, _parse_content(item.get("output"), f"{path}.output"))
            case "mcp_call":
                _add_shown_call(history, item)
            case "reasoning" | "additional_tools" | "tool_search_output":
                pass  # the model's own reasoning stays with the turns that are kept; tools are collected elsewhere
            case _:
                unknown.append(f"{path} ({to_text(kind)})")
    return history.build(), unknown


def _add_message(history: RequestHistory, item: Mapping[str, Any], path: str) -> None:
    role = _ROLES.get(to_text(item.get("role")))
    if role is None:
        raise build_error(f"{path}.role", f"must be one of {', '.join(_ROLES)}")
    content = _parse_content(item.get("content"), f"{path}.content")
    if role is Role.ASSISTANT:
        history.add_reply(content)
    else:
        history.add_message(Message(role, content))


def _parse_call(item: Mapping[str, Any], path: str) -> Any:
    key = ClientTool(to_text(item.get("name")), to_text(item.get("namespace"))).key
    text = item.get("arguments")
    if item["type"] == "custom_tool_call":
        text = json.dumps({CUSTOM_INPUT: to_text(item.get("input"))})
    return parse_call(item.get("call_id"), key, text, path)


def _add_shown_call(history: RequestHistory, item: Mapping[str, Any]) -> None:
    try:
        arguments = to_object(json.loads(to_text(item.get("arguments")) or "{}"))
    except (ValueError, RecursionError):
        arguments = {}
    error = item.get("error")
    result = to_text(item.get("output")) or (error if isinstance(error, str) else find_text(error, "message"))
    history.add_shown_call(
        to_text(item.get("server_label")), to_text(item.get("name")), arguments, result, is_error=bool(error)
    )


def _parse_content(content: Any, path: str) -> Content:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise build_error(path, "must be a text or a list of parts")
    return tuple(_parse_part(part, f"{path}[{index}]") for index, part in enumerate(content))


def _parse_part(part: Any, path: str) -> Part:
    match to_object(part).get("type"):
        case "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text":
            return TextPart(to_text(part.get("text")))
        case "refusal":
            return TextPart(to_text(part.get("refusal")))
        case "input_image":
            mime_type, data = parse_data_url(part.get("image_url"), f"{path}.image_url")
            return ImagePart(data, mime_type)
        case "input_file":
            mime_type, data = parse_data_url(part.get("file_data"), f"{path}.file_data")
            return FilePart(data, mime_type, to_text(part.get("filename")))
        case _:
            raise build_error(path, "must be a part of type input_text, output_text, input_image or input_file")
