"""Measures this host against the floor (`benchmarks/floor.py`), both in one run: ``python -m benchmarks.dial``.

The sides take turns, so that a machine that slows down slows both. The medians of both are shown, their ratio, and the
lowest and the highest ratio of two neighbouring samples. CPU is that of this process, or of a whole child process with
its children; where the system has no ``wait4`` (Windows) a child's CPU and memory are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence

from benchmarks.case_list import all_cases
from benchmarks.cases import Case, Help, Idle, Kept, Program, Sample
from benchmarks.endpoint import Endpoint
from benchmarks.report import Row, as_json, machine, rows_of, table
from benchmarks.screen_delay import ShownOnScreen
from benchmarks.through_sdk import SdkStart

LONG_CASES = (Program, Help, Kept, Idle, SdkStart, ShownOnScreen)
"""Cases of whose sides seven samples are taken, in place of fifteen."""


async def measure(case: Case, endpoint: Endpoint, repeat: int, warm_up: int) -> dict[str, list[Sample]]:
    """Take samples of a case: floor, dial, floor, dial, and so on.

    Raises:
        RuntimeError: a side gave another answer than was scripted, or the sides asked the model unequally often.
    """
    samples: dict[str, list[Sample]] = {"floor": [], "dial": []}
    async with case.prepared(endpoint) as sides:
        for at in range(-warm_up, repeat):
            asked = {}
            for side, sample in sides.items():
                before = endpoint.requests()
                taken = await sample()
                asked[side] = endpoint.requests() - before
                if at >= 0:
                    samples[side].append(taken)
            if asked["floor"] != asked["dial"]:
                raise RuntimeError(f"{case.about}: the two sides asked the model unequally often: {asked}")
    return samples


async def run(names: Sequence[str], *, smoke: bool, repeat: int | None) -> list[Row]:
    """Measure the cases of these names, one after the other."""
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
        "--repeat", type=int, metavar="N", help="samples of each side; 15 by default, 7 of what takes long"
    )
    parser.add_argument("--smoke", action="store_true", help="small sizes and one sample: that it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    given = parser.parse_args()
    os.environ["NO_PROXY"] = "*"  # all of it is on this machine
    rows = asyncio.run(run(given.only or names, smoke=given.smoke, repeat=given.repeat))
    if given.json:
        print(json.dumps(as_json(rows), indent=2))
    else:
        print(table(rows), "", machine(), sep="\n")


if __name__ == "__main__":
    main()
