"""Links to the glossary: on the site, the first use of each of its terms on a page is a link to the glossary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from site_pages.root_pages import ROOT

PAGE = "glossary.md"
_ROW = re.compile(r"^\| ([^|`]+?) \|", re.MULTILINE)
_HEADS = ("word", "---", "abbreviation")
_AMBIGUOUS = {"client", "prompt"}
"""Terms with other meanings: `DialClient` is a client, too, and a prompt may be a user's message."""
_DETERMINERS = "a|an|the|each|every|this|that|one|per|of|no|its"
"""Words that must precede a lower-case term of one word, which may otherwise be a verb (*turn on*)."""
_NOT_PROSE = re.compile(r"`[^`]*`|!?\[(?:[^\[\]]|\[[^\]]*\])*\]\([^)]*\)|<[^>]*>|https?://\S+")
_BLOCK = re.compile(r"^(```.*?^```|:::.*?(?=^\S)|#[^\n]*|[|>!<][^\n]*| {4}[^\n]*)$", re.DOTALL | re.MULTILINE)


@cache
def read_terms() -> dict[str, str]:
    """Return the anchor of each term of the glossary."""
    text = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    return {term: _anchor(cell) for cell in _list_cells(text) for term in _split(cell)}


def add_anchors(text: str) -> str:
    """Return the text of the glossary with an anchor in each row."""

    def mark(match: re.Match[str]) -> str:
        cell = match[1]
        return match[0] if cell.startswith(_HEADS) else f'| <a id="{_anchor(cell)}"></a>{cell} |'

    return _ROW.sub(mark, text)


def link_terms(text: str) -> str:
    """Return a page whose prose links the first use of each term; code, headings, tables and links do not change."""
    parts = list(_split_prose(text))
    for term in sorted(_linked_terms(), key=len, reverse=True):
        pattern = _pattern(term)
        for index, (is_prose, part) in enumerate(parts):
            found = pattern.search(part) if is_prose else None
            if found:
                link = f"[{found[1]}]({PAGE}#{read_terms()[term]})"
                before, after = part[: found.start(1)], part[found.end(1) :]
                parts[index : index + 1] = [(True, before), (False, link), (True, after)]
                break
    return "".join(part for _, part in parts)


@cache
def _linked_terms() -> list[str]:
    """Return the terms that are linked: all except ambiguous words and common abbreviations."""
    words, _, _ = (ROOT / "docs" / PAGE).read_text(encoding="utf-8").partition("## Abbreviations")
    return [term for cell in _list_cells(words) for term in _split(cell) if term not in _AMBIGUOUS]


def _list_cells(text: str) -> list[str]:
    return [cell for cell in _ROW.findall(text) if not cell.startswith(_HEADS)]


def _split(cell: str) -> list[str]:
    """Return the terms of a cell: `MCP host, client, server` are three, `server-sent events (SSE)` two."""
    return [
        term for part in cell.split(", ") for term in re.findall(r"[^()]+", part.replace(" (", "(")) if len(term) > 1
    ]


def _anchor(cell: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", cell.lower()).strip("-")


def _pattern(term: str) -> re.Pattern[str]:
    word = rf"({re.escape(term)}(?:e?s)?)\b(?![-_./])"
    if term.islower() and " " not in term and "-" not in term:
        return re.compile(rf"\b(?:{_DETERMINERS}) {word}")
    return re.compile(rf"(?<![-\w./]){word}")


def _split_prose(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the pieces of a page in order, and whether each is prose."""
    for outer, is_block in _pieces(_BLOCK, text):
        if is_block:
            yield False, outer
        else:
            yield from ((not is_code, piece) for piece, is_code in _pieces(_NOT_PROSE, outer))


def _pieces(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, bool]]:
    end = 0
    for match in pattern.finditer(text):
        yield text[end : match.start()], False
        yield match[0], True
        end = match.end()
    yield text[end:], False
