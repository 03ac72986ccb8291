"""Persons log in on the page at an OpenID provider, and log out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser, Tab
from tests.support.openid_provider import CLIENT, CONFIGURATION, openid_provider
from tests.support.program import python_server
from tests.support.servers.launch import HERE
from tests.support.web_page import DONE, send_message, serve_page, two_servers

pytestmark = pytest.mark.once

READY = "document.querySelector('#conversations > *') && document.activeElement.id === 'message'"


def test_a_person_logs_in_stays_where_the_page_was_and_logs_out(
    chromium: Browser, tmp_path: Path, free_tcp_port: int
) -> None:
    url = f"http://127.0.0.1:{free_tcp_port}/"
    options = ["--port", str(free_tcp_port), "--auth", "oidc", "--oidc-client-id", CLIENT, "--public-url", url]
    with (
        openid_provider() as provider,
        serve_page(tmp_path, ["Hello.", "Hello again."], None, *options, "--oidc-issuer", provider.url),
    ):
        provider.documents[CONFIGURATION]["end_session_endpoint"] = f"{provider.url}/end"
        provider.documents["/realm/end"] = "logged out"
        tab = chromium.tab()
        tab.go(url)
        tab.until(READY)
        assert tab.run("document.querySelector('#account').textContent") == "anna"
        assert "token" not in tab.run("location.href")
        send_message(tab, "Hi.")
        tab.until(DONE)
        place = tab.run("location.hash")

        provider.refreshes = False  # the login ends at the provider, as it does while a person is away
        tab.run("sessionStorage.clear()")
        tab.go("about:blank")
        tab.go(url + place)
        tab.until(f"{READY} && document.querySelector('.answer .prose')")
        assert tab.run("location.hash") == place
        assert provider.requests.count("/realm/authorize") == 2

        provider.refreshes = True
        tab.run("sessionStorage.setItem('dial-token', 'expired')")
        tab.go("about:blank")
        tab.go(url + place)
        tab.until(f"{READY} && document.querySelector('.answer .prose')")
        assert provider.requests.count("/realm/authorize") == 2, "an expired token is renewed without a login"

        tab.click("#account")
        tab.until("document.querySelector('.menu')")
        assert tab.run("document.querySelector('.menu').textContent") == "Log out"
        tab.click(".menu-item")
        tab.until("location.pathname === '/realm/end'")
        tab.go(url)
        tab.until(READY)
        assert provider.requests.count("/realm/authorize") == 3, "the refresh token is gone"


@pytest.fixture
def logged_in(chromium: Browser, tmp_path: Path, free_tcp_port: int) -> Iterator[tuple[Tab, str]]:
    """A tab with the page after a login, and the URL of the page."""
    url = f"http://127.0.0.1:{free_tcp_port}/"
    options = ["--port", str(free_tcp_port), "--auth", "oidc", "--oidc-client-id", CLIENT, "--public-url", url]
    with openid_provider() as provider, serve_page(tmp_path, ["Hello."], None, *options, "--oidc-issuer", provider.url):
        tab = chromium.tab()
        tab.go(url)
        tab.until(READY)
        yield tab, url


def test_a_token_that_the_service_does_not_accept_ends_in_a_question_and_not_in_a_circle(
    logged_in: tuple[Tab, str],
) -> None:
    tab, url = logged_in
    tab.run("sessionStorage.setItem('dial-place', '')")
    tab.go(f"{url}#token=x.y.z")
    tab.until("document.querySelector('dialog[open] #token')")


def test_a_late_answer_to_the_token_before_says_nothing_about_a_token_that_the_service_does_not_accept(
    logged_in: tuple[Tab, str],
) -> None:
    tab, url = logged_in
    # Answers to the token before arrive just before the first refusal of the new one.
    tab.run(
        "{ const send = window.fetch; let release; const refused = new Promise((kept) => { release = kept; });"
        "window.fetch = async (path, options) => { const answer = await send(path, options);"
        "if (answer.status !== 401) { window.isHeld = true; await refused; return answer; }"
        "release(); await new Promise((kept) => setTimeout(kept)); return answer; }; }"
    )
    tab.run("location.hash = '#/c/none'")
    tab.until("window.isHeld")
    tab.run("sessionStorage.setItem('dial-place', '')")
    tab.go(f"{url}#token=x.y.z")
    tab.until("document.querySelector('dialog[open] #token')")


def test_a_person_whom_a_proxy_names_needs_no_token_and_cannot_log_out_here(chromium: Browser, tmp_path: Path) -> None:
    with serve_page(tmp_path, ["Hello."], None, "--auth", "proxy", "--proxy", "127.0.0.1") as url:
        tab = chromium.tab()
        tab.call("Network.enable")
        tab.call("Network.setExtraHTTPHeaders", headers={"X-Forwarded-User": "anna@example.org"})
        tab.go(url)
        tab.until(READY)
        tab.until("!document.querySelector('#account').hidden")
        shown = "[document.querySelector('#account').textContent, document.querySelector('#account').disabled]"
        assert tab.run(shown) == ["anna@example.org", True]
        send_message(tab, "Hi.")
        tab.until(DONE)


def test_only_admins_are_offered_what_admins_may_do_and_a_person_without_scopes_may_log_out(
    chromium: Browser, tmp_path: Path, free_tcp_port: int
) -> None:
    url = f"http://127.0.0.1:{free_tcp_port}/"
    options = ["--port", str(free_tcp_port), "--auth", "oidc", "--oidc-client-id", CLIENT, "--public-url", url]
    limits = tmp_path / "limits.json"
    limits.write_text('{"*": {"tokensPerDay": 50000, "usdPerDay": 3}}')
    options += ["--group-scopes", "staff=chat,read", "--owner-limits", str(limits)]
    servers = {"library": python_server(HERE / "elicitation.py")}
    with openid_provider() as provider, serve_page(tmp_path, [], servers, *options, "--oidc-issuer", provider.url):
        provider.documents[CONFIGURATION]["end_session_endpoint"] = f"{provider.url}/end"
        provider.documents["/realm/end"] = "logged out"
        tab = chromium.tab()
        tab.go(url)
        tab.until("document.activeElement.id === 'message'")
        tab.click("#servers-button")
        tab.until("document.querySelector('.server[data-state=ready]') && document.querySelector('[data-key=usage]')")
        buttons = tab.run("[...document.querySelectorAll('.server header button')].map((each) => each.textContent)")
        usage = tab.run("document.querySelector('[data-key=usage] li').textContent")
        refused = [error for error in tab.console_errors if "403" in error]

        provider.groups = ["guests"]
        guest = chromium.tab()
        guest.go(url)
        guest.until("!document.querySelector('#account').hidden")
        guest.click("#account")
        guest.click(".menu-item")
        guest.until("location.pathname === '/realm/end'")
    assert (buttons, refused) == ([], [])
    assert usage == "Todayturns: 0 · 0 / 50,000 tokens · $0 / $3"
    assert not any("threw" in error for error in guest.console_errors)


def test_the_audit_log_on_the_page_names_the_person_of_each_call_and_the_limits_that_denied_the_call(
    chromium: Browser, tmp_path: Path
) -> None:
    limits = tmp_path / "limits.json"
    limits.write_text('{"*": {"tools": []}}')
    call = {"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]}
    options = ["--auth", "proxy", "--proxy", "127.0.0.1", "--group-scopes", "*=chat,read,admin"]
    with serve_page(tmp_path, [call, "Done."], two_servers(), *options, "--owner-limits", str(limits)) as url:
        tab = chromium.tab()
        tab.call("Network.enable")
        tab.call("Network.setExtraHTTPHeaders", headers={"X-Forwarded-User": "anna@example.org"})
        tab.go(url)
        tab.until(READY)
        send_message(tab, "Hi.")
        tab.until(DONE)
        tab.click("#servers-button")
        tab.until("document.querySelector('[data-key=audit] li')")
        tab.run("document.querySelector('[data-key=audit]').open = true")
        entries = tab.run("[...document.querySelectorAll('[data-key=audit] li p')].map((each) => each.textContent)")
    assert all(entry.startswith("anna@example.org · ") for entry in entries)
    ends = [" · call · denied", " · decision · denied · by limits of the person"]
    assert [entry.endswith(end) for entry, end in zip(entries, ends, strict=True)] == [True, True]
