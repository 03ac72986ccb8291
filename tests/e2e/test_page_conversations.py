"""The page's list of conversations, keyboard use, drafts and the token, with a model that repeats one answer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.support.browser import Browser, Tab
from tests.support.program import LONG
from tests.support.web_page import DONE, assert_harmless, open_page, read_text, send_message, serve_page

NAMES = "[...document.querySelectorAll('#conversations a')].map(e => e.title)"
SHIFT = 8


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serve_page(tmp_path, {"replies": ["The *answer*."], "after": "repeat"}) as found:
        yield found


def choose_menu_entry(tab: Tab, words: str) -> None:
    """Choose an entry of the open conversation's menu."""
    tab.click("#conversation-more")
    tab.until("document.querySelector('.menu')")
    at = tab.run(f"[...document.querySelectorAll('.menu-item')].findIndex(e => e.textContent === {words!r}) + 1")
    tab.click(f".menu-item:nth-child({at})")


def test_conversations_are_listed_searched_renamed_and_deleted(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    for words in ("Apples", "Pears"):
        send_message(tab, words)
        tab.until(DONE)
        tab.until(f"{NAMES}[0] === {words!r}")
        tab.click("#new")
        tab.until("!document.getElementById('welcome').hidden")
    assert tab.run(NAMES) == ["Pears", "Apples"]
    tab.click("#conversations a[title=Apples]")
    tab.until("document.getElementById('title').textContent === 'Apples'")
    choose_menu_entry(tab, "Rename")
    tab.until("document.activeElement.className === 'rename'")
    tab.type("Red apples")
    tab.press("Enter")
    tab.until("document.getElementById('title').textContent === 'Red apples'")
    tab.click("#search")
    tab.type("red")
    tab.until(f"{NAMES}.join() === 'Red apples'")
    tab.press("Escape")
    tab.until(f"{NAMES}.length === 2")
    choose_menu_entry(tab, "Delete")
    assert "Red apples" in read_text(tab, "dialog.small h2")
    tab.click("dialog.small .danger")
    tab.until(f"{NAMES}.join() === 'Pears' && !document.getElementById('welcome').hidden")
    tab.reload()
    tab.until(f"{NAMES}.join() === 'Pears'")
    # The page asks every two seconds whether others have changed the open conversation, also while it is being deleted.
    asked = re.compile(r"404 .*/conversations/\w+/state$")
    tab.console_errors = [error for error in tab.console_errors if not asked.search(error)]
    assert_harmless(tab, address)


def test_a_conversation_can_be_forked_after_an_answer(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    for count, words in enumerate(("One", "Two"), 1):
        send_message(tab, words)
        tab.until(f"document.querySelectorAll('.turn-foot').length === {count}")
    before = tab.run("location.hash")
    tab.click(".turn:first-child .turn-foot button[title^='Continue from here']")
    tab.until(f"location.hash !== {before!r}")
    tab.until("[...document.querySelectorAll('.user-message')].map(e => e.textContent).join() === 'One'")
    tab.until(f"{NAMES}.length === 2")
    assert_harmless(tab, address)


def test_a_conversation_is_exported_and_imported(chromium: Browser, address: str, tmp_path: Path) -> None:
    tab = open_page(chromium, address)
    send_message(tab, "Keep this")
    tab.until(DONE)
    tab.until(f"{NAMES}.length === 1 && document.getElementById('title').textContent === 'Keep this'")
    tab.download_to(tmp_path)
    choose_menu_entry(tab, "Save as JSON")
    file = tmp_path / "Keep this.json"
    until = time.monotonic() + 30
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert [message["role"] for message in json.loads(file.read_text())["messages"]] == ["user", "assistant"]
    tab.choose_file("#import", file)
    tab.until(f"{NAMES}.length === 2 && {DONE}")
    assert read_text(tab, ".turn .prose em") == "answer"
    assert_harmless(tab, address)


def test_the_page_can_be_used_with_the_keyboard_alone(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    tab.type("first")
    tab.press("Enter", modifiers=SHIFT)
    tab.type("second")
    assert tab.run("document.getElementById('message').value") == "first\nsecond"
    tab.press("Enter")
    tab.until(DONE)
    assert read_text(tab, ".user-message") == "first\nsecond"
    assert tab.run("document.activeElement.id") == "message"
    tab.run("document.activeElement.blur()")
    tab.press("/")
    assert tab.run("document.activeElement.id") == "search"
    tab.run("document.getElementById('skip').focus()")
    tab.press("Enter")
    assert tab.run("document.activeElement.id") == "message"
    tab.run("document.getElementById('conversation-more').focus()")
    tab.press("Enter")
    assert read_text(tab, ".menu-item:focus") == "Pin"
    tab.press("ArrowDown")
    assert read_text(tab, ".menu-item:focus") == "Move to the archive"
    tab.press("Escape")
    tab.until("!document.querySelector('.menu') && document.activeElement.id === 'conversation-more'")


def test_drafts_belong_to_their_conversations(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    send_message(tab, "Hello")
    tab.until(DONE)
    tab.type("half a thou")
    tab.click("#new")
    tab.until("document.getElementById('message').value === ''")
    tab.type("something else")
    tab.click("#conversations a")
    tab.until("document.getElementById('message').value === 'half a thou'")
    tab.reload()
    tab.until("document.getElementById('message').value === 'half a thou'")
    tab.click("#new")
    tab.until("document.getElementById('message').value === 'something else'")


def test_a_refresh_of_the_list_interrupts_neither_clicks_nor_focus(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    for words in ("Apples", "Pears"):
        send_message(tab, words)
        tab.until(DONE)
        tab.click("#new")
        tab.until(f"{NAMES}[0] === {words!r} && !document.getElementById('welcome').hidden")
    home, token = address.split("/#token=")
    conversation = tab.run("document.querySelector('#conversations a').hash.split('/').at(-1)")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    renaming = Request(f"{home}/conversations/{conversation}", b'{"title": "Red pears"}', headers, method="PATCH")
    with tab.pressed("#conversations a[title=Apples]"):
        urlopen(renaming, timeout=LONG).close()
        tab.run("document.dispatchEvent(new Event('visibilitychange'))")
        tab.until(f"{NAMES}.join() === 'Red pears,Apples'")
        assert tab.run("document.activeElement.title") == "Apples"
    tab.until("document.getElementById('title').textContent === 'Apples'")
    assert_harmless(tab, address)


def test_a_long_conversation_shows_its_end_first(chromium: Browser, address: str, tmp_path: Path) -> None:
    messages = [{"role": role, "content": f"{role} {at}"} for at in range(200) for role in ("user", "assistant")]
    (tmp_path / "long.json").write_text(json.dumps(messages))
    tab = open_page(chromium, address)
    tab.choose_file("#import", tmp_path / "long.json")
    tab.until("document.querySelector('.turn:last-child .prose')?.textContent === 'assistant 199'")
    assert tab.run("document.querySelectorAll('.turn').length") == 30
    tab.until("(v => v.scrollHeight - v.scrollTop - v.clientHeight < 80)(document.getElementById('view'))")
    tab.run("document.querySelector('.earlier').click()")
    tab.until("document.querySelectorAll('.turn').length === 60")
    assert read_text(tab, ".turn .user-message") == "user 140"
    assert_harmless(tab, address)


def test_the_token_is_read_from_the_url_stored_and_requested_if_missing(chromium: Browser, address: str) -> None:
    home, token = address.split("#token=")
    tab = open_page(chromium, address)
    assert tab.run("location.href") == home
    tab.reload()
    tab.until("document.querySelector('#conversations > *')")
    second_tab = chromium.tab()
    second_tab.go(home)
    second_tab.until("document.activeElement.id === 'token'")
    second_tab.type("wrong")
    second_tab.press("Enter")
    assert "does not accept" in read_text(second_tab, "dialog.small [role=alert]")
    second_tab.until("document.activeElement.id === 'token' && document.activeElement.value === ''")
    second_tab.type(token)
    second_tab.press("Enter")
    second_tab.until("!document.querySelector('dialog[open]') && document.querySelector('#conversations > *')")
    send_message(second_tab, "Hello")
    second_tab.until(DONE)
