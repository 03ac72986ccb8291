"""Parsing of token usage, which endpoints report in different forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dial_client.messages.token_usage import Usage

_MAX_COUNT = 2**53
"""The limit of token counts; larger numbers are ignored as invalid."""


def parse_usage(usage: Any) -> Usage:
    """Return the token usage reported by OpenAI's two APIs. A field that is not a number counts as 0."""
    if not isinstance(usage, Mapping):
        return Usage()
    input_details, output_details = (
        _find_mapping(usage, "prompt_tokens_details", "input_tokens_details"),
        _find_mapping(usage, "completion_tokens_details", "output_tokens_details"),
    )
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


def _find_mapping(usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((inner for name in names if isinstance(inner := usage.get(name), Mapping)), {})
