"""When a turn stops, and what is said then."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StopReason(StrEnum):
    """Why a turn ended."""

    ANSWERED = "answered"
    MAX_DEPTH = "max_depth"
    TIMEOUT = "timeout"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    CANCELLED = "cancelled"

    @property
    def is_limit(self) -> bool:
        """Whether one of the caller's `Limits` ended it."""
        return self in (StopReason.MAX_DEPTH, StopReason.TIMEOUT)

    @property
    def sentence(self) -> str:
        """The reason in a person's words, without a full stop."""
        return _SENTENCES[self]


_SENTENCES = {
    StopReason.ANSWERED: "the model gave no answer",
    StopReason.MAX_DEPTH: "too many rounds of tool calls",
    StopReason.TIMEOUT: "the time for this turn is over",
    StopReason.TRUNCATED: "the model's answer was cut off",
    StopReason.REFUSED: "the model refused to answer",
    StopReason.CANCELLED: "it was cancelled",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one turn may take. Whatever is met, the turn ends in words.

    Raises:
        ValueError: a limit is not greater than 0, or `max_depth` is not from 0 to 100.
    """

    max_depth: int = 10
    """Rounds of tool calls."""
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

    def __post_init__(self) -> None:
        # The recursion is real: a level is a few frames of Python's stack, which ends at a thousand.
        if not 0 <= self.max_depth <= 100:
            raise ValueError("max_depth must be from 0 to 100")
        for name in ("timeout", "tool_timeout", "tool_timeout_max", "max_parallel", "max_result_chars"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0")
