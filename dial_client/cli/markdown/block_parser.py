"""Parses Markdown into blocks, line by line: each line is read once, and a block is returned as soon as it is final.

Differences from CommonMark, as on the page (``serve/page/markdown_blocks.js``): a single line break is kept, as people
and models write it; "---" under a paragraph is a rule; indented code, HTML and link reference definitions are text.
Lists may be indented irregularly, and code in a list may be indented less than the list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from dial_client.cli.markdown.block_starts import (
    Fence,
    Marker,
    find_fence,
    find_heading,
    find_marker,
    is_rule,
    is_underline,
    parse_table_alignment,
    split_cells,
)

MAX_DEPTH = 10
"""The maximum nesting of quotes and lists; deeper markers are text."""
MAX_PARAGRAPH = 3_000
"""Characters after which a paragraph is cut at the end of a line."""
MAX_TABLE = 60
"""Rows after which the widths of a table's columns are fixed."""
MAX_FORMULA = 100
"""The maximum lines of a formula; a longer formula is text."""
_QUOTE = re.compile(r" {0,3}> ?")


class Kind(Enum):
    """Kinds of blocks, and of parts of blocks that are returned one by one."""

    PARAGRAPH = auto()
    HEADING = auto()
    RULE = auto()
    CODE_START = auto()
    CODE_LINE = auto()
    CODE_END = auto()
    TABLE = auto()
    TABLE_ROW = auto()
    """A row of a long table whose rows are returned one by one."""
    FORMULA = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """A quote or a list item."""

    marker: Marker | None = None
    """The marker of a list item; None for a quote."""


@dataclass(frozen=True, slots=True)
class Block:
    """A final block."""

    kind: Kind
    text: str = ""
    level: int = 0
    """The level of a heading."""
    rows: tuple[tuple[str, ...], ...] = ()
    """Cells of a table; the first row is its head."""
    alignment: tuple[str, ...] = ()
    """The alignment of a table's columns: ``<``, ``>`` or ``^``."""
    containers: tuple[Container, ...] = ()
    new: int = 0
    """The index of the first container whose marker has not been shown."""
    gap: int | None = None
    """The number of containers around the blank line before the block; None if there is no blank line."""


@dataclass(slots=True)
class _Table:
    alignment: tuple[str, ...]
    rows: list[tuple[str, ...]]
    is_split: bool = False
    """Whether the table was returned, and further rows are returned one by one."""


@dataclass(slots=True)
class _Formula:
    end: str
    lines: list[str]


@dataclass(slots=True)
class _Paragraph:
    lines: list[str] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class ParserState:
    """The open containers and the open block after the latest line."""

    containers: list[Container] = field(default_factory=list)
    shown: int = 0
    """The number of containers whose marker has been shown."""
    leaf: _Paragraph | _Table | _Formula | Fence | None = None
    has_gap: bool = False
    last: tuple[Container, ...] | None = None
    """The containers of the latest block; None before the first block."""

    def clone(self) -> ParserState:
        """Return an independent copy."""
        leaf = self.leaf
        if isinstance(leaf, _Table):
            leaf = replace(leaf, rows=list(leaf.rows))
        elif isinstance(leaf, _Formula | _Paragraph):
            leaf = replace(leaf, lines=list(leaf.lines))
        return replace(self, containers=list(self.containers), leaf=leaf)


class BlockParser:
    """Parses the lines of one message."""

    def __init__(self, state: ParserState | None = None) -> None:
        self._state = state or ParserState()
        self._blocks: list[Block] = []

    @property
    def is_in_code(self) -> bool:
        """Whether the next line may belong to a code block."""
        return isinstance(self._state.leaf, Fence)

    def clone(self) -> BlockParser:
        """Return an independent copy of this parser."""
        return BlockParser(self._state.clone())

    def feed(self, line: str) -> list[Block]:
        """Add a line without its line break, and return the blocks that became final."""
        if isinstance(self._state.leaf, Fence):
            self._continue_code(line, self._state.leaf)
        else:
            self._read(line.expandtabs(4))
        return self._take()

    def finish(self) -> list[Block]:
        """End the message, and return the remaining blocks."""
        self._end_leaf()
        self._close(0)
        return self._take()

    def _take(self) -> list[Block]:
        blocks, self._blocks = self._blocks, []
        return blocks

    def _read(self, line: str) -> None:
        text, depth = self._match(line)
        if not text.strip():
            self._end_leaf()
            self._close(depth)
            self._state.has_gap = True
            return
        if isinstance(self._state.leaf, _Formula):
            self._continue_formula(text, self._state.leaf)
            return
        is_lazy = isinstance(self._state.leaf, _Paragraph) and depth < len(self._state.containers)
        if is_lazy and not self._is_start(text, depth):
            self._continue_paragraph(text)
            return
        self._close(depth)
        self._read_content(self._open_containers(text))

    def _match(self, line: str) -> tuple[str, int]:
        """Return the line without the prefixes of the open containers that it continues, and the number of these."""
        text = line
        for depth, container in enumerate(self._state.containers):
            indent = len(text) - len(text.lstrip(" "))
            if container.marker is None:
                if not (quote := _QUOTE.match(text)):
                    return text, depth
                text = text[quote.end() :]
            elif indent >= container.marker.content or indent == len(text):
                text = text[container.marker.content :]
            elif indent >= container.marker.indent + 2 and find_marker(text):
                text = text[indent:]
            else:
                return text, depth
        return text, len(self._state.containers)

    def _is_start(self, text: str, depth: int) -> bool:
        """Return True if a line ends a paragraph because it begins another block."""
        if is_rule(text) or find_heading(text) or find_fence(text) or _QUOTE.match(text):
            return True
        marker = find_marker(text)
        if marker is None:
            return False
        is_in_list = depth < len(self._state.containers) and self._state.containers[depth].marker is not None
        return is_in_list or marker.may_interrupt

    def _open_containers(self, text: str) -> str:
        """Open the quotes and list items that begin in a line, and return the rest of the line."""
        while len(self._state.containers) < MAX_DEPTH and not is_rule(text):
            if isinstance(self._state.leaf, _Paragraph | _Table) and not self._is_start(
                text, len(self._state.containers)
            ):
                break
            if quote := _QUOTE.match(text):
                self._end_leaf()
                self._state.containers.append(Container())
                text = text[quote.end() :]
            elif marker := find_marker(text):
                self._end_leaf()
                self._state.containers.append(Container(marker))
                text = text[marker.text :]
            else:
                break
        return text

    def _read_content(self, text: str) -> None:
        if not text.strip():
            return
        if isinstance(self._state.leaf, _Table) and self._continue_table(text, self._state.leaf):
            return
        if heading := find_heading(text):
            self._end_leaf()
            self._state.has_gap = True
            self._emit(Kind.HEADING, heading[1], level=heading[0])
        elif fence := find_fence(text):
            self._end_leaf()
            self._state.leaf = fence
            self._emit(Kind.CODE_START, fence.language)
        elif is_rule(text):
            self._end_leaf()
            self._emit(Kind.RULE)
        elif isinstance(self._state.leaf, _Paragraph) and is_underline(text):
            title = self._state.leaf.lines.pop()
            self._end_leaf()
            self._state.has_gap = True
            self._emit(Kind.HEADING, title, level=1)
        elif not self._begin_table(text) and not self._begin_formula(text):
            self._continue_paragraph(text)

    def _continue_paragraph(self, text: str) -> None:
        if not isinstance(self._state.leaf, _Paragraph):
            self._state.leaf = _Paragraph()
        self._state.leaf.lines.append(text.lstrip(" "))
        self._state.leaf.size += len(text)
        if self._state.leaf.size > MAX_PARAGRAPH:
            self._end_leaf()

    def _continue_code(self, line: str, fence: Fence) -> None:
        text = line
        for depth, container in enumerate(self._state.containers):
            if container.marker is not None:
                text = _dedent(text, container.marker.content)
            elif quote := _QUOTE.match(text):
                text = text[quote.end() :]
            else:
                self._close(depth)
                self._read(line.expandtabs(4))
                return
        if fence.is_end(text):
            self._end_leaf()
        else:
            self._emit(Kind.CODE_LINE, _dedent(text, fence.indent))

    def _begin_table(self, text: str) -> bool:
        """Begin a table if the line is the delimiter row below a table head."""
        if not isinstance(self._state.leaf, _Paragraph) or "|" not in self._state.leaf.lines[-1]:
            return False
        head = split_cells(self._state.leaf.lines[-1])
        alignment = parse_table_alignment(text, len(head))
        if alignment is None:
            return False
        self._state.leaf.lines.pop()
        self._end_leaf()
        self._state.leaf = _Table(alignment, [head])
        return True

    def _continue_table(self, text: str, table: _Table) -> bool:
        """Add a row; if the line is not a row, end the table and return False."""
        if "|" not in text or self._is_start(text, len(self._state.containers)):
            self._end_leaf()
            return False
        columns = len(table.alignment)
        cells = split_cells(text)
        row = (*cells[: columns - 1], " | ".join(cells[columns - 1 :]))
        row = (*row, *[""] * (columns - len(row)))
        if table.is_split:
            self._emit(Kind.TABLE_ROW, rows=(row,), alignment=table.alignment)
            return True
        table.rows.append(row)
        if len(table.rows) > MAX_TABLE:
            self._emit(Kind.TABLE, rows=tuple(table.rows), alignment=table.alignment)
            table.rows, table.is_split = [], True
        return True

    def _begin_formula(self, text: str) -> bool:
        """Begin a formula in lines of its own."""
        stripped = text.strip()
        end = {"$$": "$$", "\\[": "\\]"}.get(stripped[:2])
        if end is None or isinstance(self._state.leaf, _Paragraph):
            return False
        inside = stripped[2:]
        if inside.endswith(end) and end not in inside[:-2]:
            self._emit(Kind.FORMULA, inside[:-2].strip())
            return True
        if end in inside:
            return False
        self._state.leaf = _Formula(end, [text])
        return True

    def _continue_formula(self, text: str, formula: _Formula) -> None:
        """Add a line; a formula that is too long becomes text."""
        formula.lines.append(text)
        if text.rstrip().endswith(formula.end):
            self._state.leaf = None
            whole = "\n".join(formula.lines).strip()
            self._emit(Kind.FORMULA, whole[2:-2].strip())
        elif len(formula.lines) > MAX_FORMULA:
            self._end_leaf()

    def _end_leaf(self) -> None:
        leaf, self._state.leaf = self._state.leaf, None
        match leaf:
            case _Paragraph(lines) | _Formula(_, lines) if lines:
                self._emit(Kind.PARAGRAPH, "\n".join(lines))
            case _Table() if leaf.rows:
                self._emit(Kind.TABLE, rows=tuple(leaf.rows), alignment=leaf.alignment)
            case Fence():
                self._emit(Kind.CODE_END)

    def _close(self, depth: int) -> None:
        """Close all containers after the first `depth`."""
        if depth >= len(self._state.containers):
            return
        self._end_leaf()
        if self._state.shown < len(self._state.containers):
            self._emit(Kind.PARAGRAPH)
        del self._state.containers[depth:]
        self._state.shown = min(self._state.shown, depth)

    def _emit(
        self,
        kind: Kind,
        text: str = "",
        *,
        level: int = 0,
        rows: tuple[tuple[str, ...], ...] = (),
        alignment: tuple[str, ...] = (),
    ) -> None:
        containers = tuple(self._state.containers)
        gap = None
        if self._state.last is not None and self._state.has_gap:
            pairs = zip(self._state.last, containers, strict=False)
            gap = next(
                (at for at, (old, new) in enumerate(pairs) if old is not new),
                min(map(len, (self._state.last, containers))),
            )
        self._blocks.append(Block(kind, text, level, rows, alignment, containers, self._state.shown, gap))
        self._state.shown, self._state.last, self._state.has_gap = len(containers), containers, False


def _dedent(text: str, columns: int) -> str:
    """Return a line of code without up to `columns` columns of its indentation."""
    if not columns:
        return text
    indent = len(text) - len(text.lstrip(" \t"))
    spaces = text[:indent].expandtabs(4) if "\t" in text[:indent] else text[:indent]
    return spaces[columns:] + text[indent:]
