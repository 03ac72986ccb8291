"""The faults: processes, databases, disks, connections, clocks and MCP servers, each under load."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.endpoint import Endpoint
from benchmarks.load.faults import FaultRow, judge, wait_until_whole
from benchmarks.load.postgres import Postgres, find_programs
from benchmarks.load.service import PACE_MS, Process, Service, build_arguments, describe_service
from benchmarks.load.turns import Clients
from benchmarks.report import machine

RATE = 6.0
"""Turns a second of each service: what is left of a shared machine must do while something fails."""
BEFORE = 2.0
"""Seconds of load before the fault."""
DISK_MB = 16


@dataclass(slots=True)
class Place:
    """What faults reach for."""

    postgres: Postgres | None
    folder: Path
    services: Sequence[Clients] = ()

    @property
    def processes(self) -> list[Process]:
        """The processes of all services."""
        return [process for clients in self.services for process in clients.service.processes]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that fails under load."""

    name: str
    services: Sequence[tuple[str, int]]
    """Stores, each with the number of processes; the same fault meets all of these services."""
    cause: Callable[[Place], Awaitable[None]]
    """Causes the fault, and ends it."""
    cut_after: int = 0
    """Events after which the connection of each client breaks; 0 for never."""
    has_clock: bool = False
    """Whether the clock of the first process of each service can be set."""
    turns: int = 600
    """The most turns: each has a conversation, which is there before."""


async def kill_processes(place: Place, times: int = 3, interval: float = 10.0) -> None:
    """Kill a process of each service again and again; it is started again at once, and works before the next one."""
    for number in range(times):
        if number:
            await asyncio.sleep(interval)
        for process in place.processes:
            await asyncio.to_thread(process.wait_until_it_listens)
        for clients in place.services:
            processes = clients.service.processes
            processes[number % len(processes)].kill()
            processes[number % len(processes)].start()


def stop_database(seconds: float) -> Callable[[Place], Awaitable[None]]:
    """Return a fault that stops PostgreSQL, as if its machine had failed."""

    async def stop(place: Place) -> None:
        assert place.postgres is not None
        await asyncio.to_thread(place.postgres.stop)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(place.postgres.start)

    return stop


async def cut_connections(place: Place) -> None:
    """Close all connections to PostgreSQL again and again."""
    assert place.postgres is not None
    for _ in range(5):
        await asyncio.to_thread(place.postgres.cut_connections)
        await asyncio.sleep(2.0)


async def fill_disk(place: Place) -> None:
    """Fill the disk of the SQLite file for some seconds."""
    disk = place.folder / "disk"
    # While somebody reads, such as a backup, the file of the latest writes cannot be used again: it has to grow.
    with closing(sqlite3.connect(disk / "talk.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM conversations").fetchone()
        with (disk / "ballast").open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4_096):
                pass
        await asyncio.sleep(5.0)
        (disk / "ballast").unlink()


async def do_nothing(_: Place) -> None:
    """Cause nothing: the clients do."""
    await asyncio.sleep(4.0)


async def set_clock(place: Place) -> None:
    """Set the clock of a process an hour ahead, then an hour back."""
    for offset in ("3600", "-3600", "0"):
        for clients in place.services:
            (clients.service.folder / "clock").write_text(offset, encoding="utf-8")
        await asyncio.sleep(3.0)


async def kill_servers(place: Place, times: int = 4) -> None:
    """Kill the MCP servers of all processes again and again."""
    for _ in range(times):
        for process in place.processes:
            for server in process.find_servers():
                with suppress(ProcessLookupError):
                    os.kill(server, signal.SIGKILL)
        await asyncio.sleep(2.0)


BOTH = (("postgres", 1), ("durable", 2))
FAULTS = (
    Fault("a process is killed each 10 s", (("sqlite", 1), ("durable", 2)), kill_processes),
    Fault("PostgreSQL is stopped for 5 s", BOTH, stop_database(5)),
    Fault("PostgreSQL is stopped for 60 s", BOTH, stop_database(60)),
    Fault("connections to PostgreSQL are cut each 2 s", BOTH, cut_connections),
    Fault("the disk is full for 5 s", (("sqlite", 1),), fill_disk),
    Fault("streams break after 12 events", (("sqlite", 1), ("durable", 2)), do_nothing, cut_after=12),
    Fault("the clock is set by an hour, there and back", (("sqlite", 1), ("durable", 2)), set_clock, has_clock=True),
    Fault("MCP servers are killed each 2 s", (("sqlite", 1), ("durable", 2)), kill_servers),
)


async def kill_servers_once(place: Place) -> None:
    """Kill the MCP servers of all processes once."""
    await kill_servers(place, times=1)


SMOKE = Fault("MCP servers are killed", (("sqlite", 1),), kill_servers_once, turns=40)


async def measure_faults(only: str = "", *, is_smoke: bool = False) -> list[FaultRow]:
    """Return what became of the turns under each fault whose name contains `only`; what the machine lacks is named."""
    rows: list[FaultRow] = []
    with ExitStack() as stack:
        programs = None if is_smoke else find_programs()
        postgres = stack.enter_context(Postgres(programs)) if programs is not None else None
        url = stack.enter_context(Endpoint()).paced_url(PACE_MS)
        for number, fault in enumerate((SMOKE,) if is_smoke else FAULTS):
            if only not in fault.name:
                continue
            with TemporaryDirectory() as folder:
                place = Place(postgres, Path(folder))
                if lack := find_lack(fault, place):
                    print(f"not measured: {fault.name}: {lack}", file=sys.stderr)
                    continue
                measured = await _measure_fault(fault, place, url, number)
                print(*map(describe_row, measured), sep="\n", file=sys.stderr, flush=True)
                rows += measured
    return rows


def find_lack(fault: Fault, place: Place) -> str:
    """Return why a fault cannot be caused on this machine; empty if it can."""
    if place.postgres is None and fault.services is BOTH:
        return "there is no PostgreSQL"
    if fault.has_clock and shutil.which("cc") is None:
        return "there is no compiler for the library that sets a clock"
    if fault.cause is fill_disk and (os.geteuid() != 0 or shutil.which("mount") is None):
        return "no file system can be mounted"
    return ""


async def _measure_fault(fault: Fault, place: Place, url: str, number: int) -> list[FaultRow]:
    with _mounted(place.folder / "disk", is_needed=fault.cause is fill_disk), ExitStack() as stack:
        place.services = [
            stack.enter_context(_opened(fault, place, url, store, processes, f"f{number}_{store}"))
            for store, processes in fault.services
            if store == "sqlite" or place.postgres is not None
        ]
        for clients in place.services:
            await clients.create_conversations(fault.turns)
        is_over = asyncio.Event()
        loads = [asyncio.create_task(_ask_until(is_over, clients, fault)) for clients in place.services]
        await asyncio.sleep(BEFORE)
        await fault.cause(place)
        is_over.set()
        recovered = await asyncio.gather(*(wait_until_whole(clients) for clients in place.services))
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        return [
            await judge(clients, fault.name, seconds)
            for clients, seconds in zip(place.services, recovered, strict=True)
        ]


@contextmanager
def _opened(fault: Fault, place: Place, url: str, store: str, processes: int, database: str) -> Iterator[Clients]:
    folder = place.folder / store
    where = f"sqlite:///{place.folder / 'disk' / 'talk.db'}"
    if store != "sqlite":
        assert place.postgres is not None
        where = place.postgres.create_database(database)
    service = Service(f"{store}{processes}", folder, url, build_arguments(store, where), processes=processes)
    if fault.has_clock:
        clock, library = folder / "clock", folder / "set_clock.so"
        clock.write_text("0", encoding="utf-8")
        source = Path(__file__).with_name("set_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
        service.processes[0].environment |= {"LD_PRELOAD": str(library), "DIAL_CLOCK": str(clock)}
    with service:
        clients = Clients(service)
        try:
            yield clients
        finally:
            clients.http.close()


@contextmanager
def _mounted(folder: Path, *, is_needed: bool) -> Iterator[None]:
    """Within the context, `folder` is a small disk of its own, if that is needed."""
    folder.mkdir()
    if not is_needed:
        yield
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


async def _ask_until(is_over: asyncio.Event, clients: Clients, fault: Fault) -> None:
    """Ask for `RATE` turns a second until the event."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as turns:
        for number in range(fault.turns):
            due = began + number / RATE
            await asyncio.sleep(due - loop.time())
            if is_over.is_set():
                break
            turns.create_task(clients.ask(due, cut_after=fault.cut_after))


HEADS = "fault | store | turns | answered | error | cut off | accepted | stored | noted | wrong | whole after, s"


def describe_row(row: FaultRow) -> str:
    """Return the row of a table in Markdown."""
    counts = (row.turns, row.answered, row.told, row.cut_off, row.accepted, row.stored, row.noted)
    wrong = row.lost + row.repeated + row.denied + row.silent
    service = describe_service(row.service)
    return f"| {row.fault} | {service} | {' | '.join(map(str, (*counts, wrong)))} | {row.recovery:.1f} |"


def print_faults(rows: Sequence[FaultRow]) -> None:
    """Print the rows as a table in Markdown, and what is wrong below it."""
    print(f"| {HEADS} |\n|{'---|' * len(HEADS.split(' | '))}")
    print(*map(describe_row, rows), sep="\n")
    for row in rows:
        for example in row.examples:
            print(f"\n{row.fault}, {row.service}: {example}")
    print(f"\n{machine()}")
