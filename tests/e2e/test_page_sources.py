"""Sources, images and server-side tools of an answer on the page, during the turn and after a reload."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.inner import Citation, insert_markers
from tests.support.browser import Browser
from tests.support.node_program import import_from, needs_node, run_node
from tests.support.web_page import assert_harmless, open_page, read_text, save_as_html, send_message, serve_page

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def items() -> list[dict[str, Any]]:
    """Return the output items of a response: a search, an image and a text with sources."""
    cited = {
        "type": "url_citation",
        "url": "https://a.test/x",
        "title": "A <b>page</b>",
        "start_index": 3,
        "end_index": 7,
    }
    hostile = cited | {"url": "javascript:alert(1)", "title": "Not a page"}
    mail = cited | {"url": "mailto:a@a.test", "title": "<img src=https://evil.test/a.png onerror=alert(1)>\u202e"}
    text = "Grüße 🌍, sagt die Quelle. `a[1]` [9]"
    return [
        {"type": "web_search_call", "id": "ws1", "status": "completed", "action": {"type": "search", "query": "sky"}},
        {"type": "image_generation_call", "id": "ig1", "status": "completed", "result": PIXEL, "output_format": "png"},
        {
            "type": "message",
            "id": "msg1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": [cited, hostile, mail]}],
        },
    ]


def test_an_answer_shows_its_sources_its_image_and_the_searches_of_the_endpoint(
    tmp_path: Path, chromium: Browser
) -> None:
    body = {"object": "response", "status": "completed", "output": items(), "usage": {"input_tokens": 3}}
    with serve_page(tmp_path, [{"wire": "responses", "body": body}]) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Hello")
        assert "A <b>page</b>" in read_text(tab, ".sources")
        assert read_text(tab, ".answer .prose").strip() == "Grüße 🌍[1][2][3], sagt die Quelle. a[1] [9]"
        assert read_text(tab, ".tool .tool-name") == "web_search"
        for _ in range(2):
            links = (
                "[...document.querySelectorAll('.sources li')].map((li) => li.querySelector('a[target]')?.href ?? null)"
            )
            assert tab.run(links) == ["https://a.test/x", None, None]
            assert "a.test" in read_text(tab, ".sources li .quiet")
            assert "onerror=alert(1)>\\u{202e}" in read_text(tab, ".sources li:last-of-type")
            assert tab.run("[...document.querySelectorAll('.marker')].map((e) => e.textContent)") == [
                "[1]",
                "[2]",
                "[3]",
            ]
            assert tab.run("document.querySelector('.marker a').ariaLabel") == "[1] A <b>page</b>"
            tab.run("document.querySelector('.marker:nth-of-type(2) a').focus()")
            tab.press("Enter")
            assert tab.run("document.activeElement.matches('.sources li:nth-child(2)')") is True
            tab.press("Tab")
            tab.press("Enter")
            assert tab.run("document.activeElement.textContent") == "[2]"
            assert "#/c/" in tab.run("location.hash")
            assert tab.run("document.querySelector('.answer figure img').src").startswith("data:image/png;base64,")
            tab.reload()
            assert read_text(tab, ".answer .prose").strip() == "Grüße 🌍[1][2][3], sagt die Quelle. a[1] [9]"
        exported = save_as_html(tab, tmp_path, "Hello").read_text(encoding="utf-8")
        assert 'href="#source-' in exported
        assert re.findall(r'href="(?!#)([^"]*)"', exported) == ["https://a.test/x"]
        for width, is_beside in ((1440, True), (768, False), (320, False)):
            tab.resize(width, 900)
            boxes = (
                "['.answer > .sources', '.answer .prose'].map((s) => document.querySelector(s).getBoundingClientRect())"
            )
            beside = tab.run(f"(([list, text]) => list.left > text.right && list.width > 150)({boxes})")
            assert beside is is_beside
            assert tab.run("document.getElementById('view').scrollWidth <= document.getElementById('view').clientWidth")
        tab.call("Emulation.setEmulatedMedia", media="print")
        assert tab.run("document.querySelector('.sources').checkVisibility()") is True
        assert_harmless(tab, address)


@needs_node
def test_the_page_inserts_source_numbers_at_the_same_positions_as_the_package() -> None:
    cases = [
        ("Hello, world", [Citation("a", start=0, end=5), Citation("b", start=7, end=12), Citation("c")]),
        ("Hello[1], 世界[2]!", [Citation("a", start=0, end=5), Citation("2", start=9, end=12)]),
        ("🌍🌍 e\u0301", [Citation("a", start=0, end=1), Citation("b", start=0, end=1), Citation("a", start=2, end=5)]),
        ("short", [Citation("a", start=1, end=50)]),
    ]
    given = [[text, [citation.to_dict() for citation in citations]] for text, citations in cases]
    program = f"""
    {import_from("sources.js", "insertMarkers")}
    console.log(JSON.stringify({json.dumps(given)}.map(([text, citations]) => insertMarkers(text, citations))));
    """
    assert run_node(program) == [insert_markers(text, citations) for text, citations in cases]
