"""What 20, 200 and 1,400 tools on offer cost, by how they are offered: ``make bench-tools``.

Sixty tasks of BFCL's multi-turn category ``base`` are played by a model that knows their solutions (`replay`): with all
tools in each request, with search, as programs with all functions described, and as programs with search. Further
tools on offer are those of `benchmarks.search_data`. Each way runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from benchmarks.fidelity import tasks
from benchmarks.fidelity.replay import CODE, Host, expect
from benchmarks.fidelity.toolkits import BFCL, Toolkit, is_installed, open_toolkit
from dial_client.extend import ModelRequest
from dial_client.providers.chat_api import to_messages

SIZES = (20, 200, 1_400)
WAYS = {"all tools": ("native", False), "search": ("native", True), "code": (CODE, False), "code, search": (CODE, True)}
TASKS, EVERY = 60, 3
TOKENS = Path("build/fidelity/tokens")
HEAD = (
    "| tools | offered | right | requests a task | KB sent a task | tokens a task | processor, ms a request | MB |\n"
    "|---|---|---|---|---|---|---|---|"
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


class Requests:
    """The requests of one way, as bodies of chat completions."""

    def __init__(self) -> None:
        self.parts: Counter[str] = Counter()
        """Each message and each definition of a tool, and how often it was sent."""
        self.sent_bytes = 0
        self.count = 0

    def add(self, request: ModelRequest) -> None:
        """Count a request."""
        system = {"role": "system", "content": request.instruction_text}
        definitions = [_to_function(tool.name, tool.description, tool.input_schema) for tool in request.tools]
        parts = [
            json.dumps(part, ensure_ascii=False) for part in (system, *to_messages(request.messages, "m"), *definitions)
        ]
        self.parts.update(parts)
        self.sent_bytes += sum(len(part.encode()) + 1 for part in parts)
        self.count += 1


def main() -> int:
    """Read the command line, run, print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity.offers", description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS, metavar="N", help="the first N of the sixty tasks")
    parser.add_argument("--cell", nargs=2, metavar=("TOOLS", "WAY"), help="measure one way, and print JSON")
    options = parser.parse_args()
    if not is_installed() or not TOKENS.is_dir():
        print("the tasks are not installed: `make bench-tools` installs them", file=sys.stderr)
        return 2
    if options.cell:
        print(json.dumps(anyio.run(_measure, int(options.cell[0]), options.cell[1], options.tasks)))
        return 0
    print(f"Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d}; tokens of o200k_base (npm tiktoken)\n")
    print(HEAD)
    faults = []
    for size in SIZES:
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.fidelity.offers", "--tasks", str(options.tasks)]
            run = subprocess.run([*command, "--cell", str(size), way], check=True, stdout=subprocess.PIPE)
            cell = json.loads(run.stdout)
            faults += cell["faults"]
            print(_row(size, way, cell), flush=True)
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults else 0


async def _measure(size: int, way: str, count: int) -> dict[str, Any]:
    """Play the tasks in one way; return its figures."""
    format_, search = WAYS[way]
    names = tasks.servers_of(BFCL)
    toolkits: Mapping[str, Toolkit] = {name: open_toolkit(name) for name in names}
    chosen = tasks.load(BFCL, toolkits)[::EVERY][:count]
    expected = [expect(task, toolkits) for task in chosen]
    suite_tools = sum(len(toolkit.definitions()) for toolkit in toolkits.values())
    requests = Requests()
    async with Host(names, format_, search=search, offered=size, suite_tools=suite_tools, watch=requests.add) as host:
        started_at = time.process_time()
        replays = [await host.play(task, should_be) for task, should_be in zip(chosen, expected, strict=True)]
        seconds = time.process_time() - started_at - host.model_seconds
    counted = await anyio.run_process(
        ["node", "-e", COUNTER], cwd=TOKENS, input=json.dumps(requests.parts).encode(), stderr=None
    )
    return {
        "tasks": len(chosen),
        "right": sum(not replay.fault for replay in replays),
        "faults": [f"{replay.task}: {replay.fault}" for replay in replays if replay.fault],
        "requests": requests.count,
        "bytes": requests.sent_bytes,
        "tokens": int(counted.stdout),
        "seconds": seconds,
        "peak": _read_peak(),
    }


def _read_peak() -> float:
    """Return the most memory that this process had, in MB; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0.0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def _row(size: int, way: str, cell: Mapping[str, Any]) -> str:
    count = cell["tasks"]
    cells: Sequence[str] = (
        f"{size:,}",
        way,
        f"{cell['right']} of {count}",
        f"{cell['requests'] / count:.1f}",
        f"{cell['bytes'] / count / 1000:,.0f}",
        f"{cell['tokens'] / count:,.0f}",
        f"{cell['seconds'] * 1000 / cell['requests']:.1f}",
        f"{cell['peak']:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _to_function(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": dict(schema)}}


if __name__ == "__main__":
    sys.exit(main())
