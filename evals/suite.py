"""The cases of the suite: the user's messages, the offered tools, and the checks of the answers.

The files in ``suite/`` are lists of objects. Each has an ``id``, a ``half`` (prompts are tuned on one half, and judged
on the other), and ``turns``: the user's messages in order, each sent after the answer to the previous one.

* ``ordinary`` and ``unicode``: no offered tool helps. ``check`` has the checks of the last answer (`judges.CHECKS`).
* ``failures``: ``tool`` is the right tool, and it returns an error.
* ``missing``: ``tool`` is the right tool, but the conversation does not have its ``argument``.
* ``offline``: no tools are offered, and the question is about the present.
* ``calls`` and ``chains``, and ``tuning.json`` and ``reported.json`` in the parent folder: see `tasks`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.tasks import SETS, Kind, Task, load, parse_task

KINDS = ("ordinary", "unicode", "calls", "chains", "failures", "missing", "offline")
QUICK = {"ordinary": 14, "unicode": 2, "calls": 9, "chains": 3, "failures": 4, "missing": 4, "offline": 4}
"""Cases of each kind in a quick run."""

OFFERS: Mapping[int, tuple[tuple[str, ...], ...]] = {
    3: (
        ("get_current_time", "convert_time", "find_contact"),
        ("read_file", "search_files", "git_status"),
        ("weather_forecast", "send_message", "list_events"),
    ),
    8: (
        (
            "get_current_time",
            "convert_time",
            "git_status",
            "git_log",
            "git_branch",
            "git_diff",
            "git_show",
            "git_commit",
        ),
        (
            "weather_forecast",
            "read_file",
            "list_directory",
            "search_files",
            "find_contact",
            "send_message",
            "add_todo",
            "list_events",
        ),
        (
            "stock_price",
            "exchange_rate",
            "order_status",
            "track_parcel",
            "flight_status",
            "find_book",
            "get_current_time",
            "set_light",
        ),
    ),
}
"""Sets of tools that are offered together, by the number of tools."""


@dataclass(frozen=True, slots=True)
class Case:
    """One conversation, and the expected calls or checks."""

    id: str
    kind: str
    turns: tuple[str, ...]
    tools: frozenset[str]
    """The tools that must be offered."""
    check: Mapping[str, Any] = field(default_factory=dict)
    argument: str = ""
    """The argument that the conversation does not have."""
    task: Task | None = None
    """The expected calls; None if the case expects none."""


def load_cases(half: str, repository: Path) -> tuple[Case, ...]:
    """Return the cases of a half, in the order of `KINDS`.

    Args:
        half: One of `tasks.SETS`.
        repository: The sample repository.
    """
    cases = [_from_task(task, task.kind) for task in load(half, repository) if task.kind is not Kind.NO_TOOL]
    for kind in KINDS:
        file = Path(__file__).with_name("suite") / f"{kind}.json"
        if file.is_file():
            rows = json.loads(file.read_text(encoding="utf-8"))
            cases += [_parse_case(kind, row) for row in rows if row["half"] == half]
    return tuple(sorted(cases, key=lambda case: KINDS.index(case.kind)))


def quick(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Return the cases of a quick run, evenly spread over each kind."""
    chosen: list[Case] = []
    for kind, count in QUICK.items():
        members = [case for case in cases if case.kind == kind]
        step = max(1.0, len(members) / count)
        chosen += [members[int(at * step)] for at in range(min(count, len(members)))]
    return tuple(chosen)


@dataclass(frozen=True, slots=True)
class Offer:
    """Tools that are offered together, and the cases that run with them."""

    tools: frozenset[str]
    cases: tuple[Case, ...]


def pack(cases: Sequence[Case], size: int) -> tuple[Offer, ...]:
    """Group cases into few offers of `size` tools, so that the model rarely processes a new prompt.

    In addition to the needed tools of a case, its offer has the tools of its other cases, filled up from `OFFERS`.
    Cases that need no tool are spread over `OFFERS`; offline cases have no tools. A case that needs more than `size`
    tools is omitted.
    """
    usual = [Offer(frozenset(tools), ()) for tools in OFFERS[size]]
    groups: list[tuple[set[str], list[Case]]] = []
    for case in cases:
        if case.tools and len(case.tools) <= size:
            fitting = next((group for group in groups if len(group[0] | case.tools) <= size), None)
            if fitting is None:
                groups.append(fitting := (set(), []))
            fitting[0].update(case.tools)
            fitting[1].append(case)
    offers = []
    for at, (needed, members) in enumerate(groups):
        spare = [name for tools in (*OFFERS[size][at % len(usual) :], *OFFERS[size]) for name in tools]
        tools = dict.fromkeys([*sorted(needed), *spare])
        offers.append(Offer(frozenset(list(tools)[:size]), tuple(members)))
    free = [case for case in cases if not case.tools and case.kind != "offline"]
    offers += [Offer(usual[at].tools, tuple(free[at :: len(usual)])) for at in range(len(usual))]
    offers.append(Offer(frozenset(), tuple(case for case in cases if case.kind == "offline")))
    return tuple(offer for offer in offers if offer.cases)


def _from_task(task: Task, kind: Kind) -> Case:
    return Case(task.id, "calls" if kind is Kind.ONE_CALL else "chains", (task.question,), task.tools, task=task)


def _parse_case(kind: str, row: Mapping[str, Any]) -> Case:
    assert row["half"] in SETS, row["id"]
    if kind in ("calls", "chains"):
        task = parse_task(row)
        return _from_task(task, task.kind)
    tools = frozenset([row["tool"]] if "tool" in row else [])
    return Case(row["id"], kind, tuple(row["turns"]), tools, row.get("check", {}), row.get("argument", ""))
