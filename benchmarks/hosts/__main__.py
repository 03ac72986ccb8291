"""Measures the hosts: ``python -m benchmarks.hosts [--only TASK] [--hosts HOST] [--write FILE] [--compare FILE]``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.hosts.environments import FOLDER, HOSTS, OWN, Environment, describe_installed, find_python, prepare
from benchmarks.hosts.measurement import measure
from benchmarks.hosts.tables import Run, describe_json, find_differences, replace_tables, write_markdown
from benchmarks.hosts.work import list_work
from probes.kinds import PROBES, Probe
from probes.verdict import Outcome, probe_host

PASSES = 3
"""How often the work is measured, each time in new processes of the hosts."""
SMOKE_PROBES = ("a server dies during a call", "a result of 2 MB")


def probe_all(environments: Sequence[Environment], probes: Mapping[str, Probe]) -> dict[str, list[Outcome]]:
    """Probe all hosts at the same time: most of the time they wait, and no time is compared."""
    outcomes: dict[str, list[Outcome]] = {each.host: [] for each in environments}

    def probe(each: Environment) -> None:
        def show(outcome: Outcome) -> None:
            outcomes[each.host].append(outcome)
            if outcome.findings:
                _show(f"{each.host}: {outcome.probe}: {'; '.join(outcome.findings)}")

        probe_host(each.target, probes, streamed=False, show=show)

    with ThreadPoolExecutor(len(environments)) as pool:
        list(pool.map(probe, environments))
    return outcomes


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hosts", description=__doc__)
    parser.add_argument("--hosts", action="append", choices=list(HOSTS), metavar="HOST", help="one of the hosts")
    parser.add_argument("--only", action="append", metavar="TASK", help="one task; 'faults' for the probes")
    parser.add_argument("--samples", type=int, metavar="N", help="samples of each task in each pass")
    parser.add_argument("--python", help="the Python for the environments; default: 3.13, 3.14 or 3.12 if it is here")
    parser.add_argument("--smoke", action="store_true", help="little work with dial_client alone, in this Python")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables between their marks in this file")
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="fail if the spread of a ratio does not overlap with that in this file",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="all samples and findings")
    options = parser.parse_args(arguments)
    unknown = set(options.only or ()) - {*list_work(smoke=options.smoke), "faults"}
    if unknown:
        parser.error(f"there is no task {unknown.pop()!r}: {', '.join(list_work())}, faults")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Install, measure, probe, and print the tables."""
    options = _parse(arguments)
    load, began = os.getloadavg()[0], time.perf_counter()
    if options.smoke:
        FOLDER.mkdir(parents=True, exist_ok=True)
        environments = [describe_installed(OWN, sys.executable)]
    else:
        _show("installation …")
        environments = list(prepare(options.hosts or HOSTS, options.python or find_python()))
    there = [each for each in environments if not each.problem]
    work = list_work(smoke=options.smoke)
    work = {
        name: replace(task, samples=options.samples or task.samples)
        for name, task in work.items()
        if not options.only or name in options.only
    }
    probes = {name: probe for name, probe in PROBES.items() if not options.smoke or name in SMOKE_PROBES}
    passes = 1 if options.smoke else PASSES
    cells = measure(work, there, passes, _show) if work else {}
    outcomes: dict[str, list[Outcome]] = {}
    if not options.only or "faults" in options.only:
        _show("faults …")
        outcomes = probe_all(there, probes)
    command = f'make bench-hosts HOSTS_ARGS="--samples {options.samples}"' if options.samples else "make bench-hosts"
    run = Run(environments, work, cells, outcomes, load, time.perf_counter() - began, command, passes)
    markdown = write_markdown(run)
    print(markdown)
    if options.json:
        options.json.write_text(json.dumps(describe_json(run), indent=2), encoding="utf-8")
    differences = find_differences(options.compare, markdown) if options.compare else []
    if options.write:
        replace_tables(options.write, markdown)
    if differences:
        raise SystemExit("\n".join(["The spreads of these ratios do not overlap:", *differences]))


if __name__ == "__main__":
    main()
