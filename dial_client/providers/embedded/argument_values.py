"""Corrects the values of a call's arguments where the schema or the conversation determines them.

The embedded model calls a clock with "London", converts "3:00" for 3 pm, and invents a repository for a user who asks
about the current one. The right value is certain in these cases: a time zone has one IANA name, an hour has one number,
and a folder that is not named is the current folder.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.providers.embedded.provenance import (
    correct_spelling,
    cut_addition,
    find_address,
    is_no_address,
    occurs_in,
)
from dial_client.providers.embedded.vocabulary import is_composed
from dial_client.runtime.normalization import stem

CURRENT_FOLDER = "."
"""The folder that a server runs in: the user's current folder, unless its entry in servers.json has a ``cwd``."""

_ZONE = re.compile(r"\bIANA\b|time[ _]?zone", re.IGNORECASE)
_CLOCK = re.compile(r"\bHH:MM\b|24[- ]hour", re.IGNORECASE)
_FOLDER = re.compile(r"(?:^|[^a-z])(?:repo|repository|dir|directory|folder|workspace|cwd)(?:$|[^a-z])", re.IGNORECASE)
_PLAIN_FOLDER = re.compile(
    r"(?:(?:the|this|my|current) )?(?:repo|repository|dir|directory|folder|project)", re.IGNORECASE
)
_PATH = re.compile(r"(?:^|[\s'\"])(?:[~.]?/|[A-Z]:\\)[\w.-]", re.MULTILINE)
_ABSOLUTE = re.compile(r"\babsolute\b", re.IGNORECASE)
_TIME = re.compile(r"(\d{1,2})(?::(\d\d))?\s*([ap])?\.?m?\.?", re.IGNORECASE)
_TIME_OF_12_HOURS = re.compile(r"\b(\d{1,2})(?::(\d\d))?\s*([ap])\.?m\b", re.IGNORECASE)
_EXPRESSION = re.compile(r"\b(?:arithmetic|mathematical|math) expression\b", re.IGNORECASE)
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:%|per ?cent)\s*of\b", re.IGNORECASE)
_HUNDREDTH = re.compile(r"/\s*100\b|(?<!\d)0?\.01\b")
_WRITTEN_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*%\s*(?:of|\*|(?=$))\s*", re.IGNORECASE)
_CURRENCY = re.compile(r"currency", re.IGNORECASE)
_CURRENCY_CODES = re.compile(r"(?:three|3)[- ]letter|\bcurrency codes?\b|\bISO 4217\b", re.IGNORECASE)
_CURRENCIES = {
    name: row[:3]
    for row in (
        "EUR euro euros",
        "USD dollar dollars",
        "GBP pound pounds sterling",
        "JPY yen",
        "CHF franc francs",
        "CNY yuan renminbi",
        "INR rupee rupees",
        "PLN zloty zlotys",
        "CZK koruna korunas",
        "HUF forint forints",
        "TRY lira liras",
        "KRW won",
        "BRL real reais",
        "MXN peso pesos",
        "ZAR rand",
    )
    for name in row[4:].split()
}
"""Currency codes by the last word of a currency's name, with the code that is meant most often."""
_COUNTRIES = {"norwegian": "NOK", "swedish": "SEK", "danish": "DKK", "australian": "AUD", "canadian": "CAD"}
_QUOTED = re.compile(r"""["'`]([^"'`\s]{1,60})["'`]""")
_EXAMPLES = re.compile(r"\b(?:e\.g\.|for example|for instance|such as|like)[^)]*\)?", re.IGNORECASE)
_OTHERWISE = re.compile(r"\bif (?:no|none|not)\b|\bunless\b|\bby default\b|\bdefaults? to\b", re.IGNORECASE)
_ALLOWED = re.compile(r"""\bnot in ((?:/|[A-Z]:\\)[^\s,'"]+)|\ballowed\b[^/\\'":]{0,40}['"]([^'"]+)['"]""")


def correct_arguments(arguments: Mapping[str, Any], tool: ToolSpec, conversation: str) -> dict[str, Any]:
    """Return the arguments of a call with corrected values.

    Args:
        arguments: The arguments from the model.
        tool: The called tool.
        conversation: The texts and results so far.
    """
    properties = tool.input_schema.get("properties", {})
    corrected = {name: _correct(name, value, properties.get(name), conversation) for name, value in arguments.items()}
    if _CURRENCY_CODES.search(f"{tool.description} {properties}"):
        for name in filter(_CURRENCY.search, corrected):
            corrected[name] = _find_currency_code(corrected[name])
    return correct_spelling(corrected, conversation)


def _correct(name: str, value: Any, schema: Any, conversation: str) -> Any:
    if value is True:
        return not _is_undone(name, conversation)
    if not isinstance(value, str) or not isinstance(schema, Mapping):
        return value
    about = f"{name} {schema.get('description', '')}"
    if _ZONE.search(about):
        return value if value in _load_zones().values() else _load_zones().get(_parse_city(value), value)
    if _CLOCK.search(about):
        return _to_24_hours(value, conversation)
    if _EXPRESSION.search(about):
        return _with_percentages(value, conversation)
    if is_no_address(name, value, schema):
        return find_address(value, conversation) or value
    if is_folder(name, schema) and _is_made_up_folder(value, conversation):
        return CURRENT_FOLDER
    return value if is_composed(name) else cut_addition(value, conversation)


def _with_percentages(value: str, conversation: str) -> str:
    """Return an expression in which the conversation's percentages are divided by 100: `15% of 80` is `15 / 100 * 80`.

    A number that the conversation also has without a percent sign is not changed.
    """
    written = _WRITTEN_PERCENTAGE.sub(r"\1 / 100 * ", value).removesuffix(" * ")
    percentages = _PERCENTAGE.findall(conversation)
    for percentage in dict.fromkeys(percentages):
        number = re.compile(rf"(?<![\d.]){re.escape(percentage)}(?!\.?\d)")
        if not number.search(written) or _HUNDREDTH.search(written):
            continue
        if len(number.findall(conversation)) == percentages.count(percentage):
            written = number.sub(f"{percentage} / 100", written, count=1)
    return written


def _is_undone(name: str, conversation: str) -> bool:
    """Return True if the last line of a conversation asks for the opposite of a flag: "unlock" for ``locked``."""
    opposites = {f"un{stem(word)}" for word in re.findall(r"[a-z]+", name.lower())}
    lines = conversation.rstrip().splitlines()
    return any(stem(word) in opposites for word in re.findall(r"[a-z]+", " ".join(lines[-1:]).lower()))


def _find_currency_code(name: Any) -> Any:
    first, _, last = str(name).casefold().rpartition(" ")
    return _COUNTRIES.get(first) or (_CURRENCIES.get(last) if first in ("", "us", "british") else None) or name


def _is_made_up_folder(value: str, conversation: str) -> bool:
    """Return True if the model invented a folder and the user named none. A miscopied folder does not count."""
    if _PLAIN_FOLDER.fullmatch(value):
        return True
    return not occurs_in(value, conversation) and _PATH.search(conversation) is None


def is_folder(name: str, schema: Mapping[str, Any]) -> bool:
    """Return True if an argument is a folder that may be relative."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[_-]", " ", name)
    about = f"{words} {schema.get('description', '')}"
    return _FOLDER.search(words) is not None and _ABSOLUTE.search(about) is None


def follows_as_time(value: Any, conversation: str) -> bool:
    """Return True if the conversation has the value as a time on the 12-hour clock."""
    times = (f"{found[1]}:{found[2] or '00'} {found[3]}m" for found in _TIME_OF_12_HOURS.finditer(conversation))
    return any(value == _to_24_hours(time, "") for time in times)


def is_named_in(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return True if the description of an argument quotes a value, and not only as an example."""
    description = _EXAMPLES.sub("", str(schema.get("description", "")))
    return isinstance(value, str) and value in _QUOTED.findall(description)


def find_fallback(schema: Mapping[str, Any]) -> str | None:
    """Return the value that an argument's description names as the fallback; None if it names none."""
    for sentence in _split_sentences(_EXAMPLES.sub("", str(schema.get("description", "")))):
        if _OTHERWISE.search(sentence) and (found := _QUOTED.search(sentence)):
            return found[1]
    return None


def find_allowed_folder(error: str) -> str | None:
    """Return the folder that an error names as allowed; None if it names none."""
    found = _ALLOWED.search(error)
    return next(filter(None, found.groups()), None) if found else None


def _split_sentences(text: str) -> Iterator[str]:
    yield from re.split(r"(?<=[.;])\s+", text)


@cache
def _load_zones() -> Mapping[str, str]:
    """Return the IANA names, keyed by their last parts in lower case; empty if the system has no time zones."""
    regions = ("Etc/", "US/", "Canada/", "Brazil/", "Mexico/", "Chile/", "SystemV/", "posix/", "right/")
    names = (name for name in zoneinfo.available_timezones() if not name.startswith(regions))
    return {_parse_city(name): name for name in sorted(names, key=lambda name: ("/" in name, name), reverse=True)}


def _parse_city(name: str) -> str:
    return name.rpartition("/")[2].replace(" ", "_").casefold()


def _to_24_hours(value: str, conversation: str) -> str:
    """Return a time of day as ``HH:MM``: 3:00 becomes 15:00 if the conversation has "3 pm"."""
    found = _TIME.fullmatch(value.strip())
    if found is None or int(found[1]) > 23:
        return value
    hour, minutes, half = int(found[1]), found[2] or "00", (found[3] or "").lower()
    if not half and hour <= 12:
        named = re.search(rf"\b{hour}(?::?{minutes})?\s*([ap])\.?m\b", conversation, re.IGNORECASE)
        half = named[1].lower() if named else ""
    if half and hour <= 12:
        hour = hour % 12 + (12 if half == "p" else 0)
    return f"{hour:02}:{minutes}"
