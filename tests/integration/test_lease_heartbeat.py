"""The heartbeat of the leases of running turns."""

from __future__ import annotations

from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field

import anyio
import pytest

from tests.inner import BackgroundTasks, LeaseHeartbeat

pytestmark = pytest.mark.anyio

request = ContextVar("request", default="")


@dataclass
class Turns:
    """Turns that want a heartbeat until they end."""

    heartbeat: LeaseHeartbeat = field(default_factory=lambda: LeaseHeartbeat(0.03))
    ended: set[str] = field(default_factory=set)
    renewed: Counter[str] = field(default_factory=Counter)
    requests: dict[str, str] = field(default_factory=dict)
    hangs: str = ""

    async def start(self, name: str, tasks: BackgroundTasks) -> None:
        request.set(f"the request of {name}")
        self.heartbeat.add(Turn(self, name), tasks)

    async def wait_for(self, name: str, times: int) -> None:
        with anyio.fail_after(60):
            while self.renewed[name] < times:  # noqa: ASYNC110 - a counter
                await anyio.sleep(0.005)


@dataclass
class Turn:
    """One of them."""

    turns: Turns
    name: str
    is_due = True

    @property
    def is_running(self) -> bool:
        return self.name not in self.turns.ended

    async def renew(self) -> None:
        self.turns.renewed[self.name] += 1
        self.turns.requests[self.name] = request.get()
        if self.name == self.turns.hangs:
            await anyio.sleep_forever()


async def test_a_lease_that_cannot_be_renewed_delays_no_other() -> None:
    turns, tasks = Turns(hangs="a"), await BackgroundTasks.open()
    tasks.start_soon(turns.start, "a", tasks)
    tasks.start_soon(turns.start, "b", tasks)
    await turns.wait_for("b", 5)
    await tasks.aclose()
    assert turns.renewed["a"] == 1


async def test_a_renewal_has_the_context_variables_of_its_turn() -> None:
    turns, tasks = Turns(), await BackgroundTasks.open()
    for name in ("a", "b"):
        tasks.start_soon(turns.start, name, tasks)
    await turns.wait_for("a", 2)
    turns.ended.add("a")
    await turns.wait_for("b", turns.renewed["b"] + 2)
    await tasks.aclose()
    assert turns.requests == {"a": "the request of a", "b": "the request of b"}


async def test_turns_of_a_client_that_was_opened_again_are_renewed() -> None:
    turns = Turns()
    for name in ("a", "b"):
        tasks = await BackgroundTasks.open()
        tasks.start_soon(turns.start, name, tasks)
        await turns.wait_for(name, 2)
        await tasks.aclose()
    before = turns.renewed["a"]
    tasks = await BackgroundTasks.open()
    tasks.start_soon(turns.start, "c", tasks)
    await turns.wait_for("c", 2)
    await tasks.aclose()
    assert turns.renewed["a"] == before


async def test_turns_that_start_after_all_others_have_ended_are_renewed() -> None:
    turns, tasks = Turns(), await BackgroundTasks.open()
    for name in ("a", "b"):
        tasks.start_soon(turns.start, name, tasks)
        await turns.wait_for(name, 2)
        turns.ended.add(name)
    await tasks.aclose()
    assert turns.ended == {"a", "b"}
