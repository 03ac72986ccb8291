"""The results of the suite as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from evals.suite import KINDS
from evals.suite_run import Judged

HEADS = ("kind", "tools", "good", "right call", "needless", "invented", "first text", "s/case")


def suite_table(judged: Sequence[Judged]) -> str:
    """Return a Markdown table with a row for each kind and number of tools.

    ``good`` counts the conversations without faults, ``right call`` those with the expected calls, ``needless`` those
    with further calls, ``invented`` those with invented statements. Seconds are medians.
    """
    lines: list[tuple[str, ...]] = [HEADS]
    groups = sorted({(KINDS.index(case.kind), case.tools) for case in judged})
    for kind, size in groups:
        lines.append(_row(KINDS[kind], size, [c for c in judged if c.kind == KINDS[kind] and c.tools == size]))
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADS))]
    written = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    return "\n".join((written[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *written[1:]))


def _row(kind: str, size: int, cases: Sequence[Judged]) -> tuple[str, ...]:
    def count(values: Sequence[object]) -> str:
        return f"{sum(map(bool, values))}/{len(cases)}"

    has_calls = kind in ("calls", "chains")
    return (
        kind,
        str(size),
        count([case.good for case in cases]),
        count([case.right_call for case in cases]) if has_calls else "",
        count([case.needless for case in cases]) if kind != "failures" else "",
        count([case.invented for case in cases]) if kind in ("failures", "missing", "offline") else "",
        f"{statistics.median(case.first_text for case in cases):.1f}",
        f"{statistics.median(case.seconds for case in cases):.1f}",
    )
