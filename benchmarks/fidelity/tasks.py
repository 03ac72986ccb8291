"""Tasks as turns of calls, from the solutions that the two benchmarks publish."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.fidelity.toolkits import BFCL, BFCL_APIS, TAU2_DOMAINS, Toolkit, bfcl_entries, tau2_entries

NEW_FUNCTIONS = "There are more functions now. What about it?"
"""The message of a turn of BFCL that brings a function which was missing, and has no message of its own."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the solution."""

    server: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskTurn:
    """A message of the user, and the calls after it, in order."""

    text: str
    calls: tuple[Call, ...]
    missing: frozenset[str] = frozenset()
    """Tools, as ``server/tool``, that are not on offer in this turn."""


@dataclass(frozen=True, slots=True)
class Task:
    """A conversation."""

    id: str
    servers: tuple[str, ...]
    turns: tuple[TaskTurn, ...]


def servers_of(suite: str) -> tuple[str, ...]:
    """Return the names of a suite's servers."""
    return BFCL_APIS if suite == BFCL else TAU2_DOMAINS


def load(suite: str, toolkits: Mapping[str, Toolkit]) -> list[Task]:
    """Return the tasks of a suite in its own order."""
    if suite == BFCL:
        return [_read_bfcl(task, entry, toolkits) for task, entry in bfcl_entries().items()]
    return [_read_tau2(task, entry) for task, entry in tau2_entries().items()]


def _read_bfcl(task: str, entry: Mapping[str, Any], toolkits: Mapping[str, Toolkit]) -> Task:
    servers = tuple(entry["involved_classes"])
    owners = {each.name: server for server in servers for each in toolkits[server].definitions()}
    # Some classes have functions that their documents leave out, and some solutions call them.
    always = [f"{owners[name]}/{name}" for name in entry.get("excluded_function", ()) if name in owners]
    later = {
        int(turn): [f"{owners[name]}/{name}" for name in names]
        for turn, names in entry.get("missed_function", {}).items()
    }
    turns = []
    for number, (messages, solution) in enumerate(zip(entry["question"], entry["ground_truth"], strict=True)):
        text = "\n".join(message["content"] for message in messages) or NEW_FUNCTIONS
        missing = [*always, *(name for turn, names in later.items() if turn > number for name in names)]
        calls = tuple(_parse_call(call, servers, toolkits) for call in solution)
        turns.append(TaskTurn(text, calls, frozenset(missing)))
    return Task(task, servers, tuple(turns))


def _parse_call(text: str, servers: tuple[str, ...], toolkits: Mapping[str, Toolkit]) -> Call:
    """Return a call in Python's syntax. Arguments by position get the names that the API gives them."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    name = node.func.id
    server = [each for each in servers if name in {tool.name for tool in toolkits[each].definitions()}][-1]
    schema = next(tool.schema for tool in toolkits[server].definitions() if tool.name == name)
    by_position = zip(schema["properties"], map(ast.literal_eval, node.args), strict=False)
    by_name = {each.arg: ast.literal_eval(each.value) for each in node.keywords if each.arg is not None}
    return Call(server, name, dict(by_position) | by_name)


def _read_tau2(task: str, entry: Mapping[str, Any]) -> Task:
    domain = task.partition("/")[0]
    actions = entry["evaluation_criteria"].get("actions") or ()
    calls = tuple(Call(domain, action["name"], dict(action["arguments"])) for action in actions)
    instructions = entry["user_scenario"]["instructions"]
    text = instructions if isinstance(instructions, str) else instructions["reason_for_call"]
    return Task(task, (domain,), (TaskTurn(text, calls),))
