"""Syntax highlighting, line by line: Pygments reads each line once, with the lexer state after the previous line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from dial_client.cli.markdown.text_layout import Span
from dial_client.cli.markdown.themes import Theme

MAX_LINE = 1_000
"""The maximum characters of a line that is coloured; a longer line is data rather than code."""
_C_COMMENT = ("/*", "*/", "Comment")
_SPANNING = {
    **dict.fromkeys(
        ("c", "c++", "cpp", "java", "javascript", "typescript", "tsx", "jsx", "rust", "c#", "kotlin"), _C_COMMENT
    ),
    **dict.fromkeys(
        ("swift", "scala", "php", "css", "scss", "sql", "dart", "groovy", "objective-c", "zig"), _C_COMMENT
    ),
    "go": ("`", "`", "String"),
    "html": ("<!--", "-->", "Comment"),
    "xml": ("<!--", "-->", "Comment"),
    "lua": ("--[[", "]]", "Comment"),
    "haskell": ("{-", "-}", "Comment"),
}
"""The start, end and kind of comments and strings over several lines, which lexers match only as a whole."""
_SLOW = frozenset(("scala", "julia", "jl", "matlab"))
"""Languages that are not coloured, because compiling the rules of their lexers would delay the answer by 100 ms."""
_ALIASES = {
    "jsonc": "json",
    "json5": "json",
    "shell": "bash",
    "terminal": "console",
    "py3": "python",
    "node": "javascript",
}


class Highlighter:
    """Colours the lines of one code block.

    Args:
        language: The language that the fence names; code in an unknown language is not coloured.
        theme: The colours.
    """

    def __init__(self, language: str, theme: Theme, stack: tuple[str, ...] = ("root",), end: str = "") -> None:
        self._language = language
        self._theme = theme
        self._stack = stack
        self._end = end
        """The end mark of a comment or string that an earlier line began; empty if there is none."""

    def clone(self) -> Highlighter:
        """Return an independent copy of this highlighter."""
        return Highlighter(self._language, self._theme, self._stack, self._end)

    def colour(self, line: str) -> list[Span]:
        """Return the next line of the block as spans."""
        lexer = _find_lexer(self._language) if self._theme.tokens else None
        if lexer is None or len(line) > MAX_LINE:
            return [Span(line)]
        return [Span(text, _choose_style(kind, self._theme)) for kind, text in self._split(lexer, line) if text]

    def _split(self, lexer: Any, line: str) -> Iterator[tuple[str, str]]:
        """Yield the parts of a line with their kinds."""
        spanning = _SPANNING.get(lexer.name.lower())
        if self._end and spanning is not None:
            inside, end, line = line.partition(self._end)
            yield spanning[2], inside + end
            if not end:
                return
            self._end = ""
        tokens, stack = _lex(lexer, line, self._stack)
        start = _find_open(tokens, line, *spanning) if spanning is not None else -1
        if start >= 0 and spanning is not None:
            tokens, stack = _lex(lexer, line[:start], self._stack)
            tokens.append((spanning[2], line[start:]))
            self._end = spanning[1]
        self._stack = stack
        yield from tokens


def _find_open(tokens: list[tuple[str, str]], line: str, start: str, end: str, _: str) -> int:
    """Return the index of a comment or string that begins in the line but does not end in it; -1 if there is none."""
    if start not in line:
        return -1
    at = skip = 0
    for kind, text in tokens:
        if at >= skip and (found := line.find(start, at, at + len(text) + len(start) - 1)) >= 0:
            is_inside_token = kind.startswith(("String", "Comment")) and found > at
            if not is_inside_token:
                close = line.find(end, found + len(start))
                if close < 0:
                    return found if not kind.startswith("Comment.Single") else -1
                skip = close + len(end)
        at += len(text)
    return -1


def _lex(lexer: Any, line: str, stack: tuple[str, ...]) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Return the parts of a line with their kinds, and the state of the lexer after the line."""
    from pygments.lexer import ExtendedRegexLexer, LexerContext, RegexLexer

    source = f"{line}\n"
    try:
        if not isinstance(lexer, RegexLexer) or isinstance(lexer, ExtendedRegexLexer):
            found = list(lexer.get_tokens_unprocessed(source))
        else:
            context = LexerContext(source, 0, list(stack))
            # Only this class accepts a state; its method works for every lexer whose rules are regular expressions.
            found = list(ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context))
            stack = tuple(context.stack[-20:])
    except Exception:  # noqa: BLE001 - an error in a lexer must not prevent the answer
        return [("", line)], ("root",)
    kinds = (str(kind).removeprefix("Token.").removeprefix("Literal.") for _, kind, _ in found)
    parts = [(kind, text.replace("\n", "")) for kind, (_, _, text) in zip(kinds, found, strict=True)]
    is_whole = "".join(text for _, text in parts) == line
    return (parts if is_whole else [("", line)]), stack


@cache
def _find_lexer(language: str) -> Any:
    """Return the lexer of a language; None if there is none."""
    if not language or language in _SLOW:
        return None
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(_ALIASES.get(language, language))
    except ClassNotFound:
        return None


def _choose_style(kind: str, theme: Theme) -> str:
    """Return the style of a kind, or of its nearest parent kind: ``Name.Function.Magic``, ``Name.Function``."""
    while kind:
        if kind in theme.tokens:
            return theme.tokens[kind]
        kind = kind.rpartition(".")[0]
    return ""
