"""Finds quantities of a result in another unit than the question asks for, and the calls that convert them.

The embedded model answers "1886 miles" from a result of 1886 km. Quantities, their units and the unit in the question
are recognized by their spellings, so that the call that converts is built without the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.providers.embedded.clauses import MAX_QUESTION_CHARS
from dial_client.providers.embedded.vocabulary import acts, find_tool_words, find_words

MAX_RESULT_CHARS = 4_000
"""Characters of a result that are searched for quantities."""
_UNITS: Mapping[str, tuple[str, ...]] = {
    "length": (
        "mi mile miles",
        "km kilometre kilometres kilometer kilometers",
        "m metre metres meter meters",
        "cm centimetre centimetres centimeter centimeters",
        "ft foot feet",
        "in inch inches",
    ),
    "weight": ("kg kilogram kilograms kilo kilos", "g gram grams", "lb lbs pound pounds", "oz ounce ounces"),
    "temperature": ("C °C celsius centigrade", "F °F fahrenheit"),
    "currency": (
        "EUR € euro euros",
        "USD $ dollar dollars",
        "GBP £ pound pounds sterling",
        "JPY ¥ yen",
        "CHF franc francs",
    ),
}
"""Spellings of units by the quantity they measure. The first spelling of each unit is used in calls."""
_SPELLINGS = {
    spelling: tuple((kind, row.split()[0]) for kind, rows in _UNITS.items() for row in rows if spelling in row.split())
    for rows in _UNITS.values()
    for row in rows
    for spelling in row.split()
}
_ALL = "|".join(sorted(map(re.escape, _SPELLINGS), key=len, reverse=True))
_QUANTITY = re.compile(rf"(?<![\w.,-])(-?\d+(?:,\d{{3}})*(?:\.\d+)?) ?({_ALL})(?![\w/])")
_TARGET_UNIT = re.compile(
    rf"\b(?:in|into|to|many)(?: (?:degrees|US|British|American|the))* ({_ALL})(?!\w|\.\w)", re.IGNORECASE
)
_CONVERTS = {kind: find_words(f"{kind} unit") for kind in _UNITS}


@dataclass(frozen=True, slots=True)
class Conversion:
    """A quantity of a result, and the unit that a question asks for."""

    kind: str
    """The kind of quantity, a key of the table of units."""
    value: float
    unit: str
    target: str
    """The unit that the question asks for, in the spelling of the table."""
    target_name: str
    """The unit that the question asks for, in the question's spelling."""


def find_conversion(question: str, results: Sequence[str]) -> Conversion | None:
    """Return the conversion that the results still need.

    None if the results have the question's unit, no quantity of its kind, or several quantities.
    """
    quantities = {found for text in results for found in _QUANTITY.findall(text[:MAX_RESULT_CHARS])}
    for target_name in _TARGET_UNIT.findall(question[:MAX_QUESTION_CHARS]):
        meanings = _find_meanings(target_name)
        if any(meaning in meanings for _, spelling in quantities for meaning in _find_meanings(spelling)):
            return None
        found = {
            Conversion(kind, float(number.replace(",", "")), unit, target, target_name)
            for number, spelling in quantities
            for kind, unit in _find_meanings(spelling)
            for target_kind, target in meanings
            if kind == target_kind
        }
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def find_conversion_call(conversion: Conversion, tools: Sequence[ToolSpec]) -> tuple[str, dict[str, Any]] | None:
    """Return the name of a tool that converts, and its arguments; None if no tool does."""
    for tool in tools:
        if acts(tool) or find_tool_words(tool).isdisjoint(_CONVERTS[conversion.kind]):
            continue
        properties = tool.input_schema.get("properties", {})
        required = tool.input_schema.get("required", ())
        arguments = {name: _build_argument(name, properties.get(name, {}), conversion) for name in required}
        if len(arguments) == 3 and None not in arguments.values() and conversion.value in arguments.values():
            return tool.name, arguments
    return None


def correct_conversion(arguments: Mapping[str, Any], tool: ToolSpec, question: str) -> dict[str, Any]:
    """Return the arguments of a call; if it is a conversion, with the units of the question.

    "26 miles in kilometres" is not converted from kilometres to miles.
    """
    conversion = find_conversion(question, [question])
    found = find_conversion_call(conversion, (tool,)) if conversion is not None else None
    if found is None or conversion is None or conversion.value not in arguments.values():
        return dict(arguments)
    return {**arguments, **found[1]}


def _find_meanings(spelling: str) -> tuple[tuple[str, str], ...]:
    return _SPELLINGS.get(spelling) or _SPELLINGS.get(spelling.lower()) or ()


def _build_argument(name: str, schema: Mapping[str, Any], conversion: Conversion) -> Any:
    """Return the value of a required argument of a conversion; None if the argument does not belong to one."""
    if schema.get("type") in ("number", "integer"):
        value = conversion.value
        if value.is_integer():
            return int(value)
        return value if schema["type"] == "number" else None
    parts = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    unit = (
        conversion.unit if {"from", "source"} & {*parts} else conversion.target if {"to", "target"} & {*parts} else ""
    )
    choices = schema.get("enum")
    if not unit or not isinstance(choices, list):
        return unit or None
    kind = (conversion.kind, unit)
    return next((choice for choice in choices if isinstance(choice, str) and kind in _find_meanings(choice)), None)
