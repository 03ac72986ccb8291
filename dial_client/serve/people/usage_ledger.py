"""Adds what turns have used to the database, and says what a person has used today and in this month."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any

import anyio

from dial_client.messages.errors import DialError
from dial_client.runtime.logs import get_logger
from dial_client.stores.owner_usage import OwnerUsage, UsedAmount
from dial_client.turns.context_window import estimate_usage
from dial_client.turns.prices import compute_cost
from dial_client.turns.turn_handle import TurnHandle

log = get_logger(__name__)

# Seconds in which turns that end share a transaction: a busy service writes ten times a second.
_DELAY = 0.1
# Seconds until the next attempt, while the database is away.
_RETRY = 5.0
# Seconds for the last amounts when the service stops.
_LAST_SECONDS = 2.0


def get_today() -> date:
    """Return the day in UTC, which begins for all persons at the same time."""
    return datetime.now(UTC).date()


class UsageLedger:
    """What persons have used.

    An amount is added to the database once, in one statement with all that wait. While the database is away, amounts
    wait in memory.

    Args:
        usage: The amounts in the database.
    """

    def __init__(self, usage: OwnerUsage) -> None:
        self._usage = usage
        self._turns: set[TurnHandle] = set()
        self._waiting: dict[tuple[str, str], UsedAmount] = {}
        self._added = anyio.Event()
        # An amount is either in memory or in the database, but not while it is on its way.
        self._lock = anyio.Lock()

    def expect(self, turn: TurnHandle) -> None:
        """Count a turn from its end on, also before `add`: its person may ask again at once."""
        self._turns.add(turn)

    def add(self, turn: TurnHandle) -> None:
        """Store what a turn has used that has ended; what a turn that failed has used was used all the same."""
        self._turns.discard(turn)
        if turn.ending is not None and not turn.is_abandoned:
            key = (turn.owner, get_today().isoformat())
            self._waiting[key] = self._waiting.get(key, UsedAmount()) + _measure(turn)
            self._added.set()

    async def run(self) -> None:
        """Store amounts until cancelled."""
        while True:
            await self._added.wait()
            await anyio.sleep(_DELAY)
            self._added = anyio.Event()
            if not await self.store_amounts():
                await anyio.sleep(_RETRY)
                self._added.set()

    async def store_amounts(self) -> bool:
        """Store all amounts that wait; return whether that succeeded. Otherwise they wait on."""
        async with self._lock:
            amounts, self._waiting = self._waiting, {}
            try:
                with anyio.CancelScope(shield=True):
                    await self._usage.add(amounts)
            except DialError:  # the log has why
                for key, amount in amounts.items():
                    self._waiting[key] = amount + self._waiting.get(key, UsedAmount())
                return False
        return True

    async def store_last(self) -> None:
        """Store what is left when the service stops."""
        with anyio.move_on_after(_LAST_SECONDS, shield=True):
            if not await self.store_amounts():
                log.warning("usage_lost", owners=len(self._waiting))

    async def read(self, owner: str) -> tuple[UsedAmount, UsedAmount]:
        """Return what a person has used today, and in this month with today."""
        days = await self.read_days(owner, get_today().replace(day=1))
        return days.get(get_today().isoformat(), UsedAmount()), sum(days.values(), UsedAmount())

    async def read_days(self, owner: str, since: date) -> dict[str, UsedAmount]:
        """Return what a person has used on each day since a day, with what waits to be stored."""
        async with self._lock:
            days = await self._usage.read_days(owner, since.isoformat())
            self._add_waiting(owner, days)
        return days

    def _add_waiting(self, owner: str, days: dict[str, UsedAmount]) -> None:
        for (name, day), amount in self._waiting.items():
            if name == owner:
                days[day] = days.get(day, UsedAmount()) + amount
        ended = [turn for turn in self._turns if turn.owner == owner and turn.ending is not None]
        if ended:
            day = get_today().isoformat()
            days[day] = sum(map(_measure, ended), days.get(day, UsedAmount()))

    async def read_owners(self, since: date) -> dict[str, UsedAmount]:
        """Return what each person has used since a day, the largest first."""
        return await self._usage.read_owners(since.isoformat())


def _measure(turn: TurnHandle) -> UsedAmount:
    """Return what a turn that has ended has used: of a turn with several models, the cost of those with a price."""
    assert turn.ending is not None
    usage, cost = turn.ending.usage, max(turn.ending.cost_usd or 0.0, turn.recorder.known_cost_usd)
    for request, reply, info in turn.recorder.unreported:
        estimate = estimate_usage(request, reply)
        usage, cost = usage + estimate, cost + (compute_cost(estimate, info) or 0.0)
    return UsedAmount(1, usage.input_tokens, usage.output_tokens, cost)


def amount_to_dict(amount: UsedAmount) -> Mapping[str, Any]:
    """Return an amount in JSON types; the cost in whole millionths of a dollar."""
    return asdict(amount) | {"cost_usd": round(amount.cost_usd, 6)}
