"""Renders Markdown blocks as lines of a terminal."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Literal, cast

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from dial_client.cli.markdown.block_parser import Block, Container
from dial_client.cli.markdown.formula import to_unicode
from dial_client.cli.markdown.highlighter import Highlighter
from dial_client.cli.markdown.inline_markup import parse_text, to_ansi, wrap
from dial_client.cli.markdown.themes import Theme

MIN_COLUMNS = 20
# The maximum columns of running text; wider lines are hard to read.
MAX_TEXT = 120
MAX_RULE = 60
# The minimum width of a table's column in terminal columns; a table that needs narrower columns becomes a list.
MIN_COLUMN = 4
_BULLETS = "•◦▪"
_BAR = " │ "


class BlockRenderer:
    """Renders the blocks of one message, in their order.

    Args:
        columns: The width of the terminal.
        theme: The colours.
    """

    def __init__(self, columns: int, theme: Theme) -> None:
        self.columns = max(MIN_COLUMNS, columns)
        self.has_links = True
        """Whether hyperlinks (OSC 8) are written."""
        self._theme = theme
        self._highlighter = Highlighter("", theme)
        self._table: Table | None = None

    def clone(self) -> BlockRenderer:
        """Return an independent copy of this renderer."""
        twin = copy.copy(self)
        twin._highlighter = copy.copy(self._highlighter)  # noqa: SLF001 - of the same class
        return twin

    def render(self, blocks: Iterable[Block], *, is_draft: bool = False) -> Iterator[str]:
        """Yield the lines of blocks, with escape sequences and without line breaks.

        Args:
            blocks: The next blocks of the message.
            is_draft: Break lines of code that are wider than the terminal.
        """
        for block in blocks:
            if block.gap is not None:
                yield to_ansi(self._build_bars(block.containers[: block.gap])).rstrip()
            first, rest = self._build_prefixes(block)
            is_code = block.kind == "code"
            if is_code and block.new == len(block.containers):
                first = rest = Text()  # no prefix, so that code can be copied
            rows: Iterable[Text] = self._render_block(block, cell_len(rest.plain))
            if is_code and is_draft and block.is_continued:
                rows = [piece for row in rows for piece in _chop(row, self.columns)]
            for row in rows:
                text = to_ansi(Text.assemble(first, row), has_links=self.has_links)
                yield text if is_code else text.rstrip(" ")
                first = Text() if is_code else rest

    def _render_block(self, block: Block, used: int) -> Iterator[Text]:
        """Yield the rows of a block without its prefix, which takes `used` columns."""
        room = max(MIN_COLUMNS // 2, self.columns - used)
        theme = self._theme
        match block.kind:
            case "paragraph":
                is_quoted = any(container.marker == ">" for container in block.containers)
                yield from wrap(parse_text(block.text, theme, theme.quote if is_quoted else ""), min(room, MAX_TEXT))
            case "heading":
                style = f"{theme.heading};4" if block.level == 1 else theme.heading if block.level < 4 else theme.strong
                yield from wrap(parse_text(block.text, theme, style), room)
            case "code":
                if not block.is_continued:
                    self._highlighter = Highlighter(block.language, theme)
                    label = f"╭── {block.language} " if block.language else "╭"
                    width = min(room, MAX_RULE)
                    label = set_cell_size(label, min(cell_len(label), width))
                    yield Text().append(label + "─" * (width - cell_len(label)), theme.faint)
                yield from map(self._highlighter.colour, block.text.split("\n")[:-1])
                if not block.is_open:
                    yield Text().append("╰" + "─" * (min(room, MAX_RULE) - 1), theme.faint)
            case "rule":
                yield Text().append("─" * min(room, MAX_RULE), theme.faint)
            case "formula":
                yield from (Text("    ").append_text(row) for row in wrap(Text(to_unicode(block.text)), room - 4))
            case "table":
                if not block.is_continued:
                    self._table = Table(block.rows, block.alignment, theme, room)
                assert self._table is not None
                yield from self._table.render(block.rows[1:], is_continued=block.is_continued)

    def _build_prefixes(self, block: Block) -> tuple[Text, Text]:
        """Return the prefix of the first row of a block, and the prefix of its other rows."""
        containers = block.containers
        while containers and cell_len(self._build_bars(containers).plain) > self.columns // 2:
            containers = containers[1:]
        dropped = len(block.containers) - len(containers)
        first = self._build_bars(block.containers[dropped : max(dropped, block.new)])
        for depth in range(max(dropped, block.new), len(block.containers)):
            bullets = sum(container.marker[0] in "-[" for container in block.containers[:depth])
            first.append_text(self._build_marker(block.containers[depth], bullets))
        return first, self._build_bars(containers)

    def _build_bars(self, containers: Iterable[Container]) -> Text:
        """Return the prefix of lines without a list marker."""
        bars = Text()
        for container in containers:
            marker = self._build_marker(container, 0)
            bars.append_text(marker if container.marker == ">" else Text(" " * len(marker)))
        return bars

    def _build_marker(self, container: Container, bullets: int) -> Text:
        """Return the marker of a quote or an item in `bullets` other items with bullets."""
        signs = {">": "│", "-": _BULLETS[bullets % 3], "[ ]": "☐", "[x]": "☑"}
        style = self._theme.success if container.marker == "[x]" else self._theme.marker
        return Text().append(f"{signs.get(container.marker, container.marker)} ", style or None)


def _chop(row: Text, columns: int) -> list[Text]:
    """Return a row as rows no wider than `columns`, broken at any letter."""
    row.expand_tabs(4)
    ends = list(accumulate(map(len, chop_cells(row.plain, columns))))
    return list(row.divide(ends[:-1]))


class Table:
    """A table, whose first rows determine the widths of its columns.

    With too many columns for the terminal, it is shown as a list.
    """

    def __init__(self, rows: Sequence[tuple[str, ...]], alignment: tuple[str, ...], theme: Theme, columns: int) -> None:
        self._alignment, self._theme, self._columns = alignment, theme, columns
        self._head = [parse_text(text, theme, theme.strong) for text in rows[0]]
        cells = [self._head, *([parse_text(text, theme) for text in row] for row in rows[1:])]
        natural, words = [], []
        for column in zip(*cells, strict=True):
            natural.append(max([1, *(cell_len(line) for cell in column for line in cell.plain.split("\n"))]))
            words.append(max([1, *(cell_len(word) for cell in column for word in cell.plain.split())]))
        # The widths in terminal columns; empty if the table is shown as a list.
        self._widths = _share(natural, words, columns - len(_BAR) * (len(rows[0]) - 1))

    def render(self, rows: Iterable[tuple[str, ...]], *, is_continued: bool) -> Iterator[Text]:
        """Yield terminal rows for rows of the body, after those of the head unless the table is continued.

        A line precedes each row with wrapped cells, except the first.
        """
        if self._widths and not is_continued:
            yield from self._render_row(self._head)
            yield self._draw_line("─", "─┼─")
        for row in rows:
            cells = [parse_text(text, self._theme) for text in row]
            if not self._widths:
                yield from self._render_list(cells, is_first=not is_continued)
            else:
                table_row = self._render_row(cells)
                if is_continued and len(table_row) > 1:
                    yield self._draw_line("┄", "┄┼┄")
                yield from table_row
            is_continued = True

    def _draw_line(self, line: str, crossing: str) -> Text:
        return Text().append(crossing.join(line * width for width in self._widths), self._theme.faint)

    def _render_row(self, cells: list[Text]) -> list[Text]:
        """Return one table row as terminal rows."""
        columns = [wrap(cell, width) for cell, width in zip(cells, self._widths, strict=True)]
        bar = Text().append(_BAR, self._theme.faint)
        rows = []
        for index in range(max(map(len, columns))):
            parts = [column[index].copy() if index < len(column) else Text() for column in columns]
            for part, alignment, width in zip(parts, self._alignment, self._widths, strict=True):
                part.align(cast("Literal['left', 'center', 'right']", alignment), width)
            rows.append(bar.join(parts))
        return rows

    def _render_list(self, cells: list[Text], *, is_first: bool) -> Iterator[Text]:
        """Yield a table row as a list: for each cell the name of its column, and its content."""
        if not is_first:
            yield Text().append("─" * min(20, self._columns), self._theme.faint)
        for label, cell in zip(self._head, cells, strict=True):
            yield from wrap(Text.assemble(label, (": ", self._theme.strong), cell), self._columns)


def _share(natural: list[int], words: list[int], room: int) -> tuple[int, ...]:
    """Return the widths of the columns: narrow columns get their natural width, wide columns share the rest."""
    if room < MIN_COLUMN * len(natural) and room < sum(natural):
        return ()
    widths = list(map(min, natural, words))
    if sum(widths) > room:
        widths = [min(width, MIN_COLUMN) for width in natural]
    for _ in range(min(room, sum(natural)) - sum(widths)):
        # The narrowest columns grow first: a column of words next to a column of sentences keeps its words whole.
        growing = (index for index, width in enumerate(widths) if width < natural[index])
        widths[min(growing, key=widths.__getitem__)] += 1
    return tuple(widths)
