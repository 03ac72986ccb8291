"""Traces across processes: the spans of the MCP SDK, and the trace context in the metadata of a call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import LONG

pytestmark = pytest.mark.once

SERVER = '''
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("echo")

@server.tool()
def trace(ctx: Context) -> str:
    """Return the trace that the call belongs to."""
    return ctx.request_context.meta["traceparent"]

server.run()
'''

# A separate process, because the OpenTelemetry providers of a process can be set only once.
PROGRAM = """
import json, sys
import anyio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from dial_client import Agent, DialClient
from dial_client.testing import ScriptedProvider

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

async def main():
    own = ScriptedProvider([{"tool_calls": [{"name": "trace", "arguments": {}}]}, "Traced."])
    model = ScriptedProvider([{"tool_calls": [{"name": "tracer", "arguments": {"task": "Trace."}}]}, "Done."])
    servers = {"echo": {"command": sys.executable, "args": [sys.argv[1]]}}
    async with DialClient(model, servers=servers, agents=[Agent("tracer", "Traces.", model=own)]) as dial:
        await dial.run("Which trace is this?")
    spans = {span.context.span_id: span for span in exporter.get_finished_spans()}
    call = next(span for span in spans.values() if span.name == "MCP send tools/call trace")
    sent = f"00-{call.context.trace_id:032x}-{call.context.span_id:016x}-"
    parents = []
    while call.parent is not None:
        call = spans[call.parent.span_id]
        parents.append(call.name)
    print(json.dumps({"parents": parents, "arrived": sent in str(own.requests[-1].messages)}))

anyio.run(main)
"""


def test_a_server_gets_the_trace_of_its_call_which_is_within_that_of_the_agent_that_makes_it(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(server)], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "parents": ["execute_tool trace", "invoke_agent", "execute_tool tracer", "invoke_agent"],
        "arrived": True,
    }
