"""Recognizes the start of Markdown blocks: list markers, fences, headings, rules, tables. All searches are linear."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_COLUMNS = 60
"""The maximum columns of a table; a table with more is text."""

_MARKER = re.compile(r"( *)(?:([-*+])|([0-9]{1,9})([.)]))(?:( {1,4})(?! )| +|\Z)")
_TASK = re.compile(r"\[([ xX])\] ")
_FENCE = re.compile(r" *(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?= |\Z)")
_ALIGNMENT = re.compile(r":?-+:?\Z")
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")


@dataclass(frozen=True, slots=True)
class Marker:
    """The beginning of a list item."""

    indent: int
    """Columns before the marker."""
    content: int
    """Columns of indentation that make a line part of the item."""
    text: int
    """Columns before the text of the item, which follows the box of a task."""
    number: str
    """The number with its period or bracket; empty for a bullet."""
    is_done: bool | None
    """Whether the task is done; None if the item is not a task."""
    may_interrupt: bool
    """Whether the item may end a paragraph; most numbers may not, because prose has lines that begin with a number."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The beginning of a code block."""

    mark: str
    indent: int
    language: str

    def is_end(self, line: str) -> bool:
        """Return True if a line ends the block."""
        text = line.strip()
        return len(text) >= len(self.mark) and not text.strip(self.mark[0])


def find_marker(text: str) -> Marker | None:
    """Return the marker that a line begins with; None if there is none."""
    found = _MARKER.match(text)
    if found is None:
        return None
    indent, bullet, number, period, spaces = found.groups()
    content = found.end() if spaces else found.end(4 if number else 2) + 1
    is_done, start = None, content
    if bullet and (task := _TASK.match(text, content)):
        is_done, start = task[1] != " ", task.end()
    may_interrupt = found.end() < len(text) and (bool(bullet) or number == "1")
    return Marker(len(indent), content, start, f"{int(number)}{period}" if number else "", is_done, may_interrupt)


def find_fence(text: str) -> Fence | None:
    """Return the fence that a line begins with; None if there is none."""
    found = _FENCE.match(text)
    if found is None:
        return None
    info = text[found.end() :].strip()
    if "`" in info and found[1][0] == "`":
        return None
    language = _LANGUAGE.match(info.lstrip("{."))
    return Fence(found[1], found.start(1), language[0].lower() if language else "")


def find_heading(text: str) -> tuple[int, str] | None:
    """Return the level and the text of a heading; None if the line is not a heading."""
    found = _HEADING.match(text)
    if found is None:
        return None
    content = text[found.end() :].strip()
    bare = content.rstrip("#")
    return len(found[1]), bare.rstrip() if not bare or bare.endswith(" ") else content


def is_rule(text: str) -> bool:
    """Return True if a line is a horizontal rule."""
    marks = text.replace(" ", "")
    return len(marks) >= 3 and marks[0] in "-*_" and not marks.strip(marks[0])


def is_underline(text: str) -> bool:
    """Return True for a line of equals signs, which makes the line above it a heading. Hyphens are a rule."""
    marks = text.strip()
    return len(marks) >= 3 and not marks.strip("=")


def split_cells(text: str) -> tuple[str, ...]:
    r"""Return the cells of a table row; ``\|`` is a bar in a cell."""
    row = text.strip()
    row = row.removeprefix("|")
    row = row[:-1] if row.endswith("|") and not row.endswith("\\|") else row
    return tuple(cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", row))


def parse_table_alignment(text: str, columns: int) -> tuple[str, ...] | None:
    """Return the alignment of a table's columns from its delimiter row; None if the line is not a delimiter row."""
    if "|" not in text or "-" not in text or columns > MAX_COLUMNS:
        return None
    cells = split_cells(text)
    if len(cells) != columns or not all(_ALIGNMENT.match(cell) for cell in cells):
        return None
    return tuple("^" if cell[0] == cell[-1] == ":" else ">" if cell[-1] == ":" else "<" for cell in cells)
