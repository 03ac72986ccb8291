"""Syntax highlighting, line by line: Pygments reads each line once, with the lexer state after the previous line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from rich.text import Text

from dial_client.cli.markdown.themes import Theme

# The maximum characters of a line that is coloured; a longer line is data rather than code.
MAX_LINE = 1_000
_SPANNING = {
    "go": ("`", "`", "String"),
    "html": ("<!--", "-->", "Comment"),
    "xml": ("<!--", "-->", "Comment"),
    "lua": ("--[[", "]]", "Comment"),
    "haskell": ("{-", "-}", "Comment"),
}
_C_LIKE = "c c++ cpp java javascript typescript tsx jsx rust c# kotlin swift scala php css scss sql dart groovy zig"
_SPANNING |= dict.fromkeys([*_C_LIKE.split(), "objective-c"], ("/*", "*/", "Comment"))
"""The start, end and kind of comments and strings over several lines, which lexers match only as a whole."""
# Languages that are not coloured, because compiling the rules of their lexers would delay the answer by 100 ms.
_SLOW = frozenset(("scala", "julia", "jl", "matlab"))
_ALIASES = {"jsonc": "json", "json5": "json", "shell": "bash", "terminal": "console", "node": "javascript"}


class Highlighter:
    """Colours the lines of one code block.

    Args:
        language: The language that the fence names; code in an unknown language is not coloured.
        theme: The colours.
    """

    def __init__(self, language: str, theme: Theme) -> None:
        self._lexer: Any = _find_lexer(language) if theme.tokens else None
        self._theme = theme
        # The state of the lexer.
        self._stack: tuple[str, ...] = ("root",)
        # The end mark of a comment or string that an earlier line began; empty if there is none.
        self._end = ""

    def colour(self, line: str) -> Text:
        """Return the next line of the block with its colours."""
        if self._lexer is None or len(line) > MAX_LINE:
            return Text(line)
        text = Text()
        for kind, part in self._split(line):
            known = kind
            while known and known not in self._theme.tokens:  # ``Name.Function.Magic`` looks like ``Name.Function``
                known = known.rpartition(".")[0]
            text.append(part, self._theme.tokens.get(known) or None)
        return text if text.plain == line else Text(line)

    def _split(self, line: str) -> Iterator[tuple[str, str]]:
        """Yield the parts of a line with their kinds."""
        start, end, kind = _SPANNING.get(self._lexer.name.lower(), ("", "", ""))
        if self._end:
            inside, mark, line = line.partition(self._end)
            yield kind, inside + mark
            if not mark:
                return
            self._end = ""
        parts, stack = _lex(self._lexer, line, self._stack)
        if start and start in line and (opened := self._find_open(line, end, kind)) is not None:
            parts, stack = _lex(self._lexer, line[:opened], self._stack)
            parts.append((kind, line[opened:]))
            self._end = end
        self._stack = stack
        yield from parts

    def _find_open(self, line: str, end: str, kind: str) -> int | None:
        """Return the index of the comment or string that a further line with its end mark would complete."""
        position = 0
        for found, part in _lex(self._lexer, f"{line}\n{end}", self._stack)[0]:
            if position < len(line) < position + len(part) and found.startswith(kind):
                return position
            position += len(part)
        return None


def _lex(lexer: Any, source: str, stack: tuple[str, ...]) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Return the parts of a text with their kinds, and the state of the lexer after the text."""
    from pygments.lexer import ExtendedRegexLexer, LexerContext, RegexLexer

    source = f"{source}\n"
    try:
        if not isinstance(lexer, RegexLexer) or isinstance(lexer, ExtendedRegexLexer):
            tokens = list(lexer.get_tokens_unprocessed(source))
        else:
            context = LexerContext(source, 0, list(stack))
            # Only this class accepts a state; its method works for every lexer whose rules are regular expressions.
            tokens = list(ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context))
            stack = tuple(context.stack[-20:])
    except Exception:  # noqa: BLE001 - an error in a lexer must not prevent the answer
        return [("", source[:-1])], ("root",)
    parts = [(str(kind).removeprefix("Token.").removeprefix("Literal."), text) for _, kind, text in tokens]
    if parts and parts[-1][1].endswith("\n"):
        parts[-1] = (parts[-1][0], parts[-1][1][:-1])
    return parts, stack


@cache
def _find_lexer(language: str) -> Any:
    """Return the lexer of a language; None if there is none."""
    if language in _SLOW:
        return None
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(_ALIASES.get(language, language))
    except ClassNotFound:
        return None
