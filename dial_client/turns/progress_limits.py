"""Whether a turn gets anywhere: calls that only fail, calls that are made again and again, tokens that run out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from dial_client.limits import Limits, StopReason
from dial_client.messages import Content, Usage
from dial_client.turn_result import ToolCallRecord

Round = Sequence[ToolCallRecord]


def stuck(rounds: Sequence[Round], usage: Usage, limits: Limits) -> StopReason | None:
    """Give the limit a turn has met, looked at between two rounds; None where it may go on.

    Args:
        rounds: what was called so far, and what came of it.
        usage: of all requests so far.
        limits: what is allowed.
    """
    if limits.max_tokens_total is not None and usage.input_tokens + usage.output_tokens >= limits.max_tokens_total:
        return StopReason.TOKEN_BUDGET
    if _failures_in_a_row(rounds) >= limits.max_consecutive_errors:
        return StopReason.CONSECUTIVE_ERRORS
    if _most_repeated(rounds) >= limits.max_repeats:
        return StopReason.REPEATED_CALLS
    return None


def _failures_in_a_row(rounds: Sequence[Round]) -> int:
    """Count the last rounds in which every call failed."""
    count = 0
    for calls in reversed(rounds):
        if any(record.result.success for record in calls):
            break
        count += 1
    return count


def _most_repeated(rounds: Sequence[Round]) -> int:
    """Count the rounds in which the most frequent call was made with the same result, whatever lay between them."""
    seen = Counter(key for calls in rounds for key in {_key(record) for record in calls})
    return max(seen.values(), default=0)


def _key(record: ToolCallRecord) -> tuple[str, str, str | None, Content]:
    call = record.call
    return (
        call.name,
        json.dumps(dict(call.arguments), sort_keys=True, default=str),
        call.unreadable,
        record.result.content,
    )
