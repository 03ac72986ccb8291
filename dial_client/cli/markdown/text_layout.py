"""Layout of styled text in terminal rows: widths, wrapping, and escape sequences."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

MAX_CLUSTER = 12
"""The maximum characters of one letter with its marks; further marks would be drawn over other lines."""
MAX_ADDRESS = 2_000
_ADDRESS = re.compile(r"https?://[\x21-\x7e]+\Z")
_PART = re.compile(r"\n|[^\S\n\xa0]+|[^\s]+|\xa0+")
_CLOSING = frozenset("、。，．！？；：）］｝」』】〉》〕ー～…’”")  # noqa: RUF001 - punctuation of East Asian text
_OPENING = frozenset("（［｛「『【〈《〔‘“")  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class Span:
    """Text of one style, escaped already and without tabs."""

    text: str
    style: str = ""
    """The parameters of its SGR sequence."""
    address: str = ""
    """The URL that the text links to; empty for no link."""


TextRow = list[Span]


@lru_cache(4_096)
def count_columns(text: str) -> int:
    """Return the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    return max(0, wcswidth(text))


def split_clusters(text: str) -> Iterator[str]:
    """Yield the letters of a text, each with its marks, as a terminal draws them in one place."""
    if text.isascii():
        yield from text
        return
    from wcwidth import iter_graphemes

    yield from (cluster[:MAX_CLUSTER] for cluster in iter_graphemes(text))


@dataclass(frozen=True, slots=True)
class _Word:
    """Spans that are kept on one row if possible."""

    spans: tuple[Span, ...]
    width: int
    space: str
    """The spaces before it on the same row."""
    space_span: Span | None
    breaks: bool = False
    """Whether this is a line break."""


def wrap(spans: Iterable[Span], columns: int) -> list[TextRow]:
    """Return spans as rows no wider than `columns`; wider words are broken."""
    rows: list[TextRow] = [[]]
    used = 0
    for word in _split_words(spans):
        if word.breaks:
            rows.append([])
            used = 0
            continue
        space = len(word.space)
        if used and used + space + word.width <= columns:
            if word.space_span:
                rows[-1].append(word.space_span)
            rows[-1] += word.spans
            used += space + word.width
            continue
        if used:
            rows.append([])
        used = _place(rows, word, columns)
    return rows


def chop(row: TextRow, columns: int) -> list[TextRow]:
    """Return a row as rows no wider than `columns`, broken at any letter."""
    rows: list[TextRow] = [[]]
    _place(
        rows,
        _Word(tuple(Span(span.text.expandtabs(4), span.style) for span in row), measure_width(row), "", None),
        columns,
    )
    return rows


def _place(rows: list[TextRow], word: _Word, columns: int) -> int:
    """Put a word at the start of a row, on several rows if it is too wide; return the used columns of the last row."""
    if word.width <= columns:
        rows[-1] += word.spans
        return word.width
    used = 0
    for span in word.spans:
        start = at = 0
        for cluster in split_clusters(span.text):
            width = count_columns(cluster)
            if used and used + width > columns:
                rows[-1].append(Span(span.text[start:at], span.style, span.address))
                rows.append([])
                start, used = at, 0
            at += len(cluster)
            used += width
        rows[-1].append(Span(span.text[start:], span.style, span.address))
    return used


def _split_words(spans: Iterable[Span]) -> Iterator[_Word]:
    glued: list[Span] = []
    space, space_span = "", None

    def take() -> Iterator[_Word]:
        nonlocal glued, space, space_span
        if glued:
            yield _Word(tuple(glued), sum(count_columns(span.text) for span in glued), space, space_span)
        glued, space, space_span = [], "", None

    for span in spans:
        for part in _PART.findall(span.text):
            if part == "\n":
                yield from take()
                yield _Word((), 0, "", None, breaks=True)
            elif part.isspace() and part[0] != "\xa0":
                yield from take()
                space, space_span = " " * len(part), Span(" " * len(part), span.style, span.address)
            elif part.isascii():
                glued.append(Span(part, span.style, span.address))
            else:
                for piece, breaks in _split_pieces(part, glued[-1].text[-1] if glued else ""):
                    if breaks:
                        yield from take()
                    glued.append(Span(piece, span.style, span.address))
    yield from take()


def _split_pieces(part: str, preceding: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a word, each with True if a row may be broken before it, as around East Asian letters."""
    kept, was_wide = "", False
    last = preceding
    breaks_kept = False
    for cluster in split_clusters(part):
        is_wide = count_columns(cluster) == 2
        if last and (is_wide or was_wide) and cluster not in _CLOSING and last not in _OPENING:
            if kept:
                yield kept, breaks_kept
            kept, breaks_kept = "", True
        kept += cluster
        last, was_wide = cluster, is_wide
    if kept:
        yield kept, breaks_kept


def measure_width(row: Iterable[Span]) -> int:
    """Return the width of spans in terminal columns."""
    return sum(count_columns(span.text) for span in row)


def to_ansi(row: Iterable[Span], *, has_links: bool = True) -> str:
    """Return a row with its escape sequences, each ended within the row. Trailing spaces are kept.

    Args:
        row: The spans.
        has_links: Write hyperlinks (OSC 8).
    """
    written = []
    for span in _merge_spans(row):
        text = f"\x1b[{span.style}m{span.text}\x1b[0m" if span.style else span.text
        if has_links and span.address and len(span.address) <= MAX_ADDRESS and _ADDRESS.match(span.address):
            key = zlib.crc32(span.address.encode())
            text = f"\x1b]8;id={key:x};{span.address}\x1b\\{text}\x1b]8;;\x1b\\"
        written.append(text)
    return "".join(written)


def _merge_spans(row: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans of a row, with neighbours of the same style and link merged."""
    latest: Span | None = None
    for span in row:
        if latest is not None and (span.style, span.address) == (latest.style, latest.address):
            latest = Span(latest.text + span.text, span.style, span.address)
        else:
            if latest is not None:
                yield latest
            latest = span
    if latest is not None:
        yield latest


def to_plain(row: Iterable[Span]) -> str:
    """Return the text of spans, without styles."""
    return "".join(span.text for span in row)
