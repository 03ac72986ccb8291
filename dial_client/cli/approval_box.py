"""The box of an approval: names and claims in its upper border, its rows, and the keys in its lower border.

If the rows are more than fit, the box shows a part of them, and the keys that move through a list move this part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dial_client.cli.approval_prompt import AnswerKey
from dial_client.cli.approval_rows import BAR, Row, ShownCall, UnwrappedLine, build_list, build_rows, fold
from dial_client.cli.markdown.themes import Theme, style
from dial_client.cli.word_wrap import count_cells, fit
from dial_client.runtime.text import count_noun

# The minimum columns of a terminal in which the box has a right border.
MIN_FRAMED = 40
# The minimum columns of a box, so that it keeps its form while the user looks at one call after another.
MIN_COLUMNS = 56


@dataclass
class ApprovalBox:
    """The calls that a question is about, with the part of their rows that is shown.

    Args:
        calls: The calls by number. Several calls have a row each; one call is shown with its arguments.
        keys: The keys that answer.
        theme: The colours.
        is_whole: Show everything, however long.
    """

    calls: Mapping[int, ShownCall]
    keys: Sequence[AnswerKey]
    theme: Theme
    is_whole: bool = False
    # The first row that is shown, and the last that can be the first.
    _first: int = 0
    _last_first: int = 0
    # The number of rows that are shown.
    _page: int = 1
    # The rows for the size of the terminal for which they were built last.
    _rows: tuple[tuple[int, int | None], list[Row]] = field(default=((0, 0), []))

    @property
    def title(self) -> Callable[[int], str]:
        """Returns the title for a width in columns."""
        calls = list(self.calls.values())
        return calls[0].format_title if len(calls) == 1 else lambda _: f"{count_noun(len(calls), 'call')} to decide"

    def move(self, rows: int) -> None:
        """Show the rows that are so many rows further down; more than one row means a page."""
        step = rows if abs(rows) == 1 else (self._page if rows > 0 else -self._page)
        self._first = max(0, min(self._last_first, self._first + step))

    def format_plain(self, columns: int) -> list[str]:
        """Return the rows without a frame, for a terminal that prints lines; the keys are left to the question."""
        rows = self._build(columns - len(BAR) - 1, None)
        title = fit(self.title(columns - 1), columns - 1)
        effects = self._format_effects()
        if effects and count_cells(title) + count_cells(effects) + 5 < columns:
            title, effects = f"{title}  ({effects})", ""
        return [title, *([f"{BAR}({effects})"] if effects else []), *(f"{BAR}{row.label}{row.text}" for row in rows)]

    def render(self, columns: int, height: int) -> list[str]:
        """Return the rows of the box in colours.

        Args:
            columns: The width of the terminal.
            height: The maximum number of rows.
        """
        is_framed = columns >= MIN_FRAMED
        widest = columns - 5 if is_framed else columns - 3
        keys = self._wrap_keys(widest)
        room = max(1, height - len(keys) - 1)
        rows = self._build(widest, room)
        title, effects = self.title(widest), self._format_effects()
        head = count_cells(title) + (count_cells(effects) + 3 if effects else 0)
        if effects and head > widest:
            rows, effects = [*fold([UnwrappedLine(effects, "note")], widest, None), *rows], ""
        needed = [row.cells for row in rows] + [head, *(sum(map(_measure, row)) + 3 * len(row) - 3 for row in keys)]
        width = min(widest, max(MIN_COLUMNS, *needed))
        lines = [self._format_top(fit(title, width), effects, width, is_framed=is_framed)]
        lines += [self._format_row(row, width, is_framed=is_framed) for row in self._choose_part(rows, room)]
        lines += [self._format_keys(row, width if is_framed else 0, "│", "│") for row in keys[:-1]]
        return [*lines, self._format_keys(keys[-1], width if is_framed else 0, "╰", "╯")]

    def _build(self, columns: int, height: int | None) -> list[Row]:
        """Return the rows; they are built once for each size, because the box is drawn often."""
        if self._rows[0] != (columns, height):
            calls = list(self.calls.values())
            if len(calls) == 1:
                rows = build_rows(calls[0], columns, height, whole=self.is_whole)
            else:
                rows = build_list(self.calls, columns)
            if self.is_whole and len(calls) > 1:
                rows = []
                for number, call in self.calls.items():
                    rows.append(Row("", "call", f"{number}  {call.format_title(columns - 6)}"))
                    rows += build_rows(call, columns, None, whole=True)
            self._rows = (columns, height), rows
        return self._rows[1]

    def _choose_part(self, rows: list[Row], room: int) -> list[Row]:
        """Return the rows that fit, with a last row that says which rows they are."""
        if len(rows) <= room:
            self._first = self._last_first = 0
            return rows
        self._page = shown = max(1, room - 1)
        self._last_first = len(rows) - shown
        self._first = min(self._first, self._last_first)
        part = rows[self._first : self._first + shown]
        place = (
            f"rows {self._first + 1:,} to {self._first + len(part):,} of {len(rows):,} · ↑ ↓ PgUp PgDn show the others"
        )
        return [*part, Row(place, "note")]

    def _format_effects(self) -> str:
        return next(iter(self.calls.values())).format_effects() if len(self.calls) == 1 else ""

    def _format_top(self, title: str, effects: str, width: int, *, is_framed: bool) -> str:
        theme = self.theme
        line = "─" * (width - count_cells(title) - (count_cells(effects) + 2 if effects else 0))
        begin = f"{style('╭', theme.faint)} {style(title, theme.strong)}"
        if not is_framed:
            return begin
        end = f" {style(effects, theme.failure if 'destructive' in effects else theme.faint)} " if effects else ""
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

    def _wrap_keys(self, width: int) -> list[list[AnswerKey]]:
        """Return the keys in rows that fit."""
        rows: list[list[AnswerKey]] = [[]]
        for key in self.keys:
            if rows[-1] and sum(map(_measure, [*rows[-1], key])) + 3 * len(rows[-1]) > width:
                rows.append([])
            rows[-1].append(key)
        return rows

    def _format_keys(self, keys: Sequence[AnswerKey], width: int, left: str, right: str) -> str:
        """Return a row of keys, whose letters stand out; up to a right border if there is a width."""
        theme = self.theme
        shown = f" {style('·', theme.faint)} ".join(f"{style(key.letter, theme.strong)} {key.label}" for key in keys)
        begin = f"{style(left, theme.faint)} {shown}"
        if not width:
            return begin
        rest = width - sum(map(_measure, keys)) - 3 * (len(keys) - 1)
        line = f" {'─' * rest}" if left == "╰" and rest else " " * (rest + 1)
        return f"{begin}{style(line, theme.faint)}{style(right, theme.faint)}"


def _measure(key: AnswerKey) -> int:
    """Return the columns of a key with its label."""
    return count_cells(key.letter) + 1 + count_cells(key.label)
