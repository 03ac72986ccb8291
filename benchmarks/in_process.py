"""The overhead of code in the embedding program: functions as tools, middleware, tracing; and of a model's programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

from openai import AsyncOpenAI
from opentelemetry import trace

from benchmarks.cases import Clock, Sample, Script, Sides, Turns
from benchmarks.endpoint import Endpoint
from benchmarks.floor import Floor
from benchmarks.server_entries import Servers, server_entries
from benchmarks.sides import Host, open_client, open_dial, wrap_floor
from dial_client import DialClient, ToolCallResult, Turn
from dial_client.client import dial_client as client_module
from dial_client.extend import CallNext, Middleware, ModelReply, ModelRequest, ToolCall, TurnRequest

PARAMETERS = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["text", "count"],
}


async def look_up(text: str, count: int) -> str:
    """Look something up in the records."""
    return f"{count} records: {text}"


class FunctionFloor(Floor):
    """The plain loop with a function instead of servers."""

    def __init__(self, openai: AsyncOpenAI, model: str) -> None:
        super().__init__(openai, model, [])
        function = {"name": look_up.__name__, "description": str(look_up.__doc__), "parameters": PARAMETERS}
        self.tools = [{"type": "function", "function": function}]

    async def call(self, id: str, name: str, arguments: str) -> dict[str, str]:  # noqa: A002 - the name in the API
        """Call the function, and return its result as a message for the model."""
        return {
            "role": "tool",
            "tool_call_id": id,
            "content": await {"look_up": look_up}[name](**json.loads(arguments)),
        }


@dataclass(frozen=True, slots=True)
class FunctionTurns:
    """Turns whose tools are functions, on both sides."""

    about: str
    script: Script

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Open both."""
        turns, url = Turns(self.about, self.script), self.script.url(endpoint)
        async with AsyncOpenAI(base_url=url, api_key="none") as openai, open_client(url, {}, tools=[look_up]) as dial:
            plain: Host = wrap_floor(FunctionFloor(openai, "x"))
            yield {"floor": partial(turns.sample, plain), "dial": partial(turns.sample, dial)}


@dataclass(frozen=True, slots=True)
class Programs:
    """Calls of a function by a program of a model; the floor is the same calls without a program."""

    about: str
    count: int
    program: str
    """The program; ``COUNT`` stands for the number of calls."""
    pause: float = 2.0
    """Seconds before each program, in which a model would write: a worker is prepared meanwhile."""

    @asynccontextmanager
    async def prepared(self, _: Endpoint) -> AsyncIterator[Sides]:
        """Open the client of both sides, and start its sandbox."""
        async with DialClient(tools=[look_up]) as dial:
            await self._run(dial)
            yield {"floor": partial(self._call, dial), "dial": partial(self._run, dial)}

    async def _call(self, dial: DialClient) -> Sample:
        with Clock() as clock:
            for number in range(self.count):
                await dial.call("look_up", {"text": "a", "count": number})
        return clock.sample

    async def _run(self, dial: DialClient) -> Sample:
        await asyncio.sleep(self.pause)
        with Clock() as clock:
            result = await dial.run_code(self.program.replace("COUNT", str(self.count)))
        if not result.success:
            raise RuntimeError(f"{self.about}: {result.error}")
        return clock.sample


class Passing(Middleware):
    """Passes everything on unchanged."""

    async def around_turn(self, request: TurnRequest, call_next: CallNext[TurnRequest, Turn]) -> Turn:
        """Run the turn."""
        return await call_next(request)

    async def around_model_call(
        self, request: ModelRequest, call_next: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Call the model."""
        return await call_next(request)

    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Make the call."""
        return await call_next(call)


@dataclass(frozen=True, slots=True)
class MiddlewareTurns:
    """Turns of this host with three middlewares; the floor is this host without middleware."""

    about: str
    script: Script
    servers: Servers = field(default_factory=server_entries)

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Open both."""
        turns, url = Turns(self.about, self.script), self.script.url(endpoint)
        middleware: list[Any] = [Passing(), Passing(), Passing()]
        async with (
            open_dial(url, self.servers) as without,
            open_client(url, self.servers, middleware=middleware) as wrapped,
        ):
            yield {"floor": partial(turns.sample, without), "dial": partial(turns.sample, wrapped)}


@dataclass(frozen=True, slots=True)
class TracedTurns:
    """Turns of this host with OpenTelemetry spans, which are stored; the floor is this host without spans."""

    about: str
    script: Script
    servers: Servers = field(default_factory=server_entries)

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Open the client."""
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        turns, url = Turns(self.about, self.script), self.script.url(endpoint)
        async with open_dial(url, self.servers) as host:

            async def trace_turn() -> Sample:
                # A process can set its tracer provider only once, and measures the side without traces, too.
                with patch.object(trace, "get_tracer_provider", lambda: provider):
                    sample = await turns.sample(host)
                if len(exporter.get_finished_spans()) < 2 * self.script.rounds + 2:
                    raise RuntimeError(f"{self.about}: spans are missing")
                exporter.clear()
                return sample

            yield {"floor": partial(turns.sample, host), "dial": trace_turn}


@dataclass(frozen=True, slots=True)
class UntracedTurns:
    """Turns without an OpenTelemetry SDK; the floor is a client that does not look for an SDK."""

    about: str
    script: Script
    servers: Servers = field(default_factory=server_entries)

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Open both."""
        turns, url = Turns(self.about, self.script), self.script.url(endpoint)
        async with AsyncExitStack() as hosts:
            with patch.object(client_module, "find_instruments", lambda: None):
                without = await hosts.enter_async_context(open_dial(url, self.servers))
            usual = await hosts.enter_async_context(open_dial(url, self.servers))
            yield {"floor": partial(turns.sample, without), "dial": partial(turns.sample, usual)}
