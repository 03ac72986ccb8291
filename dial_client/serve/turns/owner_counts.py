"""How often persons ask, and how many of their turns run, counted over all processes of a service.

Requests are counted in each process, which tells the others some hundredths of a second later, in one notification for
all requests of that time: no request waits for the database. Turns are counted before they run, by locks of PostgreSQL,
which end with the connection of their process: nothing has to be renewed, or to be deleted after a crash.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import ceil
from typing import Any

import anyio

from dial_client.messages.errors import DialError
from dial_client.runtime.logs import get_logger
from dial_client.runtime.token_bucket import TokenBucket
from dial_client.serve.turns.peers import Peers

log = get_logger(__name__)

# Names whose requests are remembered.
_MAX_NAMES = 10_000
# Seconds in which requests are collected before the other processes are told.
_DELAY = 0.05
# Seconds after which a turn that waits for a place looks for one without having been told of it.
_PATIENCE = 2.0


class RequestRates:
    """How often each name, a person or a token, has asked in the last minute.

    Args:
        peers: The other processes; None for one process.
    """

    def __init__(self, peers: Peers | None = None) -> None:
        self._peers = peers
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._untold = Counter[str]()
        if peers is not None:
            peers.handle(asked=self._on_asked)

    def take(self, name: str, rate: int) -> int:
        """Count a request; return the seconds until the name may ask again, and 0 if it may now.

        Args:
            name: The name.
            rate: Its requests in a minute.
        """
        bucket = self._find(name, rate)
        if not bucket.take():
            return max(1, ceil(bucket.seconds))
        if self._peers is not None:
            if not self._untold:
                self._peers.start_soon(self._tell, self._peers)
            self._untold[name] += 1
        return 0

    def _find(self, name: str, rate: int) -> TokenBucket:
        bucket = self._buckets.get(name)
        if bucket is None or bucket.burst != rate:
            bucket = self._buckets[name] = TokenBucket(rate, rate / 60)
        self._buckets.move_to_end(name)
        if len(self._buckets) > _MAX_NAMES:
            self._buckets.popitem(last=False)
        return bucket

    async def _tell(self, peers: Peers) -> None:
        await anyio.sleep(_DELAY)
        counts, self._untold = self._untold, Counter()
        known = {name: [count, self._buckets[name].burst] for name, count in counts.items() if name in self._buckets}
        with suppress(DialError):  # each process still counts by itself
            await peers.send("asked", {"counts": known})

    def _on_asked(self, content: Mapping[str, Any], sender: str) -> None:  # noqa: ARG002 - a `HandleMessage`
        for name, (count, rate) in content["counts"].items():
            if not (isinstance(count, int) and isinstance(rate, int) and count > 0 and rate > 0):
                raise TypeError("a field has another type")
            # What is known here stays: this process may know other limits of a person's groups.
            (self._buckets.get(name) or self._find(name, rate)).spend(count)


class SharedPlaces:
    """The places for the turns of each person at all processes.

    Without the database the limits hold at each process.

    Args:
        peers: The other processes.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        # For each person the numbers of the locks of this process, 0 for a turn that could not get one.
        self._held: dict[str, list[int]] = {}
        self._limits: dict[str, int] = {}
        self._freed: dict[str, anyio.Event] = {}
        # A session may take its own lock again: two turns must not be given the same number.
        self._locking = anyio.Lock()
        peers.handle(freed=self._on_freed, connected=lambda *_: peers.start_soon(self._lock_again))

    async def take(self, owner: str, limit: int, on_wait: Callable[[], None]) -> None:
        """Take a place of a person, whose turns are `limit` at most; wait for one if there is none.

        Args:
            owner: The person.
            limit: The most places of this person.
            on_wait: Called once if this has to wait.
        """
        is_told = False
        while True:
            # From before the attempt on, so that no message is missed.
            freed = self._freed.setdefault(owner, anyio.Event())
            if await self._lock(owner, limit):
                return
            if not is_told:
                on_wait()
                is_told = True
            # A process that was killed tells nobody that its locks are gone.
            with anyio.move_on_after(_PATIENCE):
                await freed.wait()

    async def _lock(self, owner: str, limit: int) -> bool:
        async with self._locking:
            # The answer must arrive, because the lock is then there.
            with anyio.CancelScope(shield=True):
                number: int | None = 0
                try:
                    number = await self._peers.lock(_to_key(owner), limit, self._held.get(owner, ()))
                except DialError as error:
                    log.debug("places_not_shared", error=type(error).__name__)
            if number is not None:
                self._held.setdefault(owner, []).append(number)
                self._limits[owner] = limit
            return number is not None

    def release(self, owner: str) -> None:
        """Release a place, which wakes those that wait at any process."""
        self._peers.start_soon(self._unlock, owner)

    async def _unlock(self, owner: str) -> None:
        async with self._locking:
            held = self._held[owner]
            number = held.pop()
            if not held:
                del self._held[owner], self._limits[owner]
            if number:
                with suppress(DialError):  # the connection is lost, and so is the lock
                    await self._peers.send("freed", {"owner": owner}, unlock=(_to_key(owner), number))
        self._wake(owner)

    def _on_freed(self, content: Mapping[str, Any], sender: str) -> None:  # noqa: ARG002 - a `HandleMessage`
        self._wake(content["owner"])

    def _wake(self, owner: str) -> None:
        if (freed := self._freed.pop(owner, None)) is not None:
            freed.set()

    async def _lock_again(self) -> None:
        """Take the locks again that were lost with a connection, and look for places whose message was lost."""
        async with self._locking:
            for owner, held in self._held.items():
                lost = len(held)
                held.clear()
                while len(held) < lost:
                    number: int | None = 0
                    with suppress(DialError):
                        number = await self._peers.lock(_to_key(owner), self._limits[owner], held)
                    held.append(number or 0)
        for owner in tuple(self._freed):
            self._wake(owner)


def _to_key(owner: str) -> int:
    """Return a number of 32 bits for a person. Two persons with the same one, one in four billion, share places."""
    return int.from_bytes(hashlib.sha256(owner.encode()).digest()[:4], signed=True)
