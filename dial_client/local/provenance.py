"""Where a value comes from: whether it was said in the conversation, follows from it, or was made up."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

MAX_HEARD_CHARS = 8_000
"""Characters of a conversation whose words a miscopied one is compared with."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_GROUPING = re.compile(r"(?<=\d),(?=\d{3})")
_SUM = re.compile(r"[\d\s.+*/()%^-]+")
_NO_SUM = re.compile(r"[\d\s.-]+")
_NUMBER_WORD = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|million"
    r"|(?:twen|thir|for|four|fif|six|seven|eigh|nine)(?:ty|teen)|dozen|half|quarter|third|twice|double|couple)\b",
    re.IGNORECASE,
)
_USUAL = frozenset({0.0, 1.0, 2.0, 100.0})
"""Numbers that need not be named: the last one, a percentage."""


def is_made_up(value: Any, schema: Any, said: str) -> bool:
    """Whether a value comes from nowhere: a number, an address or a path that nobody has named.

    Args:
        value: an argument.
        schema: its schema.
        said: all that was said and found. Where it has numbers as words, no number counts as made up.
    """
    if isinstance(schema, Mapping) and ("enum" in schema or value == schema.get("default")):
        return False
    if isinstance(value, str) and (value.startswith("/") or "@" in value):
        return value.rstrip("/").lower() not in said.lower()
    if isinstance(value, bool) or _NUMBER_WORD.search(said):
        return False
    if isinstance(value, int | float):
        return abs(value) not in _USUAL | _numbers(said)
    if isinstance(value, str) and _SUM.fullmatch(value) and not _NO_SUM.fullmatch(value):
        return not _numbers(value) <= _USUAL | _numbers(said)
    return False


def has_strange_digits(value: Any, said: str) -> bool:
    """Return whether a text has numbers, none of which was said: an invented flight, order or day."""
    if not isinstance(value, str) or _NUMBER_WORD.search(said):
        return False
    found = {float(number) for number in re.findall(r"\d+", value)}
    return bool(found) and found.isdisjoint({float(number) for number in re.findall(r"\d+", said)})


def is_said(value: Any, said: str) -> bool:
    """Whether a value stands in what was said: as it is, its last part (``Asia/Tokyo``), or all numbers of a sum."""
    if isinstance(value, bool):
        return True
    text = str(value).strip().lower()
    if _SUM.fullmatch(text):
        return _numbers(text) <= _USUAL | _numbers(said)
    part = re.split(r"[/_]", text.rstrip("/"))[-1]
    return text in said.lower() or (len(part) >= 3 and part in said.lower())


def _numbers(text: str) -> set[float]:
    return {float(found) for found in _NUMBER.findall(_GROUPING.sub("", text))}


_COPIED = re.compile(r"[^\s\"'?!,;:()]{4,64}")


def spelt(arguments: Mapping[str, Any], said: str) -> dict[str, Any]:
    """Give the arguments, with words that were all but copied from the conversation spelt as they are there."""
    heard = {word.lower(): word for word in _COPIED.findall(said[:MAX_HEARD_CHARS])}
    return {name: _spelt(value, heard, said.lower()) for name, value in arguments.items()}


def _spelt(value: Any, heard: Mapping[str, str], said: str) -> Any:
    if not isinstance(value, str) or not 5 <= len(value) <= 64 or " " in value or value.lower() in said:
        return value
    near = difflib.get_close_matches(value.lower(), heard, n=1, cutoff=0.8)
    if not near or near[0].startswith(value.lower()) or value.lower().startswith(near[0]):
        return value
    return heard[near[0]]
