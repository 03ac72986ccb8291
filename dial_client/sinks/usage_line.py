"""The usage of a turn, and of all turns of a session, in one line."""

from __future__ import annotations

from dataclasses import dataclass

from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn


@dataclass(slots=True)
class UsageSum:
    """The total usage of the turns of a session."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    is_cost_known: bool = True
    """Whether the cost of every turn is known."""
    seconds: float = 0.0

    def add(self, turn: Turn, seconds: float) -> None:
        """Add a turn."""
        self.turns += 1
        self.seconds += seconds
        self.add_usage(turn.usage, turn.cost_usd)

    def add_usage(self, usage: Usage, cost_usd: float | None) -> None:
        """Add the usage of a turn or a summary; the cost is None if it is unknown."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cached_tokens += usage.cached_tokens
        if cost_usd is None:
            self.is_cost_known = False
        else:
            self.cost_usd += cost_usd

    @property
    def line(self) -> str:
        """The sum as one line."""
        tokens = _format_tokens(self.input_tokens, self.output_tokens, self.cached_tokens)
        cost = f" · about ${self.cost_usd:.4f}" if self.is_cost_known and self.cost_usd else ""
        turns = "1 answer" if self.turns == 1 else f"{self.turns:,} answers"
        return f"{turns}: {tokens}{cost} · {self.seconds:.1f} s"


def format_usage_line(turn: Turn, seconds: float) -> str:
    """Return the usage of a turn in one line: tokens, cost if it is known, seconds, and number of model requests."""
    usage = turn.usage
    cost = "" if turn.cost_usd is None else f" · about ${turn.cost_usd:.4f}"
    rounds = len(turn.request_usages)
    counted = f" · {rounds} rounds" if rounds > 1 else ""
    tokens = _format_tokens(usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    return f"{tokens}{cost} · {seconds:.1f} s{counted}"


def _format_tokens(read: int, written: int, cached: int) -> str:
    from_cache = f" ({cached:,} cached)" if cached else ""
    return f"{read:,} tokens in{from_cache}, {written:,} out"
