"""When a turn stops, and what is said then."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum


class StopReason(StrEnum):
    """Why a turn ended."""

    ANSWERED = "answered"
    MAX_DEPTH = "max_depth"
    CONSECUTIVE_ERRORS = "consecutive_errors"
    REPEATED_CALLS = "repeated_calls"
    TIMEOUT = "timeout"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 - no password
    TRUNCATED = "truncated"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    CLIENT_TOOL_CALLS = "client_tool_calls"
    """The model called tools of the caller's own: it is for the caller to go on."""

    @property
    def is_limit(self) -> bool:
        """Whether one of the caller's `Limits` ended it."""
        return self is StopReason.TIMEOUT or self.ends_the_calls

    @property
    def ends_the_calls(self) -> bool:
        """Whether it is a limit that leaves the model time for a last word."""
        return self in _ENDS_THE_CALLS

    @property
    def sentence(self) -> str:
        """The reason in a person's words, without a full stop."""
        return _SENTENCES[self]


_ENDS_THE_CALLS = frozenset(
    {StopReason.MAX_DEPTH, StopReason.CONSECUTIVE_ERRORS, StopReason.REPEATED_CALLS, StopReason.TOKEN_BUDGET}
)
_SENTENCES = {
    StopReason.ANSWERED: "the model gave no answer",
    StopReason.MAX_DEPTH: "too many rounds of tool calls",
    StopReason.CONSECUTIVE_ERRORS: "the tool calls kept failing",
    StopReason.REPEATED_CALLS: "the same tool call was made again and again with the same result",
    StopReason.TOKEN_BUDGET: "the tokens for this turn are used up",
    StopReason.TIMEOUT: "the time for this turn is over",
    StopReason.TRUNCATED: "the model's answer was cut off",
    StopReason.REFUSED: "the model refused to answer",
    StopReason.CANCELLED: "it was cancelled",
    StopReason.CLIENT_TOOL_CALLS: "the caller's own tools were called",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one turn may take. Whatever is met, the turn ends in words.

    Raises:
        ValueError: a limit is not greater than 0, or `max_depth` is not from 0 to 100.
    """

    max_depth: int = 10
    """Rounds of tool calls."""
    max_consecutive_errors: int = 3
    """Rounds in a row in which every call failed."""
    max_repeats: int = 3
    """Rounds in which the same call (tool, arguments) was made with the same result, in a row or not."""
    max_calls_per_round: int = 32
    """Calls of one reply that are run; the model is told that the rest was not."""
    max_tools: int = 40
    """Tools on offer at once; where the servers have more, those that were searched for."""
    max_tokens_total: int | None = None
    """Tokens of all requests of a turn, read and written; looked at between rounds. None for no budget."""
    timeout: float = 120.0
    """Seconds for the whole turn; waiting for a person does not count."""
    tool_timeout: float = 60.0
    """Seconds for one call; progress starts them anew."""
    tool_timeout_max: float = 600.0
    """Seconds for one call, whatever progress it reports."""
    max_parallel: int = 8
    """Calls of one round that run at the same time."""
    max_result_chars: int = 50_000
    """Characters of one result that the model is given."""
    max_sampling_requests: int = 5
    """Requests one server may make of the model in a turn, where it may at all."""
    max_sampling_tokens: int = 10_000
    """Tokens of those requests, read and written."""

    def __post_init__(self) -> None:
        # The recursion is real: a level is a few frames of Python's stack, which ends at a thousand.
        if not 0 <= self.max_depth <= 100:
            raise ValueError("max_depth must be from 0 to 100")
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.name != "max_depth" and value is not None and not value > 0:
                raise ValueError(f"{limit.name} must be greater than 0")
