"""Versions of questions and answers on the page, undo and compaction, and settings of a conversation."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser, Tab
from tests.support.program import LONG
from tests.support.web_page import (
    DONE,
    assert_harmless,
    drop_errors_of_ended_turns,
    open_page,
    read_text,
    send_message,
    serve_page,
)

pytestmark = pytest.mark.once

USERS = "[...document.querySelectorAll('.user-message')].map(e => e.textContent).join()"
ANSWERS = "[...document.querySelectorAll('.answer .prose')].map(e => e.textContent).join()"
STORED = "document.querySelector('.turn:last-child .turn-foot [title=\"Answer again\"]')"
"""An expression that is true if the last turn is finished and the page knows its positions."""
VERSION = "document.querySelector('.turn:last-child .turn-foot .version-number')?.textContent"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    replies = [
        {"text": "First.", "reasoning": "I think."},
        "Second.",
        {"text": "Third, cut", "finish": "length"},
        " off.",
    ]
    with serve_page(tmp_path, {"replies": replies, "after": "repeat"}) as found:
        yield found


def press(tab: Tab, title: str, where: str = ".turn-foot") -> None:
    """Click a button of the last turn."""
    tab.click(f'.turn:last-child {where} [title="{title}"]')


def test_answers_are_regenerated_switched_continued_and_deleted(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    send_message(tab, "One")
    tab.until(STORED)
    press(tab, "Answer again")
    tab.until(f"{STORED} && {VERSION} === '2/2' && {ANSWERS} === 'Second.'")
    press(tab, "Previous version of the answer")
    tab.until(f"{VERSION} === '1/2' && {ANSWERS} === 'First.'")
    assert read_text(tab, ".reasoning-text") == "I think."
    assert "First" not in read_text(tab, ".reasoning summary")
    tab.reload()
    tab.until(f"{STORED} && {VERSION} === '1/2' && {ANSWERS} === 'First.'")
    assert read_text(tab, ".reasoning-text") == "I think."
    assert "tokens" in read_text(tab, ".usage") or "scripted" in read_text(tab, ".usage")
    press(tab, "Answer again")
    tab.until(f"{STORED} && {VERSION} === '3/3'")
    assert read_text(tab, ".stopped") == "The answer was cut off."
    assert read_text(tab, ".note") == "the reply met the limit of its length"
    assert read_text(tab, ".turn:last-child .turn-foot .text-button").strip() == "Continue this answer"
    press(tab, "Continue this answer")
    tab.until(f"{STORED} && {ANSWERS} === 'Third, cut off.'")
    tab.reload()
    tab.until(f"{STORED} && {VERSION} === '3/3' && {ANSWERS} === 'Third, cut off.'")
    press(tab, "Delete this answer")
    tab.click("dialog.small .danger")
    tab.until(f"{VERSION} === '2/2' && {ANSWERS} === 'Second.'")
    assert_harmless(tab, address)


def test_an_edited_question_keeps_both_versions(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    send_message(tab, "One")
    tab.until(STORED)
    press(tab, "Edit this message", ".user-foot")
    tab.until("document.activeElement.closest('.message-editor')")
    tab.press("Escape")
    tab.until(f"!document.querySelector('.message-editor') && {USERS} === 'One'")
    press(tab, "Edit this message", ".user-foot")
    tab.until("document.activeElement.closest('.message-editor')")
    tab.run("document.activeElement.select()")
    tab.type("Two")
    tab.press("Enter")
    tab.until(f"{STORED} && {USERS} === 'Two' && {ANSWERS} === 'Second.'")
    press(tab, "Previous version of the message", ".user-foot")
    tab.until(f"{USERS} === 'One' && {ANSWERS} === 'First.'")
    send_message(tab, "Three")
    tab.until(f"{STORED} && {USERS} === 'One,Three'")
    tab.click('.turn:first-child .user-foot [title="Next version of the message"]')
    tab.until(f"{USERS} === 'Two'")
    tab.click('.turn:first-child .user-foot [title="Previous version of the message"]')
    tab.until(f"{USERS} === 'One,Three'")
    tab.click('.turn:first-child .user-foot [title^="Delete this message"]')
    tab.click("dialog.small .danger")
    tab.until(f"{USERS} === 'Three'")
    drop_errors_of_ended_turns(tab)
    assert_harmless(tab, address)


def test_an_open_page_shows_changes_of_another_tab(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    send_message(tab, "One")
    tab.until(STORED)
    second_tab = open_page(chromium, address)
    second_tab.run(f"location.hash = {tab.run('location.hash')!r}")
    second_tab.until(STORED)
    press(second_tab, "Answer again")
    tab.until(f"{DONE} && {VERSION} === '2/2' && {ANSWERS} === 'Second.'")
    press(tab, "Previous version of the answer")
    second_tab.until(f"{VERSION} === '1/2' && {ANSWERS} === 'First.'")
    assert_harmless(tab, address)


def test_commands_undo_and_summarize_messages(chromium: Browser, tmp_path: Path) -> None:
    toast = "document.querySelector('.toast:last-child')?.textContent.includes({!r})"
    with serve_page(tmp_path, ["One.", "Two.", "Three.", "They <b>counted</b>."]) as address:
        tab = open_page(chromium, address)
        send_message(tab, "/undo")
        tab.until(toast.format("no messages yet"))
        for number, text in enumerate("abc", 1):
            send_message(tab, text)
            tab.until(f"{STORED} && document.querySelectorAll('.turn').length === {number}")
        send_message(tab, "/undo")
        tab.until(f"{USERS} === 'a,b' && {toast.format('Taken back')}")
        send_message(tab, "/redo")
        tab.until(f"{USERS} === 'a,b,c' && {ANSWERS} === 'One.,Two.,Three.'")
        send_message(tab, "/redo")
        tab.until(toast.format("nothing to bring back"))
        send_message(tab, "/compact")
        tab.until(f"{USERS} === 'b,c' && {toast.format('/compact undo')}")
        assert read_text(tab, ".turn:first-child .resource .reasoning-text").strip() == "They <b>counted</b>."
        assert "You said" not in read_text(tab, ".turn:first-child")
        tab.reload()
        tab.until(f"{STORED} && {USERS} === 'b,c'")
        send_message(tab, "/compact undo")
        tab.until(f"{USERS} === 'a,b,c' && {toast.format('whole conversation')}")
        assert_harmless(tab, address)


def test_a_slow_undo_is_not_shown_as_a_running_turn(chromium: Browser, tmp_path: Path) -> None:
    hold = """window.urls = []; window.load = fetch; window.fetch = async (url, options) => {
        if (url.endsWith('/undo')) urls = [];  // an idle page polls until then
        urls.push(url);
        const response = await load(url, options);
        if (!url.endsWith('/undo')) return response;
        await new Promise((release) => { Object.assign(window, {release, held: Date.now()}); });
        return response;
    }; 0"""
    with serve_page(tmp_path, {"replies": ["One."], "after": "repeat"}) as address:
        tab = open_page(chromium, address)
        for number, text in enumerate("ab", 1):
            send_message(tab, text)
            tab.until(f"{STORED} && document.querySelectorAll('.turn').length === {number}")
        tab.run(hold)
        send_message(tab, "/undo")
        tab.until("Date.now() > window.held + 2500")  # the page polls each two seconds
        assert tab.run("urls.filter((url) => /\\/(state|events)$/.test(url))") == []
        tab.run("release()")
        tab.until(f"{USERS} === 'a'")
        send_message(tab, "/redo")
        tab.until(f"{USERS} === 'a,b'")
        assert_harmless(tab, address)


def test_settings_are_stored_with_the_conversation_and_hidden_if_locked(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, {"replies": ["Yes."], "after": "repeat"}, None, "--lock", "tool_format") as address:
        tab = open_page(chromium, address)
        tab.click("#model")
        tab.until("document.querySelector('dialog.settings[open] textarea')")
        fields = "document.querySelectorAll('.setting :is(select, input), dialog.settings textarea')"
        labels = tab.run(f"[...{fields}].map((field) => field.ariaLabel ?? field.labels[0].firstChild.textContent)")
        assert "Instructions" in labels
        assert "Tool format" not in labels
        assert "Fixed by the operator: tool format" in read_text(tab, "dialog.settings")
        tab.click("dialog.settings textarea")
        tab.type("Be brief.")
        tab.click("dialog.settings .primary")
        tab.until("!document.querySelector('dialog.settings') && document.querySelector('#model.is-changed')")
        send_message(tab, "One")
        tab.until(STORED)
        tab.reload()
        tab.until(f"{STORED} && document.querySelector('#model.is-changed')")
        tab.click("#model")
        tab.until("document.querySelector('dialog.settings[open] textarea')?.value === 'Be brief.'")
        assert_harmless(tab, address)


def test_saving_settings_keeps_settings_that_the_dialog_does_not_show(chromium: Browser, tmp_path: Path) -> None:
    settings = {"disabled_servers": ["gone"], "disabled_tools": ["lost"], "limits": {"max_tokens_total": 5000}}
    with serve_page(tmp_path, {"replies": ["Yes."], "after": "repeat"}) as address:
        tab = open_page(chromium, address)
        send_message(tab, "One")
        tab.until(STORED)
        request = (
            "(body) => fetch('conversations/' + location.hash.split('/').at(-1), {method: body ? 'PATCH' : 'GET', "
            "body, headers: {Authorization: 'Bearer ' + sessionStorage['dial-token'], "
            "'Content-Type': 'application/json'}})"
            ".then(answer => answer.json()).then(found => found.settings)"
        )
        tab.run(f"({request})({json.dumps(json.dumps({'settings': settings}))})")
        tab.reload()
        tab.until(f"{STORED} && document.querySelector('#model.is-changed')")
        tab.click("#model")
        tab.until("document.querySelector('dialog.settings[open] textarea')")
        tab.click("dialog.settings textarea")
        tab.type("Be brief.")
        tab.click("dialog.settings .primary")
        tab.until("!document.querySelector('dialog.settings')")
        assert tab.run(f"({request})()") == {**settings, "system": "Be brief."}
        assert_harmless(tab, address)


STEERED = [
    {"role": "user", "content": "Clear the table"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "clear", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "1", "name": "clear", "content": "cleared"},
    {"role": "user", "content": "Leave the cups", "steers": True},
    {"role": "assistant", "content": "The cups stay."},
]


def test_a_message_that_steered_a_turn_belongs_to_the_turn(chromium: Browser, address: str) -> None:
    """Such a message is sent in the terminal, into a conversation that the page may show later."""
    url, _, token = address.partition("#token=")
    request = urllib.request.Request(
        f"{url}conversations/import",
        json.dumps({"title": "Table", "messages": STEERED}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=LONG):
        pass
    tab = open_page(chromium, address)
    tab.click("#conversations a, #conversations button")
    tab.until(f"{ANSWERS} === 'The cups stay.'")
    assert tab.run("document.querySelectorAll('section.turn').length") == 1
    assert tab.run(USERS) == "Clear the table,Leave the cups"
    send_message(tab, "And now?")
    tab.until(f"{STORED} && {ANSWERS} === 'The cups stay.,First.'")
    tab.click('.turn:first-child > .user [title="Edit this message"]')
    assert_harmless(tab, address)
