"""Finds out whether a value occurs in the conversation, follows from it, or was made up."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from dial_client.providers.embedded.text_values import find_addresses, find_numbers, find_quantities

MAX_CONVERSATION_CHARS = 8_000
"""Characters of a conversation in which the correct spelling of a miscopied word is searched."""

_EXPRESSION = re.compile(r"[\d\s.+*/()%^=-]+")
_PLAIN_NUMBER = re.compile(r"[\d\s.-]+")
_CODE = re.compile(r"[A-Z]{1,5}[- ]?\d{2,}|\d{4,}")
_NUMBER_WORD = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|million"
    r"|(?:twen|thir|for|four|fif|six|seven|eigh|nine)(?:ty|teen)|dozen|half|quarter|third|twice|double|couple)\b",
    re.IGNORECASE,
)
_TAKES_ADDRESS = re.compile(r"\be-?mail address(?!es)\b|^e-?mail(?: address)?:", re.IGNORECASE)
_WHOLE = re.compile(r"[/~]|[a-z]:\\|[a-z]+://")
_USUAL = frozenset({0.0, 1.0, 2.0, 100.0})
"""Numbers that need not occur in the conversation: 100 is used for percentages."""


def is_made_up(value: Any, schema: Any, conversation: str) -> bool:
    """Return True if a value is a number, an address or a path that does not occur in the conversation.

    Args:
        value: The value of an argument.
        schema: The argument's schema.
        conversation: The conversation's texts and results. If it spells numbers as words, no number counts as made up.
    """
    if isinstance(schema, Mapping) and ("enum" in schema or value == schema.get("default")):
        return False
    if isinstance(value, str) and (value.startswith("/") or "@" in value):
        return value.rstrip("/").lower() not in conversation.lower()
    if isinstance(value, bool) or _NUMBER_WORD.search(conversation):
        return False
    if isinstance(value, int | float):
        return abs(value) not in _USUAL | find_quantities(conversation)
    if is_expression(value):
        return not find_numbers(value) <= _USUAL | find_quantities(conversation)
    return False


def is_invented(name: str, value: Any, schema: Any, conversation: str) -> bool:
    """Return True if an argument has no source: a made-up value, a description of the value, or no address."""
    return (
        is_made_up(value, schema, conversation)
        or is_description(name, value, conversation)
        or is_no_address(name, value, schema)
    )


def is_description(name: str, value: Any, conversation: str) -> bool:
    """Return True if a text describes a value that has to be looked up first: "Mia's city" for a city."""
    if not isinstance(value, str) or value.lower() in conversation.lower():
        return False
    argument = re.split(r"[_-]", name.lower())[-1]
    return re.search(rf"\Ws {argument}\b|\b{argument} of\b", value.lower()) is not None


def converts_to_itself(arguments: Mapping[str, Any]) -> bool:
    """Return True if a call converts a unit to itself: from dollars to dollars."""
    return any(
        name.startswith("from_") and value == arguments.get(f"to_{name.removeprefix('from_')}")
        for name, value in arguments.items()
    )


def is_no_address(name: str, value: Any, schema: Any) -> bool:
    """Return True if an argument takes an e-mail address and its value is another text, such as a person's name."""
    return isinstance(value, str) and "@" not in value and takes_address(name, schema)


def takes_address(name: str, schema: Any) -> bool:
    """Return True if an argument takes an e-mail address, by its name, its description or its format."""
    about = schema.get("description", "") if isinstance(schema, Mapping) else ""
    is_format = isinstance(schema, Mapping) and schema.get("format") == "email"
    return is_format or _TAKES_ADDRESS.search(f"{name.replace('_', ' ')}: {about}") is not None


def find_address(person: str, conversation: str) -> str:
    """Return the e-mail address of a person in a conversation; empty unless there is exactly one.

    An address of the person contains a part of the name, or is in a line that begins with the name.
    """
    parts = [part for part in re.findall(r"\w+", person.lower()) if len(part) > 2]
    found = {address for address in find_addresses(conversation) if any(part in address.lower() for part in parts)}
    lines = (line for line in conversation.splitlines() if person and line.lower().startswith(person.lower()))
    found = found or {address for line in lines for address in find_addresses(line)}
    return next(iter(found)) if len(found) == 1 else ""


def is_code(value: Any) -> bool:
    """Return True if a value is a number or code that identifies one thing, such as an order, a parcel or a flight."""
    return _CODE.fullmatch(str(value).strip()) is not None and not isinstance(value, bool)


def is_expression(value: Any) -> bool:
    """Return True if a text is an arithmetic expression."""
    return (
        isinstance(value, str) and _EXPRESSION.fullmatch(value) is not None and _PLAIN_NUMBER.fullmatch(value) is None
    )


def has_strange_digits(value: Any, conversation: str) -> bool:
    """Return True if a text has numbers and none of them occurs: an invented flight, order or day."""
    if not isinstance(value, str) or _NUMBER_WORD.search(conversation):
        return False
    found = {float(number) for number in re.findall(r"\d+", value)}
    return bool(found) and found.isdisjoint({float(number) for number in re.findall(r"\d+", conversation)})


def occurs_in(value: Any, conversation: str) -> bool:
    """Return True if the conversation has a value, its last part (``Asia/Tokyo``), or all numbers of an expression.

    For an absolute path or a URL, the last part is not enough.
    """
    if isinstance(value, bool):
        return True
    text = str(value).strip().lower()
    if _EXPRESSION.fullmatch(text):
        return find_numbers(text) <= _USUAL | find_quantities(conversation)
    if text in conversation.lower() or _WHOLE.match(text):
        return text.rstrip("/") in conversation.lower()
    part = re.split(r"[/_]", text)[-1]
    return len(part) >= 3 and part in conversation.lower()


def cut_addition(value: Any, conversation: str) -> Any:
    """Return a name without an addition of the model after a punctuation mark, if the conversation has the name alone.

    "Paper Boats - from what year is that song?" is the song "Paper Boats".
    """
    if not isinstance(value, str) or not (found := _ADDITION.fullmatch(value)) or not occurs_in(found[1], conversation):
        return value
    is_question = value.endswith("?") or not occurs_in(value, conversation)
    return found[1] if is_question else value


_ADDITION = re.compile(r"([^:,\u2013-]*[^\s:,\u2013-])(?:\s*[:,]|\s+[\u2013-])\s.*")
_COPIED = re.compile(r"[^\s\"'?!,;:()]{4,64}")


def correct_spelling(arguments: Mapping[str, Any], conversation: str) -> dict[str, Any]:
    """Return the arguments with miscopied words of the conversation in their correct spelling."""
    copied = {word.lower(): word for word in _COPIED.findall(conversation[:MAX_CONVERSATION_CHARS])}
    return {name: _correct(value, copied, conversation.lower()) for name, value in arguments.items()}


def _correct(value: Any, copied: Mapping[str, str], conversation: str) -> Any:
    if not isinstance(value, str) or not 5 <= len(value) <= 64 or " " in value or value.lower() in conversation:
        return value
    near = difflib.get_close_matches(value.lower(), copied, n=1, cutoff=0.8)
    if not near or near[0].startswith(value.lower()) or value.lower().startswith(near[0]):
        return value
    return copied[near[0]]
