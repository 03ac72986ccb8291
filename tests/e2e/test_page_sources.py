"""Sources, images and tools of the endpoint on the page: while the turn runs, and when it is read again."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dial_client.citations import Citation, insert_markers
from tests.support.browser import Browser
from tests.support.web_page import assert_harmless, open_page, read_text, send_message, serve_page

PAGE = Path(__file__).parents[2] / "dial_client" / "serve" / "page"
NODE = shutil.which("node")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def items() -> list[dict[str, Any]]:
    """Return what an endpoint answers: a search, an image and a text with sources."""
    cited = {
        "type": "url_citation",
        "url": "https://a.test/x",
        "title": "A <b>page</b>",
        "start_index": 3,
        "end_index": 7,
    }
    hostile = cited | {"url": "javascript:alert(1)", "title": "Not a page"}
    text = "Grüße 🌍, sagt die Quelle."
    return [
        {"type": "web_search_call", "id": "ws1", "status": "completed", "action": {"type": "search", "query": "sky"}},
        {"type": "image_generation_call", "id": "ig1", "status": "completed", "result": PIXEL, "output_format": "png"},
        {
            "type": "message",
            "id": "msg1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": [cited, hostile]}],
        },
    ]


def test_an_answer_has_its_sources_its_image_and_the_searches_of_the_endpoint(
    tmp_path: Path, chromium: Browser
) -> None:
    body = {"object": "response", "status": "completed", "output": items(), "usage": {"input_tokens": 3}}
    with serve_page(tmp_path, [{"wire": "responses", "body": body}]) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Hello")
        assert "A <b>page</b>" in read_text(tab, ".sources")
        assert read_text(tab, ".answer .prose").strip() == "Grüße 🌍[1][2], sagt die Quelle."
        assert read_text(tab, ".tool .tool-name") == "web_search"
        for _ in range(2):
            links = "[...document.querySelectorAll('.sources li')].map((li) => li.querySelector('a')?.href ?? null)"
            assert tab.run(links) == ["https://a.test/x", None]
            assert tab.run("document.querySelector('.answer figure img').src").startswith("data:image/png;base64,")
            tab.reload()
            assert read_text(tab, ".answer .prose").strip() == "Grüße 🌍[1][2], sagt die Quelle."
        assert_harmless(tab, address)


@pytest.mark.skipif(NODE is None, reason="Node is not installed: it runs the page's modules")
def test_the_page_puts_the_numbers_of_sources_where_the_package_does() -> None:
    assert NODE is not None
    cases = [
        ("Hello, world", [Citation("a", start=0, end=5), Citation("b", start=7, end=12), Citation("c")]),
        ("Hello[1], 世界[2]!", [Citation("a", start=0, end=5), Citation("2", start=9, end=12)]),
        ("🌍🌍 e\u0301", [Citation("a", start=0, end=1), Citation("b", start=0, end=1), Citation("a", start=2, end=5)]),
        ("short", [Citation("a", start=1, end=50)]),
    ]
    given = [[text, [citation.to_dict() for citation in citations]] for text, citations in cases]
    program = f"""
    import {{ insertMarkers }} from {json.dumps((PAGE / "sources.js").as_uri())};
    console.log(JSON.stringify({json.dumps(given)}.map(([text, citations]) => insertMarkers(text, citations))));
    """
    command = [NODE, "--input-type=module", "-e", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True, encoding="utf-8")
    assert json.loads(ended.stdout) == [insert_markers(text, citations) for text, citations in cases]
