"""Parses streamed Markdown into blocks with markdown-it: a block is returned as soon as no further line can change it.

The parser keeps only the lines of the last block, and one line that opens the quotes and lists around it; so each line
is parsed together with few others, however long the answer is. Code and long tables are returned line by line: their
first lines are kept, and parsed again with each further line.

Differences from CommonMark, as on the page (``serve/page/markdown_blocks.js``): a single line break is kept, as people
and models write it; "---" under a paragraph is a rule; indented code, HTML and link reference definitions are text.
Lists may be indented irregularly, and code in a list may be indented less than the list.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

# The maximum nesting in tokens of markdown-it: a quote is one, a list item two. Deeper markers are text.
MAX_LEVEL = 20
# Characters after which a paragraph is cut at the end of a line.
MAX_PARAGRAPH = 3_000
# Rows after which the widths of a table's columns are fixed.
MAX_TABLE = 60
# The maximum lines of a formula; a longer formula is text.
MAX_FORMULA = 100
_RULES = ("table", "blockquote", "hr", "list", "heading", "lheading")
_MARKER = re.compile(r" *(?:[-*+]|[0-9]{1,9}[.)])(?: {1,4}(?! )| |\Z)")
_QUOTE = re.compile(r" *> ?")
_TASK = re.compile(r"\[([ xX])\] ")
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_BAR = re.compile(r"(?<!\\)\|")


Kind = Literal["paragraph", "heading", "rule", "code", "table", "formula"]


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """A quote or a list item."""

    marker: str
    """``>`` for a quote, ``-`` for a bullet, ``[ ]`` or ``[x]`` for a task, or the number with its period."""
    line: int
    """The index of the line that opens it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A final block, or a part of one."""

    kind: Kind
    start: int
    """The index of its first line."""
    end: int
    """The index of the line after it."""
    containers: tuple[Container, ...]
    text: str = ""
    """The text of a paragraph, heading or formula, or the lines of code, each with its line feed."""
    level: int = 0
    """The level of a heading."""
    language: str = ""
    """The language of code."""
    rows: tuple[tuple[str, ...], ...] = ()
    """Cells of a table; the first row is its head."""
    alignment: tuple[str, ...] = ()
    """The alignment of a table's columns: ``left``, ``center`` or ``right``."""
    is_open: bool = False
    """Whether further lines may belong to it, if it is code or a table."""
    is_continued: bool = False
    """Whether its beginning, the fence of code or the head of a table, has been returned with an earlier part."""
    new: int = 0
    """The index of the first container whose marker has not been shown."""
    gap: int | None = None
    """The number of containers around the blank line before the block; None if there is no blank line."""


class BlockParser:
    """Parses the lines of one message."""

    def __init__(self) -> None:
        # A line for each line that opened a container of the latest final block, and the lines after this block.
        self._lines: list[str] = []
        # The number of blocks in these lines that stand for returned blocks.
        self._returned = 0
        # The block that further lines may change.
        self._pending: Block | None = None
        # Whether the indices of this block are those of the present lines.
        self._is_current = True
        # The latest part of code or of a table, if further lines may belong to it; its first lines are kept.
        self._open: Block | None = None

    @property
    def is_in_code(self) -> bool:
        """Whether the next line may belong to a code block."""
        return self._open is not None and self._open.kind == "code"

    def clone(self) -> BlockParser:
        """Return an independent copy of this parser."""
        return copy.copy(self)  # the list of a parser is replaced, never changed

    def feed(self, line: str) -> list[Block]:
        """Add a line without its line break, and return the blocks that became final."""
        if not self.is_in_code:
            line = line.expandtabs(4)
            if not line.strip() and self._lines[-1:] == [line]:
                return []
        self._lines = [*self._lines, line]
        blocks = self._read_blocks()
        self._pending = None if not blocks or self._is_final(blocks[-1]) else blocks.pop()
        self._is_current = not blocks
        if blocks:
            self._forget(blocks[-1])
        return blocks

    def finish(self) -> list[Block]:
        """End the message, and return the remaining blocks."""
        if self._open is not None:
            return [replace(_continue(self._open), text="", rows=(), is_open=False)]
        return [] if self._pending is None else [self._pending]

    def _read_blocks(self) -> list[Block]:
        """Return the blocks that have not been returned. Blank lines and most lines of code need no parsing."""
        line, latest, pending = self._lines[-1], self._open, self._pending
        if latest is None and not line.strip():
            if pending is None:
                return []
            if pending.kind == "paragraph" and self._is_current:
                return [pending]
        may_close = line.lstrip().startswith(("`", "~"))
        if latest and latest.kind == "code" and not latest.containers and self._lines[0][0] in "`~" and not may_close:
            return [replace(_continue(latest), start=0, end=2, text=f"{line}\n")]
        blocks = _parse(self._lines)[self._returned :]
        if latest:
            blocks[0] = _continue(blocks[0])
        return blocks

    def _forget(self, last: Block) -> None:
        """Replace the lines up to the end of the last final block by those that open its containers."""
        opening = _open_containers(last.containers, self._lines)
        head: list[str] = []
        self._open = last if last.is_open else None
        if last.is_open:
            opening.pop(last.start, None)
            head = self._lines[last.start : last.start + (1 if last.kind == "code" else 2)]
        elif not opening:
            opening[0] = "#"
        further = (line.expandtabs(4) for line in self._lines[last.end :])
        self._lines, self._returned = [*opening.values(), *head, *further], len(opening)

    def _is_final(self, block: Block) -> bool:
        match block.kind:
            case "paragraph":
                is_full = len(block.text) > MAX_PARAGRAPH
            case "table":
                is_full = block.is_continued or len(block.rows) > MAX_TABLE
            case _:
                is_full = True
        return is_full or block.end < len(self._lines)


def _continue(part: Block) -> Block:
    return replace(part, is_continued=True, new=len(part.containers), gap=None)


def _open_containers(containers: tuple[Container, ...], lines: list[str]) -> dict[int, str]:
    """Return each line that opened containers by its index, with an empty heading in place of their content."""
    opening: dict[int, str] = {}
    for depth, container in enumerate(containers):
        line, end = lines[container.line], 0
        for outer in containers[: depth + 1]:
            pattern = _QUOTE if outer.marker == ">" else _MARKER
            if (outer.marker == ">" or outer.line == container.line) and (found := pattern.match(line, end)):
                end = found.end()
        opening[container.line] = f"{line[:end]}#" if line[:end].endswith(" ") else f"{line[:end]} #"
    return opening


def _parse(lines: list[str]) -> list[Block]:
    """Return the blocks of these lines."""
    parser = _build_parser()
    tokens: list[Token] = []
    parser.block.parse("".join(f"{line}\n" for line in lines), parser, {}, tokens)
    blocks: list[Block] = []
    for block in _read_tokens(tokens, lines):
        if not blocks:
            blocks.append(block)
            continue
        latest = blocks[-1]
        shared = sum(container in latest.containers for container in block.containers)
        start = block.containers[shared].line if shared < len(block.containers) else block.start
        has_gap = start > latest.end or block.kind == "heading"
        blocks.append(replace(block, new=shared, gap=shared if has_gap else None))
    return blocks


def _read_tokens(tokens: list[Token], lines: list[str]) -> Iterator[Block]:
    """Yield the blocks of markdown-it's tokens. An empty list item has an empty paragraph."""
    open_containers: list[Container] = []
    for index, token in enumerate(tokens):
        containers = tuple(open_containers)
        if token.type in ("blockquote_open", "list_item_open"):
            open_containers.append(Container(_find_marker(tokens[index : index + 3]), (token.map or [0])[0]))
        elif token.type in ("blockquote_close", "list_item_close"):
            line = open_containers.pop().line
            if tokens[index - 1].nesting > 0:
                yield Block("paragraph", line, line + 1, containers)
        elif block := _read_block(tokens, index, containers, lines):
            yield block


def _find_marker(tokens: list[Token]) -> str:
    """Return the marker of a container, which the first token opens."""
    if tokens[0].type == "blockquote_open":
        return ">"
    if tokens[0].info:
        return f"{int(tokens[0].info)}{tokens[0].markup}"
    task = _TASK.match(tokens[2].content) if tokens[1].type == "paragraph_open" else None
    return f"[{task[1].lower()}]" if task else "-"


def _read_block(tokens: list[Token], index: int, containers: tuple[Container, ...], lines: list[str]) -> Block | None:
    """Return the block that a token begins; None if it begins none."""
    token = tokens[index]
    start, end = token.map or (0, 0)
    match token.type:
        case "paragraph_open":
            text = tokens[index + 1].content
            if tokens[index - 1].type == "list_item_open" and containers[-1].marker[0] == "[":
                text = _TASK.sub("", text, count=1)
            return Block("paragraph", start, end, containers, re.sub(" *\n *", "\n", text))
        case "heading_open":
            return Block("heading", start, end, containers, tokens[index + 1].content, int(token.tag[1]))
        case "hr":
            return Block("rule", start, end, containers)
        case "fence":
            found = _LANGUAGE.match(token.info.strip().lstrip("{."))
            is_open = end == len(lines) and token.content.count("\n") == end - start - 1
            language = found[0].lower() if found else ""
            return Block("code", start, end, containers, token.content, language=language, is_open=is_open)
        case "formula":
            return Block("formula", start, end, containers, token.content)
        case "open_formula":
            return Block("paragraph", start, end, containers, token.content)
        case "table_open":
            return _read_table(tokens[index:], containers, lines)
    return None


def _read_table(tokens: list[Token], containers: tuple[Container, ...], lines: list[str]) -> Block:
    start, end = tokens[0].map or (0, 0)
    rows: list[list[str]] = []
    alignment = []
    for token in takewhile(lambda token: token.type != "table_close", tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(token.content)
        elif token.type == "th_open":
            style = str(token.attrs.get("style", ""))
            alignment.append(style.rpartition(":")[2] or "left")
    for row, line in zip(rows[1:], lines[start + 2 : end], strict=True):
        # markdown-it drops cells without a column, which may be the end of an expression with unescaped bars.
        if surplus := _BAR.split(line.strip().removesuffix("|"))[len(row) + line.strip().startswith("|") :]:
            row[-1] = " | ".join((row[-1], *map(str.strip, surplus)))
    cells = tuple(map(tuple, rows))
    return Block("table", start, end, containers, rows=cells, alignment=tuple(alignment), is_open=end == len(lines))


@cache
def _build_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import blockquote, fence, lheading, list_block

    def read_list(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls it
        if state.level >= MAX_LEVEL:
            return False
        if not silent:
            _indent_items(state, start, end)
        return list_block(state, start, end, silent)

    def read_quote(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
        return state.level < MAX_LEVEL and blockquote(state, start, end, silent)

    def read_title(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
        count = len(state.tokens)
        if lheading(state, start, end, silent) and state.tokens[-1].markup == "=":
            return True
        del state.tokens[count:]  # hyphens are a rule below a paragraph
        return False

    def read_code(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
        outer = state.blkIndent, state.sCount[start]
        # No line is indented too little for the list around it; and `_indent_items` may have indented the fence.
        state.blkIndent, state.sCount[start] = 0, state.tShift[start]
        is_read = fence(state, start, end, silent)
        state.blkIndent, state.sCount[start] = outer
        return is_read

    def end_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001, ARG001
        return silent and state.parentType == "table" and "|" not in _get_line(state, start)

    parser = MarkdownIt("zero", {"maxNesting": 10 * MAX_LEVEL}).enable(_RULES)
    ruler, alternatives = parser.block.ruler, ["paragraph", "reference", "blockquote", "list"]
    ruler.at("list", read_list, {"alt": ["paragraph", "reference", "blockquote"]})
    ruler.at("blockquote", read_quote, {"alt": alternatives})
    ruler.at("lheading", read_title)
    ruler.before("table", "fenced code", read_code, {"alt": alternatives})  # first, as a fence is final
    ruler.before("blockquote", "formula", _read_formula)
    ruler.after("table", "table end", end_table, {"alt": ["blockquote"]})
    return parser


def _indent_items(state: StateBlock, start: int, end: int) -> None:
    """Indent lines below an item that begin an item two columns deeper, so that CommonMark puts it into the first."""
    outer = content = state.sCount[start]
    original = shift = 0
    for line in range(start, end):
        if state.isEmpty(line):
            continue
        indent = state.sCount[line]
        marker = _MARKER.match(_get_line(state, line))
        if indent < outer + 2:
            if marker is None:
                return
            outer, content, shift = indent, indent + marker.end(), 0
        elif marker and indent < content:
            original, shift = indent, content - indent
        elif indent <= original:
            shift = 0
        if shift:
            state.sCount[line] += shift


def _read_formula(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001, ARG001 - see above
    """Read a formula in lines of its own; a formula without its end becomes an ``open_formula``, which may get it."""
    lines = [_get_line(state, start)]
    mark = {"$$": "$$", "\\[": "\\]"}.get(lines[0][:2])
    if mark is None or mark in lines[0][2:].removesuffix(mark):
        return False
    text, line = lines[0][2:], start + 1
    while not text.endswith(mark) and line < end and not state.isEmpty(line):
        if state.sCount[line] < state.blkIndent or len(lines) > MAX_FORMULA:
            return False
        text = _get_line(state, line)
        lines.append(text)
        line += 1
    is_closed = text.endswith(mark)
    token = state.push("formula" if is_closed else "open_formula", "", 0)
    token.content = "\n".join(lines)[2:-2].strip() if is_closed else "\n".join(lines)
    token.map = [start, line]
    state.line = line
    return True


def _get_line(state: StateBlock, line: int) -> str:
    """Return a line without the marks of its containers, its indentation and spaces at its end."""
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].strip()
