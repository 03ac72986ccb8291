"""Marks of conversations in the page's list, links to them, and the choice of the model, with a scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.test_page_conversations import NAMES, choose_menu_entry
from tests.support.browser import Browser, Tab
from tests.support.model_endpoint import ModelEndpoint, Say, model_endpoint
from tests.support.program import write_config
from tests.support.web_page import DONE, assert_harmless, open_page, read_text, send_message, serve_folder, serve_page

pytestmark = pytest.mark.once

SECTIONS = "[...document.querySelectorAll('#conversations h2')].map(e => e.textContent)"
LINK = "document.querySelector('.share-link input')"
IN_VIEW = """[...document.querySelectorAll('dialog[open] .dialog-buttons button')].map((button) => {
  const { left, right, top, bottom } = button.getBoundingClientRect();
  return [top + 2, bottom - 2].every((y) => button.contains(document.elementFromPoint((left + right) / 2, y)));
})"""
CHOICES = "[...document.getElementById('model-picker').options].map(e => e.text)"


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    """An endpoint with several models."""
    with model_endpoint([Say("The answer.")]) as found:
        yield found


@contextmanager
def serve_models(folder: Path, endpoint: ModelEndpoint, *options: str) -> Iterator[str]:
    """Run the server with the models ``first``, which is the default, and ``second``; provide its URL."""
    models = {
        name: {"api": "chat", "base_url": f"{endpoint.url}/v1", "model": f"the-{name}"} for name in ("first", "second")
    }
    write_config(folder, models=models, defaultModel="first")
    with serve_folder(folder, *options) as found:
        yield found


@pytest.fixture
def address(tmp_path: Path, endpoint: ModelEndpoint) -> Iterator[str]:
    with serve_models(tmp_path, endpoint) as found:
        yield found


def ask(tab: Tab, words: str) -> None:
    """Ask in a new conversation."""
    tab.click("#new")
    tab.until("!document.getElementById('welcome').hidden")
    send_message(tab, words)
    tab.until(DONE)
    tab.until(f"{NAMES}.includes({words!r})")


def test_a_pinned_conversation_comes_first_and_archived_conversations_are_apart(
    chromium: Browser, address: str
) -> None:
    tab = open_page(chromium, address)
    for words in ("Apples", "Pears", "Plums"):
        ask(tab, words)
    tab.click("#conversations a[title=Apples]")
    tab.until("document.getElementById('title').textContent === 'Apples'")
    choose_menu_entry(tab, "Pin")
    tab.until(f"{NAMES}.join() === 'Apples,Plums,Pears'")
    assert tab.run(SECTIONS) == ["Pinned", "Today"]
    choose_menu_entry(tab, "Move to the archive")
    tab.until(f"{NAMES}.join() === 'Plums,Pears'")
    tab.click("#archive")
    tab.until(f"{NAMES}.join() === 'Apples'")
    choose_menu_entry(tab, "Take out of the archive")
    tab.until(f"{NAMES}.length === 0")
    tab.click("#archive")
    tab.until(f"{NAMES}.join() === 'Apples,Plums,Pears'")
    choose_menu_entry(tab, "Unpin")
    tab.until(f"{NAMES}.join() === 'Plums,Pears,Apples'")
    assert_harmless(tab, address)


def test_the_list_shows_the_beginning_of_the_last_answer_without_its_markup(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["- **Apples** are `round`\n- <b>red</b>"]) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Apples")
        tab.until(DONE)
        shown = tab.until("document.querySelector('#conversations .preview')?.textContent")
        assert " ".join(shown.split()) == "Apples are round <b>red</b>"
        assert_harmless(tab, address)


def test_a_link_shows_the_conversation_as_it_was_until_the_owner_ends_it(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    ask(tab, "Apples")
    choose_menu_entry(tab, "Share by link…")
    tab.until("document.querySelector('dialog[open] .primary')")
    tab.click("dialog[open] .primary")
    link = tab.until(f"{LINK}?.value")
    tab.until("document.querySelector('#conversations .when').textContent.endsWith('shared')")
    reader = chromium.tab()
    reader.go(link)
    reader.until("document.querySelector('.user-message')")
    assert read_text(reader, ".user-message") == "Apples"
    assert read_text(reader, ".answer .prose") == "The answer."
    tab.resize(720, 450)  # twice the size of a small screen
    assert tab.run(IN_VIEW) == [True, True, True]
    tab.click("dialog[open] .danger")
    tab.until(f"!{LINK}")
    reader.reload()
    reader.until("document.querySelector('[role=alert]') && !document.querySelector('.user-message')")
    tab.press("Escape")
    tab.until("!document.querySelector('dialog[open]')")
    assert_harmless(tab, address)


def test_the_model_beside_the_message_answers_from_the_next_message_on(
    chromium: Browser, address: str, endpoint: ModelEndpoint
) -> None:
    tab = open_page(chromium, address)
    tab.until(f"{CHOICES}.length === 2")
    ask(tab, "Apples")
    tab.run("document.getElementById('model-picker').focus()")
    tab.press("ArrowDown")
    tab.until("document.getElementById('model-picker').value === 'second'")
    send_message(tab, "Pears")
    tab.until("document.querySelectorAll('.turn-foot').length === 2")
    assert [request.json["model"] for request in endpoint.requests] == ["the-first", "the-second"]
    tab.reload()
    tab.until("document.getElementById('model-picker').value === 'second'")
    ask(tab, "Plums")
    assert tab.run("document.getElementById('model-picker').selectedOptions[0].text") != "second", "its own choice"
    assert_harmless(tab, address)


def test_a_model_that_the_person_may_not_use_cannot_be_chosen_beside_the_message(
    chromium: Browser, tmp_path: Path, endpoint: ModelEndpoint
) -> None:
    (tmp_path / "limits.json").write_text('{"*": {"models": ["second"]}}')
    with serve_models(tmp_path, endpoint, "--owner-limits", "limits.json") as address:
        tab = open_page(chromium, address)
        tab.until(f"{CHOICES}.length === 2")
        allowed = tab.run("[...document.getElementById('model-picker').options].map((each) => !each.disabled)")
        assert allowed == [False, True]
        tab.run("document.getElementById('model-picker').focus()")
        tab.press("ArrowDown")
        tab.until("document.getElementById('model-picker').value === 'second'")
        send_message(tab, "Pears")
        tab.until(DONE)
        assert [request.json["model"] for request in endpoint.requests] == ["the-second"]


def test_an_older_page_says_to_reload_when_its_second_script_is_gone(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    tab.call("Network.setBlockedURLs", urls=["*later_bundle.js*"])
    tab.click("#model")
    tab.until("document.body.innerText.includes('the server was updated or cannot be reached. Reload the page.')")
