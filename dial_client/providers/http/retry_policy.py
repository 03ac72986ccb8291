"""When an endpoint is asked again, and after how long: only for as long as nothing of an answer has come.

What is refused for what was asked is never asked again as it is; what was refused for want of money neither. A wait the
endpoint asks for is kept to, or not begun: whoever has no time left for it is told at once how long it would have been.
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby

import anyio
import anyio.lowlevel

from dial_client.errors import ProviderError
from dial_client.logs import get_logger
from dial_client.model import OnWait
from dial_client.providers.http.provider_errors import CONTEXT_LENGTH_EXCEEDED, TOOLS_UNSUPPORTED

log = get_logger(__name__)

LONGEST_WAIT = 60.0
"""Seconds an endpoint may ask to wait; more than that is the caller's to decide."""
MARGIN = 1.0
"""Seconds of a turn that are never waited away: an error has to be told, too."""

WORTH_TELLING = 1.0
"""Seconds of a wait that a person is told of while it lasts."""

_QUICK_WAIT = 0.1
_FIRST_WAIT = 0.5
_LONGEST_OWN_WAIT = 8.0
_PASSING = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
_FINAL = frozenset({400, 401, 403, 404, 413, 422})
_SPENT = (b"insufficient_quota", b"billing_hard_limit_reached", b"billing_not_active", b"credit balance is too low")
_MISREAD = (b"failed to parse", b"peg-native")
_MOST_READ = 20_000
"""Bytes of a refusal in which such words are looked for."""


class RetryClass(Enum):
    """Whether asking again may help; its value is how often may be asked in all."""

    NEVER = "never", 1
    ABSENT = "could not be reached", 2
    """Nobody was there, in a way that seldom passes: once more, in case it was just starting."""
    MISREAD = "could not read what its model wrote", 2
    """The model draws its words anew, so that the next time may be better."""
    DROPPED = "closed the connection without an answer", 4
    """The first time it is asked again at once: a connection kept open from before may have grown too old."""
    UNREACHED = "could not be reached", 4
    BUSY = "was busy", 4
    LOADING = "was loading its model", 60
    """A local server that has just been started; what ends this is the turn's time."""

    def __init__(self, why: str, attempts: int) -> None:
        self.why = why
        self.attempts = attempts


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed before anything of an answer came."""

    error: ProviderError
    again: RetryClass

    @property
    def why(self) -> str:
        """What was the matter, behind the endpoint's name."""
        return f"{self.again.why} ({self.error.status})" if self.again is RetryClass.BUSY else self.again.why


def after_refusal(error: ProviderError, headers: Mapping[str, str], body: bytes) -> RetryClass:
    """Judge an answer whose status is not 2xx.

    ``x-should-retry`` is how OpenAI's and Anthropic's servers tell their clients what to do. llama.cpp answers 500 when
    it cannot read what its model wrote.
    """
    status, text = error.status or 0, body[:_MOST_READ].lower()
    if status == 500 and any(words in text for words in _MISREAD):
        return RetryClass.MISREAD
    if status in _FINAL or error.code in (CONTEXT_LENGTH_EXCEEDED, TOOLS_UNSUPPORTED):
        return RetryClass.NEVER
    if any(words in text for words in _SPENT):
        return RetryClass.NEVER
    should = headers.get("x-should-retry", "").strip().lower()
    if should == "false" or (status not in _PASSING and should != "true"):
        return RetryClass.NEVER
    return RetryClass.LOADING if status == 503 and b"loading model" in text else RetryClass.BUSY


def after_break(error: BaseException, *, is_local: bool) -> RetryClass:
    """Judge an exception of httpx2, raised before there was an answer.

    A silence in the middle is not asked again: the endpoint has the request, and may be at work on it.
    """
    import httpx2

    if isinstance(error, httpx2.ConnectTimeout):
        return RetryClass.ABSENT
    if isinstance(error, httpx2.ConnectError):
        causes = _causes(error)
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            return RetryClass.NEVER
        names = [cause for cause in causes if isinstance(cause, socket.gaierror)]
        if any(cause.errno != socket.EAI_AGAIN for cause in names):
            return RetryClass.NEVER
        return RetryClass.ABSENT if is_local else RetryClass.UNREACHED
    if isinstance(error, httpx2.NetworkError):
        return RetryClass.DROPPED
    if isinstance(error, httpx2.RemoteProtocolError) and "disconnected" in str(error):
        return RetryClass.DROPPED
    return RetryClass.NEVER


def pause(again: RetryClass, attempts: int, *, asked: float | None, left: float, chance: float) -> float | None:
    """Give the seconds to wait before the next attempt; None where there should be none.

    Args:
        again: what the last attempt came to.
        attempts: how many there have been.
        asked: seconds the endpoint asks to wait; None or 0 where it does not say.
        left: seconds until the turn's time is over; may be infinite.
        chance: from 0 to 1; so that many clients do not all come back in the same moment.
    """
    if attempts >= again.attempts:
        return None
    if asked:
        wait = asked
    elif again is RetryClass.MISREAD or (again is RetryClass.DROPPED and attempts == 1):
        wait = 0.0
    elif again is RetryClass.ABSENT:
        wait = _QUICK_WAIT
    else:
        wait = min(_LONGEST_OWN_WAIT, _FIRST_WAIT * 2.0 ** min(attempts - 1, 10)) * (1.0 - chance / 4.0)
    return wait if wait <= min(LONGEST_WAIT, left - MARGIN) else None


@dataclass(slots=True)
class RetryState:
    """Waits between the attempts of one request, and remembers what for."""

    host: str
    on_wait: OnWait | None = None
    _attempts: int = 0
    _waits: list[tuple[str, float]] = field(default_factory=list)

    async def after(self, failure: Failure) -> None:
        """Wait until the endpoint may be asked again.

        Raises:
            ProviderError: it should not be; this is what it last said.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._attempts += 1
        left = anyio.current_effective_deadline() - anyio.current_time()
        chance = random.random()  # noqa: S311 (no secret)
        asked = failure.error.retry_after
        wait = pause(failure.again, self._attempts, asked=asked, left=left, chance=chance)
        if wait is None:
            raise failure.error from None
        self._waits.append((failure.why, wait))
        log.info("asked_again", host=self.host, why=failure.why, wait_s=round(wait, 3), attempt=self._attempts + 1)
        tell = self.on_wait if wait >= WORTH_TELLING else None
        if tell is not None:
            await tell(failure.again.why, wait)
        await anyio.sleep(wait)
        if tell is not None:
            await tell(failure.again.why, 0.0)

    def notes(self) -> list[str]:
        """Give what to tell the user of the waits: one line for each reason."""
        told = []
        for why, group in groupby(self._waits, key=lambda wait: wait[0]):
            waits = [seconds for _, seconds in group]
            often = "asked again" if len(waits) == 1 else f"asked again {len(waits)} times,"
            told.append(f"{self.host} {why}: {often} after {round(sum(waits), 1):g} s")
        return told


def _causes(error: BaseException) -> list[BaseException]:
    """Give an exception and what led to it, ten steps back at most."""
    chain = [error]
    while len(chain) < 10 and (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    return chain
