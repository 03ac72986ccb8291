"""The frame of a box in the live area: a title in its upper border, rows, and the keys in its lower border.

If the rows are more than fit, the frame shows a part of them, and the keys that move through a list move this part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dial_client.cli.approval.approval_prompt import SEPARATOR, AnswerKey
from dial_client.cli.approval.approval_rows import Row, UnwrappedLine, fold
from dial_client.cli.markdown.themes import Theme, style
from dial_client.cli.streams.word_wrap import count_cells, fit

# The minimum columns of a terminal in which the box has a right border.
MIN_FRAMED = 40
# The minimum columns of a box, so that it keeps its form while the user looks at one call after another.
MIN_COLUMNS = 56


@dataclass
class BoxFrame:
    """The frame of one box, which knows the part of the rows that is shown.

    Args:
        theme: The colours.
    """

    theme: Theme
    # The first row that is shown, and the last that can be the first.
    _first: int = 0
    _last_first: int = 0
    # The number of rows that are shown.
    _page: int = 1
    # Whether the next drawing brings the current row into sight.
    _follows: bool = False
    # The columns for which the box was drawn last, and its width there: other keys do not make it narrower.
    _drawn: tuple[int, int] = (0, 0)

    def follow(self) -> None:
        """Bring the row that the question is about into sight with the next drawing."""
        self._follows = True

    def move(self, rows: int) -> None:
        """Show the rows that are so many rows further down; more than one row means a page."""
        step = rows if abs(rows) == 1 else (self._page if rows > 0 else -self._page)
        self._first = max(0, min(self._last_first, self._first + step))

    def render(
        self,
        columns: int,
        height: int,
        title: Callable[[int], str],
        note: str,
        keys: Sequence[AnswerKey],
        build_rows: Callable[[int, int], Sequence[Row]],
    ) -> list[str]:
        """Return the rows of the box in colours.

        Args:
            columns: The width of the terminal.
            height: The maximum number of rows.
            title: Returns the title for a width in columns.
            note: A few words at the right of the title; empty for none.
            keys: The keys that answer.
            build_rows: Returns the rows for a width in columns and a number of rows that can be shown at once.
        """
        is_framed = columns >= MIN_FRAMED
        widest = columns - 5 if is_framed else columns - 3
        wrapped_keys = _wrap_keys(keys, widest)
        room = max(1, height - len(wrapped_keys) - 1)
        rows, head = build_rows(widest, room), title(widest)
        if note and count_cells(head) + count_cells(note) + 3 > widest:
            rows, note = [*fold([UnwrappedLine(note, "note")], widest, None), *rows], ""
        needed = [row.cells for row in rows] + [count_cells(head) + (count_cells(note) + 3 if note else 0)]
        needed += [_measure_row(row) for row in wrapped_keys]
        before = self._drawn[1] if self._drawn[0] == columns else 0
        width = min(widest, max(MIN_COLUMNS, before, *needed))
        self._drawn = columns, width
        lines = [self._format_top(fit(head, width), note, width, is_framed=is_framed)]
        lines += [self._format_row(row, width, is_framed=is_framed) for row in self._choose_part(rows, room)]
        lines += [self._format_keys(row, width if is_framed else 0, "│", "│") for row in wrapped_keys[:-1]]
        return [*lines, self._format_keys(wrapped_keys[-1], width if is_framed else 0, "╰", "╯")]

    def _choose_part(self, rows: Sequence[Row], room: int) -> Sequence[Row]:
        """Return the rows that fit, with a last row that says which rows they are."""
        if len(rows) <= room:
            self._first = self._last_first = 0
            return rows
        self._page = shown = max(1, room - 1)
        self._last_first = len(rows) - shown
        current = next((index for index, row in enumerate(rows) if row.is_current), None)
        if self._follows and current is not None:
            self._first = max(0, current - shown // 2)
        self._follows = False
        self._first = min(self._first, self._last_first)
        part = rows[self._first : self._first + shown]
        place = (
            f"rows {self._first + 1:,} to {self._first + len(part):,} of {len(rows):,} · ↑ ↓ PgUp PgDn show the others"
        )
        return [*part, Row(place, "note")]

    def _format_top(self, title: str, note: str, width: int, *, is_framed: bool) -> str:
        theme = self.theme
        line = "─" * (width - count_cells(title) - (count_cells(note) + 2 if note else 0))
        begin = f"{style('╭', theme.faint)} {style(title, theme.strong)}"
        if not is_framed:
            return begin
        end = f" {style(note, theme.failure if 'destructive' in note else theme.faint)} " if note else ""
        return f"{begin} {style(line, theme.faint)}{end}{style('╮', theme.faint)}"

    def _format_row(self, row: Row, width: int, *, is_framed: bool) -> str:
        theme = self.theme
        text = fit(row.text, max(1, width - count_cells(row.label)))
        styles = {"added": theme.success, "removed": theme.removed, "note": theme.faint, "warning": theme.strong}
        label = style(row.label, theme.strong if row.kind == "call" else theme.faint)
        shown = f"{label}{style(text, styles.get(row.kind, ''))}"
        bar = style("│", theme.faint)
        if not is_framed:
            return f"{bar} {shown}"
        return f"{bar} {shown}{' ' * max(0, width - count_cells(row.label) - count_cells(text))} {bar}"

    def _format_keys(self, keys: Sequence[AnswerKey], width: int, left: str, right: str) -> str:
        """Return a row of keys, whose letters stand out; up to a right border if there is a width."""
        theme = self.theme
        shown = f" {style('·', theme.faint)} ".join(f"{style(key.letter, theme.strong)} {key.label}" for key in keys)
        begin = f"{style(left, theme.faint)} {shown}"
        if not width:
            return begin
        rest = width - _measure_row(keys)
        line = f" {'─' * rest}" if left == "╰" and rest else " " * (rest + 1)
        return f"{begin}{style(line, theme.faint)}{style(right, theme.faint)}"


def _wrap_keys(keys: Sequence[AnswerKey], width: int) -> list[list[AnswerKey]]:
    """Return the keys in rows that fit."""
    rows: list[list[AnswerKey]] = [[]]
    for key in keys:
        if rows[-1] and _measure_row([*rows[-1], key]) > width:
            rows.append([])
        rows[-1].append(key)
    return rows


def _measure_row(keys: Sequence[AnswerKey]) -> int:
    """Return the columns of a row of keys."""
    return sum(count_cells(str(key)) for key in keys) + len(SEPARATOR) * (len(keys) - 1)
