"""The HTTP API for OAuth logins: the page starts a login, and the authorization server redirects the browser back."""

from __future__ import annotations

import hashlib
import html
import secrets
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.serve.http_responses import HttpError, build_json_response
from dial_client.serve.request_bodies import read_json
from dial_client.serve.security import OAUTH_CALLBACK
from dial_client.serve.server_logins import LOGIN_SECONDS, ServerLogins

COOKIE = "dial-login-"
"""Prefix of the cookies' names. A cookie identifies the browser that started a login."""
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<h1>{title}</h1><p>{text}</p></html>"""
_CLOSE = "You can close this page and go back to the conversation."
_AGAIN = (
    "This login has ended, or was started in another browser or at another process. "
    "Start it again in the panel of servers."
)


class LoginRoutes:
    """The routes of OAuth logins.

    Args:
        logins: The logins in progress.
    """

    def __init__(self, logins: ServerLogins) -> None:
        self._logins = logins

    def build_routes(self) -> list[Route]:
        """Return the routes. They must precede the other routes under ``/servers``."""
        return [
            Route("/servers/{name:path}/login", self._begin, methods=["POST"]),
            Route(OAUTH_CALLBACK, self._receive, methods=["GET"]),
        ]

    async def _begin(self, request: Request) -> Response:
        redirect_uri = _check_redirect_uri((await read_json(request)).get("redirect_uri"), request)
        browser = secrets.token_urlsafe(32)
        login = await self._logins.begin(request.path_params["name"], redirect_uri, browser)
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

    async def _receive(self, request: Request) -> Response:
        query = request.url.query
        attempt = await self._logins.redirect(query, request.cookies.get(_name_cookie(query), ""))
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
