"""Measures how many injected instructions reach a side effect: ``python -m benchmarks.attack``, or ``make attack``.

Every user task of AgentDojo's suites runs alone, and with every injection planted where the task will read it: 1,046
turns with each of four defenses, and as many with the injection in a skill of the server, with and without a person.
The exit status is 1 if a requirement is not met.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import sys
import time
from pathlib import Path

from benchmarks.attack.defenses import DEFENSES, PACKAGES, USUAL
from benchmarks.attack.report import as_json, columns_of, failures_of, table
from benchmarks.attack.tool_annotations import EFFECTS
from benchmarks.attack.trials import all_pairs, few_pairs, run_all


def is_installed() -> bool:
    """Return True if the servers can import `agentdojo`."""
    return importlib.util.find_spec("agentdojo") is not None or (PACKAGES / "agentdojo").is_dir()


def main() -> int:
    """Read the command line, run, print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack", description=__doc__)
    parser.add_argument("--suite", action="append", choices=list(EFFECTS), help="only this suite; may be repeated")
    names = [defense.name for defense in DEFENSES]
    about = ", ".join(f"{defense.name}: {defense.about}" for defense in DEFENSES)
    parser.add_argument(
        "--defense", action="append", choices=names, help=f"this defense; default: a to d, j and k; {about}"
    )
    parser.add_argument("--gateway", action="store_true", help="also a to d, and n, through the gateway")
    parser.add_argument("--smoke", action="store_true", help="two user tasks and two injections of two suites")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument("--trials", type=Path, metavar="FILE", help="write each turn as a line of JSON")
    options = parser.parse_args()
    if not is_installed():
        print("agentdojo is not installed: `make attack` installs it", file=sys.stderr)
        return 2
    suites = options.suite or (["banking", "slack"] if options.smoke else list(EFFECTS))
    defenses = [
        defense
        for defense in DEFENSES
        if defense.name in (options.defense or USUAL) or (options.gateway and defense.gateway)
    ]
    started_at = time.monotonic()
    trials = asyncio.run(run_all(suites, defenses, few_pairs if options.smoke else all_pairs))
    if options.trials is not None:
        options.trials.write_text("".join(json.dumps(trial.to_dict()) + "\n" for trial in trials), encoding="utf-8")
    columns = columns_of(trials)
    print(json.dumps(as_json(trials), indent=2) if options.json else table(columns))
    print(f"{len(trials)} turns in {time.monotonic() - started_at:.0f} s", file=sys.stderr)
    failures = failures_of(columns)
    for failure in failures:
        print(f"requirement not met: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
