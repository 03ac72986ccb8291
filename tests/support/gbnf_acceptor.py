"""Reads GBNF far enough to say whether a text is of a grammar: rules, strings, classes, groups, ``|``, ``?``, ``*``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Match = Callable[[str, int], Iterator[int]]
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z][\w-]*|[|()?*])')


def accepts(grammar: str, text: str) -> bool:
    """Whether the whole text is of the grammar."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    made: dict[str, Match] = {}

    def rule(name: str) -> Match:
        def match(text: str, at: int) -> Iterator[int]:
            if name not in made:
                made[name] = _Parser(rules[name], rule).choice()
            return made[name](text, at)

        return match

    return any(end == len(text) for end in rule("root")(text, 0))


class _Parser:
    def __init__(self, body: str, rule: Callable[[str], Match]) -> None:
        assert not _TOKEN.sub("", body).strip(), body
        self.tokens = _TOKEN.findall(body)
        self.rule = rule

    def choice(self) -> Match:
        options = [self.sequence()]
        while self.tokens and self.tokens[0] == "|":
            self.tokens.pop(0)
            options.append(self.sequence())

        def match(text: str, at: int) -> Iterator[int]:
            for option in options:
                yield from option(text, at)

        return match

    def sequence(self) -> Match:
        parts = []
        while self.tokens and self.tokens[0] not in ("|", ")"):
            parts.append(self.part())
        return lambda text, at: _follow(parts, text, at)

    def part(self) -> Match:
        token = self.tokens.pop(0)
        if token == "(":
            item = self.choice()
            assert self.tokens.pop(0) == ")"
        elif token[0] in '"[':
            item = _terminal(token)
        else:
            item = self.rule(token)
        sign = self.tokens.pop(0) if self.tokens and self.tokens[0] in ("?", "*") else ""
        return _repeated(item, sign) if sign else item


def _follow(parts: list[Match], text: str, at: int) -> Iterator[int]:
    if not parts:
        yield at
        return
    for end in parts[0](text, at):
        yield from _follow(parts[1:], text, end)


def _terminal(token: str) -> Match:
    if token[0] == "[":
        pattern = re.compile(token)
    else:
        pattern = re.compile(re.escape(re.sub(r"\\(U[0-9A-F]{8}|.)", lambda found: _plain(found[1]), token[1:-1])))

    def match(text: str, at: int) -> Iterator[int]:
        if found := pattern.match(text, at):
            yield found.end()

    return match


def _plain(escape: str) -> str:
    known = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
    return chr(int(escape[1:], 16)) if escape[0] == "U" and len(escape) == 9 else known[escape]


def _repeated(item: Match, sign: str) -> Match:
    def match(text: str, at: int) -> Iterator[int]:
        for end in item(text, at):
            if sign == "*" and end > at:
                yield from match(text, end)
            else:
                yield end
        yield at

    return match
