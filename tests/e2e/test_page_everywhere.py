"""The page: links, search in a conversation, export, print, writing directions, installation, contrast and size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.support.browser import Browser, Tab
from tests.support.program import LONG
from tests.support.web_page import (
    DONE,
    assert_harmless,
    open_page,
    open_relay,
    read_text,
    save_as_html,
    send_message,
    serve_page,
)

pytestmark = pytest.mark.once

FIRST_LOAD = 96_000
"""Limit in bytes, compressed, for the files that the page loads at start; the documented limit is 300 kB."""
STORED = "document.querySelector('.turn:last-child .user-foot [title=\"Edit this message\"]')"
HITS = "[...(CSS.highlights.get('find') ?? [])].map((range) => range.toString())"
COUNT = "document.querySelector('.find-count').textContent"
ANSWER = """A **bo**ld needle.

مرحبا بالعالم

`left`

| a | b |
|---|---|
| 1 | <script>alert(1)</script> |

$x^2$"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    replies = {"replies": [{"text": ANSWER, "reasoning": "A needle, hidden."}], "after": "repeat"}
    with serve_page(tmp_path_factory.mktemp("served"), replies) as found:
        yield found


@pytest.fixture
def tab(chromium: Browser, address: str) -> Iterator[Tab]:
    """A tab with a conversation of two questions and answers."""
    opened = open_page(chromium, address)
    for text in ("First needle", "שלום"):
        send_message(opened, text)
        opened.until(f"{DONE} && {STORED} && document.querySelector('.turn:last-child math')")
    yield opened
    assert_harmless(opened, address)


def command(tab: Tab, name: str) -> None:
    """Run a command of the message field."""
    tab.click("#message")
    tab.type(f"/{name}")
    tab.until("document.querySelector('.completion')")
    tab.press("Enter")


def test_a_link_leads_to_a_message_in_a_new_tab(chromium: Browser, address: str, tab: Tab) -> None:
    link = tab.run("import('./assets/deep_links.js').then((links) => links.createMessageLink(0))")
    assert re.search(r"/#/c/[\w-]+/0$", link)
    second_tab = open_page(chromium, address)
    second_tab.resize(1280, 320)
    second_tab.run(f"location.hash = {link.partition('#')[2]!r}")
    second_tab.until("document.activeElement.dataset.position === '0'")
    assert second_tab.run("document.activeElement.getBoundingClientRect().top") < 320
    assert second_tab.run("document.getElementById('view').scrollTop") < 100
    old = "#/" + link.split("/")[-2]
    second_tab.run(f"location.hash = {old!r}")
    second_tab.until("document.querySelectorAll('.turn').length === 2")
    assert_harmless(second_tab, address)


def test_a_search_marks_all_hits_and_expands_the_section_of_the_current_hit(tab: Tab) -> None:
    command(tab, "find")
    tab.until("document.activeElement.type === 'search'")
    tab.type("NEEDLE")
    tab.until(f"{COUNT} === '1/5'")
    assert tab.run(HITS) == ["needle"] * 5
    tab.press("Enter")
    tab.until(f"{COUNT} === '2/5' && document.querySelector('.reasoning').open")
    tab.run("document.activeElement.select()")
    tab.type("bold n")
    tab.until(f"{COUNT} === '1/2'")
    assert tab.run(HITS) == ["bold n"] * 2
    tab.type("othing")
    tab.until(f"{COUNT} === 'No hits'")
    tab.press("Escape")
    tab.until("document.getElementById('find').hidden && document.activeElement.id === 'message'")
    assert tab.run(HITS) == []


def test_text_has_the_direction_of_its_script_and_code_is_left_to_right(tab: Tab) -> None:
    style = "getComputedStyle(document.querySelector({!r}))"
    assert tab.run("document.querySelector('.turn:last-child .user-message').matches(':dir(rtl)')") is True
    assert tab.run("document.querySelector('.turn:first-child .user-message').matches(':dir(ltr)')") is True
    assert tab.run(f"{style.format('.prose p')}.unicodeBidi") == "plaintext"
    assert tab.run(f"{style.format('.prose code')}.direction") == "ltr"
    english, arabic = (
        tab.run(
            "(() => { const range = document.createRange(); "
            f"range.selectNodeContents(document.querySelectorAll('.prose p')[{at}]); "
            "return range.getBoundingClientRect().left; })()"
        )
        for at in (0, 1)
    )
    assert arabic > english + 100


def test_an_exported_file_shows_the_conversation_without_script(chromium: Browser, tmp_path: Path, tab: Tab) -> None:
    path = save_as_html(tab, tmp_path, "First needle")
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"<script|<button|<iframe|\bon\w+=|url\(|https?://(?!www\.w3\.org)", text) == []
    document = chromium.tab()
    document.go(path.as_uri())
    assert read_text(document, "h1") == "First needle"
    assert read_text(document, ".prose strong") == "bo"
    assert read_text(document, "td:last-child") == "<script>alert(1)</script>"
    assert document.run("document.querySelectorAll('math').length") == 2
    assert document.run("document.documentElement.scrollWidth <= innerWidth") is True
    assert document.run("getComputedStyle(document.body).overflowY") == "visible"
    assert [url for url in document.requests if not url.startswith("file:")] == []
    assert document.console_errors == []


def test_a_printout_has_all_messages_and_no_controls(tab: Tab) -> None:
    tab.run("dispatchEvent(new Event('beforeprint'))")
    tab.call("Emulation.setEmulatedMedia", media="print")
    visible = "[...document.querySelectorAll({!r})].filter((e) => e.checkVisibility()).length"
    assert tab.run(visible.format(".sidebar, .dock, .turn-foot, .icon-button")) == 0
    assert tab.run(visible.format(".user-message, .prose")) == 4
    assert tab.run("getComputedStyle(document.getElementById('view')).overflowY") == "visible"
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.call("Emulation.setEmulatedMedia", media="")


def test_only_the_installed_page_has_a_service_worker_that_reports_an_offline_server(
    chromium: Browser, address: str, tab: Tab
) -> None:
    assert tab.run("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0
    with open_relay(address) as (relay, way):
        installed = open_page(chromium, way.replace("/#", "/?installed#"))
        installed.until("navigator.serviceWorker.controller")
        assert installed.run("caches.keys().then((names) => names.length)") == 0
        manifest = installed.call("Page.getAppManifest")
        assert manifest["errors"] == []
        assert '"display": "standalone"' in manifest["data"]
        relay.cut()
        installed.call("Page.reload")
        installed.until("document.title === 'dial-chat is offline'")
        relay.mend()
        installed.call("Page.reload")
        installed.until("document.getElementById('message')")


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "dial"], ids=["the server's own", "a name of the proxy"])
def test_behind_a_proxy_that_does_not_pass_on_the_host_the_page_explains_itself(
    chromium: Browser, address: str, host: str
) -> None:
    with open_relay(address, host) as (_, way):
        tab = chromium.tab()
        tab.go(way)
        tab.until("(document.body?.innerText ?? '').includes('proxy_set_header Host $http_host;')")
        assert tab.run("document.body.innerText.includes('--allow-host')")


def test_high_contrast_and_forced_colours_keep_every_control_visible(chromium: Browser, address: str) -> None:
    for media in ({"forced_colors": "active"}, {"prefers_contrast": "more"}):
        tab = open_page(chromium, address, **media)
        send_message(tab, "Show it")
        tab.until(DONE)
        assert tab.run("getComputedStyle(document.querySelector('.user-foot')).opacity") == "1"
        assert_harmless(tab, address)


def read_size(url: str) -> int:
    """Return the size in bytes of a file of the page, as a browser receives it."""
    with urlopen(Request(url, headers={"Accept-Encoding": "gzip"}), timeout=LONG) as response:
        return len(response.read())


def test_the_first_load_is_small_and_has_one_script(chromium: Browser, address: str) -> None:
    tab = open_page(chromium, address)
    page, _, _ = address.partition("#")
    names = {url.removeprefix(page) for url in tab.requests if url == page or url.startswith(f"{page}assets/")}
    assert names >= {"", "assets/style.css"}
    assert {name for name in names if name.endswith(".js")} - {"assets/service_worker.js"} == {"assets/bundle.js"}
    assert sum(read_size(page + name) for name in names) < FIRST_LOAD
