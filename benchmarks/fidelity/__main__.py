"""Measures whether calls and results arrive as they were written: ``make bench-fidelity``.

The tasks are those of BFCL's multi-turn categories (800, of four kinds) and of tau2's base splits (278), with their
executable APIs as MCP servers on standard input and output. A model that knows the published solutions writes each
call in each tool format. Right is a task whose every result, and whose state after every turn, are those of the same
calls without a host. With search, the tools of all servers of the suite are connected, and few of them on offer.
The exit status is 1 if a task is not right.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import anyio

from benchmarks.fidelity import tasks
from benchmarks.fidelity.replay import Expected, Host, Replay, expect
from benchmarks.fidelity.toolkits import BFCL, TAU2, Toolkit, is_installed, open_toolkit

FORMATS = ("native", "react", "xml", "code")
HEAD = (
    "| tasks | format | search | right | calls | requests a task | KB of tools each | found by the user's words |\n"
    "|---|---|---|---|---|---|---|---|"
)


def main() -> int:
    """Read the command line, run, print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    parser.add_argument("--suite", action="append", choices=[BFCL, TAU2], help="only this suite; may be repeated")
    parser.add_argument("--format", action="append", choices=FORMATS, help="only this format; may be repeated")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth task")
    options = parser.parse_args()
    if not is_installed():
        print("the tasks are not installed: `make bench-fidelity` installs them", file=sys.stderr)
        return 2
    print(f"Python {platform.python_version()}, dial-client {version('dial-client')}, {datetime.now(UTC):%Y-%m-%d}\n")
    print(HEAD)
    faults: list[Replay] = []
    for suite in options.suite or (BFCL, TAU2):
        anyio.run(_play_suite, suite, options.format or FORMATS, options.every, faults)
    for replay in faults:
        print(f"{replay.task}: {replay.fault}", file=sys.stderr)
    return 1 if faults else 0


async def _play_suite(suite: str, formats: Sequence[str], every: int, faults: list[Replay]) -> None:
    """Play a suite in each format without and with search, and print a row for each."""
    names = tasks.servers_of(suite)
    toolkits: Mapping[str, Toolkit] = {name: open_toolkit(name) for name in names}
    chosen = tasks.load(suite, toolkits)[::every]
    expected: dict[str, tuple[Expected, ...]] = {task.id: expect(task, toolkits) for task in chosen}
    for format_, search in _cells(formats):
        async with Host(names, format_, search=search) as host:
            replays = [await host.play(task, expected[task.id]) for task in chosen]
        faults += [replay for replay in replays if replay.fault]
        print(_row(suite, format_, replays, search=search), flush=True)


def _cells(formats: Sequence[str]) -> Iterator[tuple[str, bool]]:
    for search in (False, True):
        for format_ in formats:
            yield format_, search


def _row(suite: str, format_: str, replays: Sequence[Replay], *, search: bool) -> str:
    rounds, searches = sum(replay.rounds for replay in replays), sum(replay.searches for replay in replays)
    found = f"{sum(replay.found for replay in replays)} of {searches}" if search else ""
    cells = (
        suite,
        format_,
        "yes" if search else "no",
        f"{sum(not replay.fault for replay in replays)} of {len(replays)}",
        f"{sum(replay.calls for replay in replays):,}",
        f"{rounds / len(replays):.1f}",
        f"{sum(replay.request_bytes for replay in replays) / rounds / 1000:.1f}",
        found,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
