"""Writes a run as Markdown, and puts it between the two marks of a file (``--write``)."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.hosts.environments import LOOP, Environment
from benchmarks.hosts.measurement import Cell, Cells, Sample
from benchmarks.hosts.work import Work
from probes.__main__ import count_kinds
from probes.verdict import Outcome

BEGIN, END = "<!-- written by make bench-hosts -->", "<!-- end of what make bench-hosts writes -->"
IDLE_LOAD = 0.5
"""The load before a run above which other programs used the machine."""
NAMES = {LOOP: "plain loop", "openai_agents": "openai-agents", "pydantic_ai": "pydantic-ai", "mcp_use": "mcp-use"}
NAMES |= {"langchain": "langchain-mcp-adapters, langgraph", "fast_agent": "fast-agent"}


@dataclass(frozen=True, slots=True)
class Run:
    """All that was measured."""

    environments: Sequence[Environment]
    work: Mapping[str, Work]
    cells: Cells
    outcomes: Mapping[str, Sequence[Outcome]]
    """The outcomes of the probes by host."""
    load: float
    """The load before the run."""
    seconds: float
    """The time of the whole run, with the installation."""
    command: str
    passes: int
    """How often the work was measured, each time in new processes."""


def describe_json(run: Run) -> dict[str, Any]:
    """Return all numbers and all findings."""
    return {
        "environments": [asdict(environment) for environment in run.environments],
        "cells": {task: {host: asdict(cell) for host, cell in row.items()} for task, row in run.cells.items()},
        "outcomes": {host: [asdict(outcome) for outcome in outcomes] for host, outcomes in run.outcomes.items()},
        "load": run.load,
        "seconds": run.seconds,
    }


def write_markdown(run: Run) -> str:
    """Return the tables, with the machine, the versions and the command."""
    parts = [_describe_run(run)]
    if run.cells:
        parts += [
            f"**Time until the answer**, as a multiple of that of the plain loop. {_describe_samples(run)} {_SPREAD}",
            _ratios(run, "wall"),
        ]
        parts += ["**Processor time** of the host and its servers, likewise.", _ratios(run, "processor")]
        parts += ["**Requests to the model**, and their bytes.", _table(run, run.work, _traffic)]
        parts += ["**Peak memory** of the host, without its servers, in MB.", _memory(run)]
    if run.outcomes:
        parts += [_FAULTS, _faults(run)]
    return "\n\n".join(parts)


def replace_tables(file: Path, markdown: str) -> None:
    """Put the tables between the marks of a file."""
    replace_between(file, BEGIN, END, markdown)


def replace_between(file: Path, begin: str, end: str, markdown: str) -> None:
    """Put Markdown between two marks of a file."""
    before, _, after = _split(file, begin, end)
    file.write_text(f"{before}{begin}\n\n{markdown}\n\n{end}{after}", encoding="utf-8")


def find_differences(file: Path, markdown: str) -> list[str]:
    """Return the ratios whose spread does not overlap with that in a file; other numbers depend on the machine."""
    earlier, differences = _read_ratios(_split(file, BEGIN, END)[1]), []
    for place, (median, low, high) in _read_ratios(markdown).items():
        median_before, low_before, high_before = earlier.get(place, (median, low, high))
        if high < low_before or high_before < low:
            spread_before = f"{median_before} ({low_before} - {high_before})"
            differences.append(f"{', '.join(place)}: {median} ({low} - {high}), before {spread_before}")
    return differences


def _read_ratios(markdown: str) -> dict[tuple[str, ...], tuple[float, float, float]]:
    """Return median, lowest and highest of each ratio, by the table, the work and the host."""
    ratios: dict[tuple[str, ...], tuple[float, float, float]] = {}
    title, heads = "", [""]
    for line in markdown.splitlines():
        if line.startswith("**"):
            title = line.split("**")[1]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "work":
            heads = cells
        for head, cell in zip(heads[2:], cells[2:], strict=False):  # the plain loop has milliseconds
            if found := re.fullmatch(r"([\d.]+) \(([\d.]+) - ([\d.]+)\)", cell):
                median, low, high = map(float, found.groups())
                ratios[title, cells[0], head] = median, low, high
    return ratios


def _split(file: Path, begin: str, end: str) -> tuple[str, str, str]:
    """Return what is before the marks of a file, between them, and after them."""
    before, found, rest = file.read_text(encoding="utf-8").partition(begin)
    between, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise SystemExit(f"{file} has no line {begin!r}, or no {end!r} after it")
    return before, between, after


_SPREAD = "The plain loop has milliseconds. In brackets: the lowest and the highest value of two neighbouring samples."
_FAULTS = (
    "**Faults** ([the probes](#probes)): ● is passed. Otherwise the cell has what was missing: an *answer* in words,"
    " the *right* end state (calls made as often as they should, results and errors told to the model, requests that an"
    " endpoint accepts, the server told), the *next* turn of the conversation, or a clean *end* without processes."
)


def _describe_samples(run: Run) -> str:
    counts = {len(cell.samples) for row in run.cells.values() for cell in row.values() if cell.samples}
    if not counts:
        return ""
    if run.passes == 1:
        return "One sample of each: the run shows that the work is done, and not how fast."
    of_all = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    return f"Medians of {of_all} samples, in {run.passes} passes with new processes."


def _describe_run(run: Run) -> str:
    machine = f"Python {_python_of(run)}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    shared = (
        f"the load was {run.load:.1f} before the run: other programs used the machine, so that only ratios count"
        if run.load > IDLE_LOAD
        else f"the load was {run.load:.1f} before the run"
    )
    versions = "; ".join(f"{_name(each.host)}: {_list_versions(each)}" for each in run.environments if not each.problem)
    made = f"Measured by `{run.command}` on {time.strftime('%Y-%m-%d')} in {run.seconds / 60:.0f} minutes."
    text = f"{made} {machine}; {shared}. Versions: {versions}."
    missing = "".join(
        f" {_name(each.host)} was not measured: {each.problem}." for each in run.environments if each.problem
    )
    return text + missing


def _list_versions(environment: Environment) -> str:
    return ", ".join(f"{name} {version}" for name, version in environment.versions.items() if name != "python")


def _python_of(run: Run) -> str:
    return next((each.versions["python"] for each in run.environments if "python" in each.versions), "?")


def _ratios(run: Run, value_name: str) -> str:
    def value(sample: Sample) -> float:
        return float(getattr(sample, value_name))

    def describe(task: str, host: str) -> str:
        cell, base = run.cells[task][host], run.cells[task].get(LOOP, Cell())
        if cell.problem or not cell.samples:
            return cell.problem or "not measured"
        if host == LOOP or not base.samples:
            low, high = cell.spread(value)
            return f"{cell.median(value):,.1f} ({low:,.1f} - {high:,.1f})"
        pairs = [value(own) / max(value(other), 1e-9) for own, other in zip(cell.samples, base.samples, strict=False)]
        return f"{cell.median(value) / base.median(value):.2f} ({min(pairs):.2f} - {max(pairs):.2f})"

    return _table(run, run.work, describe)


def _traffic(run: Run, task: str, host: str) -> str:
    cell = run.cells[task][host]
    if not cell.samples:
        return "-"
    return f"{cell.samples[-1].requests}; {cell.median(lambda sample: sample.sent):,.0f}"


def _memory(run: Run) -> str:
    tasks = {name: task for name, task in run.work.items() if task.started}

    def describe(task: str, host: str) -> str:
        cell = run.cells[task][host]
        return f"{cell.median(lambda sample: sample.memory):.0f}" if cell.samples else "-"

    return _table(run, tasks, describe)


def _faults(run: Run) -> str:
    hosts = list(run.outcomes)
    probes = [outcome.probe for outcome in run.outcomes[hosts[0]]]
    by_host = {host: {outcome.probe: outcome for outcome in run.outcomes[host]} for host in hosts}
    rows = [[probe, *(_describe_outcome(by_host[host][probe]) for host in hosts)] for probe in probes]
    totals: list[tuple[str, Callable[[Sequence[Outcome]], str]]] = [
        ("kinds of failure passed", lambda seen: "{} of {}".format(*count_kinds(seen))),
        ("requests", lambda seen: f"{sum(outcome.rounds for outcome in seen):,}"),
        ("bytes of requests", lambda seen: f"{sum(outcome.sent for outcome in seen):,}"),
        ("processor time, s", lambda seen: f"{sum(outcome.processor or 0 for outcome in seen):.1f}"),
        ("time, s", lambda seen: f"{sum(outcome.seconds for outcome in seen):.0f}"),
    ]
    rows += [[title, *(describe(run.outcomes[host]) for host in hosts)] for title, describe in totals]
    return _lines(["fault", *map(_name, hosts)], rows)


def _describe_outcome(outcome: Outcome) -> str:
    if not outcome.findings:
        return "●"
    missing = {"answer": outcome.answered, "right": outcome.right, "next": outcome.continued}
    return ", ".join(word for word, is_there in missing.items() if not is_there) or "end"


def _table(run: Run, tasks: Mapping[str, Work], describe: Callable[..., str]) -> str:
    hosts = [each.host for each in run.environments if not each.problem]
    takes_run = describe is _traffic
    rows = [
        [task.about, *(describe(*((run,) if takes_run else ()), name, host) for host in hosts)]
        for name, task in tasks.items()
    ]
    return _lines(["work", *map(_name, hosts)], rows)


def _lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *rows))


def _name(host: str) -> str:
    return NAMES.get(host, host)
