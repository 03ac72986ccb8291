"""The metrics of a service for Prometheus: what it does, how long that takes, and what it has used.

`ServiceMetrics` is middleware of the client, which sees requests to the model and calls of tools, also those of other
MCP hosts. Turns are seen by `TurnWatch`. What can be asked at any time, such as the state of the servers, is asked when
the metrics are read.

Labels are bounded by the configuration: names of models and servers, and kinds of ends and errors. No label has the
name of a tool, a person or a path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import anyio

from dial_client.client.dial_client import DialClient
from dial_client.hooks.middleware import CallNext, Middleware, ModelReply, ToolCall
from dial_client.messages.errors import ConfigError, ProviderError
from dial_client.messages.message import ToolCallResult
from dial_client.messages.model import ModelRequest
from dial_client.messages.turn_result import Turn
from dial_client.serve.turns.turn_registry import TurnRegistry
from dial_client.servers.status import ServerState
from dial_client.stores.sql_store import SQLStore

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# The bounds of the histograms in seconds: from a call in this process to a turn of half an hour.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
# Seconds between two measurements of the event loop's lag.
_LAG_INTERVAL = 0.25


class ServiceMetrics(Middleware):
    """The metrics of one process; give it to the client as `middleware`, and to the service as `Operations.metrics`.

    Raises:
        ConfigError: The package ``prometheus-client`` is missing.
    """

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, ProcessCollector
        except ModuleNotFoundError as error:
            raise ConfigError(
                "metrics need the package prometheus-client", hint="pip install 'dial-client[metrics]'"
            ) from error
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

        def count(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"dial_{name}", text, labels, registry=registry)

        def time_(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"dial_{name}", text, labels, buckets=_SECONDS, registry=registry)

        self._turns = count("turns", "Turns that have ended.", "stop_reason")
        self._turn_seconds = time_("turn_seconds", "Seconds of a turn, without those that it waited for its start.")
        self._first_token = time_("turn_first_token_seconds", "Seconds to the first text or reasoning of a turn.")
        self._tokens = count("model_tokens", "Tokens of requests to the model.", "model", "type")
        self._model_seconds = time_("model_request_seconds", "Seconds of a request to the model.", "model")
        self._model_errors = count("model_errors", "Failed requests to the model.", "error")
        self._cost = count("cost_usd", "The known cost of turns in US dollars.")
        self._tool_seconds = time_("tool_call_seconds", "Seconds of a tool call, with its approval.", "server")
        self._tool_errors = count("tool_errors", "Failed tool calls.", "server", "error")
        self._responses = count("http_responses", "Responses.", "status")
        self._lag = 0.0

    async def around_model_call(
        self, request: ModelRequest, call_next: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Measure a request to the model."""
        began = time.perf_counter()
        try:
            reply = await call_next(request)
        except Exception as error:
            # Codes of providers are any text: a status is one of few.
            kind = str(error.status or "none") if isinstance(error, ProviderError) else type(error).__name__
            self._model_errors.labels(kind).inc()
            raise
        model = (reply.info.model or reply.info.name) if reply.info is not None else "none"
        self._model_seconds.labels(model).observe(time.perf_counter() - began)
        self._tokens.labels(model, "input").inc(reply.usage.input_tokens)
        self._tokens.labels(model, "output").inc(reply.usage.output_tokens)
        return reply

    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Measure a tool call."""
        began = time.perf_counter()
        result = await call_next(call)
        server = call.server or "none"
        self._tool_seconds.labels(server).observe(time.perf_counter() - began)
        if not result.success:
            self._tool_errors.labels(server, result.failure.value if result.failure is not None else "tool").inc()
        return result

    def record_first_token(self, seconds: float) -> None:
        """Record that a turn has its first text or reasoning, so many seconds after its start."""
        self._first_token.observe(seconds)

    def record_turn(self, turn: Turn | None, seconds: float) -> None:
        """Record the end of a turn; None if it failed."""
        self._turns.labels(turn.stop_reason.value if turn is not None else "failed").inc()
        self._turn_seconds.observe(seconds)
        if turn is not None and turn.cost_usd:
            self._cost.inc(turn.cost_usd)

    def record_response(self, status: int) -> None:
        """Record the status of a response; 0 if there was none."""
        self._responses.labels(str(status)).inc()

    def observe(self, dial: DialClient, turns: TurnRegistry, store: object) -> None:
        """Ask these for their state whenever the metrics are read."""
        self._registry.register(_State(dial, turns, store if isinstance(store, SQLStore) else None, self._take_lag))

    async def watch_loop(self) -> None:
        """Measure how late the event loop wakes a task, until cancelled."""
        while True:
            due = time.perf_counter() + _LAG_INTERVAL
            await anyio.sleep(_LAG_INTERVAL)
            self._lag = max(self._lag, time.perf_counter() - due)

    def encode(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics, and their media type, in the form that a client accepts."""
        from prometheus_client.exposition import choose_encoder

        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def _take_lag(self) -> float:
        lag, self._lag = self._lag, 0.0
        return lag


class _State:
    """What is asked when metrics are read: a collector of `prometheus_client`."""

    def __init__(
        self, dial: DialClient, turns: TurnRegistry, database: SQLStore | None, take_lag: Callable[[], float]
    ) -> None:
        self._dial, self._turns, self._database, self._take_lag = dial, turns, database, take_lag

    def describe(self) -> list[Metric]:
        """Return nothing: the registry then does not collect metrics to learn their names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        def gauge(name: str, text: str, value: float) -> Any:
            return GaugeMetricFamily(f"dial_{name}", text, value)

        running, waiting, queued = self._turns.count()
        yield gauge("turns_running", "Turns that run, with those that wait for a person.", running)
        yield gauge("turns_waiting", "Turns that wait for a person.", waiting)
        yield gauge("turns_queued", "Turns that wait for a place.", queued)
        yield gauge("turns_limit", "Turns that may run at once.", self._turns.max_turns)
        yield gauge("event_loop_lag_seconds", "The longest lag since the last reading.", self._take_lag())
        up = GaugeMetricFamily("dial_server_up", "Whether an MCP server works.", labels=["server"])
        restarts = CounterMetricFamily("dial_server_restarts", "Restarts of an MCP server.", labels=["server"])
        for name, status in self._dial.servers.items():
            up.add_metric([name], float(status.state in (ServerState.READY, ServerState.SLEEPING)))
            restarts.add_metric([name], status.restarts)
        yield up
        yield restarts
        if self._database is not None:
            yield gauge("database_up", "Whether the last use of the database succeeded.", not self._database.is_failing)
            yield CounterMetricFamily("dial_database_errors", "Failed uses.", self._database.failures)
