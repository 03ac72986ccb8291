"""Judges of calls and of answers from results.

An expected argument is a value, or an object: ``{"matches": PATTERN}`` for a full match, ``{"value": N}`` for an
expression whose value is N, ``{"any": true}`` for any value; ``example`` is a value that is accepted. An argument whose
name ends in ``?`` is optional. An unexpected argument is accepted if it is the schema's default or null.

A pattern of an answer is a regular expression. With the prefix ``result:``, it is matched with the last result, and the
answer must contain its first group. Case, commas between digits, and marks of emphasis are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evals.desk import value_of
from evals.tasks import Expected


def is_expected(expected: Expected, name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Return True if a call has the expected name and arguments; `schema` is the tool's schema."""
    if name != expected.tool:
        return False
    unmatched = dict(arguments)
    for key, value in expected.arguments.items():
        argument = key.removesuffix("?")
        if argument not in unmatched:
            if argument == key:
                return False
        elif not _fits(value, unmatched.pop(argument)):
            return False
    properties = schema.get("properties", {})
    return all(value is None or value == properties.get(name, {}).get("default") for name, value in unmatched.items())


def _fits(expected: Any, value: Any) -> bool:
    if isinstance(expected, Mapping):
        if "matches" in expected:
            return re.fullmatch(expected["matches"], str(value).strip(), re.IGNORECASE) is not None
        if "value" in expected:
            return _comes_to(str(value), expected["value"])
        return bool(expected.get("any"))
    if isinstance(expected, bool) or isinstance(value, bool):
        return str(expected).lower() == str(value).lower()
    if isinstance(expected, int | float):
        return _comes_to(str(value), expected)
    return str(expected).casefold() == str(value).strip().casefold()


def _comes_to(expression: str, value: float) -> bool:
    try:
        return abs(value_of(expression) - value) < 1e-6
    except ValueError:
        return False


def says(patterns: Sequence[str], answer: str, results: Sequence[str]) -> bool:
    """Return True if an answer has all expected patterns; `results` are the results of the calls, in order."""
    plain = re.sub(r"(?<=\d),(?=\d{3})|[*_`]{1,3}(?=\S)|(?<=\S)[*`]{1,3}", "", answer).replace("\N{MINUS SIGN}", "-")
    return all(_found(pattern, plain, results) for pattern in patterns)


def _found(pattern: str, answer: str, results: Sequence[str]) -> bool:
    if pattern.startswith("result:"):
        live = re.search(pattern.removeprefix("result:"), results[-1] if results else "")
        return live is not None and any(spelling in answer.lower() for spelling in _spellings(live[1]))
    return re.search(pattern, answer, re.IGNORECASE) is not None


def _spellings(value: str) -> Sequence[str]:
    """Return the spellings of a value; for a time of day, also those on the 12-hour clock."""
    time = re.fullmatch(r"(\d\d):(\d\d)", value)
    if time is None:
        return (value.lower(),)
    hour, half = int(time[1]) % 12 or 12, "am" if int(time[1]) < 12 else "pm"
    return (value, *(f"{hour}:{time[2]}{mark}" for mark in (f" {half}", half, f" {half[0]}.m.")))
