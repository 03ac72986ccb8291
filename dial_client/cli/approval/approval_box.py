"""The box of an approval: names and claims in its upper border, its rows, and the keys in its lower border."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field

from dial_client.cli.approval.approval_prompt import AnswerKey
from dial_client.cli.approval.approval_rows import BAR, Row, ShownCall, build_list, build_rows
from dial_client.cli.approval.box_frame import BoxFrame
from dial_client.cli.markdown.themes import Theme
from dial_client.cli.streams.word_wrap import count_cells, fit
from dial_client.runtime.text import count_noun


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
    theme: InitVar[Theme]
    is_whole: bool = False
    frame: BoxFrame = field(init=False)
    """The frame, which moves the rows."""
    # The rows for the size of the terminal for which they were built last.
    _rows: tuple[tuple[int, int | None], list[Row]] = field(default=((0, 0), []))

    def __post_init__(self, theme: Theme) -> None:
        self.frame = BoxFrame(theme)

    @property
    def title(self) -> Callable[[int], str]:
        """Returns the title for a width in columns."""
        calls = list(self.calls.values())
        return calls[0].format_title if len(calls) == 1 else lambda _: f"{count_noun(len(calls), 'call')} to decide"

    @contextmanager
    def show_keys(self, keys: Sequence[AnswerKey]) -> Iterator[None]:
        """Show the keys of another question in this context."""
        outer, self.keys = self.keys, keys
        try:
            yield
        finally:
            self.keys = outer

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
        return self.frame.render(columns, height, self.title, self._format_effects(), self.keys, self._build)

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
                    rows += build_rows(call, columns, None, whole=True, title_columns=columns - 6)
            self._rows = (columns, height), rows
        return self._rows[1]

    def _format_effects(self) -> str:
        return next(iter(self.calls.values())).format_effects() if len(self.calls) == 1 else ""
