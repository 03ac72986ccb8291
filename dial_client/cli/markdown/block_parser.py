"""Parses streamed Markdown into blocks with markdown-it: a block is returned as soon as no further line can change it.

The parser keeps only the lines of the last block, and one line that opens the quotes and lists around it; so each line
is parsed together with few others, however long the answer is. In code and in long tables, each line is a block.

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
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

MAX_LEVEL = 20
"""The maximum nesting in tokens of markdown-it: a quote is one, a list item two. Deeper markers are text."""
MAX_PARAGRAPH = 3_000
"""Characters after which a paragraph is cut at the end of a line."""
MAX_TABLE = 60
"""Rows after which the widths of a table's columns are fixed."""
MAX_FORMULA = 100
"""The maximum lines of a formula; a longer formula is text."""
_RULES = ("table", "fence", "blockquote", "hr", "list", "heading", "lheading")
_MARKER = re.compile(r" *(?:[-*+]|[0-9]{1,9}[.)])(?: {1,4}(?! )| |\Z)")
_QUOTE = re.compile(r" *> ?")
_TASK = re.compile(r"\[([ xX])\] ")
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_BAR = re.compile(r"(?<!\\)\|")


Kind = Literal["paragraph", "heading", "rule", "code start", "code line", "code end", "table", "table row", "formula"]
"""Kinds of blocks, and of parts of blocks that are returned one by one; a table row follows a long table."""


@dataclass(slots=True, eq=False)
class Container:
    """A quote or a list item."""

    marker: str
    """``>`` for a quote, ``-`` for a bullet, ``[ ]`` or ``[x]`` for a task, or the number with its period."""
    line: int
    """The index of the line that opens it."""
    is_empty: bool = True


@dataclass(frozen=True, slots=True)
class Block:
    """A final block."""

    kind: Kind
    start: int
    """The index of its first line."""
    end: int
    """The index of the line after it."""
    containers: tuple[Container, ...]
    text: str = ""
    """The text of a paragraph, heading, formula or line of code, or the language of a code block."""
    level: int = 0
    """The level of a heading."""
    mark: str = ""
    """The backticks or tildes around code."""
    rows: tuple[tuple[str, ...], ...] = ()
    """Cells of a table; the first row is its head."""
    alignment: tuple[str, ...] = ()
    """The alignment of a table's columns: ``left``, ``center`` or ``right``."""
    new: int = 0
    """The index of the first container whose marker has not been shown."""
    gap: int | None = None
    """The number of containers around the blank line before the block; None if there is no blank line."""


class BlockParser:
    """Parses the lines of one message."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        """A line for each line that opened a container of the latest final block, and the lines after this block."""
        self._returned = 0
        """The number of blocks in these lines that stand for returned blocks."""
        self._pending: Block | None = None
        """The block that further lines may change."""
        self._source = self._lines
        """The lines in which this block counts its own."""
        self._code: Block | None = None
        """The open code block."""
        self._code_indent = 0
        self._table: Block | None = None
        """The open table whose rows are returned one by one."""
        self._table_head: list[str] = []

    @property
    def is_in_code(self) -> bool:
        """Whether the next line may belong to a code block."""
        return self._code is not None

    def clone(self) -> BlockParser:
        """Return an independent copy of this parser."""
        return copy.copy(self)  # the lists of a parser are replaced, never changed

    def feed(self, line: str, *, is_end: bool = False) -> list[Block]:
        """Add a line without its line break, and return the blocks that became final; at the end, all blocks."""
        blocks: list[Block] = []
        if self._code is not None:
            blocks.append(self._read_code(line, self._code))
            if _strip_quotes(line, blocks[0]) is not None:
                return blocks
        line = line.expandtabs(4)
        if self._table is not None:
            if row := self._read_row(line, self._table):
                return [row]
            self._table = None
        pending, is_blank = self._pending, not line.strip()
        if pending is not None and pending.kind == "table" and "|" not in line:
            self._forget([pending], self._source, may_continue=False)  # text below a table is no row of it
            blocks, pending = [*blocks, pending], None
        if not is_blank or self._lines[-1:] != [line]:
            self._lines = [*self._lines, line]
        if is_blank and (pending is None or not pending.text.startswith(("$$", "\\["))):
            # A blank line ends a paragraph, and changes no block before it: nothing is parsed again.
            ended = [] if pending is None else [pending]
            self._forget(ended, [*self._source, line])
            return blocks + ended
        self._source = self._lines
        parsed = _parse(self._lines)[self._returned :]
        self._pending = None if is_end or not parsed or self._is_final(parsed[-1]) else parsed.pop()
        self._forget(parsed, self._lines, may_continue=not is_end)
        return blocks + parsed

    def finish(self) -> list[Block]:
        """End the message, and return the remaining blocks."""
        return [*([] if self._code is None else [self._end_code(self._code)]), *filter(None, [self._pending])]

    def _forget(self, blocks: list[Block], lines: list[str], *, may_continue: bool = True) -> None:
        """Replace the lines of final blocks, out of the lines they count in, by those that open their containers."""
        if not blocks:
            return
        last = blocks[-1]
        if self._pending is last:
            self._pending = None
        if last.kind == "code start":
            self._code = last
            self._code_indent = len((_strip_quotes(lines[last.start], last) or "").partition(last.mark)[0])
        elif last.kind == "table" and last.end == len(lines) and may_continue:
            self._table, self._table_head = last, lines[last.start : last.start + 2]
        opening = _open_containers(last.containers, lines)
        self._lines, self._returned = opening + lines[last.end :], len(opening)

    def _is_final(self, block: Block) -> bool:
        match block.kind:
            case "paragraph":
                is_full = len(block.text) > MAX_PARAGRAPH
            case "table":
                is_full = len(block.rows) > MAX_TABLE
            case _:
                is_full = True
        return is_full or block.end < len(self._lines)

    def _read_code(self, line: str, start: Block) -> Block:
        """Return a line of code, or the end of the code."""
        text = _strip_quotes(line, start)
        if text is None or (len(text.strip()) >= len(start.mark) and not text.strip().strip(start.mark[0])):
            return self._end_code(start)
        indent = len(text) - len(text.lstrip(" \t"))
        spaces = text[:indent].expandtabs(4) if self._code_indent else text[:indent]
        text = spaces[self._code_indent :] + text[indent:]
        return replace(start, kind="code line", text=text, new=len(start.containers), gap=None)

    def _end_code(self, start: Block) -> Block:
        self._code = None
        return replace(start, kind="code end", new=len(start.containers), gap=None)

    def _read_row(self, line: str, table: Block) -> Block | None:
        """Return the next row of a long table; None if the line is not a row."""
        blocks = _parse([*self._table_head, line])
        if len(blocks) != 1 or len(blocks[0].rows) != 2 or "|" not in line:
            return None
        return replace(table, kind="table row", rows=blocks[0].rows[1:], new=len(table.containers), gap=None)


def _strip_quotes(line: str, code: Block) -> str | None:
    """Return a line without the marks of the quotes around a code block; None if the line is not in these quotes."""
    for container in code.containers:
        if container.marker == ">":
            if not (found := _QUOTE.match(line)):
                return None
            line = line[found.end() :]
    return line


def _open_containers(containers: tuple[Container, ...], lines: list[str]) -> list[str]:
    """Return a line for each line that opened containers, with an empty heading in place of their content."""
    opening: dict[int, str] = {}
    for depth, container in enumerate(containers):
        line, end = lines[container.line], 0
        for outer in containers[: depth + 1]:
            pattern = _QUOTE if outer.marker == ">" else _MARKER
            if (outer.marker == ">" or outer.line == container.line) and (found := pattern.match(line, end)):
                end = found.end()
        opening[container.line] = line[:end] if line[:end].endswith(" ") else f"{line[:end]} "
    return [f"{prefix}#" for prefix in opening.values()] or ["#"]


def _parse(lines: list[str]) -> list[Block]:
    """Return the blocks of these lines."""
    parser = _build_parser()
    tokens: list[Token] = []
    parser.block.parse("\n".join(lines), parser, {}, tokens)
    blocks: list[Block] = []
    for block in _read_tokens(tokens, lines):
        for container in block.containers:
            container.is_empty = False
        if not blocks:
            blocks.append(block)
            continue
        latest = blocks[-1]
        pairs = zip(latest.containers, block.containers, strict=False)
        shared = next(
            (depth for depth, (old, new) in enumerate(pairs) if old is not new),
            min(len(latest.containers), len(block.containers)),
        )
        start = block.containers[shared].line if shared < len(block.containers) else block.start
        has_gap = start > latest.end or block.kind == "heading"
        blocks.append(replace(block, new=shared, gap=shared if has_gap else None))
    return blocks


def _read_tokens(tokens: list[Token], lines: list[str]) -> Iterator[Block]:
    """Yield the blocks of markdown-it's tokens. An empty list item has an empty paragraph."""
    open_containers: list[Container] = []
    for index, token in enumerate(tokens):
        start = token.map[0] if token.map else 0
        containers = tuple(open_containers)
        if token.type == "blockquote_open":
            open_containers.append(Container(">", start))
        elif token.type == "list_item_open":
            open_containers.append(Container(f"{int(token.info)}{token.markup}" if token.info else "-", start))
        elif token.type in ("blockquote_close", "list_item_close"):
            if open_containers.pop().is_empty:
                yield Block("paragraph", containers[-1].line, containers[-1].line + 1, containers)
        elif block := _read_block(tokens, index, containers, lines):
            yield block


def _read_block(tokens: list[Token], index: int, containers: tuple[Container, ...], lines: list[str]) -> Block | None:
    """Return the block that a token begins; None if it begins none."""
    token = tokens[index]
    start, end = token.map or (0, 0)
    match token.type:
        case "paragraph_open":
            text = tokens[index + 1].content
            if containers and containers[-1].marker == "-" and containers[-1].is_empty and (task := _TASK.match(text)):
                containers[-1].marker = f"[{task[1].lower()}]"
                text = text[task.end() :]
            return Block("paragraph", start, end, containers, re.sub(" *\n *", "\n", text))
        case "heading_open":
            return Block("heading", start, end, containers, tokens[index + 1].content, level=int(token.tag[1]))
        case "hr":
            return Block("rule", start, end, containers)
        case "fence":
            found = _LANGUAGE.match(token.info.strip().lstrip("{."))
            return Block("code start", start, end, containers, found[0].lower() if found else "", mark=token.markup)
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
    for token in tokens:
        if token.type == "table_close":
            break
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
    return Block("table", start, end, containers, rows=tuple(map(tuple, rows)), alignment=tuple(alignment))


@cache
def _build_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import blockquote, lheading, list_block

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

    parser = MarkdownIt("zero", {"maxNesting": 10 * MAX_LEVEL}).enable(_RULES)
    parser.block.ruler.at("list", read_list, {"alt": ["paragraph", "reference", "blockquote"]})
    parser.block.ruler.at("blockquote", read_quote, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.block.ruler.at("lheading", read_title)
    parser.block.ruler.before("fence", "formula", _read_formula)
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
    while not text.endswith(mark) and line < end:
        if state.isEmpty(line) or state.sCount[line] < state.blkIndent or len(lines) > MAX_FORMULA:
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
