"""The retry policy: which requests are retried, and after which delay (backoff, rate limits).

A request is retried only if no part of its response has been received. A request that was refused for its content, or
because a quota is used up, is never retried unchanged. The policy obeys ``retry-after``: if the turn ends before that
time, the request fails at once, and the error names the requested wait.
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TypeVar

import anyio
import anyio.lowlevel

from dial_client.messages.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    IMAGE_UNREADABLE,
    IMAGES_UNSUPPORTED,
    TOOLS_UNSUPPORTED,
    ProviderError,
)
from dial_client.messages.model import OnWait
from dial_client.providers.http.endpoint import Endpoint
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

_Response = TypeVar("_Response")

# The longest wait before a retry, in seconds. A longer ``retry-after`` is raised to the caller in the error.
MAX_RETRY_AFTER = 60.0
# Seconds before the turn's timeout at which a wait must end, so that an error can still be reported.
DEADLINE_MARGIN = 1.0

# The shortest wait, in seconds, that is reported to the user while it lasts.
MIN_REPORTED_WAIT = 1.0

_SHORT_DELAY = 0.1
_INITIAL_BACKOFF = 0.5
_MAX_BACKOFF = 8.0
# 409 is a lock that another request of the account holds (OpenAI), 529 an overload (Anthropic).
_RETRYABLE_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
# The request itself is refused: the same bytes would be refused again.
_FINAL_STATUSES = frozenset({400, 401, 403, 404, 413, 422})
# The codes of errors after which the provider changes the request.
_REFUSAL_CODES = frozenset({CONTEXT_LENGTH_EXCEEDED, IMAGE_UNREADABLE, IMAGES_UNSUPPORTED, TOOLS_UNSUPPORTED})
# Status 429 reports an empty account too, which no wait refills.
_QUOTA_ERRORS = (
    b"insufficient_quota",
    b"billing_hard_limit_reached",
    b"billing_not_active",
    b"credit balance is too low",
)
_UNREADABLE_REPLY_ERRORS = (b"failed to parse", b"peg-native")
# Bytes of an error response that are searched for the words of an error.
_MAX_SEARCHED = 20_000


class RetryClass(Enum):
    """The class of a failed request: the reason in words, and the most attempts for failures of this class."""

    NEVER = "never", 1
    ABSENT = "could not be reached", 2
    """Nothing listens at the address. There is one retry, in case the server is just starting."""
    MISREAD = "could not parse its model's reply", 2
    """The server could not parse its model's reply. The next reply may be valid."""
    DROPPED = "closed the connection without an answer", 4
    """The server closed the connection. The first retry is immediate: a kept-alive connection may have expired."""
    UNREACHED = "could not be reached", 4
    BUSY = "was busy", 4
    BROKEN = "had an error", 4
    LIMITED = "limits requests", 4
    """The endpoint limits the rate of requests. A person who can interrupt the wait gets more attempts."""
    LOADING = "was loading its model", 60
    """A local server has just been started. In practice the turn's timeout limits the attempts."""

    def __init__(self, why: str, attempts: int) -> None:
        self.why = why
        self.attempts = attempts


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request that failed before any part of its response was received."""

    error: ProviderError
    retry: RetryClass

    @property
    def why(self) -> str:
        """The reason for the failure, as the end of a sentence that begins with the endpoint's name."""
        has_status = self.retry in (RetryClass.BUSY, RetryClass.BROKEN, RetryClass.LIMITED)
        return f"{self.retry.why} ({self.error.status})" if has_status else self.retry.why


_CLASSES = {429: RetryClass.LIMITED, 500: RetryClass.BROKEN, 502: RetryClass.BROKEN, 504: RetryClass.BROKEN}


def classify_refusal(error: ProviderError, headers: Mapping[str, str], body: bytes) -> RetryClass:
    """Return the retry class of a response whose status is not 2xx.

    OpenAI and Anthropic say in the header ``x-should-retry`` whether clients should retry. llama.cpp answers with
    status 500 if it cannot parse its model's reply.
    """
    status, text = error.status or 0, body[:_MAX_SEARCHED].lower()
    if status == 500 and any(words in text for words in _UNREADABLE_REPLY_ERRORS):
        return RetryClass.MISREAD
    if status in _FINAL_STATUSES or error.code in _REFUSAL_CODES:
        return RetryClass.NEVER
    # Retries would only delay the news that the account is empty.
    if any(words in text for words in _QUOTA_ERRORS):
        return RetryClass.NEVER
    should = headers.get("x-should-retry", "").strip().lower()
    if should == "false" or (status not in _RETRYABLE_STATUSES and should != "true"):
        return RetryClass.NEVER
    if status == 503 and b"loading model" in text:
        return RetryClass.LOADING
    return _CLASSES.get(status, RetryClass.BUSY)


def classify_connection_error(error: BaseException, *, is_local: bool) -> RetryClass:
    """Return the retry class of an exception that httpx2 raised before a response.

    A read timeout is not retried, because the endpoint has received the request and may still process it.
    """
    import httpx2

    # A host that does not answer at all is rarely back within seconds. One retry covers a lost packet.
    if isinstance(error, httpx2.ConnectTimeout):
        return RetryClass.ABSENT
    if isinstance(error, httpx2.ConnectError):
        causes = _list_causes(error)
        # A wrong certificate stays wrong, and it may be an attack.
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            return RetryClass.NEVER
        names = [cause for cause in causes if isinstance(cause, socket.gaierror)]
        # Only EAI_AGAIN is a temporary failure of name resolution; any other means that there is no such host.
        if any(cause.errno != socket.EAI_AGAIN for cause in names):
            return RetryClass.NEVER
        return RetryClass.ABSENT if is_local else RetryClass.UNREACHED
    if isinstance(error, httpx2.NetworkError):
        return RetryClass.DROPPED
    if isinstance(error, httpx2.RemoteProtocolError) and "disconnected" in str(error):
        return RetryClass.DROPPED
    return RetryClass.NEVER


def compute_delay(
    retry: RetryClass,
    attempts: int,
    *,
    retry_after: float | None,
    time_left: float,
    jitter: float,
    patience: float = 0.0,
) -> float | None:
    """Return the seconds to wait before the next attempt; None if there is no further attempt.

    Args:
        retry: The class of the last failure.
        attempts: The number of attempts so far.
        retry_after: The wait that the endpoint requests, in seconds; None or 0 for no such request.
        time_left: Seconds until the turn's timeout; may be infinite.
        jitter: A random number from 0 to 1, which spreads the retries of many clients over time.
        patience: Seconds for which a limited rate is retried beyond the usual attempts.
    """
    is_patient = retry is RetryClass.LIMITED and patience > 0
    if attempts >= retry.attempts and not is_patient:
        return None
    # The endpoint knows when it is free, so its own wait is taken as it is, without jitter.
    if retry_after:
        wait = retry_after
    elif retry is RetryClass.MISREAD or (retry is RetryClass.DROPPED and attempts == 1):
        wait = 0.0
    elif retry is RetryClass.ABSENT:
        wait = _SHORT_DELAY
    else:
        wait = min(_MAX_BACKOFF, _INITIAL_BACKOFF * 2.0 ** min(attempts - 1, 10)) * (1.0 - jitter / 4.0)
    # A longer wait would end in the timeout of the turn, whose message does not name the cause.
    return wait if wait <= min(MAX_RETRY_AFTER, time_left - DEADLINE_MARGIN) else None


async def send_until_accepted(
    send: Callable[[], Awaitable[_Response | FailedRequest]],
    endpoint: Endpoint,
    notes: list[str],
    on_wait: OnWait | None,
    patience: float = 0.0,
) -> _Response:
    """Send a request, retry it as this policy allows, and return the response.

    Args:
        send: The function that sends the request once.
        endpoint: The endpoint, whose host notes and logs name.
        notes: Receives notes for the user about the waits.
        on_wait: Called before and after each wait of `MIN_REPORTED_WAIT` seconds or more.
        patience: Seconds for which a limited rate is retried beyond the usual attempts.

    Raises:
        ProviderError: The error of the last attempt.
    """
    waits: list[tuple[str, float]] = []
    try:
        while isinstance(response := await send(), FailedRequest):
            wait = await _choose_wait(response, len(waits) + 1, patience - sum(wait for _, wait in waits))
            waits.append((response.why, wait))
            log.info(
                "request_retried",
                host=endpoint.host,
                reason=response.why,
                wait_s=round(wait, 3),
                attempt=len(waits) + 1,
            )
            await _wait(wait, response.retry.why, on_wait if wait >= MIN_REPORTED_WAIT else None)
        return response
    finally:
        # One note for each group of retries with the same reason.
        for why, group in groupby(waits, key=lambda wait: wait[0]):
            seconds = [wait for _, wait in group]
            retries = "retried" if len(seconds) == 1 else f"retried {len(seconds)} times,"
            notes.append(f"{endpoint.host} {why}: {retries} after {round(sum(seconds), 1):g} s")


async def _choose_wait(failure: FailedRequest, attempts: int, patience: float) -> float:
    """Return the seconds until the next attempt; raise the error of the last attempt if there must be none."""
    await anyio.lowlevel.checkpoint_if_cancelled()
    wait = compute_delay(
        failure.retry,
        attempts,
        retry_after=failure.error.retry_after,
        time_left=anyio.current_effective_deadline() - anyio.current_time(),
        jitter=random.random(),  # noqa: S311 (no secret)
        patience=patience,
    )
    if wait is None:
        raise failure.error from None
    return wait


async def _wait(seconds: float, why: str, on_wait: OnWait | None) -> None:
    if on_wait is not None:
        await on_wait(why, seconds)
    await anyio.sleep(seconds)
    if on_wait is not None:
        await on_wait(why, 0.0)


def _list_causes(error: BaseException) -> list[BaseException]:
    """Return an exception and its causes, at most ten exceptions."""
    chain = [error]
    while len(chain) < 10 and (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    return chain
