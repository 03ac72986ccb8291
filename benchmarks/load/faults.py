"""What happens to the turns that clients ask for while something fails.

Each turn has a conversation of its own, so that its messages, or the note about it, are found there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.endpoint import answer_of
from benchmarks.load.http_client import ConnectionLost
from benchmarks.load.turns import WORDS, Asked, Clients

PROBE_INTERVAL = 0.25
MAX_RECOVERY = 90.0
"""Seconds after which a service counts as one that does not recover."""


@dataclass(frozen=True, slots=True)
class FaultRow:
    """What became of the turns of one service under one fault."""

    fault: str
    service: str
    turns: int
    answered: int
    """Clients whose stream had the whole answer."""
    told: int
    """Clients that got an error: an event, or a status; 429 and 503 say when to try again."""
    cut_off: int
    """Clients whose connection broke, or that found no process: they read the conversation, or ask again."""
    accepted: int
    """Turns whose head was sent, or whose question is stored."""
    stored: int
    """Accepted turns whose whole answer is stored in the end."""
    noted: int
    """Accepted turns that were interrupted: the conversation has the question, and a note or the error of the turn."""
    lost: int
    """Accepted turns of which the conversation does not say how they ended, or that are not there."""
    repeated: int
    """Calls that had their effect more than once."""
    denied: int
    """Calls whose stored result says that they have not run, and they have; or the other way round."""
    silent: int
    """Clients without an answer and without an error they can act on."""
    recovery: float
    """Seconds from the end of the fault until each process answers, and each turn has ended; infinite if never."""
    examples: tuple[str, ...] = ()
    """What is wrong, for the first turns with which something is wrong."""

    @property
    def is_whole(self) -> bool:
        """Whether all is as it must be."""
        return not (self.lost or self.repeated or self.denied or self.silent) and self.recovery <= 15


async def wait_until_whole(clients: Clients) -> float:
    """Return the seconds until each process answers, and no turn that was asked for runs any more."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    asked = list(clients.asked)
    while loop.time() - began < MAX_RECOVERY:
        if await _is_whole(clients, asked):
            return loop.time() - began
        await asyncio.sleep(PROBE_INTERVAL)
    return float("inf")


async def _is_whole(clients: Clients, asked: Sequence[Asked]) -> bool:
    if not all(turn.ending for turn in asked):
        return False
    for turn in asked:
        if not turn.has_answer and (read := await _read(clients, turn)) is not None and read["running"]:
            return False
    probes = [await clients.ask(asyncio.get_running_loop().time()) for _ in clients.service.ports]
    for probe in probes:
        clients.asked.remove(probe)
    return all(probe.has_answer for probe in probes)


async def _read(clients: Clients, turn: Asked) -> dict[str, Any] | None:
    """Return the conversation of a turn, from any process; None if it cannot be read."""
    for port in clients.service.ports:
        try:
            response = await clients.http.request(port, "GET", f"/conversations/{turn.conversation}", seconds=20)
        except (ConnectionLost, TimeoutError):
            continue
        if response.status == 200:
            return dict(response.json())
    return None


async def judge(clients: Clients, fault: str, recovery: float) -> FaultRow:
    """Return what became of all turns; the service must be whole again."""
    effects, counts, wrong = Counter(clients.service.read_effects()), Counter[str](), []
    for turn in clients.asked:
        found = _judge_turn(turn, await _read(clients, turn), effects)
        counts.update(found)
        if bad := [name for name in ("lost", "denied", "silent") if name in found]:
            wrong.append(f"{bad}: {turn.key} in {turn.conversation}: {turn.ending} {turn.response.status} {turn.error}")
    repeated = [key for key, count in effects.items() if count > 1]
    names = ("answered", "told", "cut_off", "accepted", "stored", "noted", "lost", "denied", "silent")
    return FaultRow(
        fault,
        clients.service.name,
        len(clients.asked),
        **{name: counts[name] for name in names},
        repeated=len(repeated),
        recovery=recovery,
        examples=tuple([*wrong, *repeated][:5]),
    )


def _judge_turn(turn: Asked, read: dict[str, Any] | None, effects: Counter[str]) -> set[str]:
    found = {_judge_client(turn)}
    messages = [] if read is None else read["messages"]
    is_stored = any(message["role"] == "user" and message["content"] == turn.key for message in messages)
    if not is_stored and turn.response.status != 200:
        return found | ({"denied"} if effects[turn.key] else set())
    found.add("accepted")
    if read is None or not is_stored:
        return found | {"lost"}
    if messages[-1]["role"] == "assistant" and messages[-1]["content"] == answer_of(WORDS):
        found.add("stored")
    elif turn.has_answer:
        found.add("lost")  # the client was told that it has ended
    else:
        is_noted = bool(read["notes"]) or any(part.get("error") for part in read["turns"])
        found.add("noted" if is_noted else "lost")
    if is_untrue([message["content"] for message in messages if message["role"] == "tool"], turn.key, effects):
        found.add("denied")
    return found


def is_untrue(results: Sequence[str], key: str, effects: Counter[str]) -> bool:
    """Return whether stored results say of a call what is not so; that nobody knows whether it ran is always true."""
    if any("may have run" in result or "not known whether the tool did its work" in result for result in results):
        return False
    return (key in results) != (effects[key] > 0)


def _judge_client(turn: Asked) -> str:
    match turn.ending:
        case "answered":
            return "answered" if turn.text.endswith(answer_of(WORDS)) else "silent"
        case "error":
            return "told"
        case "refused":
            must_wait = turn.response.status in (429, 503)
            return "told" if turn.response.header("retry-after") or not must_wait else "silent"
        case "broken" | "unreachable":
            return "cut_off"
        case _:
            return "silent"
