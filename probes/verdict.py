"""Probes a host, and says what was seen."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from probes.host_process import HostProcess, processor_seconds
from probes.kinds import LATER, OTHER, Probe, Seen, find_invalid
from probes.model_endpoint import ModelEndpoint, Recorded, Say, model_endpoint
from probes.script import DONE, Script

START_SECONDS = 60.0
LATER_SECONDS = 20.0
"""The time for the second turn, and for closing the host."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen of one probe."""

    probe: str
    sentence: str
    findings: Sequence[str]
    """What is wrong; nothing if the probe is passed."""
    answered: bool
    """Whether the turn ended with an answer in words."""
    right: bool
    """Whether calls, results and requests were as they must be."""
    continued: bool
    """Whether the conversation went on, with the other server."""
    seconds: float
    """From the start of the servers to the end of the turn."""
    rounds: int
    """Requests to the model in the turn."""
    sent: int
    """Bytes of these requests."""
    processor: float | None = None
    """Seconds of the processors, in the host and its servers; None where the system does not tell."""


@dataclass(frozen=True, slots=True)
class Target:
    """How a host is started."""

    command: Sequence[str]
    environment: Mapping[str, str]
    errors: Path
    """The file that gets the standard error of the host."""


def probe_host(target: Target, probes: Mapping[str, Probe], *, streamed: bool, show: Callable[[Outcome], None]) -> None:
    """Probe a host with all probes, in one process; after a failure, in a new one."""
    with target.errors.open("ab") as errors:
        host: HostProcess | None = None
        for name, probe in probes.items():
            if host is None or not host.is_running:
                host = HostProcess(target.command, target.environment, errors)
                host.do(START_SECONDS, close=True)  # the time of the imports belongs to no probe
            outcome = probe_once(host, name, replace(probe, streamed=streamed or probe.streamed))
            show(outcome)
            if outcome.findings:
                host.end()
                host = None
        if host is not None:
            host.end()


def probe_once(host: HostProcess, name: str, probe: Probe) -> Outcome:
    """Open the host with the servers of a probe, ask twice, close it, and look at what is left."""
    with TemporaryDirectory() as folder, model_endpoint([Say(DONE)]) as endpoint:
        log = Path(folder, "log")
        log.touch()
        servers = {key: _logged(entry, log) for key, entry in {**probe.servers, **OTHER}.items()}
        before = processor_seconds(host.process.pid) if sys.platform == "linux" else None
        seen, was_open = _ask_first(host, probe, endpoint, servers, log)
        processor = None if before is None else processor_seconds(host.process.pid) - before
        wrong = [finding for check in probe.checks if (finding := check(seen))]
        wrong += sorted({invalid for request in seen.requests if (invalid := find_invalid(request))})
        later = _ask_later(host, probe, endpoint) if was_open else "the conversation cannot go on"
        closed = host.do(LATER_SECONDS, close=True)
        if _wait_for_ends(log):  # some hosts keep servers until their own process ends
            host.end()
        left = _end_servers(log)
    answered = probe.cancelled or bool(seen.text.strip() and not seen.error)
    findings = [] if answered else [seen.error or "the answer has no words"]
    findings += wrong
    findings += [later] if later else []
    findings += [f"the host does not close: {closed['error']}"] if "error" in closed else []
    findings += [f"{left} server processes are left"] if left else []
    size = sum(len(request.body) for request in seen.requests)
    rounds = len(seen.requests)
    return Outcome(
        name, probe.sentence, findings, answered, not wrong, not later, seen.seconds, rounds, size, processor
    )


def _ask_first(
    host: HostProcess, probe: Probe, endpoint: ModelEndpoint, servers: Mapping[str, Any], log: Path
) -> tuple[Seen, bool]:
    endpoint.answer_to = Script(probe.replies)
    began = time.perf_counter()
    opened = host.do(probe.seconds, open={"base_url": f"{endpoint.url}/v1", "servers": servers})
    answer: dict[str, Any] = {"error": f"it did not start: {opened.get('error')}"}
    if "error" not in opened:
        remaining = probe.seconds - (time.perf_counter() - began)
        asked = host.send(ask="Go on.", conversation="a", stream=probe.streamed)
        if probe.cancelled:
            _wait_for_call(log, "never", remaining)
            host.send(cancel=asked)
        answer = host.wait(asked, max(1.0, remaining))
        if "id" not in answer:
            host.send(cancel=asked)
    seconds = time.perf_counter() - began
    # The host may go on to send requests of a turn that has no end.
    requests: list[Recorded] = list(endpoint.requests)
    if probe.cancelled:
        _wait_for_event(log, "cancelled", 2)
    text, error = answer.get("text", ""), answer.get("error", "")
    return Seen(text, error, seconds, requests, _read_log(log)), "error" not in opened and "id" in answer


def _ask_later(host: HostProcess, probe: Probe, endpoint: ModelEndpoint) -> str:
    already = len(endpoint.requests)
    endpoint.answer_to = Script(LATER, "b")
    answer = host.do(LATER_SECONDS, ask="And now?", conversation="a", stream=probe.streamed)
    requests = endpoint.requests[already:]
    if "error" in answer:
        return f"the next turn failed: {answer['error']}"
    later = Seen(answer["text"], "", 0, requests, ())
    if later.text.strip() != LATER[-1].text or not later.results or "still there" not in later.results[-1]:
        return "the next turn did not reach the other server"
    return next((f"in the next turn {invalid}" for request in requests if (invalid := find_invalid(request))), "")


def _logged(entry: Mapping[str, Any], log: Path) -> dict[str, Any]:
    return {**entry, "args": [*entry["args"], "--log", str(log)]} if entry["args"] else dict(entry)


def _read_log(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def _wait_for_event(log: Path, event: str, seconds: float, **wanted: Any) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if any({"event": event, **wanted}.items() <= entry.items() for entry in _read_log(log)):
            return
        time.sleep(0.02)


def _wait_for_call(log: Path, tool: str, seconds: float) -> None:
    _wait_for_event(log, "call", seconds, tool=tool)


def _wait_for_ends(log: Path) -> set[int]:
    """Wait up to three seconds for the ends of all servers, and return those that are left."""
    left = {entry["pid"] for entry in _read_log(log) if entry["event"] == "start"}
    end = time.monotonic() + 3
    while (left := {each for each in left if _is_alive(each)}) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def _end_servers(log: Path) -> int:
    """End the servers that are left, and return their number."""
    left = _wait_for_ends(log)
    for process_id in left:
        try:
            os.kill(process_id, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(left)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    try:  # a process that has ended, and that its parent has not waited for, does no harm
        return Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc").is_dir()
