"""Limits of a turn that makes no progress: rounds that only fail, repeated calls, used-up tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from dial_client.messages.limits import Limits, StopReason
from dial_client.messages.message import Content
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import ToolCallRecord

Round = Sequence[ToolCallRecord]


def limit_met(rounds: Sequence[Round], usage: Usage, limits: Limits) -> StopReason | None:
    """Return the limit that ends the turn before its next round; None if the turn may continue.

    Args:
        rounds: The calls of each round so far, with their results.
        usage: The usage of all requests so far.
        limits: The limits of the turn.
    """
    if limits.max_tokens_total is not None and usage.input_tokens + usage.output_tokens >= limits.max_tokens_total:
        return StopReason.TOKEN_BUDGET
    if _count_failed_rounds(rounds) >= limits.max_consecutive_errors:
        return StopReason.CONSECUTIVE_ERRORS
    if len(rounds) >= limits.max_repeats and _count_repeats(rounds) >= limits.max_repeats:
        return StopReason.REPEATED_CALLS
    return None


def _count_failed_rounds(rounds: Sequence[Round]) -> int:
    """Return the number of latest rounds in which every call failed."""
    count = 0
    for calls in reversed(rounds):
        if any(record.result.success for record in calls):
            break
        count += 1
    return count


def _count_repeats(rounds: Sequence[Round]) -> int:
    """Return the number of rounds in which the most frequent call had the same result."""
    counts = Counter(key for calls in rounds for key in {_build_key(record) for record in calls})
    return max(counts.values(), default=0)


def _build_key(record: ToolCallRecord) -> tuple[str, str, str | None, Content]:
    call = record.call
    arguments = json.dumps(dict(call.arguments), sort_keys=True, default=str)
    return call.name, arguments, call.unreadable, record.result.content
