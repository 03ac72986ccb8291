"""A person fills in credentials on the page, which never shows them again, and takes them back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inner import SecretBox
from tests.support.accessibility import WHY_NOT, judge
from tests.support.browser import Browser
from tests.support.program import python_server
from tests.support.servers.launch import HERE
from tests.support.web_page import serve_page

pytestmark = pytest.mark.once

SECRET = "a-secret-4f9a8c21"
CARD = "#servers .server[data-state={}]"
BUTTON = "#servers .server header .text-button"


def test_a_value_is_given_on_the_page_used_and_forgotten(chromium: Browser, tmp_path: Path) -> None:
    crm = python_server(HERE / "whose.py", "stdio", env={"TOKEN": "${user.TOKEN}"})
    key = SecretBox.generate_key()
    with serve_page(tmp_path, ["Hello."], {"crm": crm}, DIAL_CREDENTIALS_KEY=key) as address:
        tab = chromium.tab()
        tab.go(address)
        tab.until("document.activeElement.id === 'message'")
        tab.click("#servers-button")
        tab.until(f"document.querySelector('{CARD.format('needs_credentials')}')")
        assert "TOKEN" in tab.run("document.querySelector('#servers .failure').textContent")
        tab.click(BUTTON)
        tab.until("document.querySelector('dialog.small[open] input[type=password]')")
        assert "not given yet" in tab.run("document.querySelector('dialog.small label').textContent")
        assert WHY_NOT or judge(tab, "credentials") == []
        tab.run("document.querySelector('dialog.small input').focus()")
        tab.type(SECRET)
        tab.press("Enter")
        tab.until(f"document.querySelector('{CARD.format('ready')}')")
        assert SECRET not in tab.run("document.documentElement.outerHTML")
        tab.click(BUTTON)
        tab.until("document.querySelector('dialog.small[open] input[type=password]')")
        assert tab.run("document.querySelector('dialog.small input').value") == ""
        assert "given" in tab.run("document.querySelector('dialog.small label').textContent")
        tab.click("dialog.small > .dialog-buttons button")
        tab.until("document.querySelectorAll('dialog[open]').length === 3")
        tab.run("[...document.querySelectorAll('dialog[open]')].at(-1).querySelector('.danger, .primary').click()")
        tab.until(f"document.querySelector('{CARD.format('needs_credentials')}')")
    assert not [path for path in tmp_path.rglob("*.db*") if SECRET.encode() in path.read_bytes()]
