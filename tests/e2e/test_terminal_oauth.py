"""OAuth login without a local browser: the URL is printed, and the pasted redirect URL or code is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.support.program import write_config
from tests.support.pseudo_terminal import terminal
from tests.support.screens import screen as drawn_screen
from tests.support.servers.oauth_server import guarded

PASTE = "press Enter:"


def whole(address: str) -> str:
    return address


def code_alone(address: str) -> str:
    return parse_qs(urlsplit(address).query)["code"][0]


@pytest.mark.parametrize("pasted", [whole, code_alone])
def test_a_redirect_url_or_code_of_a_remote_browser_can_be_pasted(pasted: Callable[[str], str], tmp_path: Path) -> None:
    with guarded() as server:
        server.redirected = {"iss": ""}
        write_config(tmp_path, {"docs": {"url": server.url}})
        with terminal(tmp_path, "servers", "login", "docs", "--no-browser") as screen:
            shown = re.search(r"http://\S+/authorize\?\S+", screen.until("Open this address", PASTE))
            assert shown
            with httpx2.Client(trust_env=False, verify=False, timeout=60) as browser:
                came_back = str(browser.get(shown[0]).headers["location"])
            screen.type(f"{pasted(came_back)}\r")
            screen.until("docs: ready, 3 tools")
            assert screen.leave() == 0


def test_an_authorization_response_with_an_issuer_needs_the_whole_url(tmp_path: Path) -> None:
    with guarded() as server:
        server.metadata = {"authorization_response_iss_parameter_supported": True}
        write_config(tmp_path, {"docs": {"url": server.url}})
        with terminal(tmp_path, "servers", "login", "docs", "--no-browser") as screen:
            shown = re.search(r"http://\S+/authorize\?\S+", screen.until("Open this address", PASTE))
            assert shown
            with httpx2.Client(trust_env=False, verify=False, timeout=60) as browser:
                came_back = str(browser.get(shown[0]).headers["location"])
            screen.type(f"{code_alone(came_back)}\r")
            screen.until("login needs the whole URL", PASTE)
            screen.type(f"{came_back}\r")
            screen.until("docs: ready, 3 tools")
            assert screen.leave() == 0


def test_an_empty_line_cancels_the_login(tmp_path: Path) -> None:
    with guarded() as server:
        write_config(tmp_path, {"docs": {"url": server.url}})
        with terminal(tmp_path, "servers", "login", "docs", "--no-browser") as screen:
            screen.until(PASTE)
            screen.type("\r")
            screen.until("docs: no login took place")
            assert screen.leave() == 1
        assert "/token" not in server.paths()


def test_a_login_in_a_conversation_is_a_box_and_its_address_remains(tmp_path: Path) -> None:
    with guarded() as server:
        server.redirected = {"iss": ""}
        write_config(tmp_path, {"docs": {"url": server.url}}, ["Hello."])
        with drawn_screen(tmp_path, "--no-save", columns=70, BROWSER="") as person:
            person.until_last(">")
            person.type("/login docs\r")
            person.until("╭ docs wants you to log in ─")
            person.until("╰ Enter take the pasted address · Esc do not log in")
            person.type("\x1b")
            person.until("docs: no login took place")
            assert not any("╭" in line for line in person.lines)
            person.type("/login docs\r")
            person.until("╭ docs wants you to log in ─")
            person.until_last("the address it leads to:")
            found = re.findall(r"http://\S+/authorize\?\S+", person.text.replace("\n", ""))
            with httpx2.Client(trust_env=False, timeout=60) as browser:
                address = found[-1].partition("╭")[0]
                came_back = str(browser.get(address).headers["location"])
            person.type(f"\x1b[200~{came_back}\x1b[201~\r")
            person.until("docs: ready, 3 tools")
