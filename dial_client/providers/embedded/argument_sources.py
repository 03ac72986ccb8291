"""Where the values of a call come from: a model of half a billion parameters invents values that nobody has named.

* A value has its source in the conversation: all its numbers, and half of its words by their first letters. A value
  that the argument's description quotes counts. Words of the request that only name the argument do not count.
* A folder without a source is the current one, and a city becomes the name of its time zone.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache
from typing import Any

from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.providers.embedded.decisions import load_prompts
from dial_client.runtime.json_fields import to_object
from dial_client.runtime.normalization import find_significant_stem, fold, split_name

# The folder that a server runs in: the user's current folder, unless its entry in servers.json has a ``cwd``.
CURRENT_FOLDER = "."

# Two or more letters.
WORD = re.compile(r"[^\W\d_]{2,}")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_AFTERNOON = re.compile(r"\b(\d{1,2})(?::\d\d)?\s*p\.?m\b", re.IGNORECASE)
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:%|per ?cent)", re.IGNORECASE)
# The words for 0, 1, 2 and so on.
_NUMBER_WORDS = load_prompts()["number_words"].split()
# Values that must occur as they are: paths, URLs and addresses.
_WHOLE = re.compile(r"[/~]|[a-z]:\\|[a-z]+://|.*@", re.IGNORECASE)
_PATH = re.compile(r"(?:^|[\s'\"])(?:[~.]?/|[A-Z]:\\)[\w.-]", re.MULTILINE)
_QUOTED = re.compile(r"""["'`]([^"'`\s]{1,60})["'`]""")
_EXAMPLES = re.compile(r"\b(?:e\.g\.|for example|for instance|such as|like)[^)]*\)?", re.IGNORECASE)
_FOLDERS = {"repo", "repository", "dir", "directory", "folder", "workspace", "cwd"}
_FIRST_LETTERS = 3


class ArgumentSources:
    """Finds the sources of the values of a call, and corrects the values that are certain.

    Args:
        texts: The texts of the conversation that are not the model's own.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = "\n".join(texts)

    def correct(self, call: ToolCallRequest, tool: ToolSpec) -> ToolCallRequest:
        """Return the call with the values that are certain: time zones, the current folder, the only quoted value."""
        arguments = dict(call.arguments)
        for name, value in arguments.items():
            about = str(to_object(tool.input_schema.get("properties", {}).get(name)).get("description", ""))
            if isinstance(value, str) and re.search(r"\bIANA\b|time[ _]?zone", f"{name} {about}", re.IGNORECASE):
                arguments[name] = _load_zones().get(value) or _load_zones().get(_get_city(value), value)
            if not self._has_source(name, arguments[name], tool):
                if _is_folder(name) and "absolute" not in about.lower() and not _PATH.search(self._text):
                    arguments[name] = CURRENT_FOLDER
                elif len(quoted := _find_quoted(about)) == 1:
                    arguments[name] = quoted[0]
        return replace(call, arguments=arguments)

    def find_missing(self, call: ToolCallRequest, tool: ToolSpec) -> list[str]:
        """Return the required arguments whose values have no source."""
        required = tool.input_schema.get("required", ())
        return [name for name in required if not self._has_source(name, call.arguments.get(name), tool)]

    def _has_source(self, name: str, value: Any, tool: ToolSpec) -> bool:
        schema = tool.input_schema.get("properties", {}).get(name)
        if not isinstance(schema, Mapping) or "enum" in schema or isinstance(value, bool):
            return True
        if (value == CURRENT_FOLDER and _is_folder(name)) or ("default" in schema and value == schema["default"]):
            return True
        about, text = str(schema.get("description", "")), fold(str(value))
        if text in map(fold, _find_quoted(about)):
            return True
        if _WHOLE.match(text):
            return text.rstrip("/") in fold(self._text)
        naming = (*split_name(name), *split_name(tool.name), *WORD.findall(_EXAMPLES.sub("", about)))
        return self.has_value(text, {fold(word) for word in naming})

    def has_value(self, value: str, naming: AbstractSet[str] = frozenset()) -> bool:
        """Return True if the conversation has a value's numbers and half of its words, without those in `naming`."""
        numbers = {float(number) for number in _NUMBER.findall(value)}
        words = [word for word in WORD.findall(fold(value)) if word not in naming and find_significant_stem(word)]
        beginnings = {word[:_FIRST_LETTERS] for word in WORD.findall(fold(self._text)) if word not in naming}
        known = sum(word[:_FIRST_LETTERS] in beginnings for word in words)
        return bool(words or numbers) and numbers <= self._numbers() and known * 2 >= len(words)

    def _numbers(self) -> set[float]:
        """Return the numbers of the conversation, with percentages as fractions, and hours on the 24-hour clock."""
        text = re.sub(r"(?<=\d),(?=\d{3})", "", self._text)
        found = {float(number) for number in _NUMBER.findall(text)} | {0.0, 100.0}
        found |= {float(percentage) / 100 for percentage in _PERCENTAGE.findall(text)}
        found |= {float(hour) % 12 + 12 for hour in _AFTERNOON.findall(text)}
        words = set(WORD.findall(text.lower()))
        return found | {float(number) for number, word in enumerate(_NUMBER_WORDS) if word in words}


def _is_folder(name: str) -> bool:
    return not _FOLDERS.isdisjoint(split_name(name))


def _find_quoted(description: str) -> list[str]:
    """Return the values that the description of an argument quotes, but not as examples."""
    return _QUOTED.findall(_EXAMPLES.sub("", description))


@cache
def _load_zones() -> Mapping[str, str]:
    """Return the IANA names, keyed by themselves and by their cities without accents; empty without time zones."""
    regions = ("Etc/", "US/", "Canada/", "Brazil/", "Mexico/", "Chile/", "SystemV/", "posix/", "right/")
    names = sorted(zoneinfo.available_timezones(), key=lambda name: ("/" in name, name), reverse=True)
    return {_get_city(name): name for name in names if not name.startswith(regions)} | {name: name for name in names}


def _get_city(name: str) -> str:
    return fold(name.rpartition("/")[2].split(",")[0].strip().replace(" ", "_"))
