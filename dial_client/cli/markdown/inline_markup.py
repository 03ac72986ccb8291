"""Parses Markdown inside of a block with markdown-it: emphasis, code, links and formulas become styled spans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dial_client.cli.markdown.formula import to_unicode
from dial_client.cli.markdown.text_layout import Span
from dial_client.cli.markdown.themes import Theme
from dial_client.runtime.safe_text import sanitize

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

MAX_BRACKETS = 100
"""The maximum opening brackets in one text; with more, links are text, because finding their ends would take long."""
MAX_FORMULA = 500
_RULES = ("newline", "escape", "backticks", "strikethrough", "emphasis", "link", "image", "autolink", "entity")
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_BARE = re.compile(r"https?://[\x21-\x7e]+")
_PRODUCT = re.compile(r"[A-Za-z0-9]\*[A-Za-z0-9]")
_NO_FORMULA = re.compile(r"\A\s|\s\Z|\A\Z")
_SCHEME = re.compile(r"\A(?:https?://)?(?:www\.)?|/\Z")


def parse_spans(text: str, theme: Theme, style: str = "") -> list[Span]:
    """Return the text of a block as styled spans.

    Args:
        text: The lines of the block, joined by line feeds.
        theme: The colours.
        style: The style of the whole block.
    """
    has_links = text.count("[") <= MAX_BRACKETS
    parser = _build_parser(has_links=has_links)
    tokens: list[Token] = []
    parser.inline.parse(text, parser, {}, tokens)
    return list(_SpanWriter(theme, style).write(tokens))


class _SpanWriter:
    """Turns the tokens of one text into spans."""

    def __init__(self, theme: Theme, style: str) -> None:
        self._theme = theme
        self._styles = [style]
        self._address = ""
        self._label = ""

    def write(self, tokens: Iterable[Token]) -> Iterator[Span]:
        starts = {"strong_open": self._theme.strong, "em_open": self._theme.emphasis, "s_open": self._theme.deleted}
        for token in tokens:
            match token.type:
                case "softbreak" | "hardbreak":
                    yield Span("\n")
                case "code_inline":
                    yield self._build_span(token.content, self._theme.code)
                case "formula":
                    yield self._build_span(to_unicode(token.content))
                case "strong_open" | "em_open" | "s_open":
                    self._styles.append(starts[token.type])
                case "strong_close" | "em_close" | "s_close":
                    self._styles.pop()
                case "link_open":
                    self._address, self._label = str(token.attrs.get("href", "")), ""
                    self._styles.append(self._theme.link)
                case "link_close":
                    yield from self._end_link()
                case "image":
                    yield from self._write_image(token)
                case _:
                    yield from self._write_text(token.content)

    def _write_text(self, content: str) -> Iterator[Span]:
        text = _BREAK.sub("\n", content)
        if self._address or "://" not in text:
            yield self._build_span(text)
            return
        at = 0
        for found in _BARE.finditer(text):
            address = found[0].rstrip(".,;:!?'\")]}*_")
            yield self._build_span(text[at : found.start()])
            yield Span(sanitize(address), ";".join(filter(None, (*self._styles, self._theme.link))), address)
            at = found.start() + len(address)
        yield self._build_span(text[at:])

    def _write_image(self, token: Token) -> Iterator[Span]:
        link, label = self._address, self._label  # an image may be in the text of a link
        self._address, self._label = str(token.attrs.get("src", "")), ""
        self._styles.append(self._theme.link)
        yield self._build_span(f"[image: {token.content}]" if token.content else "[image]")
        yield from self._end_link()
        self._address, self._label = link, label

    def _end_link(self) -> Iterator[Span]:
        """End a link, and add its target unless its text names the target."""
        address, self._address = self._address, ""
        self._styles.pop()
        target = describe_target(address)
        label = _SCHEME.sub("", self._label.strip().lower())
        if target and label != _SCHEME.sub("", address.lower()):
            yield self._build_span(f" ({sanitize(target)})", self._theme.address)

    def _build_span(self, text: str, style: str = "") -> Span:
        text = sanitize(text).expandtabs(4)
        self._label += text if self._address else ""
        return Span(text, ";".join(filter(None, (*self._styles, style))), self._address)


def describe_target(address: str) -> str:
    """Return the host of an HTTP URL, or any other address, shortened if it is long."""
    try:
        parts = urlsplit(address)
        if parts.scheme in ("http", "https"):
            return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or address[:60]
    except ValueError:
        pass
    return address if len(address) <= 60 else f"{address[:59]}…"


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
    if last < 0 or "\n\n" in state.src[first:last] or not _is_formula(state.src, first, last, start):
        return False
    if not silent:
        state.push("formula", "", 0).content = state.src[first:last].strip()
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


def _is_formula(source: str, first: int, last: int, start: str) -> bool:
    inside = source[first:last]
    if start != "$":
        return bool(inside.strip())
    return not (_NO_FORMULA.search(inside) or source[last + 1 : last + 2].isalnum() or "`" in inside)
