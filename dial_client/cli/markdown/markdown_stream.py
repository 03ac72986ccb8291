"""Renders one answer of the model as it streams: complete blocks, and a draft of the incomplete block."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from dial_client.cli.markdown.block_parser import Block, BlockParser
from dial_client.cli.markdown.themes import ANSI, Theme
from dial_client.runtime.safe_text import SafeStream

# The maximum characters of a line of text; a longer line is cut at a space. Lines of code are never cut.
MAX_LINE = 3_000
# The beginning of a line that may still become something other than text.
_BEGINNING = re.compile(r"[\s>]*(?:[-*+=~_|$]{1,6}|#{1,6}|`{1,3}|(?:`{3}|~{3})[\w+#.-]*|[0-9]{1,9}[.)]?)?\s*\Z")
_OPEN_LINK = re.compile(r"!?\[([^\]\[]*)\]\([^)\s]*\Z")
_MARK = re.compile(r"\\.|(`+|\*{1,3}|~~)")


class MarkdownStream:
    """Renders one message.

    Args:
        columns: Returns the width of the terminal.
        theme: The colours.
    """

    def __init__(self, columns: Callable[[], int], theme: Theme) -> None:
        from dial_client.cli.markdown.block_renderer import BlockRenderer

        self._columns = columns
        self._safe_text = SafeStream()
        self._parser = BlockParser()
        self._renderer = BlockRenderer(columns(), theme)
        # The pieces of the incomplete last line.
        self._pieces: list[str] = []
        self._length = 0

    def feed(self, text: str) -> str:
        """Add a piece of the message; return text that became final: whole lines with ANSI sequences, or nothing."""
        return self._feed_safe(self._safe_text.feed(text))

    def draft(self, rows: int) -> str:
        """Return the last rows of the unfinished block as it looks now, at most `rows`."""
        renderer = self._renderer.clone()
        renderer.columns, renderer.has_links = self._columns(), False
        line = "".join(self._pieces)
        if self._parser.is_in_code:
            # Cut whole rows, so that rows of the draft begin at the same letters while the line grows.
            above = max(0, -(-len(line) // renderer.columns) - rows) * renderer.columns
            blocks = self._parser.clone().feed(line[above:]) if line else []
        else:
            parser = self._parser.clone()
            blocks = [] if _BEGINNING.match(line) else parser.feed(close_markup(line))
            blocks += parser.finish()
        lines = list(renderer.render(blocks, is_draft=True))
        return "\n".join(lines[-rows:] if rows > 0 else [])

    def finish(self) -> str:
        """End the message, and return the remaining text as whole lines."""
        printed = self._feed_safe(self._safe_text.finish())
        if self._length:
            printed += self._feed_safe("\n")
        return printed + self._render(self._parser.finish())

    def _feed_safe(self, text: str) -> str:
        *lines, rest = text.split("\n")
        blocks: list[Block] = []
        for line in lines:
            whole = self._cut("".join((*self._pieces, line)), blocks)
            blocks += self._parser.feed(whole)
            self._pieces, self._length = [], 0
        if rest:
            self._pieces.append(rest)
            self._length += len(rest)
        if self._length > MAX_LINE and not self._parser.is_in_code:
            self._pieces = [self._cut("".join(self._pieces), blocks)]
            self._length = len(self._pieces[0])
        return self._render(blocks)

    def _cut(self, line: str, blocks: list[Block]) -> str:
        """Pass pieces of a line that is too long to the parser, and return the rest of the line."""
        while len(line) > MAX_LINE and not self._parser.is_in_code:
            end = line.rfind(" ", MAX_LINE // 2, MAX_LINE)
            end = MAX_LINE if end < 0 else end
            blocks += self._parser.feed(line[:end])
            line = line[end:]
        return line

    def _render(self, blocks: list[Block]) -> str:
        if not blocks:
            return ""
        self._renderer.columns = self._columns()
        return "".join(f"{line}\n" for line in self._renderer.render(blocks))


@cache
def prepare() -> None:
    """Import the parsers and compile their rules, so that the first answer does not wait for these 150 ms of CPU."""
    stream = MarkdownStream(lambda: 80, ANSI)
    stream.feed("**日本** $x$\n\n| a |\n|---|\n\n```python\nx\n```\n")
    stream.draft(1)
    stream.finish()


def close_markup(line: str) -> str:
    """Return an incomplete line with its open emphasis and code closed, so that a word changes its style once."""
    line = _OPEN_LINK.sub(r"\1", line)
    marks: list[str] = []
    end = len(line)
    for found in _MARK.finditer(line):
        mark = found[1]
        if mark is None or (marks and marks[-1][0] == "`" and mark != marks[-1]):
            continue
        if marks and marks[-1] == mark:
            marks.pop()
        elif found.end() == len(line):
            end = found.start()
        elif not line[found.end()].isspace():
            marks.append(mark)
    return line[:end] + "".join(reversed(marks))
