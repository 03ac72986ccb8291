"""The work that each host does: a script of the model, servers, and how often it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.endpoint import Endpoint, answer_of
from benchmarks.server_entries import Servers, server_entries


@dataclass(frozen=True, slots=True)
class Work:
    """A task, which begins with servers that are connected, or without."""

    about: str
    servers: int = 1
    tools: int = 1
    """Tools of each server."""
    start_delay: float = 0.0
    call_delay: float = 0.0
    rounds: int = 5
    calls: int = 1
    """Calls in each round."""
    chunks: int = 20
    """Words of the answer."""
    streamed: bool = False
    at_once: int = 1
    """Turns at the same time."""
    opened: bool = False
    """Whether a sample begins with the start of the servers."""
    started: bool = False
    """Whether a sample begins with the start of the process: then it ends with the answer, and memory is measured."""
    samples: int = 3
    """Samples in each pass, beside the first one, which is not kept."""

    @property
    def entries(self) -> Servers:
        """The entries of the servers, with the keys that all hosts know."""
        entries = server_entries(
            self.servers, tools=self.tools, start_delay=self.start_delay, call_delay=self.call_delay
        )
        return {name: {"command": entry["command"], "args": entry["args"]} for name, entry in entries.items()}

    @property
    def answer(self) -> str:
        """The right end: the model says it only if all results were right."""
        return answer_of(self.chunks)

    def url(self, endpoint: Endpoint) -> str:
        """Return the ``base_url`` of the model that knows this task."""
        return endpoint.task_url(self.servers, self.tools, self.rounds, self.calls, self.chunks)


def list_work(*, smoke: bool = False) -> Mapping[str, Work]:
    """Return the work by name; of a smoke run it is smaller, with one sample each."""
    if smoke:
        return {
            "rounds": Work("2 rounds of calls", rounds=2, samples=1),
            "tools": Work("2 rounds, 60 tools of 2 servers", servers=2, tools=30, rounds=2, samples=1),
            "cold": Work("process, server, 1 round, answer", rounds=1, started=True, samples=1),
        }
    return {
        "rounds": Work("5 rounds of calls", samples=4),
        "streamed": Work("5 rounds, streamed", streamed=True, samples=4),
        "parallel": Work("8 calls of 50 ms at the same time", rounds=1, calls=8, call_delay=0.05),
        "chunks": Work("a stream of 2,000 chunks", rounds=0, chunks=2000, streamed=True),
        "tools": Work("5 rounds, 200 tools of 4 servers", servers=4, tools=50, samples=4),
        "many-tools": Work("5 rounds, 1,400 tools of 7 servers", servers=7, tools=200, samples=2),
        "turns": Work("50 turns at the same time", rounds=1, at_once=50, samples=2),
        "start": Work(
            "start of 10 servers of 0.3 s, 1 round", servers=10, start_delay=0.3, rounds=1, opened=True, samples=2
        ),
        "tools-start": Work(
            "start of 4 servers with 200 tools, 1 round", servers=4, tools=50, rounds=1, opened=True, samples=2
        ),
        "cold": Work("process, 1 server, 1 round, answer", rounds=1, started=True, samples=2),
        "memory": Work(
            "the same with 5 rounds and 2,000 chunks",
            servers=2,
            tools=20,
            chunks=2000,
            streamed=True,
            started=True,
            samples=2,
        ),
    }
