"""Renders Markdown blocks as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dial_client.cli.markdown.block_parser import Block, Container, Kind
from dial_client.cli.markdown.formula import to_unicode
from dial_client.cli.markdown.highlighter import Highlighter
from dial_client.cli.markdown.inline_markup import parse_spans
from dial_client.cli.markdown.table_layout import Table
from dial_client.cli.markdown.text_layout import Span, TextRow, chop, count_columns, to_ansi, wrap
from dial_client.cli.markdown.themes import Theme

MIN_COLUMNS = 20
MAX_TEXT = 120
"""The maximum columns of running text; wider lines are hard to read."""
MAX_RULE = 60
_BULLETS = "•◦▪"


class BlockRenderer:
    """Renders the blocks of one message, in their order.

    Args:
        columns: The width of the terminal.
        theme: The colours.
        has_links: Write hyperlinks (OSC 8).
    """

    def __init__(self, columns: int, theme: Theme, *, has_links: bool = True) -> None:
        self.columns = max(MIN_COLUMNS, columns)
        self._theme = theme
        self._has_links = has_links
        self._highlighter = Highlighter("", theme)
        self._table: Table | None = None

    def clone(self, *, has_links: bool) -> BlockRenderer:
        """Return an independent copy of this renderer."""
        twin = BlockRenderer(self.columns, self._theme, has_links=has_links)
        twin.resume(self._highlighter.clone(), self._table)
        return twin

    def resume(self, highlighter: Highlighter, table: Table | None) -> None:
        """Continue in the middle of a code block or a table."""
        self._highlighter, self._table = highlighter, table

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
            rows = self._render_block(block, sum(count_columns(span.text) for span in rest))
            if is_draft and block.kind is Kind.CODE_LINE:
                rows = (piece for row in rows for piece in chop(row, self.columns))
            for row in rows:
                text = to_ansi([*first, *row], has_links=self._has_links)
                yield text if block.kind is Kind.CODE_LINE else text.rstrip(" ")
                first = rest

    def _render_block(self, block: Block, used: int) -> Iterator[TextRow]:
        """Yield the rows of a block without its prefix, which takes `used` columns."""
        room = max(MIN_COLUMNS // 2, self.columns - used)
        theme = self._theme
        match block.kind:
            case Kind.PARAGRAPH:
                yield from wrap(parse_spans(block.text, theme, self._choose_style(block)), min(room, MAX_TEXT))
            case Kind.HEADING:
                style = f"{theme.heading};4" if block.level == 1 else theme.heading if block.level < 4 else theme.strong
                yield from wrap(parse_spans(block.text, theme, style), room)
            case Kind.RULE:
                yield [Span("─" * min(room, MAX_RULE), theme.faint)]
            case Kind.CODE_START:
                self._highlighter = Highlighter(block.text, theme)
                label = f"── {block.text} " if block.text else ""
                yield [Span(label + "─" * (min(room, MAX_RULE) - len(label)), theme.faint)]
            case Kind.CODE_END:
                yield [Span("─" * min(room, MAX_RULE), theme.faint)]
            case Kind.CODE_LINE:
                yield self._highlighter.colour(block.text)
            case Kind.FORMULA:
                for row in wrap([Span(to_unicode(block.text))], room - 4):
                    yield [Span("    "), *row]
            case Kind.TABLE | Kind.TABLE_ROW:
                yield from self._render_table(block, room)

    def _render_table(self, block: Block, room: int) -> Iterator[TextRow]:
        is_first = block.kind is Kind.TABLE or self._table is None
        if is_first:
            self._table = Table.fit(block.rows, block.alignment, self._theme, room)
            yield from self._table.begin()
        assert self._table is not None
        yield from self._table.render_body(block.rows[1:] if is_first else block.rows, is_first=is_first)

    def _choose_style(self, block: Block) -> str:
        return self._theme.quote if any(container.marker is None for container in block.containers) else ""

    def _build_prefixes(self, block: Block) -> tuple[TextRow, TextRow]:
        """Return the prefix of the first row of a block, and the prefix of its other rows."""
        is_code = block.kind in (Kind.CODE_START, Kind.CODE_LINE, Kind.CODE_END)
        if is_code and block.new == len(block.containers):
            return [], []  # no prefix, so that code can be copied
        first = self._build_bars(block.containers[: block.new])
        bullets = sum(
            1 for container in block.containers[: block.new] if container.marker and not container.marker.number
        )
        for container in block.containers[block.new :]:
            first.append(self._build_marker(container, bullets))
            bullets += container.marker is not None and not container.marker.number
        rest = self._build_bars(block.containers)
        while rest and sum(count_columns(span.text) for span in rest) > self.columns // 2:
            first, rest = first[1:], rest[1:]
        return first, rest

    def _build_bars(self, containers: Iterable[Container]) -> TextRow:
        """Return the prefix of lines without a list marker."""
        return [
            Span("│ ", self._theme.marker)
            if container.marker is None
            else Span(" " * len(self._build_marker(container, 0).text))
            for container in containers
        ]

    def _build_marker(self, container: Container, bullets: int) -> Span:
        marker = container.marker
        if marker is None:
            return Span("│ ", self._theme.marker)
        if marker.is_done is not None:
            return Span("☑ ", self._theme.success) if marker.is_done else Span("☐ ", self._theme.marker)
        return Span(f"{marker.number} " if marker.number else f"{_BULLETS[bullets % 3]} ", self._theme.marker)
