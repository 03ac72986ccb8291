"""Trace turns with OpenTelemetry: one span for a turn, each model call and each tool call.

``pip install opentelemetry-sdk``. An OTLP exporter in place of the printed lines sends them to Jaeger or Langfuse.
"""

import os

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from dial_client import DialClient

MODEL = os.environ.get("DIAL_MODEL", "local")


def describe(span: ReadableSpan) -> str:
    tokens = (span.attributes or {}).get("gen_ai.usage.output_tokens", "")
    return f"{'  ' if span.parent else ''}{span.name}{f', {tokens} tokens written' if tokens else ''}\n"


def count_letters(word: str) -> int:
    """Count the letters of a word."""
    return len(word)


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=describe)))
trace.set_tracer_provider(provider)

print(DialClient(MODEL, tools=[count_letters]).run_sync("How many letters are in strawberry?").text)
