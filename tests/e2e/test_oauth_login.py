"""OAuth logins with dial-chat: the browser, the redirect listener, and token storage."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import anyio
import httpx2
import pytest

from dial_client.extend import FolderLogins
from tests.inner import LoginFailed, RedirectListener, TokenRecord, TokenStorage
from tests.support.oauth_logins import find_stored_logins, redirect_user_data
from tests.support.program import LONG, dial_chat, started, write_config
from tests.support.servers.launch import web
from tests.support.servers.oauth_server import Guarded, guarded

BROWSER = "import sys, urllib.request; urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1])"
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/authorize\?\S+")


@pytest.fixture
def server() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@pytest.fixture
def browser(tmp_path: Path) -> str:
    """The command of a program that opens a URL and follows redirects, like a browser."""
    program = tmp_path / "browser.py"
    program.write_text(BROWSER)
    return f"{sys.executable} {program} %s"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows opens its own browser, whatever BROWSER says")
def test_a_login_in_the_browser_is_followed_by_a_logout(server: Guarded, tmp_path: Path, browser: str) -> None:
    write_config(tmp_path, {"docs": {"url": server.url}})
    ran = dial_chat(tmp_path, "servers", "login", "docs", BROWSER=browser)
    assert (ran.returncode, ran.stdout) == (0, "docs: ready, 3 tools\n"), ran.stderr
    assert f"docs wants you to log in at {server.base}\n" in ran.stderr
    assert "docs: ready" in dial_chat(tmp_path, "servers").stdout
    assert "secret" not in ran.stdout + ran.stderr
    assert dial_chat(tmp_path, "servers", "logout", "docs").stdout == "docs: logged out: its tokens are deleted here\n"
    assert find_stored_logins(tmp_path) == []
    assert server.forms("/revoke") == []
    assert "it needs a login: run `dial-chat servers login docs`" in dial_chat(tmp_path, "servers").stdout


@pytest.mark.skipif(sys.platform == "win32", reason="Windows opens its own browser, whatever BROWSER says")
def test_a_logout_says_whether_the_tokens_are_revoked_and_deletes_them_in_any_case(
    server: Guarded, tmp_path: Path, browser: str
) -> None:
    server.offer_revocation()
    write_config(tmp_path, {"docs": {"url": server.url}})
    dial_chat(tmp_path, "servers", "login", "docs", BROWSER=browser)
    ran = dial_chat(tmp_path, "servers", "logout", "docs")
    assert (ran.stdout, ran.stderr) == ("docs: logged out: its tokens are deleted here, and revoked\n", "")
    assert server.refreshable == set()
    dial_chat(tmp_path, "servers", "login", "docs", BROWSER=browser)
    server.answers["/revoke"] = (503, "down")
    ran = dial_chat(tmp_path, "servers", "logout", "docs")
    assert (ran.returncode, ran.stdout) == (0, "docs: logged out: its tokens are deleted here\n")
    assert f"docs: its tokens stay valid until they expire, or until you end the login at {server.base}" in ran.stderr
    assert find_stored_logins(tmp_path) == []
    assert dial_chat(tmp_path, "servers", "logout", "docs").stdout == "docs: there was no login\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows opens its own browser, whatever BROWSER says")
def test_one_of_two_programs_refreshes_their_login(server: Guarded, tmp_path: Path, browser: str) -> None:
    write_config(tmp_path, {"docs": {"url": server.url}})
    assert dial_chat(tmp_path, "servers", "login", "docs", BROWSER=browser).returncode == 0
    server.revoke_tokens()
    with started(tmp_path, "servers") as first, started(tmp_path, "servers") as second:
        shown = [program.communicate(timeout=LONG)[0] for program in (first, second)]
    assert all("docs: ready" in text for text in shown), shown
    assert server.count_refreshes() == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows opens its own browser, whatever BROWSER says")
def test_a_login_ends_while_the_program_of_the_browser_still_runs(server: Guarded, tmp_path: Path) -> None:
    browser, closed = tmp_path / "browser.py", tmp_path / "closed"
    wait = "import pathlib, time\nwhile not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.05)"
    browser.write_text(f"{BROWSER}\n{wait}")
    write_config(tmp_path, {"docs": {"url": server.url}})
    with started(tmp_path, "servers", "login", "docs", BROWSER=f"{sys.executable} {browser} %s {closed}") as login:
        code = login.wait(LONG)
        closed.touch()
        assert login.stdout is not None
        assert (code, login.stdout.read()) == (0, "docs: ready, 3 tools\n")


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows opens its own browser, whatever BROWSER says")
def test_the_redirect_may_come_to_localhost(server: Guarded, tmp_path: Path, browser: str) -> None:
    port = find_free_port()
    for oauth, expected in (
        ({"callbackHost": "localhost"}, r"http://localhost:\d+/callback"),
        ({"redirectUri": f"http://localhost:{port}/oauth/done"}, f"http://localhost:{port}/oauth/done"),
    ):
        write_config(tmp_path, {"docs": {"url": server.url, "oauth": oauth}})
        server.tokens.clear()
        server.refreshable.clear()
        ran = dial_chat(tmp_path, "servers", "login", "docs", BROWSER=browser)
        assert ran.returncode == 0, ran.stderr
        assert re.fullmatch(expected, server.forms("/authorize")[-1]["redirect_uri"])


@pytest.mark.parametrize(
    "redirect_uri", ["https://app.example/callback", "http://app.example:3000/", "https://localhost/"]
)
def test_a_redirect_uri_of_another_machine_is_refused(server: Guarded, tmp_path: Path, redirect_uri: str) -> None:
    write_config(tmp_path, {"docs": {"url": server.url, "oauth": {"redirectUri": redirect_uri}}})
    ran = dial_chat(tmp_path, "servers", "login", "docs")
    assert ran.returncode == 1
    assert f"cannot receive the redirect at {redirect_uri}" in ran.stderr
    assert "http://localhost:PORT/PATH" in ran.stderr


def test_a_login_works_in_a_browser_opened_by_the_user(server: Guarded, tmp_path: Path) -> None:
    write_config(tmp_path, {"docs": {"url": server.url}})
    with started(tmp_path, "servers", "login", "docs", "--no-browser") as login:
        assert login.stderr is not None
        output = ""
        while not (address := ADDRESS.search(output)):
            line = login.stderr.readline()
            assert line, output
            output += line
        with httpx2.Client(trust_env=False, verify=False, follow_redirects=True, timeout=60) as client:
            page = client.get(address[0])
        assert "You can close this page" in page.text
        assert login.wait(LONG) == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("login", "dosc"), 'did you mean "docs"?'),
        (("login", "program"), "only servers with a URL have a login"),
        (("login",), "Missing argument"),
        (("sing", "docs"), "No such command 'sing'"),
    ],
)
def test_a_server_without_a_login_is_an_error_with_the_reason(
    tmp_path: Path, words: tuple[str, ...], error: str
) -> None:
    write_config(tmp_path, {"docs": {"url": "http://127.0.0.1:9/mcp"}, "program": {"command": "x"}})
    ran = dial_chat(tmp_path, "servers", *words)
    assert (ran.returncode, error in ran.stderr) == (2, True), ran.stderr


@pytest.mark.anyio
async def test_the_redirect_listener_accepts_one_valid_redirect() -> None:
    async with (
        RedirectListener() as loopback,
        httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as browser,
        anyio.create_task_group() as group,
    ):
        answers: list[str] = []

        async def listen() -> None:
            answers.append(await loopback.answer("right"))

        group.start_soon(listen)
        back = loopback.redirect_uri
        for url, headers in (
            (f"{back}?code=1&state=wrong", {}),
            (f"{back}?code=1", {}),
            (f"{back.replace('callback', 'other')}?code=1&state=right", {}),
            (f"{back}?code=1&state=right", {"Host": "evil.example"}),
        ):
            assert (await browser.get(url, headers=headers)).status_code == 404
        assert (await browser.post(f"{back}?code=1&state=right")).status_code == 404
        with anyio.fail_after(LONG):
            assert (await browser.get(f"{back}?code=2&state=right")).status_code == 200
    assert answers == [f"{back}?code=2&state=right"]


@pytest.mark.anyio
async def test_the_error_names_a_port_in_use() -> None:
    async with RedirectListener() as first:
        port = int(first.redirect_uri.split(":")[2].split("/")[0])
        with pytest.raises(LoginFailed, match=str(port)):
            async with RedirectListener(port):
                pass


@pytest.mark.anyio
async def test_an_unreadable_token_file_is_ignored(tmp_path: Path) -> None:
    vault = TokenStorage(web("https://a.example/mcp"), FolderLogins(tmp_path / "logins"))
    await vault.save(TokenRecord(issuer="https://a.example"))
    [file] = find_stored_logins(tmp_path)
    for text in ("", "{", "[]", '"x"', "{}", '{"expires_at": "soon"}', '{"tokens": 3}', '{"another": 1}'):
        file.write_text(text)
        assert await vault.load() == TokenRecord()


@pytest.mark.anyio
async def test_stored_tokens_belong_to_one_server_name_and_url(tmp_path: Path) -> None:
    kept_for = web("https://a.example/mcp")
    await TokenStorage(kept_for, FolderLogins(tmp_path)).save(TokenRecord(tokens={"access_token": "x"}))
    for changed in (web("https://a.example/other"), web("https://a.example/mcp", name="other")):
        assert await TokenStorage(changed, FolderLogins(tmp_path)).load() == TokenRecord()
    assert await TokenStorage(kept_for, FolderLogins(tmp_path)).forget()
    assert not await TokenStorage(kept_for, FolderLogins(tmp_path)).forget()


class Keyring:
    """A system keyring with the functions of the `keyring` package."""

    priority = 5

    def __init__(self, *, is_locked: bool) -> None:
        self.entries: dict[tuple[str, str], str] = {}
        self._is_locked = is_locked

    def get_keyring(self) -> Keyring:
        return self

    def get_password(self, service: str, name: str) -> str | None:
        if self._is_locked:
            raise RuntimeError("locked")
        return self.entries.get((service, name))

    def set_password(self, service: str, name: str, password: str) -> None:
        if self._is_locked:
            raise RuntimeError("locked")
        self.entries[service, name] = password

    def delete_password(self, service: str, name: str) -> None:
        del self.entries[service, name]


@pytest.mark.anyio
@pytest.mark.parametrize("is_locked", [False, True])
async def test_a_keyring_is_used_if_it_can_be_opened(
    is_locked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redirect_user_data(tmp_path, monkeypatch)
    package, keyring = ModuleType("keyring"), Keyring(is_locked=is_locked)
    for name in ("get_keyring", "get_password", "set_password", "delete_password"):
        setattr(package, name, getattr(keyring, name))
    monkeypatch.setitem(sys.modules, "keyring", package)
    vault, record = TokenStorage(web("https://a.example/mcp"), FolderLogins()), TokenRecord(issuer="https://a.example")
    await vault.save(record)
    assert await vault.load() == record
    assert (len(find_stored_logins(tmp_path)), len(keyring.entries)) == ((1, 0) if is_locked else (0, 1))
    assert await vault.forget()
    assert await vault.load() == TokenRecord()


@pytest.mark.anyio
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
async def test_token_files_are_private_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await TokenStorage(web("https://a.example/mcp"), FolderLogins(tmp_path / "logins")).save(TokenRecord())
    finally:
        os.umask(before)
    [file] = find_stored_logins(tmp_path)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
