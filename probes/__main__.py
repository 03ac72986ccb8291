"""Probes a host: ``python -m probes --host ADAPTER [--python PYTHON]``; the exit code is the number of failed kinds."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from probes.host_process import adapter_command
from probes.kinds import PROBES
from probes.verdict import Outcome, Target, probe_host

ADAPTERS = Path(__file__).with_name("adapters")


def find_adapter(host: str) -> str:
    """Return the file of an adapter, which is named, or given as a path."""
    named = ADAPTERS / f"{host.replace('-', '_')}.py"
    return str(named if named.is_file() else Path(host).resolve())


def build_environment() -> dict[str, str]:
    """Return the environment of a host: all requests stay on this machine, and modules are compiled once."""
    environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def describe(outcome: Outcome) -> str:
    """Return a line about a probe."""
    verdict = "failed" if outcome.findings else "passed"
    seen = "; ".join(outcome.findings) or f"{outcome.rounds} requests, {outcome.seconds:.1f} s"
    return f"{verdict}  {outcome.probe}: {seen}"


def count_kinds(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """Return how many kinds of failure were passed in all their probes, and how many there are."""
    failed = {outcome.sentence for outcome in outcomes if outcome.findings}
    kinds = {outcome.sentence for outcome in outcomes}
    return len(kinds - failed), len(kinds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Probe the host of the command line."""
    parser = argparse.ArgumentParser(prog="python -m probes", description=__doc__)
    parser.add_argument("--host", metavar="ADAPTER", help="a file with open_host(), or a name in probes/adapters")
    parser.add_argument("--python", default=sys.executable, help="the Python that has the host; default: this one")
    parser.add_argument("--command", nargs=argparse.REMAINDER, help="a program that speaks the lines of adapter_runner")
    parser.add_argument("--only", action="append", choices=list(PROBES), metavar="PROBE", help="one of the probes")
    parser.add_argument("--stream", action="store_true", help="ask for streamed answers")
    parser.add_argument("--json", action="store_true", help="JSON in place of lines")
    options = parser.parse_args(arguments)
    if bool(options.host) == bool(options.command):
        parser.error("give either --host or --command")
    command = options.command or adapter_command(find_adapter(options.host), options.python)
    probes = {name: PROBES[name] for name in options.only or PROBES}
    outcomes: list[Outcome] = []

    def show(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if not options.json:
            print(describe(outcome), flush=True)

    with tempfile.NamedTemporaryFile(prefix="probes-", suffix=".err") as errors:
        target = Target(command, build_environment(), Path(errors.name))
        probe_host(target, probes, streamed=options.stream, show=show)
    passed, kinds = count_kinds(outcomes)
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    else:
        print(f"{passed} of {kinds} kinds of failure passed")
    return kinds - passed


if __name__ == "__main__":
    sys.exit(main())
