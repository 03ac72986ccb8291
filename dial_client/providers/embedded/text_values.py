"""Finds the numbers and e-mail addresses of a text, in linear time."""

from __future__ import annotations

import re

NUMBER = re.compile(r"\d+(?:\.\d+)?")

_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:%|per ?cent)", re.IGNORECASE)
_GROUPING = re.compile(r"(?<=\d),(?=\d{3})")
_ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")


def join_groups(text: str) -> str:
    """Return a text without the commas within numbers: 1234 for 1,234."""
    return _GROUPING.sub("", text)


def find_numbers(text: str) -> frozenset[float]:
    """Return the numbers of a text; one that is too large for a float is infinite."""
    return frozenset(float(number) for number in NUMBER.findall(join_groups(text)))


def find_quantities(text: str) -> frozenset[float]:
    """Return the numbers of a text, and its percentages also as fractions: 15 % is 0.15, too."""
    parts = (float(number) / 100 for number in _PERCENTAGE.findall(join_groups(text)))
    return find_numbers(text).union(parts)


def find_addresses(text: str) -> list[str]:
    """Return the e-mail addresses of a text, in order."""
    return _ADDRESS.findall(text)
