"""The authorization of requests to one server.

ServerAuth.send     sends a request with the current token; requests run concurrently
  _get_new_token    gets a token from another task or process, by refreshing, or by a login; one task at a time
    _run_flow       runs the SDK's flow, and sends its requests with the `OAuthHttpClient`

The SDK's own client holds a lock during each request, so that one slow call would delay all others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from urllib.parse import parse_qs

import anyio
import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.shared.auth import OAuthClientMetadata, OAuthToken
from pydantic import ValidationError

from dial_client.hooks.server_callbacks import Login, build_login_hint
from dial_client.messages.errors import LoginFailed
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.oauth.authorization import (
    NO_STORAGE,
    UNKNOWN_CLIENT_ERRORS,
    ClientUnknown,
    OAuthContext,
    OAuthProvider,
)
from dial_client.servers.oauth.lenient_documents import read_issuer, repair_response
from dial_client.servers.oauth.login_stores import LoginStore, is_of_dial_chat
from dial_client.servers.oauth.oauth_http_client import OAuthHttpClient, UrlPolicy, read_oauth_error, to_display
from dial_client.servers.oauth.token_storage import TokenRecord, TokenStorage
from dial_client.servers.secret_masking import SecretMask
from dial_client.settings.config_types import OAuthGrant, OAuthSettings, ServerSettings

# The redirect URI of a client without a login callback.
UNUSED_REDIRECT_URI = "http://127.0.0.1/callback"
# How many times a server may require more scopes during one connection.
MAX_STEP_UPS = 5
_MAX_WORDS = 300
# What a program has to do whose logins are not those of `dial-chat`.
_PRIVATE_HINT = " and give the client logins=True, or give it Callbacks(login=…)"

Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


class _Remedy(Enum):
    """Ways to get a token for a request that was rejected as unauthorized; each is tried once for a request."""

    CURRENT_TOKEN = auto()
    """Use the token that another task got in the meantime."""
    STORED_TOKEN = auto()
    """Use the token that another process stored."""
    REFRESH = auto()
    LOGIN = auto()
    STEP_UP = auto()


class ServerAuth:
    """The authorization of one connection to one server.

    Args:
        settings: The server's settings.
        login: The callback for logins of the user; if None, a request that needs a login raises `LoginFailed`.
        logins: The logins of the client.
        mask: Masks the tokens in the server's messages.
    """

    def __init__(self, settings: ServerSettings, login: Login | None, logins: LoginStore, mask: SecretMask) -> None:
        url_policy = UrlPolicy(settings.url or "", _list_trusted(settings.oauth or OAuthSettings()))
        self._http = OAuthHttpClient(url_policy)
        storage, find_id_token = TokenStorage(settings, logins), getattr(logins, "find_id_token", lambda: None)
        self._oauth = OAuthContext(settings, storage, url_policy, self._http, login, mask, find_id_token)
        usual = build_login_hint(settings.name) + ("" if is_of_dial_chat(logins) else _PRIVATE_HINT)
        self._hint = getattr(logins, "login_hint", usual)
        self._provider = create_provider(self._oauth)
        self._lock = anyio.Lock()
        self._is_loaded = False
        # Why the user's login failed; no further login is started on this connection.
        self._refusal: str | None = None
        self._step_ups: set[frozenset[str]] = set()

    async def aclose(self) -> None:
        """Close the connections to the authorization server."""
        await self._http.aclose()

    async def send(self, request: httpx2.Request, send: Send) -> httpx2.Response:
        """Send a request with `send`, and repeat it with a new token after 401, or 403 for insufficient scope.

        Other responses are returned unchanged.

        Raises:
            LoginFailed: The request needs a login, and the login is not possible or failed.
        """
        await self._prepare(request)
        tried: set[_Remedy] = set()
        while True:
            token = self._get_token()
            if token is not None:
                request.headers["Authorization"] = f"Bearer {token}"
            response = await send(request)
            error = extract_field_from_www_auth(response, "error")
            is_step_up = response.status_code == 403 and error == "insufficient_scope"
            # DELETE ends a session while the program closes: nobody waits for a login then.
            if request.method == "DELETE" or not (response.status_code == 401 or is_step_up):
                return response
            await response.aclose()
            await self._get_new_token(request, response, token, tried)

    async def revoke(self, record: TokenRecord) -> None:
        """Revoke the tokens of a login at its authorization server (RFC 7009).

        Raises:
            LoginFailed: They stay valid.
        """
        request = await self._provider.build_revocation(record)
        response = await self._http.send(request)
        if response.status_code >= 300:
            words = ": ".join(read_oauth_error(response).values()) or f"HTTP {response.status_code}"
            raise LoginFailed(f"{to_display(str(request.url))} answers {words}")

    def _get_token(self) -> str | None:
        tokens = self._provider.context.current_tokens
        return tokens.access_token if tokens is not None else None

    async def _prepare(self, request: httpx2.Request) -> None:
        """Load the stored token, and refresh an expired one."""
        if self._is_loaded and self._provider.context.is_token_valid():
            return
        async with self._lock:
            if not self._is_loaded:
                await self._provider._initialize()  # noqa: SLF001 (the SDK's own hook, ours in the subclass)
                self._is_loaded = True
                if self._oauth.login is not None and self._provider.record.wanted_scope:
                    self._provider.context.current_tokens = None  # log in again: the user can grant the missing scopes
            is_expired = self._get_token() is not None and not self._provider.context.is_token_valid()
            if is_expired and self._provider.can_refresh:
                await self._refresh(request)

    async def _get_new_token(
        self, request: httpx2.Request, response: httpx2.Response, token: str | None, tried: set[_Remedy]
    ) -> None:
        """Get a token with which the request may succeed.

        Raises:
            LoginFailed: No new token can be obtained.
        """
        # One task at a time: two refreshes with the same refresh token would end the login at servers that rotate
        # tokens.
        async with self._lock:
            if self._get_token() != token and _Remedy.CURRENT_TOKEN not in tried:
                tried.add(_Remedy.CURRENT_TOKEN)
                return
            if _Remedy.STORED_TOKEN not in tried and await self._use_stored_token(token):
                tried.add(_Remedy.STORED_TOKEN)
                return
            if response.status_code == 401 and token is not None and _Remedy.REFRESH not in tried:
                tried.add(_Remedy.REFRESH)
                if self._provider.can_refresh and await self._refresh(request):
                    return
            if response.status_code == 401:
                await self._log_in(request, response, tried)
            else:
                await self._step_up(request, response, tried)

    async def _use_stored_token(self, token: str | None) -> bool:
        """Use a token stored by another process; return False if there is no different, usable token."""
        record = await self._oauth.token_storage.load()
        stored = (record.tokens or {}).get("access_token")
        lacks_scopes = self._oauth.login is not None and record.wanted_scope is not None
        is_expired = record.expires_at is not None and record.expires_at < time.time()
        if stored in (None, token) or lacks_scopes:
            return False
        self._provider.use(record)  # also an expired token: the refresh token that was sent for it is used up
        return not is_expired

    async def _refresh(self, request: httpx2.Request) -> bool:
        """Refresh the token, unless another client or process has done so; return False if there is no new token."""
        before = self._get_token()
        try:
            async with self._oauth.token_storage.lock():
                if not await self._use_stored_token(before):
                    await self._send_refresh_token(request)
        except TimeoutError:
            raise LoginFailed("another program has not finished refreshing its login: try again later") from None
        return self._get_token() not in (None, before)

    async def _send_refresh_token(self, request: httpx2.Request) -> None:
        tokens = self._provider.context.current_tokens
        assert tokens is not None
        self._provider.context.token_expiry_time = 1.0  # the SDK refreshes only what has expired
        await self._run_flow(request, None)
        if self._provider.context.current_tokens is None:
            self._provider.refused_refresh_token = tokens.refresh_token
            await self._provider._initialize()  # noqa: SLF001 (the SDK's own hook, ours in the subclass)

    async def _log_in(self, request: httpx2.Request, response: httpx2.Response, tried: set[_Remedy]) -> None:
        if (
            _Remedy.LOGIN in tried
        ):  # otherwise a server that accepts no token would open one browser window after another
            self._refusal = "the server rejects the token of a login that has just succeeded"
            raise LoginFailed(self._refusal)
        tried.add(_Remedy.LOGIN)
        if self._oauth.settings.grant is OAuthGrant.AUTHORIZATION_CODE and self._oauth.login is None:
            why = ", because the authorization server no longer knows this program" * self._provider.has_lost_client
            raise LoginFailed(f"it needs a login{why}: {self._hint}")
        await self._run_login(request, response)

    async def _step_up(self, request: httpx2.Request, response: httpx2.Response, tried: set[_Remedy]) -> None:
        """Log in for more scopes (MCP, "Scope Challenge Handling"), once for each set of scopes."""
        scope = to_one_line(extract_scope_from_www_auth(response) or "", _MAX_WORDS)
        required, words = frozenset(scope.split()), scope or "it does not say which"
        # The server asks for scopes, the user has limited them: a server must not widen its own rights step by step.
        if self._oauth.settings.scopes is not None and not required <= set(self._oauth.settings.scopes):
            raise LoginFailed(f'it requires scopes that "oauth": {{"scopes": …}} does not name: {scope}')
        if _Remedy.STEP_UP in tried or required in self._step_ups or len(self._step_ups) >= MAX_STEP_UPS:
            raise LoginFailed(f"it requires more scopes again and again: {words}")
        tried.add(_Remedy.STEP_UP)
        if self._oauth.settings.grant is OAuthGrant.AUTHORIZATION_CODE and self._oauth.login is None:
            await self._provider.add_missing_scope(scope)
            raise LoginFailed(f"it requires more scopes ({words}): {self._hint}")
        self._step_ups.add(required)
        await self._run_login(request, response)

    async def _run_login(self, request: httpx2.Request, response: httpx2.Response) -> None:
        """Run the whole flow. After a failed login, the user is not asked again."""
        if self._refusal is not None:
            raise LoginFailed(self._refusal)
        self._provider.begin_login()
        try:
            try:
                await self._run_flow(request, response)
            except ClientUnknown:
                if not self._provider.can_register_anew:
                    raise
                await self._provider.forget_client()
                await self._run_flow(request, response)
        except LoginFailed as error:
            if self._provider.has_requested_login:
                self._refusal = str(error)
            raise

    async def _run_flow(self, request: httpx2.Request, challenge: httpx2.Response | None) -> None:
        """Run the SDK's flow until it would send the request itself.

        Args:
            request: The request to the server, which is not sent here.
            challenge: The server's 401 or 403 response to the request; None for a refresh.
        """
        flow = self._provider._auth_flow(request)  # noqa: SLF001 (`async_auth_flow` would send the request, too)
        try:
            outgoing = await flow.__anext__()
            while True:
                if outgoing is not request:
                    answer = await self._send_to_issuer(outgoing)
                elif challenge is not None:
                    answer, challenge = challenge, None
                else:
                    break
                outgoing = await flow.asend(answer)
        except LoginFailed:
            raise
        except OAuthFlowError as error:
            raise LoginFailed(to_one_line(str(error), _MAX_WORDS)) from None
        except Exception as error:  # noqa: BLE001 (the SDK may raise anything for unexpected responses)
            raise LoginFailed(f"the login cannot be understood ({type(error).__name__})") from None
        finally:
            await flow.aclose()

    async def _send_to_issuer(self, outgoing: httpx2.Request) -> httpx2.Response:
        """Send a request of the flow; raise `LoginFailed` for a response after which the flow cannot continue."""
        outgoing.headers.setdefault("Accept", "application/json")
        response = await self._http.send(outgoing)
        self._provider.issuer_text = read_issuer(response) or self._provider.issuer_text
        response = repair_response(outgoing, response, self._provider._expected_issuer())  # noqa: SLF001 (as above)
        if outgoing.method != "POST":  # metadata: the flow tries several places, of which some may not exist
            return response
        form = parse_qs(outgoing.content.decode("utf-8", "replace"))
        place, error = to_display(str(outgoing.url)), read_oauth_error(response)
        is_refresh = form.get("grant_type") == ["refresh_token"]
        if response.status_code == 429 or response.status_code >= 500:
            raise LoginFailed(f"{place} answers HTTP {response.status_code}: try again later")
        # A refused refresh token is no failure: the flow drops the tokens, and a login follows.
        is_unknown = error.get("error") in UNKNOWN_CLIENT_ERRORS or (response.status_code == 401 and not error)
        if is_refresh and (response.status_code >= 400 or error):
            if is_unknown and self._oauth.settings.client_id is None:
                await self._provider.forget_client()
            return httpx2.Response(400, json=error, request=outgoing)
        if response.status_code >= 300 or error:
            words = ": ".join(to_one_line(text, _MAX_WORDS) for text in error.values())
            kind = ClientUnknown if is_unknown else LoginFailed
            raise kind(f"{place} refuses the login: {words or f'HTTP {response.status_code}'}")
        if "grant_type" in form and not _has_token(response):
            raise LoginFailed(f"{place} returns no usable token")
        return response


def _list_trusted(settings: OAuthSettings) -> tuple[str, ...]:
    """Return the origins that the user trusts, which are those that the entry names for a login without discovery."""
    own = (settings.issuer, settings.identity_provider) if settings.grant is OAuthGrant.JWT_BEARER else ()
    return (*settings.trusted_origins, *filter(None, own))


def _has_token(response: httpx2.Response) -> bool:
    try:
        token = OAuthToken.model_validate_json(response.content).access_token
    except ValidationError:
        return False
    # The token goes into a header of each request: a line break in it would add further headers.
    return re.fullmatch(r"[\x21-\x7e]+", token) is not None


def create_provider(oauth: OAuthContext) -> OAuthProvider:
    """Return the provider for the flow selected in the server's settings."""
    settings = oauth.settings
    if settings.grant is OAuthGrant.CLIENT_CREDENTIALS:
        from dial_client.servers.oauth import client_credentials  # imports cryptography, which takes time

        return client_credentials.create_client_credentials_provider(oauth)
    if settings.grant is OAuthGrant.JWT_BEARER:
        from dial_client.servers.oauth.identity_assertion import IdentityAssertionProvider

        return IdentityAssertionProvider(oauth)
    redirect_uri = oauth.login.redirect_uri if oauth.login is not None else UNUSED_REDIRECT_URI
    # As a text: a URL object would get the slash of an empty path, which the registered redirect URI may not have.
    metadata = OAuthClientMetadata.model_validate({"client_name": "dial-client", "redirect_uris": [redirect_uri]})
    metadata_url = settings.client_metadata_url
    provider = OAuthProvider(oauth.server.url or "", metadata, NO_STORAGE, client_metadata_url=metadata_url)
    provider.connect(oauth)
    return provider
