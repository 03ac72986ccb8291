"""The rows of an approval: warnings, the arguments or their diffs, and the server's claims about the tool.

No row of text from a server, a model or a file begins in the first column, except after the quoted name of an argument,
and this module wraps the rows, not the terminal. So foreign text cannot imitate the program's own rows. A text that is
too long is folded, and the last row of the fold counts what it leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dial_client.cli.streams.word_wrap import count_cells, fit
from dial_client.client.sampling import SAMPLING
from dial_client.hooks.approval_request import (
    describe_claims,
    describe_invisible,
    format_json,
    format_name,
    format_value,
    list_effects,
    quote_name,
)
from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.runtime.safe_text import escape_unseen
from dial_client.runtime.text import count_noun
from dial_client.tools.approval import ApprovalContext
from dial_client.tools.file_changes import COMPARED, NEW, FileChange

# The maximum number of rows of one argument, or of a server's text, in the folded form.
MAX_LINES = 12
# The maximum number of rows of a diff in the folded form, as a multiple of the rows of an argument.
DIFF_FACTOR = 2
# The maximum number of arguments in the folded form.
MAX_ARGUMENTS = 100
# The maximum combining marks on one letter: terminals draw no more, so further marks are printed as escapes.
MAX_MARKS = 8
MAX_WHOLE_NAME = 2_000
# The maximum columns of the names of arguments, beside which their values begin; a longer name has rows of its own.
MAX_LABEL = 18
# The minimum columns of the arguments beside the names of a call; with less room they have a row of their own.
MIN_SUMMARY = 32
BAR = "│ "
UNFOLDS = "d shows all"

RowKind = Literal["text", "call", "added", "removed", "note", "warning"]


@dataclass(frozen=True, slots=True)
class Row:
    """One row, escaped already."""

    text: str
    kind: RowKind = "text"
    label: str = ""
    """The name of an argument, or of a call, before the text, padded."""
    is_current: bool = False
    """Whether the question is about this row, which stays in sight."""

    @property
    def cells(self) -> int:
        """The columns that the row takes."""
        return count_cells(self.label) + count_cells(self.text)


@dataclass(frozen=True, slots=True)
class UnwrappedLine:
    """A line that is not wrapped yet."""

    text: str
    kind: RowKind = "text"
    first: str = ""
    """The program's own characters before the first row: an indentation, the mark of a diff."""
    further: str = ""
    """The program's own characters before the further rows."""
    label: str = ""
    """The name of an argument before the first row, padded."""


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A call as an approval shows it."""

    call: ToolCallRequest
    tool: ToolSpec
    context: ApprovalContext
    changes: Sequence[FileChange] = ()
    """Diffs to show in place of the arguments that they replace; in the whole form, before these arguments."""
    is_trusted: bool = False
    """Whether the configuration trusts what the server claims about its tools."""

    @property
    def is_sampling(self) -> bool:
        """Whether a server asks for an answer of the model."""
        return self.tool.tool == SAMPLING

    def format_title(self, columns: int) -> str:
        """Return the real names of the tool and its server, in at most `columns` columns if that is at all possible."""
        tool, server = self._fit_names(columns)
        return f"{server} wants to use your model" if self.is_sampling else f"{tool} · {server}"

    def list_cut_names(self, columns: int) -> list[str]:
        """Return the full names that the title for `columns` columns does not show in full, quoted."""
        if self.is_sampling:
            return []
        whole = [quote_name(name, MAX_WHOLE_NAME) for name in (self.tool.tool, self.context.server)]
        shown = self._fit_names(columns)
        return [name for name, fitted in zip(whole, shown, strict=True) if escape_marks(name) != fitted]

    def _fit_names(self, columns: int) -> tuple[str, str]:
        server = fit_name(self.context.server, max(10, columns // 2))
        return fit_name(self.tool.tool, max(10, columns - count_cells(server) - 3)), server

    def format_effects(self) -> str:
        """Return the effects that the server claims for the tool; the word ``claimed`` if the server is not trusted."""
        effects = ", ".join(list_effects(self.tool))
        return self.mark_trust(effects) if effects else ""

    def mark_trust(self, effects: str) -> str:
        """Return effects with the word ``claimed`` if the server is not trusted."""
        return effects if self.is_trusted else f"claimed: {effects}"


def build_rows(
    shown: ShownCall, columns: int, height: int | None, *, whole: bool = False, title_columns: int | None = None
) -> list[Row]:
    """Return the rows about one call.

    Args:
        shown: The call.
        columns: The maximum width of a row.
        height: The number of rows that can be shown at once: long arguments are folded until the rows fit, as far as
            that is possible. None folds each argument to `MAX_LINES`.
        whole: Show everything, however long, and what the server says about the tool.
        title_columns: The maximum width of the title; None if it is that of a row.
    """
    title_columns = columns if title_columns is None else title_columns
    if whole:
        return [
            *_describe_warnings(shown, columns, None, title_columns),
            *_describe_arguments(shown, columns, None),
            *_describe_claims(shown.tool, columns),
        ]
    for limit in (MAX_LINES, 8, 5, 3, 2, 1):
        warnings = _describe_warnings(shown, columns, limit, title_columns)
        rows = [*warnings, *_describe_arguments(shown, columns, limit)]
        if height is None or len(rows) <= height:
            break
    return rows


def build_list(calls: Mapping[int, ShownCall], columns: int) -> list[Row]:
    """Return a row for each call, by its number, with as much of the arguments as fits, and the warnings below it."""
    rows = []
    title_columns = max(16, columns // 2 - 4)
    for number, shown in calls.items():
        head = f"{number}  {shown.format_title(title_columns)}  "
        summary, effects = _summarize(shown, None), shown.format_effects()
        room = columns - count_cells(head)
        if effects and count_cells(f"{summary}  [{effects}]") > room:
            # That a call destroys something matters more than the end of its arguments; other effects matter less.
            is_destructive = bool(shown.tool.destructive)
            effects = shown.mark_trust("destructive" if is_destructive else list_effects(shown.tool)[0])
            if not is_destructive and MIN_SUMMARY <= room < count_cells(f"{summary}  [{effects}]"):
                effects = ""
        mark = f"  [{effects}]" if effects else ""
        if count_cells(summary + mark) <= room or room - count_cells(mark) >= MIN_SUMMARY:
            rows.append(Row(f"{_summarize(shown, room - count_cells(mark))}{mark}", "call", head))
        else:
            # The names and the effects have a row of their own, or one each.
            beside = count_cells(head) + count_cells(mark) - 2 <= columns
            rows.append(Row(mark.lstrip() if beside else "", "call", head))
            rows += [Row(f" {mark}", "call")] if mark and not beside else []
            rows.append(Row(f"   {_summarize(shown, columns - 3)}"))
        warnings = _describe_warnings(shown, columns - 3, None, title_columns, shows_change=False)
        rows += [Row(f"   {row.text}", "warning") for row in warnings]
    return rows


def _summarize(shown: ShownCall, columns: int | None) -> str:
    """Return the arguments in one row; a count of characters stands for those that do not fit. None for all."""
    diffs = {change.argument: change for change in shown.changes}
    hidden = {name for change in shown.changes for name in change.replaces}
    text = ", ".join(
        f"{name} {_count_changes(diffs[name])}" if name in diffs else f"{format_name(name)}={format_json(value)}"
        for name, value in shown.call.arguments.items()
        if name in diffs or name not in hidden
    )
    line = escape_marks(escape_unseen(text))
    if columns is None or count_cells(line) <= columns:
        return line or "no arguments"
    kept = fit(line, max(1, columns - len(f" {len(line):,} more characters")))
    return f"{kept} {len(line) - len(kept) + 1:,} more characters"


def fit_name(name: str, limit: int) -> str:
    """Return a quoted name of at most `limit` columns, without its notes if they do not fit."""
    whole = quote_name(name)
    if count_cells(whole) <= limit:
        return escape_marks(whole)
    kept = (escape_marks(quote_name(name, length, notes=False)) for length in range(min(limit, len(name)), 0, -1))
    return next((written for written in kept if count_cells(written) <= limit), '"…"')


def _describe_warnings(
    shown: ShownCall, columns: int, limit: int | None, title_columns: int, *, shows_change: bool = True
) -> Iterator[Row]:
    """Yield what the user must know before anything else: it stays in the first rows."""
    server, tool = (fit_name(name, max(10, columns // 3)) for name in (shown.context.server, shown.tool.tool))
    if shown.context.change:
        end = " since it was approved:" if shows_change else " since it was approved"
        yield from _warn(f"{server} has changed {tool}{end}", columns)
    if shown.context.change and shows_change:
        lines = escape_unseen(shown.context.change).splitlines()
        yield from fold([_mark(line[:1], line[1:]) for line in lines], columns, limit)
    for name in shown.list_cut_names(title_columns):
        yield from _warn(f"full name: {name}", columns, limit)
    if shown.context.agent:
        yield from _warn(f"agent: {shown.context.agent}", columns)
    if shown.context.why_asked:
        yield from _warn(f"reason for asking: {' '.join(escape_unseen(shown.context.why_asked).split())}", columns)
    for note in describe_invisible(shown.call, shown.tool):
        yield from _warn(note, columns)


def _warn(text: str, columns: int, limit: int | None = None) -> list[Row]:
    return fold([UnwrappedLine(text, "warning", "! ", "    ")], columns, limit)


def _describe_claims(tool: ToolSpec, columns: int) -> Iterator[Row]:
    for claim in describe_claims(tool) if tool.tool != SAMPLING else ():
        first, *further = claim.splitlines()
        lines = [
            UnwrappedLine(first, further="    "),
            *(UnwrappedLine(line, first="  ", further="    ") for line in further),
        ]
        yield from fold(lines, columns, None)


def _describe_arguments(shown: ShownCall, columns: int, limit: int | None) -> Iterator[Row]:
    items = [(str(name), value) for name, value in shown.call.arguments.items()]
    if not items:
        yield Row("no arguments", "note")
    names = [format_name(name) for name, _ in items[:MAX_ARGUMENTS]]
    widest = min(MAX_LABEL, columns // 3)
    width = max((cells for name in names if (cells := count_cells(name)) <= widest), default=0)
    diffs = {change.argument: change for change in shown.changes}
    hidden = {name for change in shown.changes for name in change.replaces} if limit is not None else set[str]()
    for name, value in items if limit is None else items[:MAX_ARGUMENTS]:
        change = diffs.get(name)
        if change is not None:
            yield from _describe_change(change, columns, width, limit)
        # The diff of a new file has each line of the argument, and a change without a diff has none of them.
        if name not in hidden and (change is None or not change.lines or (limit is None and change.title != NEW)):
            yield from fold(_list_lines(name, value, width), columns, limit)
    if limit is not None and len(items) > MAX_ARGUMENTS:
        yield Row(f"… {len(items) - MAX_ARGUMENTS:,} more arguments · {UNFOLDS}", "note")


def _list_lines(name: str, value: Any, width: int) -> list[UnwrappedLine]:
    """Return the lines of an argument: a short value beside its name, a longer one below it, indented."""
    first, *further = format_value(value)
    if further and first == "|":
        first = count_noun(len(further), "line")
    elif further:
        first = count_noun(len(value), "item" if isinstance(value, list) else "field")
    return [*_head(name, first, width), *(UnwrappedLine(line[2:], first="  ", further="    ") for line in further)]


def _head(name: str, text: str, width: int) -> list[UnwrappedLine]:
    """Return the name of an argument with a text beside it, or below it if the name is wider than `width`."""
    label = escape_marks(format_name(name))
    if count_cells(label) > width:
        return [UnwrappedLine(label, further="    "), UnwrappedLine(text, first="  ", further="    ")]
    indentation = " " * (width + 2)
    return [UnwrappedLine(text, further=indentation, label=f"{label}{indentation[count_cells(label) :]}")]


def _describe_change(change: FileChange, columns: int, width: int, limit: int | None) -> Iterator[Row]:
    title = "" if change.title == COMPARED else f" · {change.title}"
    head = _head(change.argument, f"{_count_changes(change)}{title if change.lines else ''}", width)
    lines = [_mark(line[0], line[1:]) for line in change.lines]
    yield from fold([*head, *lines], columns, None if limit is None else limit * DIFF_FACTOR)
    if change.unchanged and limit is not None:
        yield Row(f"  … {count_noun(change.unchanged, 'unchanged line')} · {UNFOLDS}", "note")


def _count_changes(change: FileChange) -> str:
    """Return the numbers of added and removed lines: ``+2 -1 lines``; for no diff, its title."""
    if not change.lines:
        return change.title
    counts = {mark: sum(line[0] == mark for line in change.lines) for mark in "+-"}
    numbers = " ".join(f"{sign}{count:,}" for sign, count in counts.items() if count)
    return f"{numbers} {'line' if sum(counts.values()) == 1 else 'lines'}"


def _mark(mark: str, text: str) -> UnwrappedLine:
    """Return a line of a diff. Its further rows have the mark too: without it, they would look unchanged."""
    if mark == "@":
        return UnwrappedLine("⋯", "note", "  ")
    kinds: dict[str, RowKind] = {"+": "added", "-": "removed"}
    return UnwrappedLine(text, kinds.get(mark, "text"), f"  {mark} ", f"  {mark}   ")


def fold(lines: Iterable[UnwrappedLine], columns: int, limit: int | None) -> list[Row]:
    """Return lines in rows of at most `columns` columns; after `limit` rows, a further row counts what is left out."""
    lines, rows = list(lines), list[Row]()
    for index, line in enumerate(lines):
        room = max(2, columns - max(count_cells(line.label + line.first), count_cells(line.further)))
        # Measure only as much of a very long line as can be shown: one letter with its marks per column.
        end = len(line.text) if limit is None else (limit - len(rows) + 1) * room * (MAX_MARKS + 1)
        label, begin = line.label, line.first
        for number, (piece, left) in enumerate(_split_line(line.text[:end], room)):
            if len(rows) == limit:
                rest = len(lines) - index - (1 if number else 0)
                left_out = (
                    len(piece) + left + len(line.text[end:]) + sum(len(later.text) for later in lines[index + 1 :])
                )
                counted = f"{rest:,} more lines, " if rest else ""
                counted += f"{left_out:,} {'' if rest else 'more '}characters"
                return [*rows, Row(f"  … {counted} · {UNFOLDS}", "note")]
            rows.append(Row(f"{begin}{piece}", line.kind, label))
            label, begin = "", line.further
    return rows


def add_bars(lines: Iterable[str], columns: int) -> Iterator[str]:
    """Yield lines of a server in rows of fewer than `columns` columns, each after a bar."""
    for line in lines:
        yield from (f"{BAR}{piece}" for piece, _ in _split_line(line, columns - len(BAR) - 1))


def escape_marks(line: str) -> str:
    """Return a line in which no letter carries more than `MAX_MARKS` combining marks; further marks are escaped."""
    if line.isascii():
        return line
    written, marks = [], 0
    for char in line:
        marks = 0 if count_cells(char) else marks + 1
        written.append(char if marks <= MAX_MARKS else f"\\u{{{ord(char):x}}}")
    return "".join(written)


def _split_line(line: str, columns: int) -> Iterator[tuple[str, int]]:
    """Yield a line in pieces no wider than `columns`, each with the number of characters after it."""
    line = escape_marks(line.expandtabs(4))
    start = used = space = 0
    for index, char in enumerate(line):
        cells = count_cells(char)
        if used + cells > max(columns, 2):
            end = space if space > start and index - space < columns // 3 else index
            yield line[start:end], len(line) - end
            start, used = end, count_cells(line[end:index])
        if char == " ":
            space = index + 1
        used += cells
    yield line[start:], 0
