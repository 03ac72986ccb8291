"""The login of persons on the page, at an OpenID provider (authorization code with PKCE).

    page: 401 → POST /login/refresh: 401 → GET /login → provider → GET /login/callback → /#token=…
    page, when the token has expired: 401 → POST /login/refresh → {"token": …}

Nothing is kept here: what a login needs until its end, and the refresh token after it, are in cookies that only
``/login`` gets and no script can read. So any process can finish a login, and a stolen database has no tokens. All
requests but these go on to need a token in a header, which no foreign page can send.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import anyio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dial_client.messages.errors import ConfigError
from dial_client.runtime.logs import get_logger
from dial_client.serve.http_messages import HttpError, build_json_response
from dial_client.serve.people.identity_provider import (
    REQUEST_SECONDS,
    IdentityProvider,
    InvalidToken,
    build_outage,
    is_safe,
    read_document,
)

log = get_logger(__name__)

LOGIN, CALLBACK, REFRESH, LOGOUT = "/login", "/login/callback", "/login/refresh", "/login/logout"
# The code of the error that tells the page to go to `LOGIN`.
LOGIN_NEEDED = "login_needed"
# The cookies: of a login that has begun, and of the refresh token. Browsers keep at most 4,096 bytes of a cookie.
_ATTEMPT, _REFRESH_TOKEN = "dial_login", "dial_refresh"
_MAX_COOKIE = 3800
# Seconds until a login must have ended.
_ATTEMPT_SECONDS = 600


class OidcLogin:
    """Logs persons in, and gives the page their ID tokens.

    Args:
        provider: The provider.
        client_id: The id of this service at the provider, for which its ID tokens are issued.
        public_url: Where browsers reach this service. ``/login/callback`` below it is registered at the provider.
        secret: The secret of this service at the provider; empty for a public client.

    Raises:
        ConfigError: Cookies and tokens could be read on their way to the public URL.
    """

    def __init__(self, provider: IdentityProvider, client_id: str, public_url: str, secret: str = "") -> None:
        if not is_safe(public_url):
            raise ConfigError("a login needs the URL of this service", hint="--public-url https://chat.example.com")
        self._provider, self._client_id, self._secret = provider, client_id, secret
        self._url = public_url.rstrip("/")
        parts = urlsplit(self._url)
        self._cookies: dict[str, Any] = {
            "path": f"{parts.path}{LOGIN}",
            "httponly": True,
            "secure": parts.scheme == "https",
        }

    def build_routes(self) -> list[Route]:
        """Return the routes of the login."""
        return [
            Route(LOGIN, self._begin, methods=["GET"]),
            Route(CALLBACK, self._finish, methods=["GET"]),
            Route(REFRESH, self._refresh, methods=["POST"]),
            Route(LOGOUT, self._log_out, methods=["POST"]),
        ]

    async def _begin(self, request: Request) -> Response:  # noqa: ARG002 - the same for every request
        endpoint = await self._provider.find_endpoint("authorization_endpoint")
        if not endpoint:
            raise build_outage()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": f"{self._url}{CALLBACK}",
            "scope": "openid profile email",
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        response = RedirectResponse(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", 303)
        # Lax: the provider's redirect back is a navigation from another site, which has no Strict cookies.
        response.set_cookie(
            _ATTEMPT, f"{state}.{nonce}.{verifier}", max_age=_ATTEMPT_SECONDS, samesite="lax", **self._cookies
        )
        return response

    async def _finish(self, request: Request) -> Response:
        query = request.query_params
        state, _, rest = request.cookies.get(_ATTEMPT, "").partition(".")
        nonce, _, verifier = rest.partition(".")
        # Without the cookie, somebody else has begun this login: the page would be theirs (RFC 6749, 10.12). Another
        # issuer's code must not be sent to this one (RFC 9207).
        is_own = bool(state) and hmac.compare_digest(query.get("state", "").encode(), state.encode())
        if not is_own or query.get("iss", self._provider.issuer) != self._provider.issuer:
            raise HttpError(400, "this login was not begun here, or took too long: open the page again", "bad_login")
        if "code" not in query:
            reason = "".join(char for char in query.get("error", "no code")[:60] if char.isprintable())
            raise HttpError(403, f"the OpenID provider refused the login: {reason}", "login_refused")
        tokens = await self._request_tokens(
            {
                "grant_type": "authorization_code",
                "code": query["code"],
                "redirect_uri": f"{self._url}{CALLBACK}",
                "code_verifier": verifier,
            }
        )
        claims = await self._verify(tokens) if tokens is not None else {}
        if tokens is None or not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
            raise HttpError(403, "the OpenID provider has given no token for this login", "login_refused")
        # A fragment is sent to no server, and the page removes it from its address at once.
        response = RedirectResponse(f"{self._url}/#token={quote(tokens['id_token'])}", 303)
        response.delete_cookie(_ATTEMPT, samesite="lax", **self._cookies)
        self._keep(response, tokens)
        return response

    async def _refresh(self, request: Request) -> Response:
        token = request.cookies.get(_REFRESH_TOKEN)
        tokens = await self._request_tokens({"grant_type": "refresh_token", "refresh_token": token}) if token else None
        if tokens is None or not await self._verify(tokens):
            raise HttpError(401, "log in", LOGIN_NEEDED, kind="authentication_error")
        response = build_json_response({"token": tokens["id_token"]})
        self._keep(response, tokens)
        return response

    async def _log_out(self, request: Request) -> Response:  # noqa: ARG002 - the same for every request
        endpoint = await self._provider.find_endpoint("end_session_endpoint")
        query = urlencode({"client_id": self._client_id, "post_logout_redirect_uri": f"{self._url}/"})
        response = build_json_response(
            {"url": f"{endpoint}{'&' if '?' in endpoint else '?'}{query}" if endpoint else ""}
        )
        response.delete_cookie(_REFRESH_TOKEN, samesite="strict", **self._cookies)
        return response

    def _keep(self, response: Response, tokens: Mapping[str, Any]) -> None:
        """Keep the refresh token in the browser, until it is closed."""
        token = tokens.get("refresh_token")
        if isinstance(token, str) and token.isascii() and token.isprintable() and len(token) <= _MAX_COOKIE:
            response.set_cookie(_REFRESH_TOKEN, token, samesite="strict", **self._cookies)

    async def _verify(self, tokens: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the claims of the ID token; empty if there is no valid one."""
        try:
            return await self._provider.verify(str(tokens.get("id_token")), [self._client_id])
        except InvalidToken as error:
            log.warning("oidc_token_refused", error=str(error))
            return {}

    async def _request_tokens(self, form: Mapping[str, str]) -> dict[str, Any] | None:
        """Return what the token endpoint answers; None if it refuses the code or the refresh token.

        Raises:
            HttpError: The provider does not answer.
        """
        import httpx2

        endpoint = await self._provider.find_endpoint("token_endpoint")
        # A secret goes into the header, which all providers have to support (RFC 6749, 2.3.1).
        auth = httpx2.BasicAuth(quote(self._client_id), quote(self._secret)) if self._secret else None
        data = {**form, **({} if self._secret else {"client_id": self._client_id})}
        try:
            async with httpx2.AsyncClient(timeout=REQUEST_SECONDS, auth=auth) as http:
                with anyio.fail_after(REQUEST_SECONDS):
                    response = await http.post(endpoint, data=data, headers={"accept": "application/json"})
                    if not 400 <= response.status_code < 500:
                        return await read_document(response)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError, ValueError) as error:
            log.warning("oidc_tokens_not_received", error=type(error).__name__)
            raise build_outage() from None
        # A refresh token that has expired, or a mistake of the operator: a wrong secret, or another redirect URI.
        log.warning("oidc_tokens_refused", status=response.status_code, grant=form["grant_type"])
        return None
