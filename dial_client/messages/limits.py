"""The limits of a turn, and the reasons for its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from dial_client.runtime.foreign_names import refuse_names


class StopReason(StrEnum):
    """Why a turn ended."""

    _value_: str
    sentence: str
    """The reason as a sentence for the user, without a full stop."""

    ANSWERED = "answered", "the model gave no answer"
    MAX_DEPTH = "max_depth", "too many rounds of tool calls"
    CONSECUTIVE_ERRORS = "consecutive_errors", "the tool calls kept failing"
    REPEATED_CALLS = "repeated_calls", "the same tool call was made again and again with the same result"
    TIMEOUT = "timeout", "the time for this turn is over"
    TOKEN_BUDGET = "token_budget", "the tokens for this turn are used up"
    COST_BUDGET = "cost_budget", "the money for this turn is used up"
    TRUNCATED = "truncated", "the model's answer was cut off"
    REFUSED = "refused", "the model refused to answer"
    CANCELLED = "cancelled", "it was cancelled"
    INVALID_OUTPUT = "invalid_output", "the answer is not of the requested form"
    """The answer was not of the turn's ``output_type``, and the model did not correct it."""
    CLIENT_TOOL_CALLS = "client_tool_calls", "the caller's own tools were called"
    """The model called client-side tools. The caller sends their results in the next turn."""
    AWAITING_APPROVAL = "awaiting_approval", "a tool call waits for approval"
    """The approver decides later (`Decision.DEFER`). `DialClient.resume` continues the turn."""

    def __new__(cls, value: str, sentence: str = "") -> Self:
        """Return a member with its sentence."""
        member = str.__new__(cls, value)
        member._value_, member.sentence = value, sentence
        return member

    @property
    def is_limit(self) -> bool:
        """True if one of the caller's `Limits` ended the turn."""
        return self in (
            StopReason.MAX_DEPTH,
            StopReason.CONSECUTIVE_ERRORS,
            StopReason.REPEATED_CALLS,
            StopReason.TIMEOUT,
            StopReason.TOKEN_BUDGET,
            StopReason.COST_BUDGET,
        )

    @property
    def is_callers(self) -> bool:
        """True if the caller ended the turn, or has to continue it."""
        return self in (StopReason.CANCELLED, StopReason.CLIENT_TOOL_CALLS, StopReason.AWAITING_APPROVAL)


@refuse_names(
    max_turns="max_depth",
    max_steps="max_depth",
    max_iterations="max_depth",
    recursion_limit="max_depth",
    request_limit="max_depth",
    tool_calls_limit="max_calls_per_round",
    total_tokens_limit="max_tokens_total",
    max_tokens="max_tokens_total",
    max_cost="max_cost_usd",
    max_budget_usd="max_cost_usd",
    max_time="timeout",
)
@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one turn. A turn that meets a limit still ends with a message.

    Raises:
        ValueError: A limit is not greater than 0, or `max_depth` is not from 0 to 100.
        TypeError: A limit is not a number.
    """

    max_depth: int = 10
    """Maximum number of rounds of tool calls."""
    max_consecutive_errors: int = 3
    """Maximum number of consecutive rounds in which every call failed."""
    max_repeats: int = 3
    """Maximum number of rounds, consecutive or not, in which the same call (tool, arguments) has the same result."""
    max_calls_per_round: int = 32
    """Maximum number of calls of one reply that are run; the model is told that the others were not run."""
    max_tools: int = 40
    """Maximum number of tools offered at once. If the servers have more, the model searches for tools."""
    max_tool_bytes: int = 60_000
    """Maximum bytes of the offered names, descriptions and schemas. If the servers' tools have more, the model searches
    for tools. Every request repeats these bytes: 60,000 are about 20,000 tokens, or 40 tools of 1,500 bytes."""
    max_description_chars: int = 8_000
    """Maximum characters of a tool's description on offer, at most 8,000. A longer one is cut, and `search_tools` gives
    the model its first 8,000 characters by the tool's name."""
    search_index_bytes: int = 2_000
    """Maximum bytes of the names of all tools in the description of `search_tools`. If they have more, the model gets
    the number of tools of each server in their place."""
    max_skill_bytes: int = 8_000
    """Maximum bytes of the names and descriptions of skills in each request; further skills are counted in words."""
    max_tokens_total: int | None = None
    """Maximum tokens of all requests of a turn, input and output, with those of turns that its functions run, checked
    between rounds. None for no limit."""
    max_cost_usd: float | None = None
    """Maximum known cost in US dollars of all requests of a turn, with those of turns that its functions run, checked
    between rounds; a model without a price costs nothing. None for no limit."""
    timeout: float = 120.0
    """Timeout of the whole turn in seconds; time spent waiting for the user does not count. The last fifth, at most 20
    seconds, is kept for the answer: no call runs in it."""
    tool_timeout: float = 60.0
    """Timeout of one call in seconds; each progress notification restarts it."""
    tool_timeout_max: float = 600.0
    """Timeout of one call in seconds that progress notifications do not restart."""
    background_after: float = 120.0
    """Seconds after which a call goes on in the background, if the turn has more time than that: the model gets the
    result later. 0 for at once, ``math.inf`` for never. A server's entry has its own (``backgroundAfter``)."""
    max_parallel: int = 8
    """Maximum number of calls of one round that run at the same time, and of calls in the background."""
    max_result_chars: int = 50_000
    """Maximum characters of one result that the model reads."""
    max_sampling_requests: int = 5
    """Maximum number of sampling requests of one server in a turn, if sampling is enabled."""
    max_sampling_tokens: int = 10_000
    """Maximum tokens of one server's sampling requests in a turn, input and output."""

    def __post_init__(self) -> None:
        # Each level of the recursion takes a few frames of Python's stack, which is limited to 1,000 by default.
        if not 0 <= self.max_depth <= 100:
            raise ValueError("max_depth must be from 0 to 100")
        for name, value in asdict(self).items():
            if value is not None and not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number, not {type(value).__name__}")
            may_be_zero = name in ("max_depth", "background_after")
            if value is not None and not (value > 0 or (may_be_zero and value == 0)):
                raise ValueError(f"{name} must be greater than 0")


def narrow_limits(limits: Limits, further: Limits) -> Limits:
    """Return limits that hold where both hold: the lower one of each."""
    values = asdict(further)
    lower: dict[str, Any] = {
        name: min((number for number in (value, values[name]) if number is not None), default=None)
        for name, value in asdict(limits).items()
    }
    return Limits(**lower)
