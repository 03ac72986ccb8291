"""Two tabs of one browser with the same conversation: they share the queue of messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_page_composer import ASK, FIELD, QUEUED, SENT, books, write
from tests.support.browser import Browser, Tab
from tests.support.web_page import assert_harmless, open_page, send_message, serve_page

pytestmark = pytest.mark.once

IDLE = "document.getElementById('send').title === 'Send'"
SEND = "document.querySelector('.queued .button')"
CHANGE_IN_OTHER_TAB = (
    "new Promise((seen) => { new BroadcastChannel('dial-queues').onmessage = seen; })"
    # Transactions run in sequence: the page has read the queue before this transaction.
    ".then(async () => (await import('./assets/queue_storage.js')).readQueue(''))"
)


@contextmanager
def two_tabs(chromium: Browser, folder: Path, replies: list[Any]) -> Iterator[tuple[Tab, Tab]]:
    """Open two tabs that follow the first answer, which waits for an approval."""
    with serve_page(folder, replies, books()) as address:
        first = open_page(chromium, address)
        send_message(first, "first")
        first.until(ASK)
        second = first.open_beside(address)
        second.until("document.activeElement.id === 'message'")
        second.run(f"location.hash = {first.run('location.hash')!r}")
        second.until(ASK)
        yield first, second
        assert_harmless(first, address)
        assert_harmless(second, address)


def test_messages_of_two_tabs_are_each_sent_once_and_in_order(chromium: Browser, tmp_path: Path) -> None:
    texts = [f"message {number}" for number in range(6)]
    with two_tabs(chromium, tmp_path, [write("x"), *(f"Answer {number}." for number in range(7))]) as tabs:
        for number, text in enumerate(texts):
            send_message(tabs[number % 2], text)
            for tab in tabs:
                tab.until(f"{QUEUED}.length === {number + 1}")
        tabs[1].click(".request .primary")
        for tab in tabs:
            tab.until(f"document.querySelectorAll('.turn-foot').length === 7 && {IDLE}")
            assert tab.run(SENT) == ["first", *texts]
            tab.until(f"{QUEUED}.length === 0")
            assert tab.run("document.querySelectorAll('.failed, .toast').length") == 0


def test_a_message_is_edited_removed_and_held_back_in_either_tab(chromium: Browser, tmp_path: Path) -> None:
    with two_tabs(chromium, tmp_path, [write("x"), "Later."]) as (first, second):
        for text in ("wrong", "later", "edited"):
            send_message(first, text)
        second.until(f"{QUEUED}.length === 3")
        second.click("[aria-label='Remove “wrong”']")
        second.click("[aria-label='Edit “edited”']")
        second.until(f"{FIELD} === 'edited'")
        first.until(f"{QUEUED}.join() === 'later'")
        first.click("#message")
        first.press("Escape")
        for tab in (first, second):
            tab.until(f"{IDLE} && {SEND}")
        second.click(".queued .button")
        for tab in (first, second):
            tab.until(f"document.querySelector('.turn:last-child .prose')?.textContent === 'Later.' && {IDLE}")
            assert tab.run(SENT) == ["first", "later"]
            tab.until(f"{QUEUED}.length === 0")


def test_a_click_sends_its_message_even_if_another_tab_changes_the_queue(chromium: Browser, tmp_path: Path) -> None:
    with two_tabs(chromium, tmp_path, [write("x"), "Later."]) as (first, second):
        for text in ("later", "wrong"):
            send_message(first, text)
        first.click("#message")
        first.press("Escape")
        for tab in (first, second):
            tab.until(f"{IDLE} && {SEND} && {QUEUED}.length === 2")
        second.run(f"void (window.changed = {CHANGE_IN_OTHER_TAB})")
        with second.pressed(".queued .button"):
            first.click("[aria-label='Remove “wrong”']")
            second.run("window.changed")
        for tab in (first, second):
            tab.until(f"document.querySelector('.turn:last-child .prose')?.textContent === 'Later.' && {IDLE}")
            assert tab.run(SENT) == ["first", "later"]
            tab.until(f"{QUEUED}.length === 0")


def test_the_remaining_tab_sends_the_message_of_a_closed_tab(chromium: Browser, tmp_path: Path) -> None:
    with two_tabs(chromium, tmp_path, [write("x"), "Written.", "Answer."]) as (first, second):
        send_message(first, "second")
        second.until(f"{QUEUED}.length === 1")
        first.go("about:blank")
        second.click(".request .primary")
        second.until("document.querySelector('.turn:last-child .prose')?.textContent === 'Answer.'")
        assert second.run(SENT) == ["first", "second"]
        second.until(f"{QUEUED}.length === 0")
