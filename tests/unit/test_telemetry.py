"""Spans and metrics of turns, with the SDK of OpenTelemetry and exporters in memory."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from dial_client import DialClient, ProviderError, ToolCallResult, Usage
from dial_client.extend import CallNext, Completion, FinishReason, Middleware, ModelInfo, TextChunk, ToolCall, refuse
from dial_client.testing import ScriptedProvider
from tests.inner import CAPTURE_CONTENT, find_instruments, find_provider_name, record_restart
from tests.support.fakes import Model

pytestmark = pytest.mark.anyio

DOUBLE = {
    "text": "Let me see.",
    "tool_calls": [{"name": "double", "arguments": {"number": 4}}],
    "usage": {"input_tokens": 11, "output_tokens": 7},
}
ANSWER = {"text": "It is 8.", "usage": {"input_tokens": 20, "output_tokens": 5}}
SECRET = "the number of Jane"


@dataclass(frozen=True)
class Recorded:
    """The spans and metrics that the exporters received."""

    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The last span of each name, by name."""
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def points(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Return the attributes and the value, or the sum, of each data point of a metric."""
        data: Any = self.reader.get_metrics_data()
        metrics = [m for resource in data.resource_metrics for scope in resource.scope_metrics for m in scope.metrics]
        return [
            (dict(point.attributes), point.sum if isinstance(point, HistogramDataPoint) else point.value)
            for metric in metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """Install OpenTelemetry providers for one test; its public functions set them only once per process."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracer_provider, meter_provider = (
        TracerProvider(shutdown_on_exit=False),
        MeterProvider([reader], shutdown_on_exit=False),
    )
    tracer_provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracer_provider)
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", meter_provider)
    yield Recorded(exporter, reader)
    tracer_provider.shutdown()
    meter_provider.shutdown()


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def open_client(*replies: Any, **options: Any) -> DialClient:
    return DialClient(ScriptedProvider(replies or (DOUBLE, ANSWER)), tools=[double], guidance="", **options)


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan, spans: dict[str, ReadableSpan]) -> str:
    ids = {found.context.span_id: name for name, found in spans.items() if found.context is not None}
    return ids[span.parent.span_id] if span.parent is not None else ""


async def test_without_an_sdk_nothing_is_measured() -> None:
    assert find_instruments() is None
    record_restart("clock")
    async with open_client() as dial:
        assert (await dial.run("go on")).text == "It is 8."


async def test_the_name_of_an_unknown_tool_is_in_no_span(recorded: Recorded) -> None:
    async with open_client({"tool_calls": [{"name": "the password is hunter2", "arguments": {}}]}, ANSWER) as dial:
        await dial.run("go on")
    names = [span.name for span in recorded.exporter.get_finished_spans()]
    assert names == ["chat scripted", "execute_tool unknown", "chat scripted", "invoke_agent"]


async def test_a_turn_has_spans_for_itself_its_model_calls_and_its_tool_calls(recorded: Recorded) -> None:
    tracer = trace.get_tracer("program")
    async with open_client() as dial:
        with tracer.start_as_current_span("request"):
            turn = await dial.run(SECRET)
    spans = recorded.spans
    names = [span.name for span in recorded.exporter.get_finished_spans()]
    assert names == ["chat scripted", "execute_tool double", "chat scripted", "invoke_agent", "request"]
    assert {name: parent_of(span, spans) for name, span in spans.items()} == {
        "chat scripted": "invoke_agent",
        "execute_tool double": "invoke_agent",
        "invoke_agent": "request",
        "request": "",
    }
    assert [spans[name].kind for name in ("invoke_agent", "chat scripted")] == [SpanKind.INTERNAL, SpanKind.CLIENT]
    agent = attributes_of(spans["invoke_agent"])
    assert len(agent.pop("dial_client.turn.id")) == 32
    assert agent == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": 31,
        "gen_ai.usage.output_tokens": 12,
        "dial_client.turn.stop_reason": "answered",
    }
    assert attributes_of(spans["chat scripted"]) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.stream": False,
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 5,
    }
    assert attributes_of(spans["execute_tool double"]) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "double",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": turn.tool_calls[0].call.id,
        "dial_client.server.name": "functions",
    }


async def test_spans_have_no_content_unless_the_environment_enables_content(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CAPTURE_CONTENT, raising=False)
    async with open_client() as dial:
        await dial.run(SECRET)
    everything = " ".join(span.to_json() for span in recorded.exporter.get_finished_spans())
    assert [text for text in (SECRET, "It is 8", "Let me see", '"number') if text in everything] == []
    recorded.exporter.clear()

    monkeypatch.setenv(CAPTURE_CONTENT, "true")
    async with open_client(system="Be brief.") as dial:
        await dial.run(SECRET)
    chat = attributes_of(recorded.spans["chat scripted"])
    assert json.loads(chat["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    question, call, result = json.loads(chat["gen_ai.input.messages"])
    assert question == {"role": "user", "parts": [{"type": "text", "content": SECRET}]}
    assert call["parts"][0] == {"type": "text", "content": "Let me see."}
    assert call["parts"][1] | {"id": ""} == {
        "type": "tool_call",
        "id": "",
        "name": "double",
        "arguments": {"number": 4},
    }
    assert result["parts"][0]["response"] == "8"
    [reply] = json.loads(chat["gen_ai.output.messages"])
    assert reply == {"role": "assistant", "parts": [{"type": "text", "content": "It is 8."}], "finish_reason": "stop"}
    tool = attributes_of(recorded.spans["execute_tool double"])
    assert (tool["gen_ai.tool.call.arguments"], tool["gen_ai.tool.call.result"]) == ('{"number": 4}', '"8"')


async def test_tokens_durations_and_calls_are_counted(recorded: Recorded) -> None:
    async with open_client() as dial:
        await dial.run("go on")
    record_restart("clock")
    tokens = {point["gen_ai.token.type"]: value for point, value in recorded.points("gen_ai.client.token.usage")}
    assert tokens == {"input": 31, "output": 12}
    operations = {point["gen_ai.operation.name"] for point, _ in recorded.points("gen_ai.client.operation.duration")}
    assert operations == {"invoke_agent", "chat", "execute_tool"}
    [(call, count)] = recorded.points("dial_client.tool.calls")
    assert (call["gen_ai.tool.name"], call["dial_client.server.name"], count) == ("double", "functions", 1)
    assert recorded.points("dial_client.server.restarts") == [({"dial_client.server.name": "clock"}, 1)]


async def test_a_failed_model_call_has_its_status_and_no_text(recorded: Recorded) -> None:
    async with open_client({"error": {"status": 503, "message": f"no room for {SECRET}"}}) as dial:
        with pytest.raises(ProviderError):
            await dial.run("go on")
    for name in ("chat scripted", "invoke_agent"):
        span = recorded.spans[name]
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
        assert attributes_of(span)["error.type"] == "503"
        assert span.events == ()
    [(chat, _)] = [
        point
        for point in recorded.points("gen_ai.client.operation.duration")
        if point[0]["gen_ai.operation.name"] == "chat"
    ]
    assert chat["error.type"] == "503"


class Closed(Middleware):
    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        if call.arguments:
            refuse("the shop is closed")
        return await call_next(call)


async def test_a_call_that_a_middleware_refuses_has_a_span_too(recorded: Recorded) -> None:
    async with open_client(middleware=[Closed()]) as dial:
        await dial.run("go on")
    span = recorded.spans["execute_tool double"]
    assert (attributes_of(span)["error.type"], span.status.status_code) == ("denied", StatusCode.ERROR)


async def test_a_cancelled_turn_ends_its_spans(recorded: Recorded) -> None:
    async with open_client({"hang": True}) as dial, aclosing(dial.stream("go on")) as events:
        await anext(events)
    assert attributes_of(recorded.spans["invoke_agent"])["error.type"] == "cancelled"


async def test_a_fallback_model_is_recorded_as_the_model_that_answered(recorded: Recorded) -> None:
    class Spare(Model):
        info = ModelInfo("chat:spare@spare.example", "spare", "https://api.groq.com:8443/v1")

    spare = Spare([TextChunk("Noon."), Completion(FinishReason.STOP, Usage(3, 2))])
    main = Model([ProviderError("down", status=503)])
    async with DialClient(main, fallback_models=[spare]) as dial:
        await dial.run("What time is it?")
    chat = attributes_of(recorded.spans["chat spare"])
    assert (chat["gen_ai.request.model"], chat["gen_ai.provider.name"]) == ("spare", "groq")
    assert (chat["server.address"], chat["server.port"]) == ("api.groq.com", 8443)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://x.openai.azure.com/openai", "azure.ai.openai"),
        ("https://api.anthropic.com", "anthropic"),
        ("https://notanthropic.com", "notanthropic.com"),
        ("http://127.0.0.1:8080/v1", "127.0.0.1"),
        ("", "local"),
    ],
)
def test_the_provider_name_follows_the_semantic_conventions(url: str, name: str) -> None:
    assert find_provider_name(ModelInfo("local", "m", url)) == name


async def test_log_events_contain_the_ids_of_their_span(recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "dial_client"):
        async with open_client() as dial:
            await dial.run("go on")
    context = recorded.spans["chat scripted"].context
    assert context is not None
    [line] = [record.getMessage() for record in caplog.records if "depth=1 messages" in record.getMessage()]
    assert f"trace_id='{context.trace_id:032x}' span_id='{context.span_id:016x}'" in line
