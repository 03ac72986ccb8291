"""MCP Apps on the page: frames with their own origin, tool calls with approvals, and a hostile app."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser, Tab
from tests.support.network_listener import NetworkListener
from tests.support.program import python_server
from tests.support.web_page import (
    DONE,
    SDK,
    assert_harmless,
    fetch_conversation,
    find_frame,
    open_page,
    read_text,
    send_message,
    serve_page,
)

pytestmark = pytest.mark.once

SERVER = Path(__file__).parents[1] / "support" / "servers" / "app_server.py"
SHOWN = ["show_counter", "show_hostile", "show_remote"]
SECRET = "the secret of the conversation"
APP = "document.querySelector('.app-frame')"
CHIP = "document.querySelector('#contexts .context')"
REMEMBERED = 'Seen: @library:data://1\n\n{\n  "count": "3"\n}'


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a reply that calls a tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


@contextmanager
def app_page(browser: Browser, folder: Path, *replies: Any) -> Iterator[tuple[Tab, str]]:
    """Open the page with a server whose apps are shown without approval, and a server without apps."""
    servers = {"apps": python_server(SERVER, autoApprove=SHOWN), "library": python_server(SDK, "stdio")}
    with serve_page(folder, list(replies), servers) as address:
        yield open_page(browser, address), address


def test_an_app_shows_its_result_and_calls_approved_tools_of_its_server(chromium: Browser, tmp_path: Path) -> None:
    with app_page(chromium, tmp_path, call("show_counter", start=3), "Done.") as (tab, address):
        send_message(tab, "Count")
        tab.until(DONE)
        frame = find_frame(tab, "find('count').textContent === '3'")
        assert frame.run("origin") == "null"
        assert frame.run("messages.map(({method}) => method).filter(Boolean)") == [
            "ui/notifications/tool-input",
            "ui/notifications/tool-result",
        ]
        context = frame.run("host.hostContext")
        assert (context["theme"], context["displayMode"]) == ("light", "inline")
        assert context["toolInfo"]["tool"]["name"] == "show_counter"
        assert context["styles"]["variables"]["--color-text-primary"]
        frame.run("find('more').click()")
        assert read_text(tab, ".request h2") == "apps wants to run increase"
        assert "The app asks for this call" in read_text(tab, ".request")
        assert frame.run("find('count').textContent") == "3"
        tab.click(".request .primary")
        frame.until("find('count').textContent === '4'")
        tab.until("!document.querySelector('.request')")
        frame.run("find('more').click()")
        tab.until("document.querySelector('.request')")
        tab.click(".request-denial button")
        frame.until("find('last').textContent.includes('did not allow')")
        frame.run("find('other').click()")
        frame.until("find('last').textContent.startsWith('error')")
        frame.run("find('read').click()")
        frame.until("find('last').textContent.includes('words of the server')")
        frame.run("find('taller').click()")
        tab.until(f"{APP}.clientHeight === Math.round(innerHeight * 0.75)")
        tab.click("#theme")
        frame.until("document.documentElement.style.colorScheme === 'dark'")
        assert_harmless(tab, address)


def test_an_app_reappears_after_a_reload_and_closes_with_its_conversation(chromium: Browser, tmp_path: Path) -> None:
    with app_page(chromium, tmp_path, call("show_counter", start=3), "Done.") as (tab, address):
        send_message(tab, "Count")
        tab.until(DONE)
        frame = find_frame(tab, "find('count').textContent === '3'")
        tab.reload()
        frame = find_frame(tab, "find('count').textContent === '3'", after=frame)
        tab.click("#new")
        tab.until("!document.querySelector('.app-frame')")
        assert tab.run("frames.length") == 0
        tab.click(".conversations a")
        frame = find_frame(tab, "find('count').textContent === '3'", after=frame)
        tab.click(".app-head .icon-button")
        tab.until("!document.querySelector('.app-frame')")
        tab.click(".app-body .button")
        frame = find_frame(tab, "find('count').textContent === '3'", after=frame)
        assert frame.run("messages.length") > 0
        assert_harmless(tab, address)


GATE = """(() => {
  const load = window.fetch, opened = new Promise((resolve) => { window.openGate = resolve; });
  window.reads = [];
  window.fetch = async (url, options) => {
    const isConversation = /conversations\\/[^/]+$/.test(url) && (options?.method ?? 'GET') === 'GET';
    if (isConversation) await opened;
    const response = await load(url, options);
    window.reads.push(isConversation ? 'conversation' : String(url).endsWith('/state') ? 'state' : '');
    return response;
  };
})()"""
"""Holds back the reads of the stored conversation until `openGate()`, and notes which reads have ended."""


def test_an_app_is_not_loaded_again_when_its_turn_is_stored(chromium: Browser, tmp_path: Path) -> None:
    with app_page(chromium, tmp_path, call("show_counter", start=3), "Done.") as (tab, address):
        tab.run(GATE)
        send_message(tab, "Count")
        tab.until(DONE)
        frame = find_frame(tab, "find('count').textContent === '3'")
        tab.run("new Promise((resolve) => setTimeout(resolve, 2500))")  # a poll for changes has begun
        tab.run("openGate()")
        tab.until("reads.lastIndexOf('state') > reads.indexOf('conversation') && reads.includes('conversation')")
        tab.until("reads.filter((read) => read === 'state').length >= 2")
        assert frame.run("find('count').textContent") == "3"
        assert tab.frames == [frame]
        assert_harmless(tab, address)


def test_messages_and_links_of_an_app_need_a_click_by_the_user(chromium: Browser, tmp_path: Path) -> None:
    with app_page(chromium, tmp_path, call("show_counter", start=3), "Done.", "More of it.") as (tab, address):
        send_message(tab, "Count")
        tab.until(DONE)
        frame = find_frame(tab, "find('count').textContent === '3'")
        frame.run("find('say').click()")
        assert "apps wants to send this message" in read_text(tab, ".app-consent")
        assert read_text(tab, ".app-consent pre") == "Tell me more about 3"
        assert tab.run("document.activeElement.closest('.app-consent')") is None
        frame.run("find('link').click()")
        frame.until("find('last').textContent.includes('Another question')")
        tab.run("document.querySelector('.app-consent .button:last-child').click()")
        frame.until("find('last').textContent.includes('Denied')")
        assert tab.run("document.querySelectorAll('.user').length") == 1
        frame.run("find('link').click()")
        assert read_text(tab, ".request-url") == "https://example.test/path"
        link = "(({href, target, rel}) => [href, target, rel])(document.querySelector('.app-consent a'))"
        assert tab.run(link) == ["https://example.test/path", "_blank", "noopener noreferrer"]
        tab.run("document.querySelector('.app-consent .button:last-child').click()")
        frame.run("find('say').click()")
        accept = "document.querySelector('.app-consent .primary')?.click()"
        tab.until(f"({accept}, document.querySelectorAll('.user').length === 2)")
        tab.until("document.querySelector('.turn:last-child .prose')?.textContent === 'More of it.'")
        stored = fetch_conversation(tab)
        users = [message for message in stored["messages"] if message["role"] == "user"]
        assert [message.get("taint") for message in users] == [None, "apps"], "a server wrote the second one"
        assert_harmless(tab, address)


def test_an_app_that_needs_other_origins_opens_after_approval(chromium: Browser, tmp_path: Path) -> None:
    with NetworkListener() as stranger, app_page(chromium, tmp_path, call("show_remote"), "Done.") as (tab, address):
        send_message(tab, "Show")
        tab.until(DONE)
        tab.until("document.querySelector('.app-body .button')")
        assert "http://127.0.0.1:*, https://api.evil.test, https://cdn.evil.test" in read_text(tab, ".app-body p")
        assert tab.frames == []
        tab.click(".app-body .button")
        frame = find_frame(tab, "document.title === 'Counter'")
        frame.run(f"fetch('{stranger.url}/declared', {{mode: 'no-cors'}}).then(() => 1)")
        assert stranger.received == ["GET /declared HTTP/1.1"]
        policy = tab.run(f"fetch({APP}.src).then(({{headers}}) => headers.get('content-security-policy'))")
        assert "connect-src https://api.evil.test http://127.0.0.1:*;" in policy
        assert "'self'" not in policy.replace("frame-ancestors 'self'", "")
        assert_harmless(tab, address)


REFUSED_BY_BROWSER = [
    *("page", "token", "address", "local storage", "session storage", "cookie", "database", "sibling", "top"),
    *("fetch", "fetch own", "socket", "image", "own image", "script", "style", "worker", "camera", "clipboard"),
]
EMPTY = ["referrer", "popup", "dialog"]
ESCAPES = ["location.href = '{}/self?stolen'", "submit('{}/form')", "nest('{}/frame')", "nestCall('{}')"]
REFUSED_BY_HOST = [
    *("tool of another server", "tool with its server", "tool for the model", "file", "sampling", "list", "prototype"),
    *("script link", "file link", "system message", "large"),
]


def test_a_hostile_app_reads_nothing_sends_nothing_and_calls_nothing(chromium: Browser, tmp_path: Path) -> None:
    calls = {"tool_calls": [*call("show_counter", start=3)["tool_calls"], *call("show_hostile")["tool_calls"]]}
    with NetworkListener() as stranger, app_page(chromium, tmp_path, calls, SECRET) as (tab, address):
        send_message(tab, SECRET)
        tab.until(DONE)
        find_frame(tab, "document.title === 'Counter'")
        frame = find_frame(tab, "document.title === 'Hostile'")
        home = address.partition("/#")[0]
        frame.run(f"attack({json.dumps(stranger.url)}, {json.dumps(home)}); void 0")
        frame.until("outcomes.done")
        outcomes = frame.run("outcomes")
        assert {name: outcomes[name] for name in REFUSED_BY_BROWSER if not outcomes[name].startswith("refused")} == {}
        assert {name: outcomes[name] for name in EMPTY if outcomes[name] not in ("nothing", "true")} == {}
        assert {name: outcomes[name] for name in REFUSED_BY_HOST if "error" not in outcomes[name].lower()} == {}
        token = address.partition("token=")[2]
        assert not [name for name, found in outcomes.items() if SECRET in found or token in found]
        assert stranger.received == []
        assert tab.run("location.href").startswith(home)
        assert tab.run("document.querySelectorAll('.request, .toast').length") == 0
        assert tab.dialogs == []
        # Navigating the frame or a nested frame ends the app.
        for escape in ESCAPES:
            frame.run(f"setTimeout(() => {{ {escape.format(stranger.url)} }}, 0); void 0")
            tab.run("new Promise((resolve) => setTimeout(resolve, 500))")
            assert stranger.received == []
            tab.run("document.querySelectorAll('.app-head .icon-button')[1].click()")
            tab.until("document.querySelectorAll('.app-frame').length === 1")
            tab.click(".app-body > .button")
            frame = find_frame(tab, "document.title === 'Hostile'", after=frame)


def test_an_app_that_navigates_its_frame_keeps_its_content_security_policy(chromium: Browser, tmp_path: Path) -> None:
    with NetworkListener() as stranger, app_page(chromium, tmp_path, call("show_hostile"), "Done.") as (tab, _):
        send_message(tab, "Go")
        tab.until(DONE)
        frame = find_frame(tab, "document.title === 'Hostile'")
        tab.run(f"void (window.first = {APP})")
        query = f"?connect={stranger.url}"
        frame.run(f"setTimeout(() => {{ location.search = {json.dumps(query)} }}, 0); void 0")
        tab.until("[...document.querySelectorAll('.app-frame')].find((frame) => frame !== first)")
        tab.run("new Promise((resolve) => setTimeout(resolve, 500))")
        frame = find_frame(tab, "document.title === 'Hostile' && !location.search", after=frame)
        assert (
            frame.run(f"fetch('{stranger.url}/stolen', {{mode: 'no-cors'}}).then(() => '', () => 'refused')")
            == "refused"
        )
        assert stranger.received == []


def test_a_flooding_app_is_closed_and_a_hanging_app_does_not_block_the_page(chromium: Browser, tmp_path: Path) -> None:
    with app_page(chromium, tmp_path, call("show_hostile"), "Done.", "Still here.") as (tab, _):
        send_message(tab, "Go")
        tab.until(DONE)
        frame = find_frame(tab, "document.title")
        frame.run("setInterval(() => { for (let i = 0; i < 1000; i++) send({method: 'x'}); }, 1); void 0")
        tab.until("document.querySelector('.app-body p')?.textContent.includes('too many messages')")
        tab.click(".app-body .button")
        frame = find_frame(tab, "document.title", after=frame)
        frame.run("setTimeout(() => { for (;;); }, 10); void 0")
        # With the keyboard: the browser hands a press of the mouse to what was in that place when it drew last, which
        # may be the frame, whose process answers nothing.
        tab.run("document.querySelector('#message').focus()")
        tab.type("And now?")
        tab.press("Enter")
        tab.until("document.querySelector('.turn:last-child .prose')?.textContent === 'Still here.'")
        tab.run("document.querySelector('.app-head .icon-button').focus()")
        tab.press("Enter")
        tab.until("!document.querySelector('.app-frame')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_app_fits_narrow_and_wide_windows(chromium: Browser, tmp_path: Path, theme: str) -> None:
    with app_page(chromium, tmp_path, call("show_counter", start=3), "Done.") as (tab, _):
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        send_message(tab, "Count")
        tab.until(DONE)
        frame = find_frame(tab, "find('count').textContent === '3'")
        frame.run("find('say').click()")
        tab.until("document.querySelector('.app-consent pre')")
        for width in (320, 768, 1440):
            tab.resize(width, 800)
            tab.until("document.documentElement.scrollWidth <= innerWidth")
            tab.screenshot(tmp_path / f"apps-{theme}-{width}.png")
            frame.until(f"innerWidth <= {width}")
        assert tab.run("document.documentElement.dataset.theme") == theme


def fetch_questions(tab: Tab) -> list[dict[str, Any]]:
    """Return the stored messages of the user."""
    return [message for message in fetch_conversation(tab)["messages"] if message["role"] == "user"]


def test_the_context_of_an_app_is_sent_with_the_next_message_as_foreign_text(chromium: Browser, tmp_path: Path) -> None:
    with app_page(chromium, tmp_path, call("show_counter", start=3), "Done.", "Seen.", "Later.") as (tab, address):
        send_message(tab, "Count")
        tab.until(DONE)
        frame = find_frame(tab, "find('count').textContent === '3'")
        assert frame.run("host.hostCapabilities.updateModelContext") == {"text": {}, "structuredContent": {}}
        for _ in range(2):
            frame.run("find('last').textContent = ''; find('remember').click()")
            frame.until("find('last').textContent === '{}'")
        assert tab.run("document.querySelectorAll('#contexts .context').length") == 1, "only the last one counts"
        tab.reload()
        tab.until(f"{DONE} && {CHIP}")
        assert tab.run(f"{CHIP}.querySelector('pre').textContent") == REMEMBERED
        frame = find_frame(tab, "find('count').textContent === '3'", after=frame)
        frame.run("find('remember').click()")
        frame.until("find('last').textContent === '{}'")
        assert tab.run("document.querySelectorAll('#contexts .context').length") == 1, "only the last one counts"
        tab.resize(320, 600)
        tab.click("#contexts summary")
        assert tab.run("document.documentElement.scrollWidth <= innerWidth") is True
        send_message(tab, "And now?")
        tab.until("document.querySelector('.turn:last-child .prose')?.textContent === 'Seen.'")
        assert tab.run(CHIP) is None
        assert REMEMBERED in read_text(tab, ".turn:last-child details.resource")
        send_message(tab, "Without it")
        tab.until("document.querySelector('.turn:last-child .prose')?.textContent === 'Later.'")
        users = fetch_questions(tab)
        assert [message.get("taint") for message in users] == [None, "apps", None]
        own, context = users[1]["content"]
        assert (own["text"], context["foreign"]) == ("And now?", True)
        assert context["text"].startswith("[context from an app of the server apps; the app wrote it]\nSeen: @library")
        assert_harmless(tab, address)


def test_a_removed_context_is_not_sent_and_its_app_cannot_add_another(chromium: Browser, tmp_path: Path) -> None:
    with app_page(chromium, tmp_path, call("show_counter", start=3), "Done.", "Nothing.") as (tab, address):
        send_message(tab, "Count")
        tab.until(DONE)
        frame = find_frame(tab, "find('count').textContent === '3'")
        frame.run("find('remember').click()")
        tab.click("#contexts .icon-button")
        tab.until(f"!{CHIP} && document.activeElement.id === 'message'")
        frame.run("find('remember').click()")
        frame.until("find('last').textContent.includes('Denied')")
        frame.run(
            "show(ask('ui/update-model-context', { content: [{ type: 'image', data: '', mimeType: 'image/png' }] }))"
        )
        frame.until("find('last').textContent.includes('Only text')")
        send_message(tab, "And now?")
        tab.until("document.querySelector('.turn:last-child .prose')?.textContent === 'Nothing.'")
        assert fetch_questions(tab)[-1]["content"] == "And now?"
        assert_harmless(tab, address)


def test_a_context_is_queued_with_its_message(chromium: Browser, tmp_path: Path) -> None:
    replies = [call("show_counter", start=3), "Done.", call("echo", text="x"), "Echoed.", "Seen."]
    with app_page(chromium, tmp_path, *replies) as (tab, address):
        send_message(tab, "Count")
        tab.until(DONE)
        frame = find_frame(tab, "find('count').textContent === '3'")
        send_message(tab, "Echo")
        tab.until("document.querySelector('.request .primary')")
        frame.run("find('remember').click()")
        tab.until(CHIP)
        send_message(tab, "Later")
        tab.until(f"document.querySelector('.queued') && !{CHIP}")
        tab.click(".request .primary")
        tab.until("document.querySelector('.turn:last-child .prose')?.textContent === 'Seen.'")
        question = fetch_questions(tab)[-1]
        assert (question["taint"], len(question["content"])) == ("apps", 2)
        assert_harmless(tab, address)


def test_a_message_of_an_app_includes_its_context(chromium: Browser, tmp_path: Path) -> None:
    with app_page(chromium, tmp_path, call("show_counter", start=3), "Done.", "Both.") as (tab, address):
        send_message(tab, "Count")
        tab.until(DONE)
        frame = find_frame(tab, "find('count').textContent === '3'")
        frame.run("find('remember').click(); find('say').click()")
        accept = "document.querySelector('.app-consent .primary')?.click()"
        tab.until(f"({accept}, document.querySelectorAll('.user').length === 2)")
        tab.until("document.querySelector('.turn:last-child .prose')?.textContent === 'Both.'")
        question = fetch_questions(tab)[-1]
        assert [part["text"].partition("\n")[0] for part in question["content"]] == [
            "Tell me more about 3",
            "[context from an app of the server apps; the app wrote it]",
        ]
        assert question["taint"] == "apps"
        assert_harmless(tab, address)
