"""OAuth login to a server, and logout. A login ends with the browser's redirect, or with a pasted redirect URL."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio

from dial_client.cli.approval.approval_prompt import AnswerKey
from dial_client.cli.approval.approval_rows import Row, UnwrappedLine, fit_name, fold
from dial_client.cli.approval.box_frame import BoxFrame
from dial_client.cli.load_settings import read_settings
from dial_client.cli.options import ExitCode, Options
from dial_client.cli.streams.error_stream import report_error, warn
from dial_client.cli.streams.tty import Unanswered, can_ask_user
from dial_client.cli.terminal.attention import QUESTION
from dial_client.cli.terminal.command_screen import CommandScreen, PlainScreen
from dial_client.client.dial_client import DialClient
from dial_client.hooks.server_callbacks import Callbacks, LoginRequest
from dial_client.messages.errors import ConfigError, LoginFailed
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import count_noun, suggest_name
from dial_client.servers.oauth.login_stores import FolderLogins
from dial_client.servers.oauth.redirect_listener import RedirectListener, build_listener
from dial_client.servers.oauth.token_revocation import revoke_tokens
from dial_client.servers.oauth.token_storage import TokenStorage
from dial_client.servers.status import ServerState
from dial_client.settings.config_types import ServerSettings

# Timeout in seconds for the whole login, including the time that the user needs in the browser.
LOGIN_SECONDS = 600.0
_BROWSER_SECONDS = 10.0
_WHOLE = "This login needs the whole URL, from http:// on."
_PASTE = "or paste the URL it was redirected to, and press Enter:"


class TerminalLogin:
    """The login callback of the terminal. The user's browser may run on this machine or on another one.

    Args:
        loopback: Receives the redirect of the browser.
        browser: Whether to open a browser.
        screen: Asks for a redirect URL to paste; where it can draw, the question is a box in the live area.
    """

    def __init__(self, loopback: RedirectListener, *, browser: bool, screen: CommandScreen) -> None:
        self.redirect_uri = loopback.redirect_uri
        self._loopback = loopback
        self._browser = browser
        self._screen = screen

    async def __call__(self, request: LoginRequest) -> str:
        """Print the login URL, and wait for the browser, or for a pasted URL."""
        is_drawn = not isinstance(self._screen, PlainScreen)
        if is_drawn:
            # Not in the box, whose borders would be copied with it.
            self._screen.print(f"Open this address in a browser:\n{request.url}")
        else:
            scopes = f", which asks for: {', '.join(request.scopes)}" if request.scopes else ""
            head = f"{sanitize(request.server)} wants you to log in at {request.origin}{to_one_line(scopes, 1000)}"
            print(head, file=sys.stderr)
            if request.reason:
                print(f"Again: {to_one_line(request.reason, 1000)}.", file=sys.stderr)
            print(f"Open this address in a browser:\n\n{request.url}\n", file=sys.stderr, flush=True)
        if is_drawn:
            with self._screen.show_panel(_LoginBox(request, BoxFrame(self._screen.theme)).render, QUESTION):
                return await self._wait_for_answer(request)
        return await self._wait_for_answer(request)

    async def _wait_for_answer(self, request: LoginRequest) -> str:
        state = parse_qs(urlsplit(request.url).query)["state"][0]
        answers: list[str] = []
        async with anyio.create_task_group() as group:

            async def wait_for_redirect() -> None:
                answers.append(await self._loopback.answer(state))
                group.cancel_scope.cancel()

            # Before the browser: its program may end only after it has shown the page that the listener sends.
            group.start_soon(wait_for_redirect)
            if self._browser and _has_browser():
                await _open_browser(request.url)
            if isinstance(self._screen, PlainScreen):
                print("Waiting for the browser;", end=" ", file=sys.stderr, flush=True)
            try:
                if can_ask_user():
                    answers.append(await self._ask_for_redirect(state, needs_whole=request.needs_issuer))
                    group.cancel_scope.cancel()
                await anyio.sleep_forever()
            finally:
                if isinstance(self._screen, PlainScreen):
                    print(file=sys.stderr)
        if not answers[0]:
            raise LoginFailed("no login took place")
        return answers[0]

    async def _ask_for_redirect(self, state: str, *, needs_whole: bool) -> str:
        """Return the pasted URL, a URL built from a pasted code, or an empty text if there was no answer.

        A code alone does not name its issuer. If the issuer is required (`needs_whole`), the user is asked again.
        """
        is_drawn = not isinstance(self._screen, PlainScreen)
        while True:
            pasted = ""
            with suppress(Unanswered):
                pasted = await self._screen.ask_line("the address it leads to:" if is_drawn else _PASTE)
            if not pasted or "?" in pasted:
                return pasted
            if not needs_whole:
                break
            print(_WHOLE, file=sys.stderr)
        return f"{self.redirect_uri}?{urlencode({'code': pasted, 'state': state})}"


@dataclass(frozen=True)
class _LoginBox:
    """The box of a login in the live area. The first column has only words of the program."""

    request: LoginRequest
    frame: BoxFrame

    def render(self, columns: int, height: int) -> list[str]:
        """Return the rows of the box in colours: a `Panel`."""
        return self.frame.render(columns, height, self._format_title, "", _KEYS, self._build)

    def _format_title(self, columns: int) -> str:
        wording = " wants you to log in"
        return fit_name(self.request.server, max(10, columns - len(wording))) + wording

    def _build(self, columns: int, _: int) -> list[Row]:
        lines = [UnwrappedLine(self.request.origin, label="at        ", further=" " * 10)]
        if self.request.scopes:
            scopes = to_one_line(", ".join(self.request.scopes), 1000)
            lines.append(UnwrappedLine(scopes, label="asks for  ", further=" " * 10))
        if self.request.reason:
            lines.append(UnwrappedLine(to_one_line(self.request.reason, 1000), "warning", "! again: ", "    "))
        lines.append(UnwrappedLine("waiting for the browser; or paste the address that it leads to", "note"))
        return fold(lines, columns, None)


_KEYS = (AnswerKey("Enter", "take the pasted address", ""), AnswerKey("Esc", "do not log in", ""))


async def log_in(options: Options, name: str, *, browser: bool, screen: CommandScreen | None = None) -> int:
    """Log in to a server that requires it, and print the tools it offers.

    Args:
        options: The options of the command line.
        name: The name of the server.
        browser: Whether to open a browser.
        screen: Asks the questions; None to ask in lines.

    Raises:
        ConfigError: There is no such server, or it has no URL.
    """
    server = await _find_server(options, name)
    try:
        async with await build_listener(server, FolderLogins()) as loopback:
            login = TerminalLogin(loopback, browser=browser, screen=screen or PlainScreen())
            patient = replace(server, startup_timeout=LOGIN_SECONDS, enabled=True, lazy=False)
            async with DialClient(servers={name: patient}, callbacks=Callbacks(login=login), logins=True) as dial:
                status = dial.servers[name]
    except LoginFailed as error:
        report_error(str(error))
        return ExitCode.UNEXPECTED
    if status.state is not ServerState.READY:
        report_error(f"{name}: {status.error or status.state.value}")
        return ExitCode.UNEXPECTED
    print(f"{sanitize(name)}: ready, {count_noun(len(status.tools), 'tool')}")
    return ExitCode.ANSWERED


async def log_out(options: Options, name: str) -> None:
    """Delete the tokens of a server from this machine, and revoke them. What stays valid is a warning.

    Raises:
        ConfigError: There is no such server, or it has no URL.
    """
    server = await _find_server(options, name)
    record = await TokenStorage(server, FolderLogins()).forget()
    if record is None:
        print(f"{sanitize(name)}: there was no login")
        return
    problem = await revoke_tokens(server, record)
    revoked = ", and revoked" if record.tokens and not problem else ""
    print(f"{sanitize(name)}: logged out: its tokens are deleted here{revoked}")
    if problem:
        warn(f"{name}: {problem}")


async def _find_server(options: Options, name: str) -> ServerSettings:
    servers = (await read_settings(options)).servers
    if name not in servers:
        raise ConfigError(f"there is no server {name!r}", hint=suggest_name(name, servers))
    if servers[name].url is None:
        raise ConfigError(f"{name!r} is a local program", hint="only servers with a URL have a login")
    return servers[name]


async def _open_browser(url: str) -> None:
    """Open a URL, and wait some seconds for the program that does so: it may use the terminal, or run until the end."""
    # No thread of anyio: the process would not end before the browser.
    opening = threading.Thread(target=webbrowser.open, args=(url,), daemon=True)
    opening.start()
    with anyio.move_on_after(_BROWSER_SECONDS):
        while opening.is_alive():  # noqa: ASYNC110 - a thread of anyio that joins this one would not end before it
            await anyio.sleep(0.05)


def _has_browser() -> bool:
    """Return True if a browser can be shown to the user: not over ssh, and on Linux only with a desktop."""
    if os.environ.get("BROWSER"):
        return True
    has_desktop = sys.platform in ("win32", "darwin") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return has_desktop and not os.environ.get("SSH_CONNECTION")
