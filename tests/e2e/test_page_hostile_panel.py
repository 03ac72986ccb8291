"""The panel of servers with hostile text in names, schemas, resources, logs, results and errors of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.page_geometry import find_unreachable
from tests.support.program import HERE, python_server
from tests.support.servers.hostile_words import MARKUP
from tests.support.web_page import assert_harmless, open_page, read_text, serve_page

pytestmark = pytest.mark.once

NAME = "<b>hostile"
CONTROLS = r"/[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff]/"
"""Control, invisible and text-reversing characters, as a JavaScript pattern."""
REVERSAL = "document.querySelector({!r}).textContent.includes('\\u202e')"


def test_no_text_of_a_server_becomes_markup_or_reverses_text(chromium: Browser, tmp_path: Path) -> None:
    program = HERE / "servers" / "hostile_words.py"
    servers = {NAME: python_server(program, "stdio"), "dying": python_server(program, "die")}
    with serve_page(tmp_path, ["Hello."], servers, "--allow-admin") as address:
        tab = open_page(chromium, address)
        tab.resize(320, 640)
        tab.click("#servers-button")
        tab.until("document.querySelector('[data-key$=\":resources\"]')")
        tab.run("document.querySelectorAll('#servers details').forEach((fold) => { fold.open = true; })")
        assert NAME in read_text(tab, "#servers h3")
        for fold in ("tools", "resources", "errors"):
            assert MARKUP in read_text(tab, f"[data-key$=':{fold}']")
        assert tab.run("document.getElementById('servers').scrollWidth <= innerWidth") is True
        assert tab.run("document.querySelectorAll('[aria-label=\"Attach command\"]').length") == 0, "words of the user"
        assert tab.run(REVERSAL.format("#servers")) is False
        for opener, dialog, content in (
            ("[data-key$=':resources'] [aria-label^='Read']", ".resource-view", ".resource-view pre"),
            ("[aria-label^='Call']", ".tool-form", ".tool-form .argument-editor"),
        ):
            tab.click(opener)
            tab.until(f"document.querySelector({content!r})")
            assert "<img" in read_text(tab, dialog)
            assert tab.run(REVERSAL.format(dialog)) is False
            assert tab.run(f"document.querySelector('{dialog}').scrollWidth <= innerWidth") is True
            if dialog == ".tool-form":
                tab.click(".tool-form .dialog-buttons .primary")
                tab.until("document.querySelector('.tool-form .request')")
                assert tab.run(REVERSAL.format(dialog)) is False
                tab.click(".tool-form .request .primary")
                tab.until("document.querySelector('.tool-form h3')")
                assert tab.run(REVERSAL.format(dialog)) is False
            tab.press("Escape")
            tab.until(f"!document.querySelector('{dialog}')")
        tab.until("document.querySelector('#servers [data-key$=\\':logs\\']')?.textContent.includes('the last one')")
        tab.until("document.querySelector('#servers [data-state=failed] .failure')")
        tab.run("document.querySelectorAll('#servers details').forEach((fold) => { fold.open = true; })")
        logs = read_text(tab, "[data-key$=':logs']")
        assert MARKUP in logs
        assert MARKUP in read_text(tab, "#servers [data-state=failed]")
        assert len(read_text(tab, "#servers")) < 100_000
        assert tab.run(f"{CONTROLS}.test(document.getElementById('servers').textContent)") is False
        assert tab.run("document.getElementById('servers').scrollWidth <= innerWidth") is True
        assert find_unreachable(tab) == []
        assert tab.run("document.querySelectorAll('#servers :is(img, script, b, a[href^=javascript])').length") == 0
        assert_harmless(tab, address)
