"""Text inside of a block: markdown-it reads emphasis, code, links and formulas; rich holds the styled text.

The styles of a `Text` are the parameters of SGR sequences, such as ``1;36``, or ``link URL``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rich.cells import cell_len, chop_cells
from rich.text import Text

from dial_client.cli.markdown.formula import to_unicode
from dial_client.cli.markdown.themes import Theme
from dial_client.runtime.safe_text import sanitize

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

# The maximum opening brackets in one text; with more, links are text, because finding their ends would take long.
MAX_BRACKETS = 100
MAX_FORMULA = 500
MAX_ADDRESS = 2_000
_RULES = ("newline", "escape", "backticks", "strikethrough", "emphasis", "link", "image", "autolink", "entity")
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_BARE = re.compile(r"https?://[\x21-\x7e]+")
_ADDRESS = re.compile(r"https?://[\x21-\x7e]+\Z")
_PRODUCT = re.compile(r"[A-Za-z0-9]\*[A-Za-z0-9]")
_SCHEME = re.compile(r"\A(?:https?://)?(?:www\.)?|/\Z")
_MARKS = re.compile(r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{12})[^\w\s]+")
_CLOSING = "、。，．！？；：）］｝」』】〉》〕ー～…’”"  # noqa: RUF001 - punctuation of East Asian text
_OPENING = "（［｛「『【〈《〔‘“"  # noqa: RUF001
_WIDE = "\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\U0001f300-\U0001faff\U00020000-\U0003ffff"
_LETTER = rf"[{_OPENING}]*(?![{_OPENING}{_CLOSING}])[{_WIDE}]"
# What stays on one row: a word, or a letter of East Asian text with its punctuation; with the spaces after it.
_UNIT = re.compile(rf"(?:(?:{_LETTER}|[^ {_WIDE}]+)[{_CLOSING}]*|[{_OPENING}{_CLOSING}]+)? *")


@lru_cache(2_048)
def parse_text(text: str, theme: Theme, style: str = "") -> Text:
    """Return the text of a block or a cell with its styles; it must not be changed, because later calls return it, too.

    Args:
        text: The lines of the block, joined by line feeds.
        theme: The colours.
        style: The style of the whole block.
    """
    parser = _build_parser(has_links=text.count("[") <= MAX_BRACKETS)
    tokens: list[Token] = []
    parser.inline.parse(text, parser, {}, tokens)
    writer = _TextWriter(theme)
    for token in tokens:
        writer.write(token)
    writer.text.stylize_before(style)
    return writer.text


class _TextWriter:
    """Turns the tokens of one text into styled text."""

    def __init__(self, theme: Theme) -> None:
        self.text = Text()
        self._theme = theme
        # The positions at which open emphasis begins.
        self._starts: list[int] = []
        # The addresses of the open links, and the positions of their texts.
        self._links: list[tuple[str, int]] = []

    def write(self, token: Token) -> None:
        theme = self._theme
        match token.type:
            case "softbreak" | "hardbreak":
                self._append("\n")
            case "code_inline":
                self._append(token.content, theme.code)
            case "formula":
                self._append(to_unicode(token.content))
            case "strong_open" | "em_open" | "s_open":
                self._starts.append(len(self.text))
            case "strong_close" | "em_close" | "s_close":
                styles = {"strong_close": theme.strong, "em_close": theme.emphasis, "s_close": theme.deleted}
                self.text.stylize_before(styles[token.type], self._starts.pop())
            case "link_open":
                self._begin_link(str(token.attrs.get("href", "")))
            case "link_close":
                self._end_link()
            case "image":
                self._begin_link(str(token.attrs.get("src", "")))
                self._append(f"[image: {token.content}]" if token.content else "[image]")
                self._end_link()
            case _:
                self._write_words(_BREAK.sub("\n", token.content))

    def _write_words(self, text: str) -> None:
        """Append text; addresses in it become links."""
        end = 0
        for found in _BARE.finditer(text) if not self._links else ():
            address = found[0].rstrip(".,;:!?'\")]}*_")
            self._append(text[end : found.start()])
            self._append(address, f"link {address}")
            self.text.stylize_before(self._theme.link, len(self.text) - len(address))
            end = found.start() + len(address)
        self._append(text[end:])

    def _begin_link(self, address: str) -> None:
        self._links.append((address, len(self.text)))

    def _end_link(self) -> None:
        """End a link, and add its target unless its text names the target."""
        address, start = self._links.pop()
        label = _SCHEME.sub("", self.text.plain[start:].strip().lower())
        self.text.stylize_before(self._theme.link, start)
        self.text.stylize(f"link {address}", start)
        target = describe_target(address)
        if target and label != _SCHEME.sub("", address.lower()):
            self._append(f" ({target})", self._theme.faint)

    def _append(self, text: str, style: str = "") -> None:
        self.text.append(_MARKS.sub(r"\1", sanitize(text).expandtabs(4)), style or None)


def describe_target(address: str) -> str:
    """Return the host of an HTTP URL, or any other address, shortened if it is long."""
    try:
        parts = urlsplit(address)
        if parts.scheme in ("http", "https"):
            return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or address[:60]
    except ValueError:
        pass
    return address if len(address) <= 60 else f"{address[:59]}…"


def wrap(text: Text, columns: int) -> list[Text]:
    """Return text as rows no wider than `columns`; wider words are broken."""
    return [row for line in text.split("\n", allow_blank=True) for row in _wrap_line(line, columns)]


def _wrap_line(line: Text, columns: int) -> Iterable[Text]:
    if cell_len(line.plain) <= columns:
        return [line]
    starts: list[int] = []
    used = position = 0
    for unit in _UNIT.findall(line.plain):
        width = cell_len(unit.rstrip(" "))
        if used and used + width > columns:
            starts.append(position)
            used = 0
        if width > columns:
            *pieces, last = chop_cells(unit.rstrip(" "), columns)
            starts += (position + end for end in accumulate(map(len, pieces)))
            used = cell_len(last) - width
        used += cell_len(unit)
        position += len(unit)
    rows = line.divide(starts)
    for row in rows:
        row.rstrip()
    return rows


def to_ansi(text: Text, *, has_links: bool = True) -> str:
    """Return a row with its escape sequences, each ended within the row. Trailing spaces are kept.

    Args:
        text: The row.
        has_links: Write hyperlinks (OSC 8).
    """
    plain, ends = text.plain, {0, len(text)}
    for span in text.spans:
        ends |= {span.start, min(span.end, len(text))}
    written = []
    for start, end in pairwise(sorted(ends)):
        shown = plain[start:end]
        styles = [str(span.style) for span in text.spans if span.start <= start < span.end]
        if parameters := ";".join(style for style in styles if not style.startswith("link ")):
            shown = f"\x1b[{parameters}m{shown}\x1b[0m"
        address = next((style[5:] for style in styles if style.startswith("link ")), "")
        if has_links and len(address) <= MAX_ADDRESS and _ADDRESS.match(address):
            shown = f"\x1b]8;id={zlib.crc32(address.encode()):x};{address}\x1b\\{shown}\x1b]8;;\x1b\\"
        written.append(shown)
    return "".join(written)


@cache
def _build_parser(*, has_links: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("zero")
    parser.enable([rule for rule in _RULES if has_links or rule not in ("link", "image")])
    parser.inline.ruler.before("escape", "formula", _read_formula)
    parser.inline.ruler.before("emphasis", "product", _read_product)
    return parser


def _read_formula(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls it
    r"""Read a formula: ``$x^2$``, ``$$x^2$$``, ``\(x^2\)`` or ``\[x^2\]``; an amount of money is not a formula."""
    start = next((mark for mark in ("$$", "$", "\\(", "\\[") if state.src.startswith(mark, state.pos)), None)
    if start is None:
        return False
    end = {"\\(": "\\)", "\\[": "\\]"}.get(start, start)
    first = state.pos + len(start)
    last = state.src.find(end, first, first + MAX_FORMULA)
    inside = state.src[first:last]
    if last < 0 or "\n\n" in inside or not inside.strip():
        return False
    if start == "$" and (inside != inside.strip() or "`" in inside or state.src[last + 1 : last + 2].isalnum()):
        return False  # an amount of money
    if not silent:
        state.push("formula", "", 0).content = inside.strip()
    state.pos = last + len(end)
    return True


def _read_product(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls it
    """Read the asterisk of ``2*3*4`` as text; CommonMark would drop it, and emphasize the 3."""
    if not _PRODUCT.match(state.src, max(0, state.pos - 1)) or state.src[state.pos] != "*":
        return False
    if not silent:
        state.append_pending("*")
    state.pos += 1
    return True
