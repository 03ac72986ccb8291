"""The tasks: a question, the calls that answer it, and the expected answer.

There are two sets without common tasks: prompts are tuned on one set, and judged on the other. A file is a list of ::

    {"id": "…", "question": "…", "calls": [{"tool": "…", "arguments": {…}}], "answer": ["…"]}

``"any_order": true`` marks calls that do not depend on each other. ``{repo}`` is replaced by the path of the sample
repository. `matching` describes the expected arguments and answers.
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
    """The number of calls that a task needs."""

    NO_TOOL = "no-tool"
    ONE_CALL = "one-call"
    TWO_STEP = "two-step"
    """The second call needs the result of the first one."""


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
    """Patterns of the answer; all of them must match."""
    any_order: bool = False
    """True if no call needs the result of another call."""

    @property
    def kind(self) -> Kind:
        """The kind of the task, by the number of its calls."""
        return (Kind.NO_TOOL, Kind.ONE_CALL, Kind.TWO_STEP)[min(len(self.calls), 2)]

    @property
    def tools(self) -> frozenset[str]:
        """The tools that must be offered."""
        return frozenset(call.tool for call in self.calls)


def load(name: str, repository: Path) -> tuple[Task, ...]:
    """Return the tasks of a set.

    Args:
        name: One of `SETS`.
        repository: The sample repository.
    """
    text = Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8")
    return tuple(parse_task(row) for row in json.loads(text.replace("{repo}", repository.as_posix())))


def parse_task(row: Mapping[str, Any]) -> Task:
    """Return a task from its object in a file."""
    calls = tuple(Expected(call["tool"], call["arguments"]) for call in row["calls"])
    return Task(row["id"], row["question"], calls, tuple(row["answer"]), row.get("any_order", False))


@dataclass(frozen=True, slots=True)
class Offer:
    """Tools that are offered together, and the tasks that run with them."""

    tools: frozenset[str]
    tasks: tuple[Task, ...]


def offers(tasks: Sequence[Task], size: int, spare: Sequence[str]) -> Iterator[Offer]:
    """Group the tasks into offers of `size` tools; a task that needs more tools is omitted.

    In addition to the needed tools of a task, its offer has the tools of its other tasks, filled up from `spare`. Tasks
    that need no tool are spread over the offers.
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
