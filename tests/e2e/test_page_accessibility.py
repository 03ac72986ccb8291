"""Accessibility of the page, checked with axe in every state, in both themes, at full width and at 320 pixels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.accessibility import WHY_NOT, judge
from tests.support.browser import Browser, Tab
from tests.support.program import HERE, python_server
from tests.support.web_page import ASKING, DONE, assert_harmless, open_page, send_message, serve_page

pytestmark = [pytest.mark.once, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

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

A claim.[^1]

[^1]: [A source](https://a.test/source) of the claim.
"""
REPLIES = [
    {"text": ANSWER, "reasoning": "I think."},
    {"text": "I count.", "tool_calls": [{"name": "show_counter", "arguments": {"start": 3}}]},
    "Counted.",
    {"tool_calls": [{"name": "asks", "arguments": {}}]},
    "Asked.",
    {"tool_calls": [{"name": "write", "arguments": {"uri": "book://1", "text": "one\ntwo"}}]},
    "Written.",
    "Said later.",
    "Said once more.",
    {"error": {"message": "The model is away.", "status": 500}},
]


@contextmanager
def walk(chromium: Browser, folder: Path) -> Iterator[Tab]:
    servers = {
        "books": python_server(HERE / "servers" / "library.py", "stdio"),
        "asking": python_server(ASKING, autoApprove=["*"]),
        "apps": python_server(HERE / "servers" / "app_server.py", autoApprove=["*"]),
    }
    with serve_page(folder, REPLIES, servers, "--allow-admin") as address:
        tab = open_page(chromium, address, prefers_reduced_motion="reduce")
        yield tab
        assert_harmless(tab, address)


def visit_dialogs(tab: Tab) -> Iterator[str]:
    """Open each panel and menu in turn."""
    tab.click("#model")
    tab.until("document.querySelector('.settings form')")
    yield "settings"
    tab.press("Escape")
    tab.click("#servers-button")
    tab.until("document.querySelectorAll('#servers .server[data-state=ready]').length === 3")
    tab.until("document.querySelector('[data-key=\"books:resources\"]') && document.querySelector('.access details')")
    tab.run("document.querySelectorAll('#servers details').forEach((fold) => { fold.open = true; })")
    yield "servers, with all that unfolds and the form that adds one"
    tab.click("[aria-label='Read A book']")
    tab.until("document.querySelector('.resource-view[open]')")
    yield "resource"
    tab.press("Escape")
    tab.until("!document.querySelector('.resource-view')")
    tab.click("[aria-label='Call write']")
    tab.until("document.querySelector('.tool-form[open] textarea')")
    tab.click(".tool-form .dialog-buttons .primary")
    tab.until("document.querySelector('.tool-form .request')")
    yield "form of a tool, with its approval"
    tab.press("Escape")
    tab.until("!document.querySelector('.tool-form')")
    tab.click("[aria-label='Remove books']")
    tab.until("document.querySelector('dialog.small[open]')")
    yield "question before a server is removed"
    tab.press("Escape")
    tab.until("!document.querySelector('dialog.small')")
    tab.press("Escape")
    tab.until("!document.querySelector('dialog[open]')")
    tab.click("#conversation-more")
    tab.until("document.querySelector('.menu')")
    yield "menu"
    yield from visit_sharing(tab)


def visit_sharing(tab: Tab) -> Iterator[str]:
    """Choose sharing in the open menu, share the conversation, and end the link."""
    tab.run("[...document.querySelectorAll('.menu-item')].find((e) => e.textContent.startsWith('Share')).click()")
    tab.until("document.querySelector('dialog[open] .primary')")
    tab.click("dialog[open] .primary")
    tab.until("document.querySelector('.share-link input')")
    yield "dialog with the link to a conversation"
    tab.click("dialog[open] .danger")
    tab.until("!document.querySelector('.share-link')")
    tab.press("Escape")
    tab.until("!document.querySelector('dialog[open]')")


def visit_conversations(tab: Tab) -> Iterator[str]:
    """Show the list of conversations, and a search in it without results."""
    tab.run("document.getElementById('search').focus()")
    tab.type("nothing has this")
    tab.until("document.querySelector('#conversations p')")
    tab.run("document.body.classList.add('with-sidebar')")
    yield "search in the list of conversations"
    tab.run("document.body.classList.remove('with-sidebar'); document.getElementById('search').value = ''")
    tab.run("document.getElementById('search').dispatchEvent(new Event('input'))")
    tab.until("document.querySelector('#conversations .icon-button')")
    tab.run("document.body.classList.add('with-sidebar')")
    yield "list of conversations"
    tab.run("document.body.classList.remove('with-sidebar')")


def visit_composer(tab: Tab, folder: Path) -> Iterator[str]:
    """Show completions, the form of a prompt, the search, attachments and the context of an app."""
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
    tab.click("#message")
    tab.type("/find")
    tab.until("document.querySelector('.completion')")
    tab.press("Enter")
    tab.until("document.activeElement.type === 'search'")
    tab.type("count")
    tab.until("document.querySelector('.find-count').textContent.startsWith('1/')")
    yield "search in a conversation"
    tab.press("Escape")
    (folder / "a long name of a file, with the numbers of the year 2026.csv").write_text("a,b\n1,2\n")
    tab.choose_file("#attach-input", next(folder.glob("*.csv")))
    tab.frames[-1].run("find('remember').click()")
    tab.until("document.querySelector('#files .file') && document.querySelector('#contexts .context')")
    tab.click("#contexts summary")
    yield "attachment and context of an app"
    tab.click("#files .icon-button")
    tab.click("#contexts .icon-button")


def visit_requests(tab: Tab) -> Iterator[str]:
    """Show an elicitation, and a call that waits for approval with a queued message after it."""
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
    tab.click(".request [data-shortcut=e]")
    tab.until("document.querySelector('.request .argument-editor textarea')")
    yield "arguments to edit"
    tab.click(".request .request-buttons .primary")
    tab.until("document.querySelector('.request-denial')")
    tab.click(".request .primary")


def visit(tab: Tab, folder: Path) -> Iterator[str]:
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
    yield from visit_conversations(tab)
    yield from visit_composer(tab, folder)
    yield from visit_requests(tab)
    tab.until(f"document.querySelector('.turn:last-child').innerText.includes('Said later.') && {DONE}")
    tab.until("document.querySelector('.turn:last-child .turn-foot [title=\"Answer again\"]')")
    tab.click(".turn:last-child .turn-foot [title='Answer again']")
    tab.until(f"document.querySelector('.versions') && {DONE}")
    yield "versions of an answer"
    send_message(tab, "Fail")
    tab.until("document.querySelector('.turn:last-child .failed')")
    yield "failure"


def test_axe_finds_no_violation_in_any_state(chromium: Browser, tmp_path: Path) -> None:
    violations: list[str] = []
    with walk(chromium, tmp_path) as tab:
        states = []
        for state in visit(tab, tmp_path):
            states.append(state)
            violations += judge(tab, state)
    assert not violations, "\n".join(violations)
    assert len(states) >= 10
