"""On the site, terms of the glossary are links, and the glossary explains every abbreviation of the guides."""

from __future__ import annotations

import re

import pytest

from site_pages.glossary_links import add_anchors, link_terms, read_terms
from site_pages.root_pages import ROOT

pytestmark = pytest.mark.once
NO_ABBREVIATION = r"DC\d{3}|ACME|CONTRIBUTING|PX|README|FILE|HOST|PROMPT|S256"
"""Finding codes of `doctor`, placeholders of commands, file names, words of quoted questions, and `S256`."""


def test_only_the_first_use_of_a_term_is_linked_to_the_glossary() -> None:
    linked = link_terms("A durable turn, and one more durable turn, in the turn of a user.\n")
    assert linked == (
        "A [durable turn](glossary.md#durable-turn), and one more durable turn, "
        "in the [turn](glossary.md#turn) of a user.\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "# The turn\n",
        "```python\nthe turn\n```\n",
        "`the turn`, [the turn](turns.md), <b title='the turn'>x</b>\n",
        "| the turn | the grant |\n",
        "Options turn on and off; tools-first, as JSON.\n",
        "    the turn\n",
    ],
)
def test_terms_in_headings_code_links_tables_and_verbs_are_not_linked(text: str) -> None:
    assert link_terms(text) == text


def test_every_term_has_an_anchor_in_the_glossary() -> None:
    page = add_anchors((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    anchors = re.findall(r'<a id="([^"]+)"></a>', page)
    assert len(anchors) == len(set(anchors))
    assert {"turn", "MCP host", "server-sent events", "SSE", "delta"} <= set(read_terms())
    assert set(read_terms().values()) <= set(anchors)


def test_every_abbreviation_of_the_guides_is_in_the_glossary() -> None:
    explained = {term for term in read_terms() if term.isupper()}
    unexplained = {}
    for path in (ROOT / "docs").glob("*.md"):
        prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        prose = re.sub(r"`[^`]*`|https?://\S+|\]\([^)]*\)", "", prose)
        words = {word.removesuffix("s") for word in re.findall(r"\b[A-Z][A-Z0-9]+s?\b", prose)}
        if missing := {word for word in words - explained if not re.fullmatch(NO_ABBREVIATION, word)}:
            unexplained[path.name] = sorted(missing)
    assert unexplained == {}
