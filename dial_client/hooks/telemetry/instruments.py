"""The spans ``invoke_agent`` (a turn), ``chat`` and ``execute_tool`` within it, and the metrics, with their attributes.

Names and values are those of OpenTelemetry's GenAI semantic conventions. They are string literals here, because the
package that defines them is unstable and belongs to the SDK.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import metrics, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from dial_client.hooks.middleware import CallNext, ModelReply, ToolCall, TurnRequest
from dial_client.messages.errors import ProviderError
from dial_client.messages.message import Message, Role, ToolCallResult, describe_content
from dial_client.messages.model import ModelInfo, ModelRequest
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn

Attributes = dict[str, str | int | float | bool | list[str]]

# The environment variable that allows messages, arguments and results in spans.
CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURING = frozenset({"true", "1", "span_only", "span_and_event"})

# The values of ``gen_ai.provider.name`` by the domain of an endpoint's host.
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


def capture(name: str, content: Iterable[Any]) -> Attributes:
    """Return an attribute with messages, arguments or a result as JSON; none unless the program allows it in spans."""
    if os.environ.get(CAPTURE_CONTENT, "").strip().lower() not in _CAPTURING:
        return {}
    value = content if isinstance(content, str | dict) else list(content)
    return {name: json.dumps(value, ensure_ascii=False, default=str)}


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


def describe_request(request: ModelRequest) -> Attributes:
    """Return the attributes of a request to a model, apart from those of the model."""
    attributes: Attributes = {"gen_ai.request.stream": request.stream}
    for name in ("max_tokens", "temperature", "top_p", "seed"):
        if (value := getattr(request.settings, name)) is not None:
            attributes[f"gen_ai.request.{name}"] = value
    if request.stop:
        attributes["gen_ai.request.stop_sequences"] = list(request.stop)
    attributes |= capture("gen_ai.input.messages", map(_to_parts, request.messages))
    if request.instruction_text:
        instructions = [{"type": "text", "content": request.instruction_text}]
        attributes |= capture("gen_ai.system_instructions", instructions)
    return attributes


def describe_reply(reply: ModelReply) -> Attributes:
    """Return the attributes of a model's reply, apart from those of the model."""
    attributes = describe_usage(reply.usage) | {"gen_ai.response.finish_reasons": [reply.finish.value]}
    message = _to_parts(reply.message) | {"finish_reason": reply.finish.value}
    return attributes | capture("gen_ai.output.messages", [message])


def find_error_type(error: BaseException) -> str:
    """Return the value of ``error.type``: an HTTP status, an error code, or the name of the exception."""
    if isinstance(error, ProviderError):
        return str(error.status or error.code or type(error).__name__)
    return type(error).__name__ if isinstance(error, Exception) else "cancelled"


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


# The name of the instrumentation scope.
SCOPE = "dial_client"
# The bucket boundaries of the token histogram, as the conventions define them.
_TOKEN_BOUNDARIES = [4.0**power for power in range(14)]
# The bucket boundaries of the duration histogram in seconds, as the conventions define them.
_SECOND_BOUNDARIES = [0.01 * 2**power for power in range(14)]


class OpenTelemetryInstruments:
    """Records turns, model calls and tool calls with the providers that the program has set."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer(SCOPE)
        meter = metrics.get_meter(SCOPE)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKEN_BOUNDARIES,
        )
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECOND_BOUNDARIES,
        )
        self._calls = meter.create_counter("dial_client.tool.calls", "{call}", "Number of tool calls.")
        self._restarts = meter.create_counter("dial_client.server.restarts", "{restart}", "Number of server restarts.")

    async def around_turn(self, request: TurnRequest, info: ModelInfo, call_next: CallNext[TurnRequest, Turn]) -> Turn:
        """Run a turn in a span."""
        shared = describe_model("invoke_agent", info)
        attributes = shared | {"dial_client.turn.id": request.turn_id}
        if request.conversation_id:
            attributes["gen_ai.conversation.id"] = request.conversation_id
        attributes |= capture("gen_ai.input.messages", map(_to_parts, request.messages))
        with self._span("invoke_agent", SpanKind.INTERNAL, attributes, shared) as span:
            turn = await call_next(request)
            if span.is_recording():
                span.set_attributes(describe_usage(turn.usage))
                span.set_attribute("dial_client.turn.stop_reason", turn.stop_reason.value)
                span.set_attributes(capture("gen_ai.output.messages", [_to_parts(turn.message)]))
        return turn

    async def around_model_call(
        self, request: ModelRequest, info: ModelInfo, call_next: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Send a request to a model in a span, and record its tokens."""
        shared = describe_model("chat", info)
        name = f"chat {info.model or info.name}"
        with self._span(name, SpanKind.CLIENT, shared | describe_request(request), shared) as span:
            reply = await call_next(request)
            answering = reply.info or info
            shared.update(describe_model("chat", answering))
            shared["gen_ai.response.model"] = answering.model or answering.name
            if span.is_recording():
                span.update_name(f"chat {answering.model or answering.name}")
                span.set_attributes(describe_reply(reply))
                if reply.info is not None:
                    span.set_attributes(shared)
        for kind, tokens in (("input", reply.usage.input_tokens), ("output", reply.usage.output_tokens)):
            if tokens:
                self._tokens.record(tokens, {**shared, "gen_ai.token.type": kind})
        return reply

    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Make a tool call in a span, and count it."""
        # The name of a tool that is not offered is text of the model.
        name = call.name if call.spec is not None else "unknown"
        shared: Attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        if call.server:
            shared["dial_client.server.name"] = call.server
        attributes = shared | {"gen_ai.tool.type": "function", "gen_ai.tool.call.id": call.request.id}
        attributes |= capture("gen_ai.tool.call.arguments", dict(call.arguments))
        with self._span(f"execute_tool {name}", SpanKind.INTERNAL, attributes, shared) as span:
            result = await call_next(call)
            span.set_attributes(capture("gen_ai.tool.call.result", describe_content(result.content)))
            if result.failure is not None:
                shared["error.type"] = result.failure.value
                span.set_attribute("error.type", result.failure.value)
                span.set_status(Status(StatusCode.ERROR))
        self._calls.add(1, shared)
        return result

    def record_restart(self, server: str) -> None:
        """Count a restart of a server."""
        self._restarts.add(1, {"dial_client.server.name": server})

    @contextmanager
    def _span(self, name: str, kind: SpanKind, attributes: Attributes, shared: Attributes) -> Iterator[Span]:
        """Run the ``with`` block in a span, and record its duration with the `shared` attributes of span and metrics.

        Only the type of an exception is recorded, because its text may contain contents.
        """
        started_at = time.monotonic()
        span = self._tracer.start_span(name, kind=kind, attributes=attributes)
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield span
        except BaseException as error:
            kind_of_error = find_error_type(error)
            span.set_attribute("error.type", kind_of_error)
            span.set_status(Status(StatusCode.ERROR))
            shared["error.type"] = kind_of_error
            raise
        finally:
            span.end()
            recorded: Any = shared
            self._durations.record(time.monotonic() - started_at, recorded)
