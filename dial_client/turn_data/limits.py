"""The limits of a turn, and the reasons for its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
    INVALID_OUTPUT = "invalid_output"
    """The answer was not of the turn's ``output_type``, and the model did not correct it."""
    CLIENT_TOOL_CALLS = "client_tool_calls"
    """The model called tools of the caller, who answers them and starts the next turn."""

    @property
    def is_limit(self) -> bool:
        """True if one of the caller's `Limits` ended the turn."""
        return self is StopReason.TIMEOUT or self.ends_the_calls

    @property
    def is_callers(self) -> bool:
        """True if the caller ended the turn, or is to continue it."""
        return self in (StopReason.CANCELLED, StopReason.CLIENT_TOOL_CALLS)

    @property
    def ends_the_calls(self) -> bool:
        """True for a limit that leaves the model time for a last message."""
        return self in _ENDS_THE_CALLS

    @property
    def sentence(self) -> str:
        """The reason as a sentence for people, without a full stop."""
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
    StopReason.INVALID_OUTPUT: "the answer is not of the requested form",
    StopReason.CLIENT_TOOL_CALLS: "the caller's own tools were called",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one turn. Whatever limit is met, the turn ends with a message.

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
    """Calls of one reply that are run; the model is told that the others were not."""
    max_tools: int = 40
    """Tools on offer at once; if the servers have more, the model searches for them."""
    max_tool_bytes: int = 60_000
    """Bytes of the names, descriptions and schemas on offer; beyond that the model searches for tools too. Every
    request repeats them: 60,000 are about 20,000 tokens, or 40 tools of 1,500 bytes."""
    max_tokens_total: int | None = None
    """Tokens of all requests of a turn, input and output; checked between rounds. None for no budget."""
    timeout: float = 120.0
    """Seconds for the whole turn; waiting for a person does not count."""
    tool_timeout: float = 60.0
    """Seconds for one call; progress restarts them."""
    tool_timeout_max: float = 600.0
    """Seconds for one call, whatever progress it reports."""
    max_parallel: int = 8
    """Calls of one round that run at the same time."""
    max_result_chars: int = 50_000
    """Characters of one result that the model is given."""
    max_sampling_requests: int = 5
    """Sampling requests of one server in a turn, where sampling is on."""
    max_sampling_tokens: int = 10_000
    """Tokens of those requests, input and output."""

    def __post_init__(self) -> None:
        # The recursion is real: a level is a few frames of Python's stack, which ends at a thousand.
        if not 0 <= self.max_depth <= 100:
            raise ValueError("max_depth must be from 0 to 100")
        for name, value in asdict(self).items():
            if value is not None and not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number, not {type(value).__name__}")
            if name != "max_depth" and value is not None and not value > 0:
                raise ValueError(f"{name} must be greater than 0")
