"""The numbers of a run as a table or as JSON, without a verdict."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from benchmarks.cases import Sample

PACKAGES = ("dial-client", "mcp", "openai", "anyio", "pydantic", "httpx2")


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one case."""

    case: str
    about: str
    metric: str
    floor: float
    """The median of the floor's samples, in the unit at the end of `metric`."""
    dial: float
    """The median of the host's samples."""
    ratio: float
    """The ratio of the medians, `dial` to `floor`."""
    lowest: float
    """The lowest ratio of two samples taken one after another."""
    highest: float
    samples: int
    """The number of samples of each side."""


def rows_of(case: str, about: str, samples: Mapping[str, Sequence[Sample]]) -> list[Row]:
    """Return the rows of a case's samples."""
    rows = []
    for metric in samples["floor"][0]:
        floor = [sample[metric] for sample in samples["floor"]]
        dial = [sample[metric] for sample in samples["dial"]]
        ratios = [dial_value / floor_value for floor_value, dial_value in zip(floor, dial, strict=True)]
        base, value = statistics.median(floor), statistics.median(dial)
        rows.append(Row(case, about, metric, base, value, value / base, min(ratios), max(ratios), len(ratios)))
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as plain text."""
    heads = ("case", "metric", "floor", "dial", "dial/floor", "of pairs", "n")
    lines = [heads, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Return ``{"python", "machine", "packages": {name: version}, "rows": [the fields of `Row`]}``."""
    return {
        "python": platform.python_version(),
        "machine": machine(),
        "packages": {name: version(name) for name in PACKAGES},
        "rows": [asdict(row) for row in rows],
    }


def machine() -> str:
    """Describe the machine and its load at the end of the run: on a busy machine, the ranges are wide."""
    text = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    if sys.platform == "win32":
        return text
    return f"{text}, load {os.getloadavg()[0]:.1f}"


def _cells(row: Row) -> tuple[str, ...]:
    pairs = f"{row.lowest:.2f} - {row.highest:.2f}"
    return (row.about, row.metric, f"{row.floor:.1f}", f"{row.dial:.1f}", f"{row.ratio:.2f}", pairs, str(row.samples))
