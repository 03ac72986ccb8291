"""The attributes of spans and metrics: names and values of OpenTelemetry's GenAI semantic conventions.

The names are string literals here, because the package that defines them is unstable and belongs to the SDK.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from dial_client.hooks.middleware import ModelReply, ToolCall, TurnRequest
from dial_client.messages.content_text import describe_content
from dial_client.messages.errors import ProviderError
from dial_client.messages.message import Message, Role, ToolCallResult
from dial_client.messages.model import ModelInfo, ModelRequest
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn

Attributes = dict[str, str | int | float | bool | list[str]]

CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that allows messages, arguments and results in spans."""
_CAPTURING = frozenset({"true", "1", "span_only", "span_and_event"})

_PROVIDERS: Mapping[str, str] = {
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "openai.com": "openai",
    "anthropic.com": "anthropic",
    "amazonaws.com": "aws.bedrock",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "cohere.com": "cohere",
    "cohere.ai": "cohere",
    "deepseek.com": "deepseek",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "perplexity.ai": "perplexity",
    "x.ai": "x_ai",
}
"""The values of ``gen_ai.provider.name`` by the domain of an endpoint's host."""


def captures_content() -> bool:
    """Return whether messages, arguments and results may be recorded in spans."""
    return os.environ.get(CAPTURE_CONTENT, "").strip().lower() in _CAPTURING


def find_provider_name(info: ModelInfo) -> str:
    """Return ``gen_ai.provider.name``: a value of the conventions, otherwise the host, or the provider's name."""
    host = urlsplit(info.url).hostname or ""
    known = (name for end, name in _PROVIDERS.items() if host == end or host.endswith(f".{end}"))
    return next(known, host or info.name)


def describe_model(operation: str, info: ModelInfo) -> Attributes:
    """Return the attributes of an operation and its model, for spans and metrics."""
    attributes: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": find_provider_name(info),
        "gen_ai.request.model": info.model or info.name,
    }
    address = urlsplit(info.url)
    if address.hostname:
        attributes["server.address"] = address.hostname
        attributes["server.port"] = address.port or (80 if address.scheme == "http" else 443)
    return attributes


def describe_turn(request: TurnRequest, info: ModelInfo) -> Attributes:
    """Return the attributes of a turn that starts."""
    attributes = describe_model("invoke_agent", info) | {"dial_client.turn.id": request.turn_id}
    if request.conversation_id:
        attributes["gen_ai.conversation.id"] = request.conversation_id
    if captures_content():
        attributes["gen_ai.input.messages"] = to_json(_to_parts(message) for message in request.messages)
    return attributes


def describe_turn_end(turn: Turn) -> Attributes:
    """Return the attributes of a turn that has ended."""
    attributes = describe_usage(turn.usage) | {"dial_client.turn.stop_reason": turn.stop_reason.value}
    if captures_content():
        attributes["gen_ai.output.messages"] = to_json([_to_parts(turn.message)])
    return attributes


def describe_request(request: ModelRequest, info: ModelInfo) -> Attributes:
    """Return the attributes of a request to a model."""
    attributes = describe_model("chat", info) | {"gen_ai.request.stream": request.stream}
    for name in ("max_tokens", "temperature", "top_p", "seed"):
        if (value := getattr(request.settings, name)) is not None:
            attributes[f"gen_ai.request.{name}"] = value
    if request.stop:
        attributes["gen_ai.request.stop_sequences"] = list(request.stop)
    if captures_content():
        attributes["gen_ai.input.messages"] = to_json(_to_parts(message) for message in request.messages)
        if request.instruction_text:
            instructions = [{"type": "text", "content": request.instruction_text}]
            attributes["gen_ai.system_instructions"] = to_json(instructions)
    return attributes


def describe_reply(reply: ModelReply) -> Attributes:
    """Return the attributes of a model's reply."""
    finish = reply.finish.value
    attributes = describe_usage(reply.usage) | {"gen_ai.response.finish_reasons": [finish]}
    if reply.info is not None:
        attributes |= describe_model("chat", reply.info)
        attributes["gen_ai.response.model"] = reply.info.model or reply.info.name
    if captures_content():
        message = _to_parts(reply.message) | {"finish_reason": finish}
        attributes["gen_ai.output.messages"] = to_json([message])
    return attributes


def describe_usage(usage: Usage) -> Attributes:
    """Return the attributes for the tokens of one or more requests, without counts that are 0."""
    counts = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    return {name: count for name, count in counts.items() if count}


def name_tool(call: ToolCall) -> str:
    """Return the name of the tool; ``unknown`` if no such tool is offered, as the name is then text of the model."""
    return call.name if call.spec is not None else "unknown"


def describe_call(call: ToolCall) -> Attributes:
    """Return the attributes of a tool call."""
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name_tool(call),
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call.request.id,
    }
    if call.server:
        attributes["dial_client.server.name"] = call.server
    if captures_content():
        attributes["gen_ai.tool.call.arguments"] = to_json(dict(call.arguments))
    return attributes


def describe_result(result: ToolCallResult) -> Attributes:
    """Return the attributes of the result of a tool call."""
    attributes: Attributes = {}
    if result.failure is not None:
        attributes["error.type"] = result.failure.value
    if captures_content():
        attributes["gen_ai.tool.call.result"] = to_json(describe_content(result.content))
    return attributes


def find_error_type(error: BaseException) -> str:
    """Return the value of ``error.type``: an HTTP status, an error code, or the name of the exception."""
    if isinstance(error, ProviderError):
        return str(error.status or error.code or type(error).__name__)
    return type(error).__name__ if isinstance(error, Exception) else "cancelled"


def to_json(value: Iterable[Any]) -> str:
    """Return a value as JSON."""
    value = value if isinstance(value, str | dict) else list(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _to_parts(message: Message) -> dict[str, Any]:
    """Return a message in the form of ``gen_ai.input.messages``."""
    text = describe_content(message.content)
    if message.role is Role.TOOL:
        part = {"type": "tool_call_response", "id": message.tool_call_id, "response": text}
        return {"role": "tool", "parts": [part]}
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    parts += (
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": dict(call.arguments)}
        for call in message.tool_calls
    )
    return {"role": message.role.value, "parts": parts}
