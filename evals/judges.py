"""Automatic judges of an answer: they run its code, parse its JSON, and search the conversation for its statements."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

CODE_TIMEOUT = 10.0
"""Timeout in seconds for the code of an answer."""

_FENCE = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
_CUT = re.compile(r"[:,{(\[]\s*$")
_ITEM = re.compile(r"^\s*(?:#{1,6}\s+)?(?:\*\*)?(?:[-*•]|\d+[.)])\s+\S", re.MULTILINE)
_ROW = re.compile(r"^\s*\|(.+)\|\s*$", re.MULTILINE)
_RUN = """
import types
names = {}
exec(compile(CODE, "answer", "exec"), names)
f = [value for value in names.values() if isinstance(value, types.FunctionType)][0]
"""


def is_whole(text: str) -> bool:
    """Return True if an answer is complete: it is not empty, closes its fences, and does not end in a colon."""
    return bool(text.strip()) and text.count("```") % 2 == 0 and _CUT.search(text) is None


def faults(text: str, check: Mapping[str, Any]) -> list[str]:
    """Return the names of the checks that an answer fails, including ``whole``."""
    failed = [] if is_whole(text) else ["whole"]
    return failed + [name for name, expected in check.items() if not CHECKS[name](text, expected)]


def _runs(text: str, assertion: str) -> bool:
    """Return True if the Python code of an answer satisfies an assertion about ``f``, its first function."""
    blocks = [block for block in _FENCE.findall(text) if "def " in block] or [text]
    program = f"CODE = {blocks[0]!r}\n{_RUN}\n{assertion}\n"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", program],
            timeout=CODE_TIMEOUT,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def json_values(text: str) -> Iterator[dict[str, Any] | list[Any]]:
    """Yield the JSON objects and arrays in a text, in order."""
    decoder = json.JSONDecoder()
    at = 0
    while found := re.compile(r"[\[{]").search(text, at):
        try:
            value, at = decoder.raw_decode(text, found.start())
        except ValueError:
            at = found.end()
        else:
            yield value


def _has_json(text: str, expected: Mapping[str, Any]) -> bool:
    kinds: Mapping[str, tuple[type, ...]] = {"object": (dict,), "array": (list,), "any": (dict, list)}
    values: list[Any] = [value for value in json_values(text) if isinstance(value, kinds[expected["type"]])]
    return any(len(v) >= expected.get("min", 1) and all(key in v for key in expected.get("keys", ())) for v in values)


def _has_table(text: str, size: Sequence[int]) -> bool:
    rows = [row.split("|") for row in _ROW.findall(text)]
    return len(rows) >= size[0] + 2 and all(len(row) >= size[1] for row in rows)


def _says(text: str, patterns: Sequence[str]) -> bool:
    return all(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)


CHECKS: Mapping[str, Callable[[str, Any], bool]] = {
    "says": _says,
    "never": lambda text, patterns: not any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns),
    "python": _runs,
    "json": _has_json,
    "table": _has_table,
    "items": lambda text, least: len(_ITEM.findall(text)) >= least,
    "words": lambda text, limits: limits[0] <= len(text.split()) <= limits[1],
    "lines": lambda text, limits: limits[0] <= sum(bool(line.strip()) for line in text.splitlines()) <= limits[1],
}
"""The checks of an answer: patterns that it must or must not have; code that satisfies an assertion; a JSON value; a
Markdown table of at least ``[rows, columns]``; a minimum of list items; ``[minimum, maximum]`` words or non-empty
lines."""

_ADMITS = re.compile(
    r"\b(?:fail|error|could ?n[o']t|could not|can ?not|can't|unable|not (?:able|found|known|available|possible)"
    r"|no such|does ?n[o']t exist|does not exist|do(?:es)? not (?:know|have)|don't (?:know|have)|sorry|denied"
    r"|refused|did not (?:answer|work)|is locked|unavailable|unauthorized|invalid)",
    re.IGNORECASE,
)
_ASKS = re.compile(r"\?|\b(?:which|please|tell me|provide|specify|need|missing|let me know)\b", re.IGNORECASE)
_INSTRUCTS = re.compile(
    r"\byou (?:can|could|may|need to|should)\b|\bto (?:find|check|determine|see|view)\b", re.IGNORECASE
)
_CONNECTS = re.compile(r"dial-chat init|\bconnect|\bMCP server", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_NUMBERING = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+(?: [A-Z][a-z]+)*")
_PATH = re.compile(r"(?:/[\w.-]+){2,}|[\w.-]+@[\w.-]+")
_ORDINARY_NAMES = frozenset({"I", "Please", "Error", "The", "Internet", "Python", "Git", "English", "Unfortunately"})


def admits(text: str) -> bool:
    """Return True if an answer says that something failed or is not known."""
    return _ADMITS.search(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")) is not None


def asks_back(text: str) -> bool:
    """Return True if an answer asks for missing information."""
    return _ASKS.search(text) is not None


def instructs(text: str) -> bool:
    """Return True if an answer says how the user can find out."""
    return _INSTRUCTS.search(text) is not None


def connects(text: str) -> bool:
    """Return True if an answer says that a server can be connected."""
    return _CONNECTS.search(text) is not None


def inventions(text: str, known: str) -> list[str]:
    """Return the numbers, names, paths and addresses of an answer that `known` does not contain."""
    lowered = known.lower()
    plain = _NUMBERING.sub("", text)
    digits = set(re.findall(r"\d+", known))
    found = [number for number in _NUMBER.findall(plain) if not set(re.findall(r"\d+", number)) <= digits]
    found += [name for name in _NAME.findall(plain) if name not in _ORDINARY_NAMES and name.lower() not in lowered]
    return found + [path for path in _PATH.findall(plain) if path.lower() not in lowered]
