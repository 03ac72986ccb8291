"""The texts of a JavaScript module: its string literals and templates, found without a parser's library."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*[^]*?\*/)"""
    r"""|(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>[\w$]+)|(?P<space>\s+)|(?P<mark>[^])""".replace("[^]", r"[\s\S]")
)
_PATTERN = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[a-z]*")
# Behind these a slash begins a regular expression, and behind other words and closing brackets it divides.
_BEFORE_PATTERN = {"return", "typeof", "case", "of", "in"}


class Text(NamedTuple):
    """A string or a template with its values left out."""

    line: int
    value: str
    before: str
    """The code of the line before the text."""


def find_texts(source: str) -> list[Text]:
    """Return the strings and templates of a module, in the order of their ends."""
    texts: list[Text] = []
    _read_code(source, 0, texts)
    return texts


def _read_code(source: str, at: int, texts: list[Text]) -> int:
    """Read code up to its end, or to the brace that closes a value of a template; return the place behind it."""
    depth = 0
    last = ""
    while at < len(source):
        if source[at] == "`":
            at = _read_template(source, at, texts)
            last = "`"
            continue
        is_value = bool(re.match(r"[\w$)\]}`\"']", last[-1:])) and last not in _BEFORE_PATTERN
        if source[at] == "/" and not is_value and (pattern := _PATTERN.match(source, at)):
            at, last = pattern.end(), ")"
            continue
        token = _TOKEN.match(source, at)
        assert token is not None
        if token["string"]:
            texts.append(_at(source, at, token["string"][1:-1]))
        if token["mark"] == "}" and depth == 0:
            return token.end()
        depth += {"{": 1, "}": -1}.get(token["mark"] or "", 0)
        if not token["comment"] and not token["space"]:
            last = token[0]
        at = token.end()
    return at


def _read_template(source: str, start: int, texts: list[Text]) -> int:
    parts: list[str] = []
    at = start + 1
    while source[at] != "`":
        if source[at] == "\\":
            parts.append(source[at : at + 2])
            at += 2
        elif source.startswith("${", at):
            parts.append("${}")
            at = _read_code(source, at + 2, texts)
        else:
            parts.append(source[at])
            at += 1
    texts.append(_at(source, start, "".join(parts)))
    return at + 1


def _at(source: str, at: int, value: str) -> Text:
    begin = source.rfind("\n", 0, at) + 1
    return Text(source.count("\n", 0, at) + 1, value, source[begin:at])
