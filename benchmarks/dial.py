"""Measures what parts of this host cost, each with and without the part, in one run: ``python -m benchmarks.dial``.

This host beside others, and beside the plain loop over the SDKs, is the subject of `benchmarks.hosts`.

The two sides alternate, so that a slow phase of the machine affects both. The table shows the medians of both, their
ratio, and the lowest and highest ratio of two neighbouring samples. CPU time is that of this process, or of a child
process and its children; without ``wait4`` (Windows), a child's CPU time and memory are missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence

from benchmarks.case_list import all_cases
from benchmarks.cases import Case, Help, Idle, Kept, Sample
from benchmarks.endpoint import Endpoint
from benchmarks.report import Row, as_json, machine, rows_of, table
from benchmarks.screen_delay import ShownOnScreen
from benchmarks.through_sdk import SdkStart

LONG_CASES = (Help, Kept, Idle, SdkStart, ShownOnScreen)
"""Slow cases, with seven samples of each side instead of fifteen."""


async def measure(case: Case, endpoint: Endpoint, repeat: int, warm_up: int) -> dict[str, list[Sample]]:
    """Take samples of a case: floor, dial, floor, dial, and so on.

    Raises:
        RuntimeError: An answer is not the scripted one, or the sides sent different numbers of requests to the model.
    """
    samples: dict[str, list[Sample]] = {"floor": [], "dial": []}
    async with case.prepared(endpoint) as sides:
        for at in range(-warm_up, repeat):
            requests = {}
            for side, take_sample in sides.items():
                before = endpoint.requests()
                sample = await take_sample()
                requests[side] = endpoint.requests() - before
                if at >= 0:
                    samples[side].append(sample)
            if requests["floor"] != requests["dial"]:
                raise RuntimeError(f"{case.about}: the sides sent different numbers of requests: {requests}")
    return samples


async def run(names: Sequence[str], *, smoke: bool, repeat: int | None) -> list[Row]:
    """Measure the cases with these names, one after another."""
    cases = all_cases(smoke=smoke)
    rows: list[Row] = []
    with Endpoint() as endpoint:
        for name in names:
            print(f"{name} …", file=sys.stderr, flush=True)
            usual = 1 if smoke else 7 if isinstance(cases[name], LONG_CASES) else 15
            samples = await measure(cases[name], endpoint, repeat or usual, warm_up=0 if smoke else 1)
            rows += rows_of(name, cases[name].about, samples)
    return rows


def main() -> None:
    """Read the command line, measure, print."""
    names = list(all_cases())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dial", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, metavar="CASE", help=f"one of {', '.join(names)}")
    parser.add_argument(
        "--repeat", type=int, metavar="N", help="samples of each side; default: 15, or 7 for slow cases"
    )
    parser.add_argument("--smoke", action="store_true", help="small sizes and one sample, to test the benchmark itself")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args()
    os.environ["NO_PROXY"] = "*"  # all requests stay on this machine
    rows = asyncio.run(run(options.only or names, smoke=options.smoke, repeat=options.repeat))
    if options.json:
        print(json.dumps(as_json(rows), indent=2))
    else:
        print(table(rows), "", machine(), sep="\n")


if __name__ == "__main__":
    main()
