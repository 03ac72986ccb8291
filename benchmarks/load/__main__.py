"""`dial-chat serve` under load: ``python -m benchmarks.load [--faults] [--services NAME …] [--rounds N] [--json]``.

A scripted model writes a token every 20 ms and calls a tool of 50 ms once in each turn, a real MCP server over standard
input and output. Clients ask at a fixed rate whether or not earlier turns have ended, and waiting times count from when
a turn was to begin: what a slow service delays is not left out. The services take turns within one run, so whatever
else the machine does meets all of them. Processor time is that of the processes of the service, without their servers,
the model and the clients, which use the same processors. Linux only.

``--faults`` measures what is lost, repeated or not answered under faults instead (`faults`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.endpoint import Endpoint
from benchmarks.load.fault_cases import HEADS, describe_row, measure_faults, print_faults
from benchmarks.load.figures import (
    SILENT,
    WORKERS,
    Saturated,
    Streams,
    Waits,
    build_waits,
    measure_saturated,
    measure_silent,
    measure_streams,
)
from benchmarks.load.postgres import Postgres, find_programs
from benchmarks.load.service import PACE_MS, Service, build_arguments, describe_service
from benchmarks.load.turns import Clients
from benchmarks.report import machine


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and for how long."""

    services: Sequence[tuple[str, int]] = (
        ("none", 1),
        ("sqlite", 1),
        ("postgres", 1),
        ("durable", 1),
        ("postgres", 2),
        ("durable", 2),
        ("durable", 4),
    )
    """Stores, each with the number of processes."""
    conversations: int = 1_000
    rates: Sequence[float] = (10, 20, 40)
    streams: Sequence[int] = (50, 200)
    rounds: int = 3
    seconds: float = 4.0
    """Seconds of each window."""
    workers: int = WORKERS
    silent: bool = True
    """Whether the memory of silent streams is measured, at services of one process."""


SMOKE = Plan(
    services=(("sqlite", 1),),
    conversations=40,
    rates=(10,),
    streams=(4,),
    rounds=1,
    seconds=2.0,
    workers=8,
    silent=False,
)
# A chunk of a model that says nothing while it is measured.
_SILENCE_MS = 3_600_000


@dataclass(slots=True)
class Figures:
    """What was measured of a service."""

    saturated: list[Saturated] = field(default_factory=list)
    rates: dict[float, Waits] = field(default_factory=dict)
    streams: list[Streams] = field(default_factory=list)
    memory_kb: int = 0
    """Memory of a process once it has answered some turns."""
    growth_kb: float = 0.0
    """Memory that each turn of the saturated service has left behind."""
    connections: int = 0
    """Connections of the service to PostgreSQL, under load."""
    stream_kb: float = 0.0
    """Memory of a further stream that is open and silent."""


@contextmanager
def open_services(plan: Plan, pace_ms: int = PACE_MS) -> Iterator[tuple[dict[str, Clients], Postgres | None]]:
    """Yield the clients of each service by its name, and the PostgreSQL server, if there is one."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        url = stack.enter_context(Endpoint()).paced_url(pace_ms)
        needs_postgres = any(store in ("postgres", "durable") for store, _ in plan.services)
        programs = find_programs() if needs_postgres else None
        postgres = stack.enter_context(Postgres(programs)) if programs is not None else None
        opened: dict[str, Clients] = {}
        for store, processes in plan.services:
            name, database, where = f"{store}{processes}", "", f"sqlite:///{folder / store}.db"
            if store in ("postgres", "durable"):
                if postgres is None:
                    continue
                database, where = name, postgres.create_database(name)
            service = Service(
                name, folder / name, url, build_arguments(store, where), processes=processes, database=database
            )
            clients = Clients(stack.enter_context(service))
            stack.callback(clients.http.close)
            opened[name] = clients
        yield opened, postgres


async def measure(plan: Plan) -> dict[str, Figures]:
    """Return what was measured of each service."""
    with open_services(plan) as (opened, postgres):
        measured = {name: Figures() for name in opened}
        _say("conversations")
        for name, clients in opened.items():
            await clients.create_conversations(plan.conversations)
            await clients.ask_at_rate(10, plan.seconds / 2)  # loads what a first turn loads
            measured[name].memory_kb = round(clients.service.memory_kb / len(clients.service.ports))
        for count in plan.streams:
            _say(f"{count} streams")
            for name, clients in opened.items():
                if len(clients.service.ports) == 1:
                    measured[name].streams.append(await measure_streams(clients, count, plan.seconds))
        for rate in plan.rates:
            _say(f"{rate} turns a second")
            for name, clients in opened.items():
                measured[name].rates[rate] = build_waits(await clients.ask_at_rate(rate, plan.seconds))
        await _measure_saturated(plan, opened, postgres, measured)
        for name, clients in opened.items():
            if failed := [asked for asked in clients.asked if not asked.has_answer]:
                raise RuntimeError(f"{name}: {len(failed)} turns failed, such as {failed[0].ending} {failed[0].error}")
    await _measure_silent(plan, measured)
    return measured


async def _measure_silent(plan: Plan, measured: Mapping[str, Figures]) -> None:
    for store, processes in plan.services:
        if processes > 1 or not plan.silent:
            continue
        _say(f"{SILENT[1]} silent streams, {store}")
        with open_services(replace(plan, services=((store, 1),)), _SILENCE_MS) as (opened, _):
            for name, clients in opened.items():
                await clients.create_conversations(SILENT[1])
                measured[name].stream_kb = await measure_silent(clients)


async def _measure_saturated(
    plan: Plan, opened: Mapping[str, Clients], postgres: Postgres | None, measured: Mapping[str, Figures]
) -> None:
    before = {name: (clients.service.memory_kb, clients.answered) for name, clients in opened.items()}
    for number in range(plan.rounds):
        _say(f"as many turns as possible, round {number + 1}")
        for name, clients in opened.items():
            found = await measure_saturated(clients, postgres, plan.seconds, plan.workers)
            measured[name].saturated.append(found)
            if postgres is not None and clients.service.database:
                measured[name].connections = postgres.count_connections(clients.service.database)
    for name, clients in opened.items() if plan.rounds else ():
        memory, turns = before[name]
        measured[name].growth_kb = (clients.service.memory_kb - memory) / (clients.answered - turns)


def _say(stage: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {stage}", file=sys.stderr, flush=True)


WAITS = "first byte, ms: p50 | p95 | p99 | gap, ms: p50 | p95 | p99"


def build_tables(measured: Mapping[str, Figures]) -> list[str]:
    """Return what was measured, as the tables in Markdown of docs/load.md."""
    costs = "processor, ms a turn | without a database over this | processor, of PostgreSQL | statements"
    turns = [f"store | turns a second | of those without a database | {costs}"]
    memory = ["store | memory of a process, MB | left by a turn, KB | a further stream, KB | connections"]
    rates = [f"store | turns a second | {WAITS}"]
    streams = [f"store | streams | processor of a stream, ms a second | {WAITS}"]
    floor = next(iter(measured.values())).saturated
    for service, figures in measured.items():
        name = describe_service(service)
        if found := figures.saturated:
            turns.append(f"{name} | {_describe_turns(found, floor, has_database=figures.connections > 0)}")
        stream = f"{figures.stream_kb:.0f}" if figures.stream_kb else ""
        growth = f"{figures.growth_kb:.1f}" if figures.saturated else ""
        kept = f"{figures.memory_kb / 1_000:.0f} | {growth} | {stream} | {figures.connections or ''}"
        memory.append(f"{name} | {kept}")
        rates += [f"{name} | {number} | {_cells(waits)}" for number, waits in figures.rates.items()]
        streams += [
            f"{name} | {each.count} | {each.processor_ms:.1f} | {_cells(each.waits)}" for each in figures.streams
        ]
    return [_to_table(*rows) for rows in (turns, memory, rates, streams) if rows[1:]]


def _describe_turns(found: Sequence[Saturated], floor: Sequence[Saturated], *, has_database: bool) -> str:
    """Return the cells of a row: medians, and their ratios to those of the first service in the same round."""
    ratios = [one.turns_a_second / base.turns_a_second for one, base in zip(found, floor, strict=True)]
    rate, processor, database, statements = (
        statistics.median(getattr(one, part) for one in found)
        for part in ("turns_a_second", "processor_ms", "database_ms", "statements")
    )
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})"
    share = statistics.median(one.processor_ms for one in floor) / processor
    asked = f"{database:.1f} | {statements:.1f}" if has_database else " | "
    return f"{rate:.0f} | {spread} | {processor:.1f} | {share:.2f} | {asked}"


def _to_table(head: str, *rows: str) -> str:
    lines = (f"| {head} |", f"|{'---|' * len(head.split(' | '))}", *(f"| {row} |" for row in rows))
    return "\n".join(lines) + "\n"


def write_tables(file: Path, tables: Sequence[str]) -> None:
    """Replace the rows of the tables of a document that have the same heads."""
    text = file.read_text(encoding="utf-8")
    for table in tables:
        head = table.partition("\n")[0]
        found = re.search(rf"^{re.escape(head)}\n(\|.*\n)+", text, re.MULTILINE)
        if found is None:
            raise SystemExit(f"{file} has no table {head}")
        text = text[: found.start()] + table + text[found.end() :]
    file.write_text(text, encoding="utf-8")


def _cells(waits: Waits) -> str:
    return " | ".join(f"{value:.0f}" for value in (*waits.first_byte, *waits.gap))


FIGURES = ("turns", "waits", "streams", "silent")


def _choose(services: Sequence[tuple[str, int]], options: argparse.Namespace) -> Plan:
    """Return the plan without the figures that are not wanted."""
    figures = options.figures
    return Plan(
        services,
        rates=Plan().rates if "waits" in figures else (),
        streams=Plan().streams if "streams" in figures else (),
        rounds=options.rounds if "turns" in figures else 0,
        silent="silent" in figures,
    )


def main() -> None:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", action="store_true", help="what happens under faults, instead of figures")
    parser.add_argument("--only", default="", help="only faults whose names contain this")
    known = {f"{store}{processes}": (store, processes) for store, processes in Plan().services}
    parser.add_argument("--services", nargs="+", choices=known, default=[*known], help="only these services")
    parser.add_argument("--figures", nargs="+", choices=FIGURES, default=FIGURES, help="only these figures")
    parser.add_argument("--rounds", type=int, default=Plan().rounds, help="windows of each saturated service")
    parser.add_argument("--smoke", action="store_true", help="a short run, whose numbers mean nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", type=Path, help="replace the rows of the tables of this document, docs/load.md")
    options = parser.parse_args()
    if sys.platform != "linux":
        sys.exit("only Linux tells the processor time and the memory of another process")
    # A run that is stopped ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.faults:
        rows = asyncio.run(measure_faults(options.only, is_smoke=options.smoke))
        print(json.dumps([asdict(row) for row in rows])) if options.json else print_faults(rows)
        if options.write is not None:
            write_tables(options.write, [_to_table(HEADS, *(describe_row(row).strip("| ") for row in rows))])
        sys.exit(0 if all(row.is_whole for row in rows) else 1)
    plan = SMOKE if options.smoke else _choose([known[name] for name in options.services], options)
    measured = asyncio.run(measure(plan))
    if options.json:
        report: dict[str, Any] = {name: asdict(figures) for name, figures in measured.items()}
        print(json.dumps({"machine": machine(), "services": report}))
        return
    tables = build_tables(measured)
    print(*tables, machine(), sep="\n")
    if options.write is not None:
        write_tables(options.write, tables)


if __name__ == "__main__":
    main()
