"""What 20, 200 and 1,400 tools on offer cost, by how they are offered, here and in two peers: ``make bench-tools``.

Sixty tasks of BFCL's multi-turn category ``base`` are played by a model that knows their solutions (`oracle`): with all
tools in each request, with search, as programs with all functions described, and as programs with search, by this host,
pydantic-ai and FastMCP's `CodeMode`, as far as they have that way. Further tools on offer are those of
`benchmarks.search_data`. Each row is of a process of its own; the peers have environments below
``build/fidelity/hosts``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from benchmarks.fidelity import tasks
from benchmarks.fidelity.oracle import ANSWER, WAYS, Oracle, OracleServer, Way
from benchmarks.fidelity.replay import Expected, expect
from benchmarks.fidelity.tasks import Task, TaskTurn
from benchmarks.fidelity.toolkits import BFCL, Toolkit, is_installed, open_toolkit
from benchmarks.hosts.environments import install
from benchmarks.hosts.tables import replace_between
from probes.__main__ import build_environment

SIZES = (20, 200, 1_400)
TASKS, EVERY = 60, 3
CATALOG = "catalog"
"""The server whose tools nobody needs."""
ADAPTERS = Path(__file__).with_name("hosts")
ENVIRONMENTS = Path("build/fidelity/hosts")
TOKENS = Path("build/fidelity/tokens")
NAMES = {"dial_client": "dial_client", "pydantic_ai": "pydantic-ai", "fastmcp": "FastMCP"}
PACKAGES = {
    "dial_client": ("dial-client",),
    "pydantic_ai": ("pydantic-ai-slim", "pydantic-ai-harness"),
    "fastmcp": ("fastmcp",),
}
END_SECONDS = 60
SHARED = ("mcp", "pydantic-monty")
"""Packages of all hosts whose versions the table names, too."""
BEGIN, END = "<!-- written by make bench-tools -->", "<!-- end of what make bench-tools writes -->"
HEAD = (
    "| tools | offered | host | right | requests a task | KB sent a task | tokens a task | processor, ms a request |"
    " MB |\n|---|---|---|---|---|---|---|---|---|"
)
COUNTER = """
const { get_encoding } = require("tiktoken");
const encoding = get_encoding("o200k_base");
let text = "";
process.stdin.on("data", (data) => (text += data)).on("end", () => {
  const counts = Object.entries(JSON.parse(text)).map(([part, count]) => count * encoding.encode(part, "all").length);
  console.log(counts.reduce((sum, count) => sum + count, 0));
});
"""
"""A program that counts the tokens of texts, each as often as it was sent."""
VERSIONS = """
import importlib.metadata, sys
print(*(f"{name} {importlib.metadata.version(name)}" for name in sys.argv[1:]), sep=", ")
"""
"""A program that names the versions of packages."""


class Suite:
    """The tasks, what they must come to, and the tools that are offered with them."""

    def __init__(self, count: int) -> None:
        self.servers = tasks.servers_of(BFCL)
        toolkits: Mapping[str, Toolkit] = {name: open_toolkit(name) for name in self.servers}
        self.tasks = tasks.load(BFCL, toolkits)[::EVERY][:count]
        self.expected = [expect(task, toolkits) for task in self.tasks]
        self.tools = [(name, each.name) for name in self.servers for each in toolkits[name].definitions()]

    def entries(self, size: int) -> dict[str, dict[str, Any]]:
        """Return the servers for a number of tools on offer."""
        arguments = {name: [name] for name in self.servers}
        arguments[CATALOG] = [CATALOG, str(max(1, size - len(self.tools)))]
        module = ["-m", "benchmarks.fidelity.server"]
        return {name: {"command": sys.executable, "args": [*module, *each]} for name, each in arguments.items()}

    def patterns(self, size: int, task: Task, turn: TaskTurn) -> list[str]:
        """Return which tools are on offer: those of the task, then others of the suite, then those of a catalog."""
        hidden = turn.missing | {f"{server}/{tool}_{server}" for server in self.servers for tool in ("begin", "state")}
        if size < len(self.tools):
            needed = [f"{call.server}/{call.tool}" for each in task.turns for call in each.calls]
            others = [f"{server}/{tool}" for server, tool in self.tools]
            return [name for name in dict.fromkeys([*needed, *others]) if name not in hidden][:size]
        return [*(f"{server}/*" for server in (*self.servers, CATALOG)), *(f"!{name}" for name in sorted(hidden))]


class HostProcess:
    """The process of a host (`host_runner`)."""

    def __init__(self, python: str, host: str, settings: Mapping[str, Any]) -> None:
        runner = Path(__file__).with_name("host_runner.py")
        # -P: modules of this package must not hide those of the host.
        command = [python, "-P", "-W", "ignore", str(runner), str(ADAPTERS / f"{host}.py"), json.dumps(settings)]
        pipe, environment = subprocess.PIPE, build_environment()
        with (ENVIRONMENTS / f"{host}.err").open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=errors, env=environment, text=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def read(self) -> Any:
        """Return the next line of the process."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r:.400} ended: see {ENVIRONMENTS}/*.err")
        return json.loads(line)

    def do(self, **command: Any) -> Any:
        """Send a command, and return its answer."""
        assert self._process.stdin is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return self.read()


def main() -> int:
    """Read the command line, run, print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity.offers", description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS, metavar="N", help="the first N of the sixty tasks")
    parser.add_argument("--size", type=int, action="append", choices=SIZES, help="only this number of tools")
    parser.add_argument("--hosts", action="append", choices=list(NAMES), metavar="HOST", help="only this host")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between its marks in this file")
    options = parser.parse_args()
    if not is_installed() or not TOKENS.is_dir():
        print("the tasks are not installed: `make bench-tools` installs them", file=sys.stderr)
        return 2
    pythons = _prepare(options.hosts or list(NAMES))
    load = os.getloadavg()[0]
    suite = Suite(options.tasks)
    lines, faults = [], []
    for size in options.size or SIZES:
        for way in WAYS:
            if way.host in pythons:
                cell = _measure(suite, size, way, pythons[way.host])
                faults += cell["faults"]
                lines.append(_row(size, way, cell))
                print(lines[-1], flush=True)
    chosen = [("--size", size) for size in options.size or ()] + [("--hosts", host) for host in options.hosts or ()]
    arguments = " ".join(f"{option} {value}" for option, value in [("--tasks", options.tasks), *chosen])
    markdown = "\n".join([_describe(pythons, load, arguments), "", HEAD, *lines])
    if options.write:
        replace_between(options.write, BEGIN, END, markdown)
    print(f"\n{markdown}\n")
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults else 0


def _prepare(hosts: Sequence[str]) -> dict[str, str]:
    """Install the hosts; return the Python of each that is there."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    pythons = {}
    for host in hosts:
        pins = ADAPTERS / f"{host}.txt"
        if not pins.is_file():
            pythons[host] = sys.executable
        elif problem := install(ENVIRONMENTS / host, pins, sys.executable):
            print(f"{NAMES[host]}: {problem}", file=sys.stderr)
        else:
            pythons[host] = str(ENVIRONMENTS / host / "bin" / "python")
    return pythons


def _measure(suite: Suite, size: int, way: Way, python: str) -> dict[str, Any]:
    """Play the tasks in one way; return its figures."""
    calls = [(call.server, call.tool) for task in suite.tasks for turn in task.turns for call in turn.calls]
    tools = list(dict.fromkeys(calls))
    seconds, faults = 0.0, []
    with OracleServer() as server:
        settings = {"base_url": server.url, "servers": suite.entries(size), "code": way.code, "search": way.search}
        with HostProcess(python, way.host, {**settings, "tools": tools}) as process:
            oracle = server.oracle = Oracle(way, dict(zip(tools, process.read(), strict=True)))
            for task, expected in zip(suite.tasks, suite.expected, strict=True):
                for name in task.servers:
                    process.do(call=[name, f"begin_{name}", {"task": task.id}])
                for number, (turn, should_be) in enumerate(zip(task.turns, expected, strict=True)):
                    oracle.begin(turn)
                    answer = process.do(ask=turn.text, patterns=suite.patterns(size, task, turn), first=number == 0)
                    seconds += answer["seconds"]
                    fault = _find_fault(process, oracle, task, should_be, answer)
                    if fault:
                        faults.append(f"{size} tools, {way.title}, {NAMES[way.host]}, {task.id}: {fault}")
                        break
            peak = process.do(end=True)["peak"]
    counted = subprocess.run(
        ["node", "-e", COUNTER], cwd=TOKENS, input=json.dumps(oracle.parts).encode(), check=True, stdout=subprocess.PIPE
    )
    return {
        "tasks": len(suite.tasks),
        "faults": faults,
        "requests": oracle.requests,
        "bytes": oracle.sent_bytes,
        "tokens": int(counted.stdout),
        "seconds": seconds,
        "peak": peak,
    }


def _find_fault(process: HostProcess, oracle: Oracle, task: Task, expected: Expected, answer: Mapping[str, Any]) -> str:
    """Return the first difference between a turn and what it should be; an empty text if there is none."""
    if answer.get("text") != ANSWER:
        return f"the answer is {answer}"
    states = tuple(process.do(call=[name, f"state_{name}", {}])["text"] for name in task.servers)
    return oracle.find_fault(expected.results) or ("" if states == expected.states else "another state")


def _row(size: int, way: Way, cell: Mapping[str, Any]) -> str:
    count = cell["tasks"]
    cells: Sequence[str] = (
        f"{size:,}",
        way.title,
        NAMES[way.host],
        f"{count - len(cell['faults'])} of {count}",
        f"{cell['requests'] / count:.1f}",
        f"{cell['bytes'] / count / 1000:,.0f}",
        f"{cell['tokens'] / count:,.0f}",
        f"{cell['seconds'] * 1000 / cell['requests']:.1f}",
        f"{cell['peak']:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _describe(pythons: Mapping[str, str], load: float, arguments: str) -> str:
    """Return a sentence about the run."""
    versions = []
    for host, python in pythons.items():
        command = [python, "-c", VERSIONS, *PACKAGES[host], *SHARED]
        versions.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    return (
        f'Measured on {datetime.now(UTC):%Y-%m-%d} by `make bench-tools BENCH_ARGS="{arguments}"` with Python '
        f"{platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors with a "
        f"load of {load:.1f} before the run. Versions: {'; '.join(versions)}."
    )


if __name__ == "__main__":
    sys.exit(main())
