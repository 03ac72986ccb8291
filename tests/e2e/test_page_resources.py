"""Resources in the panel of servers: browsing, reading, and attaching to the message."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser, Tab
from tests.support.program import HERE, python_server
from tests.support.web_page import DONE, assert_harmless, fetch_conversation, open_page, read_text, serve_page

pytestmark = pytest.mark.once

FOLD = "[data-key='books:resources']"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    servers = {"books": python_server(HERE / "servers" / "library.py", "stdio")}
    with serve_page(tmp_path_factory.mktemp("served"), {"replies": ["Read."], "after": "repeat"}, servers) as found:
        yield found


@pytest.fixture
def tab(chromium: Browser, address: str) -> Iterator[Tab]:
    """A tab with the panel of servers and an open list of resources, on a small screen."""
    opened = open_page(chromium, address)
    opened.resize(320, 640)
    opened.type("Look at")
    opened.click("#servers-button")
    opened.until(f"document.querySelector({FOLD!r})".replace('"', "`"))
    opened.run(f"document.querySelector(`{FOLD}`).open = true")
    yield opened
    assert_harmless(opened, address)


def test_a_listed_resource_is_attached_to_the_message(tab: Tab) -> None:
    assert read_text(tab, f"{FOLD} summary") == "7 resources"
    assert "book://1" in read_text(tab, FOLD)
    assert tab.run("document.getElementById('servers').scrollWidth <= innerWidth") is True
    tab.click(f"{FOLD} [aria-label='Attach A book']")
    tab.until("!document.querySelector('dialog[open]') && document.activeElement.id === 'message'")
    assert tab.run("document.getElementById('message').value") == "Look at @books:book://1 "
    tab.press("Enter")
    tab.until(f"{DONE} && location.hash !== '#/'")
    assert "The first book." in str(fetch_conversation(tab)["messages"][0])


def test_a_resource_is_read_before_it_is_attached(tab: Tab) -> None:
    tab.click(f"{FOLD} [aria-label='Read A book']")
    tab.until("document.querySelector('.resource-view[open]')")
    assert read_text(tab, ".resource-view pre") == "The first book."
    assert read_text(tab, ".resource-view .resource-uri") == "book://1 of the server books"
    tab.click(".resource-view .primary")
    tab.until("!document.querySelector('dialog[open]')")
    assert tab.run("document.getElementById('message').value") == "Look at @books:book://1 "


def test_an_image_is_shown_and_a_file_of_another_type_is_named(tab: Tab) -> None:
    for name, shown in (("book://cover", "img[alt='Image of the resource']"), ("book://paper", ".attachment")):
        tab.click(f"{FOLD} [aria-label='Read {name}']")
        tab.until(f"document.querySelector(`.resource-view .resource-content {shown}`)")
        tab.press("Escape")
        tab.until("!document.querySelector('.resource-view')")


def test_a_template_is_filled_in_and_attached(tab: Tab) -> None:
    tab.click(f"{FOLD} [aria-label='Fill in shelves']")
    tab.until("document.activeElement.id === 'prompt-argument-0'")
    for at, value in enumerate(("shelf", "7")):
        tab.run(f"document.getElementById('prompt-argument-{at}').value = {value!r}")
    tab.press("Enter")
    tab.until("!document.querySelector('dialog[open]')")
    assert tab.run("document.getElementById('message').value") == "Look at @books:book://shelf/7 "
