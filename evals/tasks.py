"""The tasks: a question, the calls that answer it, and what the answer must say.

Two sets with no task in common: a prompt is tuned on one, and judged by the other. A file is a list of ::

    {"id": "…", "question": "…", "calls": [{"tool": "…", "arguments": {…}}], "answer": ["…"]}

``"any_order": true`` stands beside calls that do not need each other. ``{repo}`` stands for the path of the sample
repository. `matching` says what arguments and answers are held against.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

SETS = ("tuning", "reported")


class Kind(StrEnum):
    """What a task takes."""

    NO_TOOL = "no-tool"
    ONE_CALL = "one-call"
    TWO_STEP = "two-step"
    """The second call needs what the first one gave."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A call that must be made."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """One question."""

    id: str
    question: str
    calls: tuple[Expected, ...]
    answer: tuple[str, ...]
    """Patterns; all of them must be found."""
    any_order: bool = False
    """No call needs what another one gives."""

    @property
    def kind(self) -> Kind:
        """What it takes."""
        return (Kind.NO_TOOL, Kind.ONE_CALL, Kind.TWO_STEP)[min(len(self.calls), 2)]

    @property
    def tools(self) -> frozenset[str]:
        """What must be on offer."""
        return frozenset(call.tool for call in self.calls)


def load(name: str, repository: Path) -> tuple[Task, ...]:
    """Return the tasks of a set.

    Args:
        name: one of `SETS`.
        repository: the sample repository.
    """
    text = Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8")
    return tuple(parse_task(row) for row in json.loads(text.replace("{repo}", repository.as_posix())))


def parse_task(row: Mapping[str, Any]) -> Task:
    """Return a task from its object in a file."""
    calls = tuple(Expected(call["tool"], call["arguments"]) for call in row["calls"])
    return Task(row["id"], row["question"], calls, tuple(row["answer"]), row.get("any_order", False))


@dataclass(frozen=True, slots=True)
class Offer:
    """Tools on offer together, and the tasks that are given with them."""

    tools: frozenset[str]
    tasks: tuple[Task, ...]


def offers(tasks: Sequence[Task], size: int, spare: Sequence[str]) -> Iterator[Offer]:
    """Put the tasks into offers of `size` tools; a task that needs more is left out.

    Beside the tools a task needs stand those of the other tasks of its offer, and where those are few, `spare` ones.
    Tasks that need no tool are spread over the offers.
    """
    groups: list[tuple[set[str], list[Task]]] = []
    for task in tasks:
        if not task.tools or len(task.tools) > size:
            continue
        fits = next((group for group in groups if len(group[0] | task.tools) <= size), None)
        if fits is None:
            groups.append(fits := (set(), []))
        fits[0].update(task.tools)
        fits[1].append(task)
    groups = groups or [(set(), [])]
    for at, task in enumerate(task for task in tasks if not task.tools):
        groups[at % len(groups)][1].append(task)
    for at, (needed, members) in enumerate(groups):
        unused = [name for name in (*spare[at:], *spare[:at]) if name not in needed]
        yield Offer(frozenset([*needed, *unused[: size - len(needed)]]), tuple(members))
