"""What is measured of a service under load."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.load.postgres import Postgres
from benchmarks.load.service import PACE_MS
from benchmarks.load.turns import Asked, Clients

WORKERS = 50
"""Clients of each process that ask again at once: more than it can answer."""
RAMP = 0.03
"""Seconds for each client until as many turns end as begin."""
SILENT = (200, 800)
"""Silent streams, with fewer and with more of them: a start leaves memory behind that the first ones use."""
PATIENCE = 60.0
"""Seconds after which a service that answers no turn counts as broken."""


@dataclass(frozen=True, slots=True)
class Saturated:
    """A window of time in which a service answers as many turns as it can."""

    turns_a_second: float
    processor_ms: float
    """Processor time of a turn, in the processes of the service alone."""
    database_ms: float
    """The same of the PostgreSQL server; 0 without one."""
    statements: float
    """Statements of a turn; 0 without a PostgreSQL server."""


async def measure_saturated(clients: Clients, postgres: Postgres | None, seconds: float, workers: int) -> Saturated:
    """Return what a service does for `seconds`, while `workers` clients of each process ask again and again."""
    service, loop = clients.service, asyncio.get_running_loop()
    workers *= len(service.ports)

    def read() -> tuple[float, int, float, float, int]:
        has_database = postgres is not None and service.database
        database = postgres.processor_seconds if postgres is not None and has_database else 0.0
        statements = postgres.count_statements(service.database) if postgres is not None and has_database else 0
        return loop.time(), clients.answered, service.processor_seconds, database, statements

    async with clients.busy(workers):
        await asyncio.sleep(max(1.0, RAMP * workers))
        before = read()
        await asyncio.sleep(seconds)
        # A machine with much else to do may answer nothing in so short a time.
        while clients.answered == before[1] and loop.time() < before[0] + PATIENCE:  # noqa: ASYNC110 - a counter
            await asyncio.sleep(0.1)
        after = read()
    passed, turns, processor, database, statements = (late - early for early, late in zip(before, after, strict=True))
    if not turns:
        raise RuntimeError(f"{service.name} answers nothing")
    return Saturated(turns / passed, processor / turns * 1_000, database / turns * 1_000, statements / turns)


async def measure_silent(clients: Clients) -> float:
    """Return the kilobytes of a further open stream whose model says nothing: between `SILENT` of them."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[Asked]] = []
    memory = []
    for count in SILENT:
        while len(tasks) < count:
            tasks.append(asyncio.create_task(clients.ask(loop.time(), words=1)))
            await asyncio.sleep(0.01)
        async with asyncio.timeout(PATIENCE):
            while not all(asked.response.head for asked in clients.asked):  # noqa: ASYNC110 - a counter
                await asyncio.sleep(0.1)
        await asyncio.sleep(2.0)  # until the last ones have asked the model
        memory.append(clients.service.memory_kb)
    clients.service.kill()  # 800 turns would take their time to end
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return (memory[1] - memory[0]) / (SILENT[1] - SILENT[0])


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds that clients wait, as percentiles."""

    first_byte: tuple[float, float, float]
    """To the first byte: p50, p95 and p99. They count from when the client was to ask."""
    gap: tuple[float, float, float]
    """From one event of a stream to the next."""
    turns: int
    failed: int


def build_waits(asked: Sequence[Asked]) -> Waits:
    """Return what clients have waited."""
    answered = [turn for turn in asked if turn.has_answer]
    firsts, gaps = [turn.first_byte for turn in answered], [gap for turn in answered for gap in turn.gaps]
    return Waits(_percentiles(firsts), _percentiles(gaps), len(asked), len(asked) - len(answered))


def _percentiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    if len(seconds) < 2:
        return (0.0, 0.0, 0.0)
    found = statistics.quantiles(seconds, n=100, method="inclusive")
    return (found[49] * 1_000, found[94] * 1_000, found[98] * 1_000)


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams that are open at the same time."""

    count: int
    memory_kb: int
    """Memory of the service with all of them."""
    processor_ms: float
    """Processor time of a second of one stream."""
    waits: Waits


async def measure_streams(clients: Clients, count: int, seconds: float) -> Streams:
    """Return what `count` streams cost that begin within a second, and run for `seconds` after that."""
    words = round((seconds + 2) * 1_000 / PACE_MS)
    service = clients.service
    async with asyncio.TaskGroup() as group:
        tasks = []
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(count):
            due = began + number / count
            await asyncio.sleep(due - loop.time())
            tasks.append(group.create_task(clients.ask(due, words=words)))
        await asyncio.sleep(1.0)
        early, processor = loop.time(), service.processor_seconds
        await asyncio.sleep(seconds / 2)
        memory = service.memory_kb
        await asyncio.sleep(seconds / 2)
        late, processor = loop.time(), service.processor_seconds - processor
    cost = processor / (late - early) / count * 1_000
    return Streams(count, memory, cost, build_waits([task.result() for task in tasks]))
