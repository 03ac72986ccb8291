"""The page with the embedded model and two real servers: approve a tool, stop a turn, reload, continue."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.support.browser import WHY_NOT, browser
from tests.support.program import python_server
from tests.support.real_weights import WEIGHTS, with_weights
from tests.support.web_page import SDK, assert_harmless, open_page, send_message, serve_page

pytestmark = [
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="the extra 'local' is not installed"),
    pytest.mark.skipif(importlib.util.find_spec("mcp_server_time") is None, reason="the extra 'demo' is not installed"),
    with_weights,
    pytest.mark.timeout(3600),  # half a billion parameters on a shared processor
]
TURNS = "document.querySelectorAll('.turn-foot').length"
LAST = "document.querySelector('.turn:last-child"


def test_a_conversation_with_the_embedded_model_works(tmp_path: Path) -> None:
    clock = {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}
    servers = {"time": clock, "library": python_server(SDK, "stdio", enabledTools=["echo"])}
    cache = {"XDG_CACHE_HOME": str(WEIGHTS.parent.parent.parent)}
    with (
        serve_page(tmp_path, None, servers, "--model", "local", "--timeout", "900", **cache) as address,
        browser(tmp_path / "chromium") as chromium,
    ):
        tab = open_page(chromium, address)
        send_message(tab, "What time is it in Tokyo?")
        tab.until("document.querySelector('.request')", within=900)
        assert "time" in tab.run("document.querySelector('.request h2').textContent")
        tab.click(".request-buttons .button:nth-child(2)")
        tab.until(f"{TURNS} === 1", within=900)
        assert "Asia/Tokyo" in tab.run("document.querySelector('.tool-result pre').textContent")

        send_message(tab, "Write a very long story about a lighthouse, in at least fifty sentences.")
        tab.until(f"{LAST} .prose')?.textContent.length > 40 || document.querySelector('.request')", within=900)
        tab.press("Escape")
        tab.until(f"{TURNS} === 2 && {LAST} .stopped')", within=900)

        tab.reload()
        tab.until(f"{TURNS} === 2 && document.querySelector('.tool-result pre')")
        send_message(tab, "Say hello.")
        tab.until(f"document.querySelector('.request') || {TURNS} === 3", within=900)
        if tab.run("!!document.querySelector('.request')"):
            tab.click(".request-denial button")
        tab.until(f"{TURNS} === 3", within=900)
        assert tab.run(f"{LAST} .answer').textContent.trim()")
        assert_harmless(tab, address)
