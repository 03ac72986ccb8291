"""Takes the samples of all hosts by turns, so that whatever else the machine does meets all of them."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.endpoint import Endpoint
from benchmarks.hosts.environments import Environment
from benchmarks.hosts.work import Work
from benchmarks.server_entries import QUESTION
from probes.host_process import HostProcess, processor_seconds

OPEN_SECONDS = 60.0
SAMPLE_SECONDS = 60.0
"""A host that takes longer for one sample has not done the work."""


class NotDoneError(Exception):
    """A host did not do the work; the text says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement."""

    wall: float
    """Milliseconds until the answer."""
    processor: float
    """Milliseconds of the processors, in the host and its servers."""
    requests: int
    sent: int
    """Bytes of the requests to the model."""
    memory: float
    """Peak of the host's memory so far, in megabytes."""


@dataclass(slots=True)
class Cell:
    """The samples of one host in one task."""

    samples: list[Sample] = field(default_factory=list)
    problem: str = ""

    def median(self, value: Callable[[Sample], float]) -> float:
        """Return the median of a value."""
        return statistics.median(map(value, self.samples))

    def spread(self, value: Callable[[Sample], float]) -> tuple[float, float]:
        """Return the lowest and the highest of a value."""
        values = [value(sample) for sample in self.samples]
        return min(values), max(values)


Cells = Mapping[str, Mapping[str, Cell]]
"""The cells by task and host."""


def measure(
    work: Mapping[str, Work], environments: Sequence[Environment], passes: int, show: Callable[[str], None]
) -> Cells:
    """Measure all tasks with all hosts, in passes: a host has one process in each, for the tasks that do not start one.

    Processes of the same program differ in speed, by where their memory lies and how their sets are ordered, and a
    machine differs from minute to minute. So a spread within one process would be too small to compare two runs by.
    """
    cells: dict[str, dict[str, Cell]] = {name: {each.host: Cell() for each in environments} for name in work}
    with Endpoint() as endpoint:
        for at in range(1, passes + 1):
            with ExitStack() as stack:
                hosts = {each.host: _RunningHost(each, endpoint) for each in environments}
                for host in hosts.values():
                    stack.callback(host.end)
                for name, task in work.items():
                    show(f"{task.about}, pass {at} of {passes} …")
                    _measure_task(hosts, cells[name], task, has_warm_up=passes > 1)
    return cells


def _measure_task(
    hosts: Mapping[str, _RunningHost], cells: Mapping[str, Cell], task: Work, *, has_warm_up: bool
) -> None:
    """Take the samples of a task in one pass; the first of each host is not kept if there is a warm-up."""
    if not task.started and not task.opened:
        _try_all(hosts, cells, lambda host: host.open(task))
    for at in range(-1 if has_warm_up else 0, task.samples):
        _try_all(hosts, cells, lambda host: host.sample(task), keep=at >= 0)
    if not task.started and not task.opened:
        _try_all(hosts, cells, _RunningHost.close)


def _try_all(
    hosts: Mapping[str, _RunningHost],
    cells: Mapping[str, Cell],
    step: Callable[[_RunningHost], Sample | None],
    *,
    keep: bool = False,
) -> None:
    for name, host in hosts.items():
        if cells[name].problem:
            continue
        try:
            sample = step(host)
        except NotDoneError as error:
            cells[name].problem = str(error)
            host.restart()
        else:
            if keep and sample is not None:
                cells[name].samples.append(sample)


class _RunningHost:
    """A host in its process."""

    def __init__(self, environment: Environment, endpoint: Endpoint) -> None:
        self._target = environment.target
        self._endpoint = endpoint
        self._conversations = 0
        self._errors = self._target.errors.open("ab")
        self._process = self._start()

    def _start(self) -> HostProcess:
        return HostProcess(self._target.command, {**self._target.environment, "STABLE_TOOLS": "1"}, self._errors)

    def restart(self) -> None:
        """Begin anew after a failure."""
        self._process.end()
        self._process = self._start()

    def end(self) -> None:
        """End the process."""
        self._process.end()
        self._errors.close()

    def open(self, task: Work) -> None:
        """Start the servers."""
        _expect(self._process.do(OPEN_SECONDS, open={"base_url": task.url(self._endpoint), "servers": task.entries}))

    def close(self) -> None:
        """Close the servers."""
        _expect(self._process.do(OPEN_SECONDS, close=True))

    def sample(self, task: Work) -> Sample:
        """Take a sample."""
        if task.started:
            self._process.end()
        before = (0.0 if task.started else processor_seconds(self._process.process.pid), *self._endpoint.traffic())
        began = time.perf_counter()
        if task.started:
            self._process = self._start()
        if task.started or task.opened:
            self.open(task)
        asked = []
        for _ in range(task.at_once):
            self._conversations += 1
            name = str(self._conversations)
            asked.append(self._process.send(ask=QUESTION, conversation=name, stream=task.streamed))
        answers = [_expect(self._process.wait(each, SAMPLE_SECONDS)) for each in asked]
        wall = max(answer["at"] for answer in answers) - began
        process_id = self._process.process.pid
        after = (processor_seconds(process_id), *self._endpoint.traffic())
        memory = _peak_memory(process_id)
        if task.started or task.opened:
            self.close()
        if wrong := [answer["text"] for answer in answers if answer["text"] != task.answer]:
            raise NotDoneError(f"not the right answer: {wrong[0][:80]!r}")
        processor, requests, sent = (later - earlier for earlier, later in zip(before, after, strict=True))
        return Sample(wall * 1000, processor * 1000, int(requests), int(sent), memory)


def _expect(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise NotDoneError(answer["error"].partition("\n")[0][:120])
    return answer


def _peak_memory(process_id: int) -> float:
    if sys.platform != "linux":
        return 0.0
    status = Path(f"/proc/{process_id}/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1000
