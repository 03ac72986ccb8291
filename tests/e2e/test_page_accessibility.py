"""The page as axe judges it, in every state, in both themes, at a wide screen and at 320 pixels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.browser import Browser, Tab
from tests.support.program import HERE, python_server
from tests.support.web_page import ASKING, DONE, assert_harmless, open_page, send_message, serve_page

AXE = Path(__file__).parents[2] / "build" / "npm" / "node_modules" / "axe-core" / "axe.min.js"

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not AXE.is_file(), reason="axe is not here: `make test` installs it with Node"),
]

ANSWER = """# Heading

Some **bold** text, `code`, a [link](https://a.test/x) and [another](javascript:alert(1)).

| name | value |
|---|---:|
| a | 1 |

- [x] done
- [ ] to do

> quoted

```python
def greet(name: str) -> str:
    return f"Hello, {name}"  # polite
```

$$\\sqrt{2}$$ and $x^2$

```mermaid
graph TD
  A[Start] --> B[End]
```

مرحبا بالعالم
"""
REPLIES = [
    {"text": ANSWER, "reasoning": "I think."},
    {"text": "I count.", "tool_calls": [{"name": "show_counter", "arguments": {"start": 3}}]},
    "Counted.",
    {"tool_calls": [{"name": "asks", "arguments": {}}]},
    "Asked.",
    {"tool_calls": [{"name": "write", "arguments": {"uri": "book://1", "text": "one\ntwo"}}]},
    "Written.",
]
ISSUES = """axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations.flatMap(
    ({id, nodes}) => nodes.map(({target, failureSummary}) => `${id}: ${target.join(' ')}: ${failureSummary}`)))"""
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


@contextmanager
def walk(chromium: Browser, folder: Path) -> Iterator[Tab]:
    servers = {
        "books": python_server(HERE / "servers" / "library.py", "stdio"),
        "asking": python_server(ASKING, autoApprove=["*"]),
        "apps": python_server(HERE / "servers" / "app_server.py", autoApprove=["*"]),
    }
    with serve_page(folder, REPLIES, servers) as address:
        tab = open_page(chromium, address, prefers_reduced_motion="reduce")
        yield tab
        assert_harmless(tab, address)


def judge(tab: Tab, state: str) -> list[str]:
    """Return the violations in a state of the page, in both themes and two widths."""
    found = []
    if tab.run("typeof axe") == "undefined":
        tab.run(f"{AXE.read_text(encoding='utf-8')}; null")
    for theme, width in (("light", 1280), ("dark", 320)):
        tab.resize(width, 700)
        tab.run(f"document.documentElement.dataset.theme = {theme!r}")
        found += [f"{state}, {theme}, {width} px: {issue}" for issue in tab.run(ISSUES)]
        if (overflow := tab.run(OVERFLOW)) > 0:
            found.append(f"{state}, {width} px: {overflow} px too wide")
    tab.resize(1280, 700)
    return found


def visit_dialogs(tab: Tab) -> Iterator[str]:
    """Open each panel and menu in turn."""
    tab.click("#model")
    tab.until("document.querySelector('.settings form')")
    yield "settings"
    tab.press("Escape")
    tab.click("#servers-button")
    tab.until("document.querySelectorAll('#servers .server[data-state=ready]').length === 3")
    yield "servers"
    tab.press("Escape")
    tab.until("!document.querySelector('dialog[open]')")
    tab.click("#conversation-more")
    tab.until("document.querySelector('.menu')")
    yield "menu"
    tab.press("Escape")


def visit_composer(tab: Tab) -> Iterator[str]:
    """Show the proposals, and the form of a prompt."""
    tab.click("#message")
    tab.type("/gre")
    tab.until("document.querySelector('.completion')")
    yield "suggestions"
    tab.press("Enter")
    tab.until("document.activeElement.id === 'prompt-argument-0'")
    yield "form of a prompt"
    tab.press("Escape")
    tab.until("!document.querySelector('dialog[open]')")
    tab.run("document.getElementById('message').value = ''")


def visit_requests(tab: Tab) -> Iterator[str]:
    """Have a server ask, and a call wait for approval with a message queued behind it."""
    send_message(tab, "Ask me")
    tab.until("document.querySelector('.request-form')")
    yield "question of a server"
    tab.click(".request-form .primary")
    tab.until(f"!document.querySelector('.request') && {DONE}")
    send_message(tab, "Write")
    tab.until("document.querySelector('.request .primary')")
    send_message(tab, "And later this")
    tab.until("document.querySelector('.queued')")
    yield "approval and queue"
    tab.click(".request .primary")


def visit(tab: Tab) -> Iterator[str]:
    yield "start"
    send_message(tab, "Show it")
    tab.until(f"{DONE} && document.querySelector('.diagram-picture img')")
    tab.click(".reasoning summary")
    yield "answer"
    tab.until("document.querySelector('.user-foot [title=\"Edit this message\"]')")
    tab.click('.user-foot [title="Edit this message"]')
    tab.until("document.querySelector('.message-editor')")
    yield "message editor"
    tab.press("Escape")
    send_message(tab, "Count")
    tab.until(f"{DONE} && document.querySelector('.app-frame')")
    tab.click(".turn:last-child .tool summary")
    yield "app"
    yield from visit_dialogs(tab)
    yield from visit_composer(tab)
    yield from visit_requests(tab)


def test_axe_finds_no_violation_in_any_state(chromium: Browser, tmp_path: Path) -> None:
    violations: list[str] = []
    with walk(chromium, tmp_path) as tab:
        states = []
        for state in visit(tab):
            states.append(state)
            violations += judge(tab, state)
    assert not violations, "\n".join(violations)
    assert len(states) >= 10
