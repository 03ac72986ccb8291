"""The spans ``invoke_agent`` (a turn), ``chat`` and ``execute_tool`` within it, and the metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from dial_client.hooks.middleware import CallNext, ModelReply, ToolCall, TurnRequest
from dial_client.hooks.telemetry import attributes as gen_ai
from dial_client.hooks.telemetry.attributes import Attributes
from dial_client.messages.message import ToolCallResult
from dial_client.messages.model import ModelInfo, ModelRequest
from dial_client.messages.turn_result import Turn

SCOPE = "dial_client"
"""The name of the instrumentation scope."""
_TOKEN_BOUNDARIES = [4.0**power for power in range(14)]
"""The bucket boundaries of the token histogram, as the conventions define them."""
_SECOND_BOUNDARIES = [0.01 * 2**power for power in range(14)]
"""The bucket boundaries of the duration histogram in seconds, as the conventions define them."""


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
        shared = gen_ai.describe_model("invoke_agent", info)
        with self._span("invoke_agent", SpanKind.INTERNAL, gen_ai.describe_turn(request, info), shared) as span:
            turn = await call_next(request)
            if span.is_recording():
                span.set_attributes(gen_ai.describe_turn_end(turn))
        return turn

    async def around_model_call(
        self, request: ModelRequest, info: ModelInfo, call_next: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Send a request to a model in a span, and record its tokens."""
        shared = gen_ai.describe_model("chat", info)
        name = f"chat {info.model or info.name}"
        with self._span(name, SpanKind.CLIENT, gen_ai.describe_request(request, info), shared) as span:
            reply = await call_next(request)
            answering = reply.info or info
            shared.update(gen_ai.describe_model("chat", answering))
            shared["gen_ai.response.model"] = answering.model or answering.name
            if span.is_recording():
                span.update_name(f"chat {answering.model or answering.name}")
                span.set_attributes(gen_ai.describe_reply(reply))
        for kind, tokens in (("input", reply.usage.input_tokens), ("output", reply.usage.output_tokens)):
            if tokens:
                self._tokens.record(tokens, {**shared, "gen_ai.token.type": kind})
        return reply

    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Make a tool call in a span, and count it."""
        name = gen_ai.name_tool(call)
        shared: Attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        if call.server:
            shared["dial_client.server.name"] = call.server
        with self._span(f"execute_tool {name}", SpanKind.INTERNAL, gen_ai.describe_call(call), shared) as span:
            result = await call_next(call)
            if span.is_recording():
                span.set_attributes(gen_ai.describe_result(result))
            if result.failure is not None:
                shared["error.type"] = result.failure.value
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
            kind_of_error = gen_ai.find_error_type(error)
            span.set_attribute("error.type", kind_of_error)
            span.set_status(Status(StatusCode.ERROR))
            shared["error.type"] = kind_of_error
            raise
        finally:
            span.end()
            recorded: Any = shared
            self._durations.record(time.monotonic() - started_at, recorded)
