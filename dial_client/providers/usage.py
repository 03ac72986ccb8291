"""Tokens, from the many forms in which endpoints count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client.messages import Usage

_MAX_COUNT = 2**53
"""No count of tokens; nor is what JSON can write beyond it."""


def parse_usage(said: Any) -> Usage:
    """Read a ``usage`` of OpenAI's two wires; what is not a number counts as 0."""
    if not isinstance(said, Mapping):
        return Usage()
    read, written = (
        _first_mapping(said, "prompt_tokens_details", "input_tokens_details"),
        _first_mapping(said, "completion_tokens_details", "output_tokens_details"),
    )
    return Usage(
        input_tokens=first_number(said, "prompt_tokens", "input_tokens"),
        output_tokens=first_number(said, "completion_tokens", "output_tokens"),
        cached_tokens=first_number(read, "cached_tokens") or first_number(said, "prompt_cache_hit_tokens"),
        reasoning_tokens=first_number(written, "reasoning_tokens"),
    )


def first_number(said: Mapping[str, Any], *names: str) -> int:
    """Give the first of these that is a number; 0 where none is."""
    for name in names:
        value = said.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT:
            return int(value)
    return 0


def _first_mapping(said: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((inner for name in names if isinstance(inner := said.get(name), Mapping)), {})
