"""Parses requests for chat completions (OpenAI's API reference, "Create chat completion")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.messages.message import Message, Role, ToolSpec
from dial_client.messages.model import ModelSettings, ToolChoice
from dial_client.runtime.json_fields import find_object
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
    read_stop,
    read_thinking,
    to_tool_name,
)
from dial_client.serve.model_api.message_parts import parse_content
from dial_client.serve.model_api.offered_models import NamedModel

_ROLES = {**{role.value: role for role in Role}, "developer": Role.SYSTEM}
# Parameters with the values that are supported, and the problem of any other value.
_RESTRICTED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "n": ((1,), "can only be 1: each answer would call the tools anew"),
    "modalities": ((["text"],), 'can only be ["text"]'),
    "functions": (([],), "is not supported: use tools"),
    "function_call": (("auto", "none"), "is not supported: use tool_choice"),
}
_SUPPORTED = frozenset(
    {
        "model", "messages", "stream", "stream_options", "tools", "tool_choice", "n", "max_tokens",
        "max_completion_tokens", "response_format", "modalities", "functions", "function_call", "temperature",
        "top_p", "seed", "reasoning_effort", "stop", "parallel_tool_calls",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChatCompletionRequest:
    """A request for a chat completion."""

    answer: AnswerRequest
    include_usage: bool


def parse_request(
    body: Mapping[str, Any], headers: Mapping[str, str], model: NamedModel, server_tools: Sequence[ToolSpec]
) -> ChatCompletionRequest:
    """Parse a request.

    Args:
        body: The JSON object.
        headers: The headers of the request.
        model: The model that the body names.
        server_tools: The tools of the servers, which the request may name.

    Raises:
        HttpError: The request is invalid, or uses a parameter that is not supported.
    """
    for name, (supported, problem) in _RESTRICTED.items():
        if body.get(name) is not None and body[name] not in supported:
            raise build_error(name, problem)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise build_error("messages", "must be a list with at least one message")
    tools = _parse_tools(read_list(body, "tools"))
    settings = _parse_settings(body)
    check_choice(settings.tool_choice, tools, server_tools)
    answer = AnswerRequest(
        model,
        tuple(_parse_message(message, f"messages[{index}]") for index, message in enumerate(messages)),
        tools,
        settings,
        stream=read_flag(body, "stream", default=False),
        schema=_parse_response_format(body.get("response_format")),
        activity=read_activity(headers),
        is_plain=read_plain(headers),
        ignored=tuple(sorted(name for name, value in body.items() if name not in _SUPPORTED and value is not None)),
    )
    return ChatCompletionRequest(answer, read_object(body, "stream_options").get("include_usage") is True)


def _parse_settings(body: Mapping[str, Any]) -> ModelSettings:
    limit = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    seed = body.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise build_error("seed", "must be a whole number")
    return ModelSettings(
        temperature=read_fraction(body.get("temperature"), "temperature", 2),
        top_p=read_fraction(body.get("top_p"), "top_p", 1),
        seed=seed,
        max_tokens=read_count(body.get(limit), limit),
        thinking=read_thinking(body.get("reasoning_effort"), "reasoning_effort"),
        stop=read_stop(body.get("stop"), "stop"),
        tool_choice=_parse_tool_choice(body.get("tool_choice")),
        parallel_calls=read_flag(body, "parallel_tool_calls", default=True),
    )


def _parse_tool_choice(choice: Any) -> str | None:
    if choice is None or choice == ToolChoice.AUTO:
        return None
    if isinstance(choice, str) and choice in list(ToolChoice):
        return choice
    name = find_object(choice, "function").get("name") if isinstance(choice, Mapping) else None
    if not isinstance(name, str):
        raise build_error("tool_choice", 'must be "auto", "none", "required", or {"type": "function", "function": …}')
    return to_tool_name(name)


def _parse_response_format(format_: Any) -> Mapping[str, Any] | None:
    """Return the JSON Schema of the answer; None for an answer in text."""
    kind = format_.get("type") if isinstance(format_, Mapping) else None
    if format_ is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise build_error("response_format", "must be of type text, json_object or json_schema")
    definition = find_object(format_, "json_schema")
    schema = check_schema(definition.get("schema"), "response_format.json_schema.schema")
    name = definition.get("name")
    return {"title": name, **schema} if isinstance(name, str) else schema


def _parse_tools(tools: Sequence[Any]) -> tuple[ToolSpec, ...]:
    return collect_tools(_parse_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))


def _parse_tool(tool: Any, path: str) -> ToolSpec:
    if isinstance(tool, Mapping) and tool.get("type") == "custom":
        raise build_error(path, "is of type custom, which other endpoints do not have: use type function")
    function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    if not isinstance(function, Mapping):
        raise build_error(path, "must be of type function and have a function")
    return parse_tool(function.get("name"), function.get("description"), function.get("parameters"), f"{path}.function")


def _parse_message(message: Any, path: str) -> Message:
    role = _ROLES.get(str(message.get("role"))) if isinstance(message, Mapping) else None
    if role is None:
        if isinstance(message, Mapping) and message.get("role") == "function":
            raise build_error(f"{path}.role", "is function, which is not supported: use tool, with a tool_call_id")
        raise build_error(f"{path}.role", f"must be one of {', '.join(_ROLES)}")
    content = parse_content(message.get("content"), f"{path}.content")
    if role is Role.TOOL:
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str):
            raise build_error(f"{path}.tool_call_id", "must be the id of a tool call")
        return Message(role, content, tool_call_id=call_id)
    calls = message.get("tool_calls") or [] if role is Role.ASSISTANT else []
    if not isinstance(calls, list):
        raise build_error(f"{path}.tool_calls", "must be a list of calls")
    requests = tuple(_parse_tool_call(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(calls))
    return Message(role, content, requests)


def _parse_tool_call(call: Any, path: str) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise build_error(path, "must be of type function and have a function")
    return parse_call(call.get("id"), function.get("name"), function.get("arguments"), path)
