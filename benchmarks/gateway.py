"""What `dial-chat gateway` adds to a call: ``python -m benchmarks.gateway [--calls N] [--smoke] [--json]``.

The same client, which uses no SDK, makes calls directly at a server, at the SDK's server alone, at the shortest proxies
with and without the SDK (`gateway_floor`), and through the gateway, in turns within one run: whatever else the machine
does meets all of them. A call is allowed by a rule, recorded in the audit log, and its result handed on as it is. The
processor time is that of the process which is called, without its servers. Only Linux tells it of another process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.report import machine
from benchmarks.server_entries import server_entries

LEGACY, MODERN = "2025-11-25", "2026-07-28"
BLOCK = 10
"""Calls of one program in a row, before the next program has its turn."""
WARM_UP = 50
"""Calls of each program before the first one that is measured."""
TEXT = "a word that comes back"
DIRECT, GATEWAY = "the server itself", "dial-chat gateway"
GOALS = "0.5 ms of a processor, 3 ms at p99; first list after 600 ms; 140 MB"
"""What the gateway is to cost at most on a machine that does nothing else."""


class Program:
    """A program that speaks MCP on standard input and output, with one message at a time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], version: str) -> None:
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(environment)
        )
        self._version, self._id = version, 0

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, and return its result; what else arrives is skipped."""
        self._id += 1
        if self._version == MODERN:
            prefix = "io.modelcontextprotocol"
            client = {"name": "benchmark", "version": "1"}
            params["_meta"] = {
                f"{prefix}/protocolVersion": MODERN,
                f"{prefix}/clientInfo": client,
                f"{prefix}/clientCapabilities": {},
            }
        self._send({"id": self._id, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._id:
                if "error" in answer or answer["result"].get("isError"):
                    raise RuntimeError(f"{method}: {line!r}")
                return dict(answer["result"])
        raise RuntimeError(f"{method}: the program has ended")

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        self.process.stdin.flush()

    def begin(self) -> list[str]:
        """Connect, and return the names of the tools."""
        if self._version != MODERN:
            client = {"name": "benchmark", "version": "1"}
            self.request("initialize", protocolVersion=self._version, capabilities={}, clientInfo=client)
            self._send({"method": "notifications/initialized"})
        return [tool["name"] for tool in self.request("tools/list")["tools"]]

    def call(self, tool: str) -> float:
        """Call a tool, and return the milliseconds until the result."""
        began = time.perf_counter()
        result = self.request("tools/call", name=tool, arguments={"text": TEXT})
        passed = time.perf_counter() - began
        if result["content"][0]["text"] != TEXT:
            raise RuntimeError(f"another result: {result}")
        return passed * 1_000

    @property
    def processor_ms(self) -> float:
        """The processor time of the process so far, in milliseconds."""
        # The clock of another process, as `clock_getcpuclockid` makes it: Python has no name for it.
        return time.clock_gettime((~self.process.pid << 3) | 2) * 1_000

    @property
    def memory_mb(self) -> float:
        """The memory of the process in main memory, without that of its servers, in megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1_000

    def close(self) -> None:
        """End the program by the end of its input."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@dataclass(frozen=True, slots=True)
class Row:
    """What calls of one program took, in milliseconds."""

    program: str
    version: str
    processor: float
    """Processor time of a call in the program, the median of all blocks."""
    least: float
    """The same in the best block: other programs slow a processor down too, which both of its threads share."""
    p50: float
    p99: float
    calls: int


@dataclass(slots=True)
class Called:
    """A program whose calls are measured."""

    program: Program
    tool: str
    times: list[float] = field(default_factory=list)
    blocks: list[float] = field(default_factory=list)

    def call_block(self) -> None:
        """Make some calls in a row."""
        before = self.program.processor_ms
        self.times += [self.program.call(self.tool) for _ in range(BLOCK)]
        self.blocks.append((self.program.processor_ms - before) / BLOCK)

    def build_row(self, name: str, version: str) -> Row:
        """Return what the calls took."""
        p50, p99 = (statistics.quantiles(self.times, n=100)[at] for at in (49, 98))
        return Row(name, version, statistics.median(self.blocks), min(self.blocks), p50, p99, len(self.times))


@dataclass(frozen=True, slots=True)
class Added:
    """What the gateway adds to a call of a direct connection, in milliseconds; `GOALS` has what it may."""

    version: str
    processor: float
    """All processor time of the gateway: the server's own is spent with and without it."""
    least: float
    """The same in the best block."""
    p50: float
    p99: float


def find_added(rows: Sequence[Row]) -> list[Added]:
    """Return what the gateway adds, by revision."""
    direct = {row.version: row for row in rows if row.program == DIRECT}
    return [
        Added(row.version, row.processor, row.least, row.p50 - before.p50, row.p99 - before.p99)
        for row in rows
        if row.program == GATEWAY
        for before in (direct[row.version],)
    ]


@contextmanager
def home(entries: Mapping[str, Any]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the command of the gateway for servers, and an environment with folders of its own."""
    with TemporaryDirectory() as folder:
        config = Path(folder, "servers.json")
        config.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
        names = ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
        # Some containers let Python compile each module again at each start, which installed packages need not.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = inherited | {name: str(Path(folder, name.lower())) for name in names} | {"HOME": folder}
        yield [sys.executable, "-m", "dial_client", "gateway", "-c", str(config)], environment


def measure_calls(version: str, calls: int) -> list[Row]:
    """Return what calls take at each program, in turns."""
    entries = server_entries()
    ((name, entry),) = entries.items()
    server = [str(entry["command"]), *map(str, entry["args"])]
    floor = [sys.executable, "-m", "benchmarks.gateway_floor"]
    with ExitStack() as stack:
        gateway, environment = stack.enter_context(home(entries))
        commands = {
            DIRECT: server,
            "the SDK's server alone": [*floor, "server"],
            "the shortest proxy without the SDK": [*floor, "plain", *server],
            "the shortest proxy with the SDK": [*floor, "proxy", *server],
            GATEWAY: gateway,
        }
        called: dict[str, Called] = {}
        for title, command in commands.items():
            program = Program(command, environment, version)
            stack.callback(program.close)
            tools = program.begin()
            called[title] = Called(program, next(tool for tool in tools if "echo" in tool or name in tool))
        for known in called.values():
            for _ in range(min(WARM_UP, calls)):
                known.program.call(known.tool)
        for _ in range(calls // BLOCK):
            for known in called.values():
                known.call_block()
        return [known.build_row(title, version) for title, known in called.items()]


@dataclass(frozen=True, slots=True)
class Start:
    """The start with many servers: medians, and the memory of the last start."""

    servers: int
    first_list_ms: float
    """Milliseconds from the start of the program to its first list, with the tools of the last run in the cache."""
    first_list_processor_ms: float
    """The processor time until then."""
    floor_ms: float
    """As `first_list_ms`, of the SDK's server alone."""
    floor_processor_ms: float
    """As `first_list_processor_ms`, of the SDK's server alone."""
    import_ms: float
    """Milliseconds of a Python that imports the SDK's server and ends."""
    memory_mb: float
    """Megabytes of the gateway once all servers have started, and a tool of each was called."""


def measure_start(servers: int, repeats: int) -> Start:
    """Return what the start takes with many servers of ten tools."""
    with home(server_entries(servers, tools=10)) as (command, environment):
        _start(command, environment, servers)  # fills the cache
        floor: list[tuple[float, float]] = []
        imports: list[float] = []
        listed: list[tuple[float, float]] = []
        memory = 0.0
        for _ in range(repeats):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import mcp.server"], check=True, env=environment)
            imports.append((time.perf_counter() - began) * 1_000)
            program = Program([sys.executable, "-m", "benchmarks.gateway_floor", "server"], environment, LEGACY)
            program.begin()
            floor.append(((time.perf_counter() - program.began) * 1_000, program.processor_ms))
            program.close()
            first, memory = _start(command, environment, servers)
            listed.append(first)
    wall, processor = (statistics.median(values) for values in zip(*listed, strict=True))
    floor_wall, floor_processor = (statistics.median(values) for values in zip(*floor, strict=True))
    return Start(servers, wall, processor, floor_wall, floor_processor, statistics.median(imports), memory)


def _start(command: Sequence[str], environment: Mapping[str, str], servers: int) -> tuple[tuple[float, float], float]:
    """Start the gateway, and call a tool of each server.

    Returns:
        The milliseconds to its first list, of time and of processor time, and its megabytes in the end.
    """
    program = Program(command, environment, LEGACY)
    try:
        tools = program.begin()
        first = (time.perf_counter() - program.began) * 1_000, program.processor_ms
        if len(tools) != servers * 10:
            raise RuntimeError(f"{len(tools)} tools are listed")
        for tool in tools[::10]:
            program.call(tool)
        return first, program.memory_mb
    finally:
        program.close()


def print_table(rows: Sequence[Row], start: Start) -> None:
    """Print what was measured."""
    print(f"{'program':<36}{'revision':<12}{'CPU ms':>8}{'least':>8}{'p50 ms':>9}{'p99 ms':>9}{'calls':>7}")
    for row in rows:
        figures = f"{row.processor:8.3f}{row.least:8.3f}{row.p50:9.3f}{row.p99:9.3f}{row.calls:7}"
        print(f"{row.program:<36}{row.version:<12}{figures}")
    for added in find_added(rows):
        print(f"\nadded to a direct call, {added.version}: {added.processor:.3f} ms of a processor", end="")
        print(f" (least {added.least:.3f}), p50 {added.p50:.3f} ms, p99 {added.p99:.3f} ms", end="")
    print(f"\n\nfirst list with {start.servers} servers, warm cache: {start.first_list_ms:.0f} ms", end="")
    print(f" ({start.first_list_processor_ms:.0f} ms of a processor)")
    print(f"  the SDK's server alone: {start.floor_ms:.0f} ms ({start.floor_processor_ms:.0f} ms)", end="")
    print(f"; a Python that imports the SDK's server: {start.import_ms:.0f} ms")
    print(f"memory with {start.servers} servers of 10 tools: {start.memory_mb:.1f} MB\ngoals: {GOALS}\n{machine()}")


def main() -> None:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000, help="calls of each program in each revision")
    parser.add_argument("--servers", type=int, default=60, help="servers of the measured start")
    parser.add_argument("--repeats", type=int, default=5, help="measured starts")
    parser.add_argument("--smoke", action="store_true", help="a short run, whose numbers mean nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if sys.platform != "linux":
        sys.exit("only Linux tells the processor time of another process")
    calls, servers, repeats = (20, 2, 1) if options.smoke else (options.calls, options.servers, options.repeats)
    rows = [row for version in (LEGACY, MODERN) for row in measure_calls(version, calls)]
    start = measure_start(servers, repeats)
    if options.json:
        added = [asdict(figures) for figures in find_added(rows)]
        calls = [asdict(row) for row in rows]
        print(json.dumps({"machine": machine(), "calls": calls, "added": added, "start": asdict(start)}))
    else:
        print_table(rows, start)


if __name__ == "__main__":
    main()
