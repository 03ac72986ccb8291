"""The published examples of the MCP Apps extension, on the page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser
from tests.support.web_page import DONE, assert_harmless, find_frame, open_page, send_message, serve_page

pytestmark = pytest.mark.once

NODE = shutil.which("node")
PACKAGES = Path(__file__).parents[2] / "build" / "npm" / "node_modules" / "@modelcontextprotocol"
SERVERS = {
    name: PACKAGES / f"server-{name}" / "dist" / "index.js"
    for name in ("basic-vanillajs", "budget-allocator", "debug", "system-monitor")
}
needs_examples = pytest.mark.skipif(
    NODE is None or not all(program.is_file() for program in SERVERS.values()),
    reason="the examples of MCP Apps are not here: `make test` installs them with Node",
)


def examples() -> dict[str, Any]:
    """Return the servers of the examples, with all tools approved."""
    return {
        name: {"command": NODE, "args": [str(program), "--stdio"], "autoApprove": ["*"]}
        for name, program in SERVERS.items()
    }


CALLS = [
    {"name": "get-time", "arguments": {}},
    {"name": "get-budget-data", "arguments": {}},
    {"name": "debug-tool", "arguments": {"contentType": "text", "includeStructuredContent": True}},
    {"name": "get-system-info", "arguments": {}},
]


@needs_examples
def test_the_examples_of_the_extension_are_shown_and_call_their_tools(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, [{"tool_calls": CALLS}, "Done."], examples()) as address:
        tab = open_page(chromium, address)
        tab.resize(1280, 4000)
        send_message(tab, "Show all")
        tab.until(DONE)
        tab.until("document.querySelectorAll('.app').length === 4")
        time = find_frame(tab, "document.title.includes('Time') || document.querySelector('#get-time-btn')")
        time.until("/\\d{4}-\\d\\d-\\d\\dT/.test(document.body.innerText)")
        budget = find_frame(tab, "document.querySelector('canvas') && /budget/i.test(document.body.innerText)")
        budget.until("/\\$[\\d,.]+/.test(document.body.innerText)")
        debug = find_frame(tab, "/debug/i.test(document.title) || /tool-result/.test(document.body.innerText)")
        debug.until("/tool-?result/i.test(document.body.innerText)")
        monitor = find_frame(tab, "/memory/i.test(document.body.innerText) && document.querySelector('canvas')")
        monitor.until("/\\d+(\\.\\d+)? ?(GB|MB|GiB|%)/.test(document.body.innerText)")
        tab.screenshot(tmp_path / "examples.png")
        assert_harmless(tab, address)
