"""The outcomes as a table or as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from evals.run import Outcome
from evals.tasks import Kind

HEADS = (
    "format",
    "tools",
    "well-formed",
    "right tool",
    "right call",
    "answer",
    "two-step",
    "needless",
    "no tool",
    "s/turn",
)


def row(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the numbers of one format with one number of tools; counts are pairs ``[right, total]``.

    ``right tool``, ``right call`` and ``answer`` count tasks that need one call; ``two-step`` counts tasks with two
    calls whose calls and answer are right; ``needless`` is a number of calls; ``no tool`` counts tasks that need no
    call and were answered without one.
    """
    one_call = [outcome for outcome in outcomes if outcome.kind == Kind.ONE_CALL]
    two_step = [outcome for outcome in outcomes if outcome.kind == Kind.TWO_STEP]
    without = [outcome for outcome in outcomes if outcome.kind == Kind.NO_TOOL]
    return {
        "format": outcomes[0].format,
        "tools": outcomes[0].tools,
        "well-formed": _count(outcomes, lambda outcome: outcome.well_formed),
        "right tool": _count(one_call, lambda outcome: outcome.right_tool),
        "right call": _count(one_call, lambda outcome: outcome.right_call),
        "answer": _count(one_call, lambda outcome: outcome.right_answer),
        "two-step": _count(two_step, lambda outcome: outcome.right_call and outcome.right_answer),
        "needless": sum(outcome.needless for outcome in outcomes),
        "no tool": _count(without, lambda outcome: not outcome.calls and outcome.well_formed),
        "no tool, right": _count(without, lambda outcome: not outcome.calls and outcome.right_answer),
        "s/turn": round(statistics.median(outcome.seconds for outcome in outcomes), 1),
    }


def rows(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return a row for each format and number of tools, in order of appearance."""
    groups: dict[tuple[str, int], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.format, outcome.tools), []).append(outcome)
    return [row(group) for group in groups.values()]


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return rows as a Markdown table."""
    lines = [HEADS, *(tuple(_cell(cells[head]) for head in HEADS) for cells in found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADS))]
    written = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    return "\n".join((written[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *written[1:]))


def _cell(value: Any) -> str:
    return f"{value[0]}/{value[1]}" if isinstance(value, list) else str(value)


def _count(outcomes: Sequence[Outcome], is_right: Callable[[Outcome], bool]) -> list[int]:
    return [sum(map(is_right, outcomes)), len(outcomes)]
