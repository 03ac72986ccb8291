"""What waits for a person and what was granted, as every process over the same database sees it.

A slip is pinned beside the question it is of. Whoever answers takes it off, and so is the only one who does; the answer
is left for the process that asked. Slips and grants are there for as long as that process is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dial_client.errors import DialError
from dial_client.logs import get_logger
from dial_client.serve.cluster.peers import LIFE, WISHED, PeerBus
from dial_client.sinks import sse_encoder
from dial_client.stores.mailbox import Envelope

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """One thing that waits."""

    id: str
    kind: str
    about: Mapping[str, Any]
    """All the person needs to know; JSON types only."""
    key: str = ""
    """What is granted where it is granted for the session."""
    to: str = ""
    """Where its answer goes."""
    note: int | None = None
    """On the board; None where it is not."""


class PendingRequests:
    """The slips and grants of all processes.

    Args:
        elsewhere: the other processes.
    """

    def __init__(self, elsewhere: PeerBus) -> None:
        self._elsewhere = elsewhere
        self._board = elsewhere.board
        self._granted: set[str] = set()

    async def pinned(self, slip: PendingRequest) -> PendingRequest:
        """Pin a slip, and give it as it is then. Where that fails it can be answered in this process only."""
        if self._board is None:
            return slip
        said = {"id": slip.id, "about": slip.about, "key": slip.key, "to": self._elsewhere.address}
        note = await self._pin(_topic(slip.kind), sse_encoder.to_json(said))
        return replace(slip, to=self._elsewhere.address, note=note)

    def let_go(self, slip: PendingRequest) -> None:
        """Keep a slip of this process no longer, whoever takes it off."""
        self._elsewhere.let_go(slip.note)

    async def of_others(self, kind: str) -> list[PendingRequest]:
        """Give those of other processes.

        Raises:
            DialError: the database failed.
        """
        notes = await self._board.read({_topic(kind): 0}) if self._board is not None else ()
        slips = [slip for note in notes if (slip := _slip(kind, note)) is not None]
        return [slip for slip in slips if slip.to != self._elsewhere.address]

    async def take(self, slip: PendingRequest) -> bool:
        """Take off a slip of this process; False where somebody else has answered it.

        Raises:
            DialError: the database failed.
        """
        return slip.note is None or self._board is None or slip.note in await self._board.take(slip.note)

    async def answer(self, slip: PendingRequest, answer: Mapping[str, Any]) -> bool:
        """Take off a slip of another process and leave the answer; False where it has been answered, or is gone.

        Raises:
            DialError: the database failed.
        """
        if slip.note is None or self._board is None:
            return False
        return await self._board.swap(slip.note, slip.to, sse_encoder.to_json({"id": slip.id, **answer}), WISHED)

    async def grant(self, key: str) -> None:
        """Let all processes know what was granted here, for as long as this one lives."""
        if self._board is not None and key not in self._granted:
            self._granted.add(key)
            if await self._pin(_granted(key), "") is None:
                self._granted.discard(key)

    async def is_granted(self, key: str) -> bool:
        """Whether a process that lives was granted this."""
        try:
            return self._board is not None and bool(await self._board.read({_granted(key): 0}))
        except DialError as error:
            log.warning("grants_not_seen", error=type(error).__name__)
            return False

    async def _pin(self, topic: str, body: str) -> int | None:
        assert self._board is not None
        try:
            (note,) = await self._board.pin([(topic, body)], LIFE)
        except DialError as error:
            log.warning("not_pinned", error=type(error).__name__)
            return None
        self._elsewhere.hold(note)
        return note


def _slip(kind: str, note: Envelope) -> PendingRequest | None:
    try:
        said = note.content()
        id_, about, key, to = said["id"], said["about"], said["key"], said["to"]
        if not isinstance(about, dict) or not all(isinstance(text, str) for text in (id_, key, to)):
            raise ValueError("a part is of another type")  # noqa: TRY301 - told as the others are
        return PendingRequest(id_, kind, about, key, to, note.id)
    except (KeyError, TypeError, ValueError) as error:  # another version's, or somebody else's
        log.warning("slip_unreadable", error=type(error).__name__)
        return None


def _topic(kind: str) -> str:
    return f"asked:{kind}"


def _granted(key: str) -> str:
    return f"granted:{key}"
