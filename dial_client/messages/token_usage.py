"""The tokens of requests to a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from dial_client.runtime.json_fields import to_object


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts, as the provider reports them; 0 for a count that it does not report."""

    input_tokens: int = 0
    """All tokens of the request, cached or not."""
    output_tokens: int = 0
    """All tokens of the reply, reasoning included."""
    cached_tokens: int = 0
    """The part of `input_tokens` that came from the provider's cache."""
    reasoning_tokens: int = 0
    """The part of `output_tokens` that was reasoning."""
    cache_write_tokens: int = 0
    """The part of `input_tokens` that was written to the provider's cache, which has a separate price."""
    server_tool_calls: int = 0
    """Number of tool calls that the endpoint ran itself, and may bill separately from tokens."""

    def __add__(self, usage: Usage) -> Usage:
        return Usage(
            self.input_tokens + usage.input_tokens,
            self.output_tokens + usage.output_tokens,
            self.cached_tokens + usage.cached_tokens,
            self.reasoning_tokens + usage.reasoning_tokens,
            self.cache_write_tokens + usage.cache_write_tokens,
            self.server_tool_calls + usage.server_tool_calls,
        )

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name; `cache_write_tokens` and `server_tool_calls` only if they are not 0."""
        rare = ("cache_write_tokens", "server_tool_calls")
        return {name: count for name, count in asdict(self).items() if count or name not in rare}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Usage:
        """Build a usage from the form of `to_dict`; unknown names are ignored.

        Raises:
            ValueError: `data` does not describe a usage.
        """
        try:
            counts = {field.name: data.get(field.name, 0) for field in fields(cls)}
        except AttributeError as error:
            raise ValueError(f"not a usage: {error!r}") from error
        if wrong := [name for name, count in counts.items() if type(count) is not int]:
            raise ValueError(f"not a usage: {wrong[0]} is not an integer")
        return cls(**counts)


# The limit of token counts; larger numbers are ignored as invalid.
_MAX_COUNT = 2**53


def parse_usage(usage: Any) -> Usage:
    """Return the token usage reported by OpenAI's two APIs. A field that is not a number counts as 0."""
    usage = to_object(usage)
    input_details = to_object(usage.get("prompt_tokens_details")) or to_object(usage.get("input_tokens_details"))
    output_details = to_object(usage.get("completion_tokens_details")) or to_object(usage.get("output_tokens_details"))
    return Usage(
        input_tokens=find_number(usage, "prompt_tokens", "input_tokens"),
        output_tokens=find_number(usage, "completion_tokens", "output_tokens"),
        cached_tokens=find_number(input_details, "cached_tokens") or find_number(usage, "prompt_cache_hit_tokens"),
        reasoning_tokens=find_number(output_details, "reasoning_tokens"),
    )


def find_number(usage: Mapping[str, Any], *names: str) -> int:
    """Return the value of the first named field that is a number; 0 if none is."""
    for name in names:
        value = usage.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT:
            return int(value)
    return 0
