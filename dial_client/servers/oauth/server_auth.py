"""What gets requests to one server past its login.

Badge.send      the request with the token there is, side by side with others
  _remedy       one at a time: another's new token, a refreshed one, or a login; and the request is sent again
    _drive      the SDK's flow, its own requests carried by the `OAuthHttpClient`

The SDK would hold a lock while a request is under way: one slow call would hold up all others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs

import anyio
import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.shared.auth import OAuthToken
from pydantic import ValidationError

from dial_client.callbacks.oauth_callbacks import Login, advice
from dial_client.errors import LoginFailed
from dial_client.servers.oauth.authorization import Site
from dial_client.servers.oauth.flow_selection import provider_for
from dial_client.servers.oauth.oauth_http_client import OAuthHttpClient, oauth_error
from dial_client.servers.oauth.token_storage import TokenStorage
from dial_client.servers.oauth.url_policy import UrlPolicy, shown
from dial_client.servers.secret_masking import SecretMask
from dial_client.settings.config_types import OAuthGrant, OAuthSettings, ServerSettings
from dial_client.text.safe_text import one_line

MAX_STEP_UPS = 5
"""How often a server may ask for more rights while it is connected."""
_MAX_WORDS = 300

Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


class ServerAuth:
    """The login of one connection to one server.

    Args:
        settings: of the server.
        login: how a person logs in; without it a login that is needed fails, and says so.
        vault: where tokens are kept, in place of the usual one.
        mask: is told the tokens, so that what the server says comes without them.
    """

    def __init__(
        self,
        settings: ServerSettings,
        login: Login | None = None,
        vault: TokenStorage | None = None,
        mask: SecretMask | None = None,
    ) -> None:
        how = settings.oauth or OAuthSettings()
        territory = UrlPolicy(settings.url or "", how.trusted_origins)
        self._name = settings.name
        self._how = how
        self._login = login
        self._courier = OAuthHttpClient(territory)
        site = Site(settings, vault or TokenStorage(settings), territory, login, mask or SecretMask.of(settings))
        self._provider = provider_for(site)
        self._lock = anyio.Lock()
        self._is_loaded = False
        self._refused: str | None = None
        self._steps: set[frozenset[str]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._courier.__aexit__(kind, error, trace)

    async def send(self, request: httpx2.Request, send: Send) -> httpx2.Response:
        """Send a request with `send`, again where a login gets it further; other answers are given as they are.

        Raises:
            LoginFailed: it takes a login that is not there.
        """
        await self._freshen(request)
        tried: set[str] = set()
        while True:
            token = self._token()
            if token is not None:
                request.headers["Authorization"] = f"Bearer {token}"
            response = await send(request)
            said = extract_field_from_www_auth(response, "error")
            is_step = response.status_code == 403 and said == "insufficient_scope"
            if request.method == "DELETE" or not (response.status_code == 401 or is_step):
                return response
            await response.aclose()
            await self._remedy(request, response, token, tried)

    def _token(self) -> str | None:
        tokens = self._provider.context.current_tokens
        return tokens.access_token if tokens is not None else None

    async def _freshen(self, request: httpx2.Request) -> None:
        """Load what is kept, and refresh what has expired."""
        if self._is_loaded and self._provider.context.is_token_valid():
            return
        async with self._lock:
            if not self._is_loaded:
                await self._provider._initialize()  # noqa: SLF001 (the SDK's own hook, ours in the subclass)
                self._is_loaded = True
                if self._login is not None and self._provider.record.wanted_scope:
                    self._provider.context.current_tokens = None  # there is somebody now to give the missing rights
            if self._token() is not None and not self._provider.context.is_token_valid() and self._provider.can_refresh:
                await self._refresh(request)

    async def _remedy(
        self, request: httpx2.Request, response: httpx2.Response, token: str | None, tried: set[str]
    ) -> None:
        """Come by a token that may get the request further.

        Raises:
            LoginFailed: there is none to be had.
        """
        async with self._lock:
            if self._token() != token and "other" not in tried:
                tried.add("other")
                return
            if "kept" not in tried and await self._take_what_is_kept(token):
                tried.add("kept")
                return
            if response.status_code == 401 and token is not None and "refresh" not in tried:
                tried.add("refresh")
                if self._provider.can_refresh and await self._refresh(request):
                    return
            if response.status_code == 401:
                await self._log_in(request, response, tried)
            else:
                await self._step_up(request, response, tried)

    async def _take_what_is_kept(self, token: str | None) -> bool:
        """Take a token that somebody else has come by, in another process perhaps."""
        record = await self._provider.site.vault.load()
        kept = (record.tokens or {}).get("access_token")
        is_lacking = self._login is not None and record.wanted_scope is not None
        is_over = record.expires_at is not None and record.expires_at < time.time()
        if kept in (None, token) or is_lacking or is_over:
            return False
        self._provider.adopt(record)
        return True

    async def _refresh(self, request: httpx2.Request) -> bool:
        tokens = self._provider.context.current_tokens
        assert tokens is not None
        self._provider.context.token_expiry_time = 1.0  # whatever it was: it does not do any more
        await self._drive(request, None)
        if self._provider.context.current_tokens is None:
            self._provider.spent = tokens.refresh_token
            await self._provider._initialize()  # noqa: SLF001 (as above)
        return self._token() not in (None, tokens.access_token)

    async def _log_in(self, request: httpx2.Request, response: httpx2.Response, tried: set[str]) -> None:
        if "login" in tried:
            self._refused = "the server does not take the token that its own login has given"
            raise LoginFailed(self._refused)
        tried.add("login")
        if self._how.grant is OAuthGrant.AUTHORIZATION_CODE and self._login is None:
            raise LoginFailed(f"it needs a login: {advice(self._name)}")
        await self._in_person(request, response)

    async def _step_up(self, request: httpx2.Request, response: httpx2.Response, tried: set[str]) -> None:
        """Ask for more rights (MCP, "Scope Challenge Handling"), once for each set of them."""
        scope = one_line(extract_scope_from_www_auth(response) or "", _MAX_WORDS)
        wanted = frozenset(scope.split())
        if self._how.scopes is not None and not wanted <= set(self._how.scopes):
            raise LoginFailed(f'it wants rights that "oauth": {{"scopes": …}} does not name: {scope}')
        if "step" in tried or wanted in self._steps or len(self._steps) >= MAX_STEP_UPS:
            raise LoginFailed(f"it asks for more rights again and again: {scope or 'it does not say which'}")
        tried.add("step")
        if self._how.grant is OAuthGrant.AUTHORIZATION_CODE and self._login is None:
            await self._provider.want(scope)
            raise LoginFailed(f"it wants more rights ({scope or 'it does not say which'}): {advice(self._name)}")
        self._steps.add(wanted)
        await self._in_person(request, response)

    async def _in_person(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Go through the whole flow; a person who did not want to is not asked again."""
        if self._refused is not None:
            raise LoginFailed(self._refused)
        self._provider.register_again_if_due()
        self._provider.has_asked = False
        try:
            await self._drive(request, response)
        except LoginFailed as error:
            if self._provider.has_asked:
                self._refused = str(error)
            raise

    async def _drive(self, request: httpx2.Request, challenge: httpx2.Response | None) -> None:
        """Run the SDK's flow up to where it would send the request itself.

        Args:
            request: to the server; sent by nobody here.
            challenge: the server's answer to it, where there is one.
        """
        flow = self._provider._auth_flow(request)  # noqa: SLF001 (`async_auth_flow` would send the request, too)
        try:
            outgoing = await flow.__anext__()
            while outgoing is not request or challenge is not None:
                if outgoing is request:
                    assert challenge is not None
                    reply, challenge = challenge, None
                else:
                    reply = await self._carried(outgoing)
                outgoing = await flow.asend(reply)
        except LoginFailed:
            raise
        except OAuthFlowError as error:
            raise LoginFailed(one_line(str(error), _MAX_WORDS)) from None
        except Exception as error:  # noqa: BLE001 (whatever a stranger's answers make of the SDK, or of its parsers)
            raise LoginFailed(f"the login makes no sense ({type(error).__name__})") from None
        finally:
            await flow.aclose()

    async def _carried(self, outgoing: httpx2.Request) -> httpx2.Response:
        outgoing.headers.setdefault("Accept", "application/json")
        reply = await self._courier.send(outgoing)
        if outgoing.method != "POST":
            return reply
        form = parse_qs(outgoing.content.decode("utf-8", "replace"))
        place, error = shown(str(outgoing.url)), oauth_error(reply)
        is_refresh = form.get("grant_type") == ["refresh_token"]
        if reply.status_code == 429 or reply.status_code >= 500:
            raise LoginFailed(f"{place} answers HTTP {reply.status_code}: try again later")
        if is_refresh and (reply.status_code >= 400 or error):
            return httpx2.Response(400, json=error, request=outgoing)
        if reply.status_code >= 300 or error:
            said = ": ".join(one_line(text, _MAX_WORDS) for text in error.values()) or f"HTTP {reply.status_code}"
            raise LoginFailed(f"{place} refuses the login: {said}")
        if "grant_type" in form and not _has_token(reply):
            raise LoginFailed(f"{place} answers with no token that can be used")
        return reply


def _has_token(reply: httpx2.Response) -> bool:
    try:
        token = OAuthToken.model_validate_json(reply.content).access_token
    except ValidationError:
        return False
    return re.fullmatch(r"[\x21-\x7e]+", token) is not None
