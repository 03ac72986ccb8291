"""The HTTP API for MCP servers: states, restarts, OAuth logins, and configuration changes if the operator allows them.

ServerLogins.begin     connects to the server with a separate client, which requests a login (RFC 6749, 4.1)
ServerLogins.redirect  passes the query of the authorization server's redirect to the waiting login
ServerLogins.run       runs one task per login; after the login, the served client restarts the server

The redirect comes from another origin, so it cannot carry the token of `dial-chat serve`. It is accepted only with the
``state`` of a waiting login, only once, and only from the browser that started the login, which a cookie identifies.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import TaskGroup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.client.dial_client import DialClient
from dial_client.hooks.owners import act_for
from dial_client.hooks.server_callbacks import PAGE_LOGIN_HINT, Callbacks, LoginRequest, build_login_hint
from dial_client.messages.errors import ConfigError, DialError, LoginFailed
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.serve.http_messages import HttpError, build_json_response, read_json
from dial_client.serve.security import OAUTH_CALLBACK
from dial_client.servers.oauth.login_stores import LoginStore
from dial_client.servers.owner_connection import OwnerConnection
from dial_client.servers.status import ServerState, ServerStatus
from dial_client.settings import config_editor
from dial_client.settings.config_types import ServerSettings

log = get_logger(__name__)

# Seconds for a whole login, including the time the user needs.
LOGIN_SECONDS = 600.0
# Seconds for a server to request the login, and after the redirect for the login to end.
REQUEST_SECONDS = 60.0
# Maximum number of logins in progress.
MAX_LOGINS = 20


@dataclass(eq=False)
class LoginAttempt:
    """One login. It is the `Login` callback of the client that connects to the server."""

    server: ServerSettings
    """The server's settings."""
    redirect_uri: str
    """The URL of this service that the authorization server redirects the browser to."""
    browser: str
    """A secret of the browser that started the login."""
    owner: str
    """The person whose login this is; empty if all share it."""
    logins: LoginStore
    """Where the login is kept."""
    request: LoginRequest | None = None
    """The login request for the user; None until the server requires a login."""
    problem: str = "the login was not completed"
    """Why the login failed; empty if it succeeded. Until `ended` is set, the value is preliminary."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    responded: anyio.Event = field(default_factory=anyio.Event)
    """Set when the server has requested the login, or when the login has ended."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    _redirected: anyio.Event = field(default_factory=anyio.Event)
    _state: str = ""
    _url: str = ""

    async def __call__(self, request: LoginRequest) -> str:
        """Wait for the redirect and return its URL.

        Raises:
            LoginFailed: The server requests a second login, for example for more scopes. The browser waits for the
                first one, and cannot open it.
        """
        if self.request is not None:
            raise LoginFailed(f"{request.reason or 'the server requires another login'}: start it again")
        self.request = request
        self._state = parse_qs(urlsplit(request.url).query)["state"][0]
        self.responded.set()
        await self._redirected.wait()
        return self._url

    def accepts(self, state: str, browser: str) -> bool:
        """Return True if a redirect with this ``state``, from this browser, belongs to the login."""
        is_state = bool(self._state) and hmac.compare_digest(self._state.encode(), state.encode())
        return is_state and hmac.compare_digest(self.browser.encode(), browser.encode())

    def redirect(self, query: str) -> None:
        """Set the query of the redirect. A second redirect with the same ``state`` is not accepted."""
        self._state, self._url = "", f"{self.redirect_uri}?{query}"
        self._redirected.set()


class ServerLogins:
    """The logins in progress.

    Args:
        dial: The served client, which restarts a server after its login.
        find_server: Returns the settings of a server; None if there is no such server.
    """

    def __init__(self, dial: DialClient, find_server: Callable[[str], ServerSettings | None]) -> None:
        self._dial = dial
        self._find_server = find_server
        # By the person and the name of the server; of a server that all share, without a person.
        self._attempts: dict[tuple[str, str], LoginAttempt] = {}
        self._group: TaskGroup

    async def begin(self, name: str, redirect_uri: str, browser: str) -> LoginRequest | None:
        """Start a login and return the login request for the user. An earlier login to the same server is cancelled.

        Returns:
            None if the server is ready without another login.

        Raises:
            ConfigError: No enabled server with a URL has this name, the server failed or did not respond in time, or
                too many logins are in progress.
        """
        server, owner, logins = self._find_server(name), "", self._dial.logins
        if server is None or server.url is None or not server.enabled:
            raise ConfigError(
                f"{name!r} is not an enabled server with a URL", hint="only servers with a URL can require a login"
            )
        if isinstance(own := self._dial.parts.servers[name], OwnerConnection):
            server, owner, logins = replace(await own.fill_in(), per_user=False), own.owner, own.logins
        if (earlier := self._attempts.get((owner, name))) is not None:
            earlier.scope.cancel()
        elif len(self._attempts) >= MAX_LOGINS:
            raise ConfigError("too many logins are in progress", hint="try again later")
        attempt = self._attempts[owner, name] = LoginAttempt(server, redirect_uri, browser, owner, logins)
        self._group.start_soon(self._log_in, attempt)
        with anyio.move_on_after(REQUEST_SECONDS):
            await attempt.responded.wait()
        if attempt.request is None and not (attempt.ended.is_set() and not attempt.problem):
            attempt.scope.cancel()
            raise ConfigError(attempt.problem or f"{name!r} does not answer", hint="see the server's state")
        return attempt.request

    async def redirect(self, query: str, browser: str) -> LoginAttempt | None:
        """Pass a redirect to its login, and return the login after it has ended.

        Returns:
            None if no login in progress has the ``state`` of the redirect, or another browser started that login.
        """
        state = parse_qs(query).get("state", [""])[0]
        attempt = next((entry for entry in self._attempts.values() if entry.accepts(state, browser)), None)
        if attempt is None:
            return None
        attempt.redirect(query)
        with anyio.move_on_after(REQUEST_SECONDS) as timeout:
            await attempt.ended.wait()
        if timeout.cancelled_caught:
            attempt.problem = "the server does not answer"
        return attempt

    async def run(self) -> None:
        """Run logins until cancellation."""
        async with anyio.create_task_group() as self._group:
            await anyio.sleep_forever()

    async def _log_in(self, attempt: LoginAttempt) -> None:
        name = attempt.server.name
        server = replace(attempt.server, startup_timeout=LOGIN_SECONDS, enabled=True, lazy=False)
        try:
            with attempt.scope, anyio.move_on_after(LOGIN_SECONDS):
                callbacks = Callbacks(login=attempt)
                async with DialClient(servers={name: server}, callbacks=callbacks, logins=attempt.logins) as client:
                    status = client.servers[name]
                attempt.problem = "" if status.state is ServerState.READY else status.error or status.state.value
            if not attempt.problem:
                with act_for(attempt.owner):
                    await self._dial.restart_server(name)
        except DialError as error:
            attempt.problem = str(error)
        except Exception as error:  # noqa: BLE001 - a failed login must not stop the service
            log.warning("login_failed", server=name, error=type(error).__name__)
            attempt.problem = "an unexpected error occurred"
        finally:
            if self._attempts.get((attempt.owner, name)) is attempt:
                del self._attempts[attempt.owner, name]
            attempt.ended.set()
            attempt.responded.set()


# Prefix of the cookies' names. A cookie identifies the browser that started a login.
COOKIE = "dial-login-"
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<h1>{title}</h1><p>{text}</p></html>"""
_CLOSE = "You can close this page and go back to the conversation."
_AGAIN = (
    "This login has ended, or was started in another browser or at another process. "
    "Start it again in the panel of servers."
)


async def begin_login(logins: ServerLogins, name: str, request: Request) -> Response:
    """Answer a request that starts a login, with its URL and a cookie for the browser.

    Raises:
        ConfigError: As `ServerLogins.begin`.
        HttpError: The redirect URI is not that of this service.
        ServerError: The server needs credentials first.
    """
    redirect_uri = _check_redirect_uri((await read_json(request)).get("redirect_uri"), request)
    browser = secrets.token_urlsafe(32)
    login = await logins.begin(name, redirect_uri, browser)
    if login is None:
        return build_json_response({"url": None, "host": None, "scopes": []})
    response = build_json_response({"url": login.url, "host": login.origin, "scopes": list(login.scopes)})
    parts = urlsplit(redirect_uri)
    response.set_cookie(
        *(_name_cookie(urlsplit(login.url).query), browser, int(LOGIN_SECONDS)),
        path=parts.path,
        secure=parts.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return response


async def _end_login(logins: ServerLogins, request: Request) -> Response:
    query = request.url.query
    attempt = await logins.redirect(query, request.cookies.get(_name_cookie(query), ""))
    if attempt is None:
        return _build_page("There is no such login", _AGAIN, 400)
    name = sanitize(attempt.server.name)
    if attempt.problem:
        return _build_page(f"The login to {name} failed", to_one_line(attempt.problem, 400), 400)
    return _build_page(f"You are logged in to {name}", _CLOSE, 200)


def _check_redirect_uri(value: object, request: Request) -> str:
    """Return the redirect URI from the request. It must be this service's callback URL, at the host of the request.

    Raises:
        HttpError: The value is another URL.
    """
    try:
        parts = urlsplit(value) if isinstance(value, str) else urlsplit("")
    except ValueError:  # such as an unfinished IPv6 address
        parts = urlsplit("")
    is_own = parts.netloc.lower() == request.headers.get("host", "").lower() and parts.path.endswith(OAUTH_CALLBACK)
    if parts.scheme not in ("http", "https") or not is_own or parts.query or parts.fragment:
        raise HttpError(400, f"redirect_uri must be the URL of {OAUTH_CALLBACK} at this host", "bad_redirect_uri")
    return parts.geturl()


def _name_cookie(query: str) -> str:
    """Return the name of a login's cookie, derived from the ``state`` in a query.

    Each login needs its own name: a browser shares cookies of the same name and path among all ports of a host, and
    logins to two servers may be in progress at the same time.
    """
    state = parse_qs(query).get("state", [""])[0]
    return COOKIE + hashlib.sha256(state.encode()).hexdigest()[:32]


def _build_page(title: str, text: str, status: int) -> Response:
    page = _PAGE.format(title=html.escape(title), text=html.escape(text))
    return Response(page, status, {"content-type": "text/html; charset=utf-8"})


ServerChange = Literal["added", "removed", "enabled", "disabled"]


class ConfigChanger(Protocol):
    """Changes the configuration. A change takes effect shortly after the call."""

    async def __call__(self, change: ServerChange, name: str, edit: Callable[[str], str]) -> None:
        """Change a server: `edit` returns the changed text of ``servers.json``.

        Raises:
            ConfigError: The change is not possible.
        """


@dataclass(frozen=True, slots=True)
class ServerRoutes:
    """The routes under ``/servers``."""

    dial: DialClient
    """The client, entered."""
    change_config: ConfigChanger | None
    """Changes the configuration; None to refuse changes."""
    logins: ServerLogins | None
    """The OAuth logins in progress; None if logins over HTTP are disabled."""

    def build_routes(self) -> list[Route]:
        """Return the routes."""
        path = "/servers/{name:path}"
        enable, disable = (partial(config_editor.set_enabled, is_enabled=is_enabled) for is_enabled in (True, False))
        login_routes = []
        if self.logins is not None:
            login_routes = [
                Route(f"{path}/login", partial(self._log_in, self.logins), methods=["POST"]),
                Route(OAUTH_CALLBACK, partial(_end_login, self.logins), methods=["GET"]),
            ]
        return [
            *login_routes,
            Route("/servers", self._list, methods=["GET"]),
            Route("/servers", self._add, methods=["POST"]),
            Route(f"{path}/restart", self._restart, methods=["POST"]),
            Route(f"{path}/enable", partial(self._change, "enabled", enable), methods=["POST"]),
            Route(f"{path}/disable", partial(self._change, "disabled", disable), methods=["POST"]),
            Route(path, partial(self._change, "removed", config_editor.remove_server), methods=["DELETE"]),
        ]

    async def _log_in(self, logins: ServerLogins, request: Request) -> Response:
        return await begin_login(logins, request.path_params["name"], request)

    async def _list(self, request: Request) -> Response:  # noqa: ARG002
        owned = {connection.name: connection for connection in self.dial.parts.servers.owned}
        for connection in owned.values():
            await connection.check()
        servers = [
            {**status.to_dict(), "needs_login": _needs_login(status), "per_user": status.name in owned}
            for status in self.dial.servers.values()
        ]
        return build_json_response({"servers": servers, "can_change": self.change_config is not None})

    async def _restart(self, request: Request) -> Response:
        await self.dial.restart_server(self._find(request))
        return Response(status_code=204)

    async def _add(self, request: Request) -> Response:
        self._require_changer()
        body = await read_json(request)
        name, entry = body.get("name"), body.get("entry")
        if not isinstance(name, str) or not name.strip() or not isinstance(entry, dict):
            raise HttpError(400, "name must be a non-empty string, and entry an object", "bad_entry", param="entry")
        await self._require_changer()("added", name, partial(config_editor.add_server, name=name, entry=entry))
        return Response(status_code=204)

    async def _change(self, change: ServerChange, edit: Callable[..., str], request: Request) -> Response:
        change_config = self._require_changer()
        name = self._find(request)
        await change_config(change, name, partial(edit, name=name))
        return Response(status_code=204)

    def _require_changer(self) -> ConfigChanger:
        if self.change_config is None:
            message = (
                "the configuration cannot be changed over HTTP: dial-chat serve --allow-admin allows it, "
                "as create_app(change_config=…) does in a program"
            )
            raise HttpError(403, message, "not_allowed", kind="permission_error")
        return self.change_config

    def _find(self, request: Request) -> str:
        name: str = request.path_params["name"]
        if name not in self.dial.servers:
            raise HttpError(404, f"there is no server {name!r}", "not_found")
        return name


def _needs_login(status: ServerStatus) -> bool:
    hints, error = (build_login_hint(status.name), PAGE_LOGIN_HINT), status.error or ""
    return status.state is ServerState.FAILED and any(hint in error for hint in hints)
