"""The panel of servers on the page: tool calls by the user, grants, the audit log, changes of servers and logins."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.browser import Browser
from tests.support.program import python_server
from tests.support.servers.oauth_server import guarded
from tests.support.web_page import (
    ASKING,
    DONE,
    SDK,
    assert_harmless,
    open_page,
    read_text,
    send_message,
    serve_page,
    two_servers,
)

EMPTY = """(() => {
  const { right, bottom } = document.getElementById('servers').getBoundingClientRect();
  const place = [right - 20, bottom - 20];
  return document.elementFromPoint(...place).id === 'servers' ? place : null;
})()"""
"""A place in the panel of servers that has no content."""
OVERFLOW = "document.querySelector('.tool-form').scrollWidth <= document.querySelector('.tool-form').clientWidth"

DISABLE = """fetch('servers/asking/disable', {method: 'POST', headers: {Authorization:
    'Bearer ' + sessionStorage.getItem('dial-token')}}).then((response) => { performance.clearResourceTimings();
    return response.status; })"""
RENDERED = "performance.getEntriesByType('resource').filter(({name}) => /servers$|tools$/.test(name)).length >= 4"
"""An expression that is true after the panel has fetched the servers twice since the change."""


def test_a_tool_is_called_through_its_form_and_its_approval(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["Hello."], two_servers(), "--allow-admin") as address:
        tab = open_page(chromium, address)
        tab.resize(320, 568, phone=True)
        tab.click("#servers-button")
        tab.until("document.querySelector('[aria-label=\"Call echo\"]')")
        tab.until(
            "performance.getEntriesByType('resource').filter(({name}) => name.includes('resources?')).length === 2"
        )
        tab.run("document.querySelector('[aria-label=\"Call echo\"]').closest('details').open = true")
        # The panel is rendered again while the pointer is down.
        with tab.pressed("[aria-label='Call echo']"):
            assert tab.run(DISABLE) == 204
            tab.until(RENDERED)
        tab.until("document.activeElement.matches('.tool-form textarea')")
        assert read_text(tab, ".tool-form h2") == "Call echo of library"
        tab.type("<img src=x>\u202e")
        assert tab.run(OVERFLOW) is True
        tab.click(".tool-form .dialog-buttons .primary")
        tab.until("document.querySelector('.tool-form .request pre')")
        assert read_text(tab, ".tool-form .request pre") == "text: <img src=x>\\u{202e}"
        assert tab.run(OVERFLOW) is True
        tab.click(".tool-form .request [data-shortcut=y]")
        tab.until("document.querySelector('.tool-form-result pre')")
        assert "<img src=x>" in read_text(tab, ".tool-form-result pre")
        assert tab.run("document.querySelectorAll('.tool-form img').length") == 0
        assert_harmless(tab, address)


def test_grants_are_revoked_and_the_audit_log_is_read(chromium: Browser, tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]}
    with serve_page(tmp_path, [call, "Done."], two_servers()) as address:
        tab = open_page(chromium, address)
        send_message(tab, "Go")
        tab.until("document.querySelector('.request')")
        tab.click("#servers-button")
        tab.until("document.querySelector('[data-key=waiting] a')")
        assert "library/echo" in read_text(tab, "[data-key=waiting] li")
        tab.click("[data-key=waiting] a")
        tab.until("!document.getElementById('servers').open")
        tab.click(".request-buttons .button:nth-child(2)")
        tab.until(DONE)
        tab.click("#servers-button")
        tab.until("document.querySelector('[data-key=grants] li')")
        tab.run("document.querySelectorAll('.access details').forEach((details) => { details.open = true; })")
        assert "library/echo" in read_text(tab, "[data-key=audit] li")
        assert read_text(tab, "[data-key=usage] li").startswith("Todayturns: ")
        tab.click("[data-key=grants] .text-button")
        tab.until("document.querySelector('[data-key=grants] p')?.textContent === 'None.'")
        assert_harmless(tab, address)


def test_servers_are_added_disabled_and_removed_with_permission_of_the_operator(
    chromium: Browser, tmp_path: Path
) -> None:
    entry = json.dumps(python_server(ASKING))
    with serve_page(tmp_path, ["Hello."], {"library": python_server(SDK, "stdio")}, "--allow-admin") as address:
        tab = open_page(chromium, address)
        tab.click("#servers-button")
        tab.click("#servers > details > summary")
        tab.click("#server-name")
        tab.type("<b>new")
        tab.run("document.getElementById('server-entry').value = 'no JSON'")
        tab.click("#servers > details .primary")
        tab.until("document.querySelector('#servers [role=alert]').textContent === 'The entry is not JSON.'")
        tab.run(f"document.getElementById('server-entry').value = {json.dumps(entry)}")
        tab.click("#servers > details .primary")
        tab.until("document.querySelector('.server[data-state=ready] [aria-label=\"Disable <b>new\"]')")
        tab.click("[aria-label='Disable <b>new']")
        tab.until("document.activeElement.matches('.server[data-state=disabled] [aria-label=\"Enable <b>new\"]')")
        tab.click("[aria-label='Enable <b>new']")
        tab.until("document.querySelector('.server[data-state=ready] [aria-label=\"Remove <b>new\"]')")
        tab.click("[aria-label='Remove <b>new']")
        tab.click("dialog.small .danger")
        tab.until("document.querySelectorAll('.server').length === 1")
        # The panel may request the resources of a server that is disabled just then; the browser reports the refusal.
        tab.console_errors = [error for error in tab.console_errors if "/resources?server=" not in error]
        assert_harmless(tab, address)


def test_a_failed_refresh_keeps_the_servers_and_the_focus(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["Hello."], two_servers(), "--allow-admin") as address:
        tab = open_page(chromium, address)
        tab.click("#servers-button")
        tab.until("document.querySelectorAll('.server[data-state=ready]').length === 2")
        tab.run("document.querySelector('[aria-label=\"Remove library\"]').focus()")
        focus = "document.activeElement.getAttribute('aria-label') === 'Remove library'"
        tab.run("window.loaded = window.fetch; window.fetch = () => Promise.reject(new TypeError('no network')); 0")
        tab.until(f"document.querySelector('#servers-list > .failed') && {focus}")
        assert tab.run("document.querySelectorAll('.server').length") == 2
        tab.run("window.fetch = window.loaded; 0")
        tab.until(f"!document.querySelector('#servers-list > .failed') && {focus}")
        tab.console_errors = [error for error in tab.console_errors if "no network" not in error]
        assert_harmless(tab, address)


def test_only_a_click_beside_the_panel_closes_it(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["Hello."], {}) as address:
        tab = open_page(chromium, address)
        tab.click("#servers-button")
        beside = (1.0, 1.0)
        tab.drag(tab.locate("#servers h2"), beside)  # as a selection of text may end
        assert tab.run("document.getElementById('servers').open") is True
        empty = tuple(tab.until(EMPTY))
        tab.drag(empty, empty)
        tab.drag(empty, beside)
        assert tab.run("document.getElementById('servers').open") is True
        tab.drag(beside, beside)
        tab.until("!document.getElementById('servers').open")
        assert tab.run("document.activeElement.id") == "servers-button"
        assert_harmless(tab, address)


def test_a_login_to_a_server_runs_in_a_new_tab(chromium: Browser, tmp_path: Path) -> None:
    no_keyring = {"PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}
    with guarded() as server, serve_page(tmp_path, ["Hello."], {"docs": {"url": server.url}}, **no_keyring) as address:
        tab = open_page(chromium, address)
        tab.resize(320, 568, phone=True)
        tab.click("#servers-button")
        tab.until("document.querySelector('[aria-label=\"Log in to docs\"]')")
        tab.click("[aria-label='Log in to docs']")
        tab.until("document.querySelector('dialog.small a.primary')")
        assert server.base in read_text(tab, "dialog.small")
        assert tab.run("document.querySelector('dialog.small a').rel") == "noopener noreferrer"
        tab.click("dialog.small a.primary")
        tab.until("document.querySelector('.server[data-state=ready]')")
        tab.until("!document.querySelector('[aria-label=\"Log in to docs\"]')")
        assert_harmless(tab, address)
