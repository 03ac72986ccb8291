"""Layout of tables in a terminal: cells are wrapped to fit its width; a table with too many columns becomes a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dial_client.cli.markdown.inline_markup import parse_spans
from dial_client.cli.markdown.text_layout import Span, TextRow, measure_width, to_plain, wrap
from dial_client.cli.markdown.themes import Theme

MIN_COLUMN = 4
"""The minimum width of a column in terminal columns; a table that needs narrower columns becomes a list."""
_BAR = " │ "
_CROSS = "─┼─"


@dataclass(frozen=True, slots=True)
class _Cell:
    spans: tuple[Span, ...]
    width: int
    """The width of its widest line, without wrapping."""
    word: int
    """The width of its widest word."""


@dataclass(frozen=True, slots=True)
class Table:
    """The layout of a table's columns."""

    head: tuple[str, ...]
    alignment: tuple[str, ...]
    widths: tuple[int, ...]
    """The widths in terminal columns; empty if the table is shown as a list."""
    theme: Theme
    columns: int
    """The width of the terminal."""

    @classmethod
    def fit(cls, rows: Sequence[tuple[str, ...]], alignment: tuple[str, ...], theme: Theme, columns: int) -> Table:
        """Return the column layout that fits these rows."""
        head, *body = rows
        cells = [[_build_cell(text, theme, theme.strong) for text in head]]
        cells += [[_build_cell(text, theme) for text in row] for row in body]
        natural = [max(1, *(row[at].width for row in cells)) for at in range(len(head))]
        words = [max(1, *(row[at].word for row in cells)) for at in range(len(head))]
        room = columns - len(_BAR) * (len(head) - 1)
        return cls(head, alignment, _share(natural, words, room), theme, columns)

    def begin(self) -> Iterator[TextRow]:
        """Yield the rows of the head."""
        if self.widths:
            yield from self._render_row([_build_cell(text, self.theme, self.theme.strong) for text in self.head])
            yield [Span(_CROSS.join("─" * width for width in self.widths), self.theme.faint)]

    def render_body(self, rows: Iterable[tuple[str, ...]], *, is_first: bool = True) -> Iterator[TextRow]:
        """Yield terminal rows for rows of the body. A line precedes each row with wrapped cells, except the first."""
        for row in rows:
            cells = [_build_cell(text, self.theme) for text in row]
            if not self.widths:
                yield from self._render_list(cells, is_first=is_first)
            else:
                if not is_first and self._has_wrapped_cells(cells):
                    yield [Span("┄┼┄".join("┄" * width for width in self.widths), self.theme.faint)]
                yield from self._render_row(cells)
            is_first = False

    def _has_wrapped_cells(self, cells: list[_Cell]) -> bool:
        return any(
            cell.width > width or "\n" in to_plain(cell.spans) for cell, width in zip(cells, self.widths, strict=True)
        )

    def _render_row(self, cells: list[_Cell]) -> Iterator[TextRow]:
        """Yield one table row as terminal rows."""
        columns = [wrap(cell.spans, width) for cell, width in zip(cells, self.widths, strict=True)]
        bar = Span(_BAR, self.theme.faint)
        for at in range(max(map(len, columns))):
            line: TextRow = []
            for column, (lines, width) in enumerate(zip(columns, self.widths, strict=True)):
                content = lines[at] if at < len(lines) else []
                line += [bar] if column else []
                line += _align(content, width, self.alignment[column])
            yield line

    def _render_list(self, cells: list[_Cell], *, is_first: bool) -> Iterator[TextRow]:
        """Yield a table row as a list: for each cell the name of its column, and its content."""
        if not is_first:
            yield [Span("─" * min(20, self.columns), self.theme.faint)]
        for name, cell in zip(self.head, cells, strict=True):
            label = _build_cell(name, self.theme, self.theme.strong).spans
            yield from wrap([*label, Span(": ", self.theme.strong), *cell.spans], self.columns)


@lru_cache(2_048)
def _build_cell(text: str, theme: Theme, style: str = "") -> _Cell:
    spans = tuple(parse_spans(text, theme, style))
    lines = wrap(spans, 1_000_000)
    words = to_plain(spans).split()
    return _Cell(spans, max(map(measure_width, lines)), max((measure_width([Span(word)]) for word in words), default=0))


def _align(content: TextRow, width: int, alignment: str) -> TextRow:
    free = max(0, width - measure_width(content))
    left = {"<": 0, ">": free, "^": free // 2}[alignment]
    return [Span(" " * left), *content, Span(" " * (free - left))]


def _share(natural: list[int], words: list[int], room: int) -> tuple[int, ...]:
    """Return the widths of the columns: narrow columns get their natural width, wide columns share the rest."""
    if room < MIN_COLUMN * len(natural) and room < sum(natural):
        return ()
    if sum(natural) <= room:
        return tuple(natural)
    least = [min(want, word) for want, word in zip(natural, words, strict=True)]
    if sum(least) > room:
        least = [min(want, MIN_COLUMN) for want in natural]
    widths = list(least)
    left = room - sum(widths)
    open_columns = [at for at in range(len(natural)) if widths[at] < natural[at]]
    while left > 0 and open_columns:
        # The narrowest columns grow first: a column of words next to a column of sentences keeps its words whole.
        at = min(open_columns, key=lambda column: widths[column])
        widths[at] += 1
        left -= 1
        open_columns = [column for column in open_columns if widths[column] < natural[column]]
    return tuple(widths)
