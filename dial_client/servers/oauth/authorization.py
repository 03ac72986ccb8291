"""The SDK's OAuth flow (mcp 2.3, `mcp.client.auth`) with token storage, refresh and checks of the authorization server.

The SDK does not refresh a loaded token, because it stores neither the expiry time nor the endpoint. It sends the code
to any token endpoint that the metadata names, and accepts an authorization server that does not announce PKCE.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import issuers_match, should_use_client_metadata_url, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel, ValidationError

from dial_client.hooks import call_context
from dial_client.hooks.server_callbacks import Login, LoginRequest
from dial_client.messages.errors import LoginFailed
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.oauth.oauth_http_client import (
    OAuthHttpClient,
    UrlPolicy,
    find_origin,
    to_browser_url,
    to_display,
)
from dial_client.servers.oauth.token_storage import TokenRecord, TokenStorage
from dial_client.servers.secret_masking import SecretMask
from dial_client.settings.config_types import OAuthGrant, OAuthSettings, ServerSettings

log = get_logger(__name__)

# Maximum characters of the stored missing scopes; no real server needs more.
MAX_MISSING_SCOPE = 2_000

# The storage of a provider before `OAuthProvider.connect`, which makes the provider its own storage.
NO_STORAGE: Any = None
# Errors of a client that the authorization server does not know, or no longer (RFC 6749, 4.1.2.1 and 5.2).
UNKNOWN_CLIENT_ERRORS = ("invalid_client", "unauthorized_client")

_PKCE_HINT = '; if you know that it checks PKCE, set "oauth": {"allowUnannouncedPkce": true}'
_NEW_REGISTRATION = "the authorization server no longer knew this program, which is registered anew"

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class OAuthContext:
    """The server to log in to, and the objects needed for the login."""

    server: ServerSettings
    token_storage: TokenStorage
    url_policy: UrlPolicy
    http: OAuthHttpClient
    login: Login | None
    mask: SecretMask
    find_id_token: Callable[[], str | None] = lambda: None
    """Returns the ID token of the person whose logins these are (`LoginStore`); None if there is none."""

    @property
    def settings(self) -> OAuthSettings:
        """The OAuth settings of the server; defaults if none are configured."""
        return self.server.oauth or OAuthSettings()


class ClientUnknown(LoginFailed):
    """The authorization server does not know the client."""


class OAuthProvider(OAuthClientProvider):
    """The authorization code flow in a browser; also the base of the client credentials flows."""

    oauth: OAuthContext
    record: TokenRecord
    refused_refresh_token: str | None = None
    has_requested_login = False
    """True if the user was asked to log in during the current login."""
    has_lost_client = False
    """True if the authorization server has forgotten the registered client since the last login."""
    issuer_text = ""
    """The issuer as the metadata of the current login name it, to the letter; empty without metadata."""
    _has_registered = False
    _url = ""

    def connect(self, oauth: OAuthContext) -> None:
        """Set the server to log in to; to be called once, before any other method."""
        self.oauth, self.record = oauth, TokenRecord()
        self.context.storage = cast("Any", self)  # the SDK only stores in it: `_initialize` loads
        self.context.redirect_handler, self.context.callback_handler = self._set_url, self._log_in

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store new tokens with the data needed to refresh them."""
        expires_at = time.time() + tokens.expires_in if tokens.expires_in is not None else None
        record = replace(self._capture_record(), tokens=_to_json(tokens), expires_at=expires_at, wanted_scope=None)
        self.has_lost_client = False
        await self.save(record)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the client's registration."""
        self._has_registered = True
        await self.save(replace(self._capture_record(), client=_to_json(client_info), tokens=None))

    async def add_missing_scope(self, scope: str) -> None:
        """Store a missing scope for the next login."""
        missing = union_scopes(self.record.wanted_scope, scope)
        if missing != self.record.wanted_scope and len(missing or "") <= MAX_MISSING_SCOPE:
            await self.save(replace(self.record, wanted_scope=missing))

    async def save(self, record: TokenRecord) -> None:
        """Use and store a record; if it cannot be written, this connection uses it anyway."""
        self.record = record
        self.oauth.mask.add_login(record.tokens, record.client)
        try:
            await self.oauth.token_storage.save(record)
        except Exception as error:  # noqa: BLE001 - a store of the program's own may raise anything
            log.warning("login_not_stored", server=self.oauth.server.name, error=type(error).__name__)

    def use(self, record: TokenRecord) -> None:
        """Use a stored record; its invalid parts count as missing."""
        # A record is a file or a keyring entry, which another program may have written: each part is validated again.
        context = self.context
        self.record = record
        self.oauth.mask.add_login(record.tokens, record.client)
        context.current_tokens = _read(OAuthToken, record.tokens)
        context.token_expiry_time = record.expires_at
        context.oauth_metadata = _read(OAuthMetadata, record.metadata)
        context.protected_resource_metadata = _read(ProtectedResourceMetadata, record.resource)
        context.auth_server_url = record.issuer if context.protected_resource_metadata is not None else None
        context.client_info = self._build_configured_client() or _read(OAuthClientInformationFull, record.client)
        self._initialized = True

    @property
    def can_refresh(self) -> bool:
        """True if there is a refresh token, and the token endpoint is known."""
        has_endpoint = self.context.oauth_metadata is not None or self.context.auth_server_url is None
        return self.context.can_refresh_token() and has_endpoint

    @property
    def can_register_anew(self) -> bool:
        """True if the client was registered by this program, before the current login."""
        client, settings = self.context.client_info, self.oauth.settings
        if client is None or settings.client_id is not None or self._has_registered:
            return False
        return client.client_id != settings.client_metadata_url

    async def forget_client(self) -> None:
        """Forget the registered client, which the authorization server does not know any more."""
        log.warning("client_forgotten", server=self.oauth.server.name, issuer=self.record.issuer)
        self.has_lost_client = True
        self.context.client_info = None
        self.context.clear_tokens()
        await self.save(replace(self.record, client=None, tokens=None))

    def begin_login(self) -> None:
        """Begin a login: drop a registration that has expired, or that has a different redirect URI.

        Raises:
            LoginFailed: The redirect URI of the entry is not the one of this program.
        """
        self.has_requested_login = self._has_registered = False
        configured = self.oauth.settings.redirect_uri
        if configured is not None and self.oauth.login is not None and configured != self.oauth.login.redirect_uri:
            raise LoginFailed(
                f'its "redirectUri" is {to_display(configured)}, but this program is redirected to '
                f"{to_display(self.oauth.login.redirect_uri)}: make them the same"
            )
        # The authorization server would refuse such a registration, or redirect the user to a port where nobody
        # listens.
        client = self.context.client_info
        if client is None or self.oauth.settings.client_id is not None:
            return
        # Registration is deprecated in MCP: a server that reads the metadata document gets that.
        document = self.oauth.settings.client_metadata_url
        if should_use_client_metadata_url(self.context.oauth_metadata, document) and client.client_id != document:
            self.context.client_info = None
        expired = client.client_secret_expires_at and client.client_secret_expires_at < time.time()
        redirect_uris = self.context.client_metadata.redirect_uris or []
        if expired or (client.redirect_uris and not set(redirect_uris) <= set(client.redirect_uris)):
            self.context.client_info = None

    async def _initialize(self) -> None:
        record = await self.oauth.token_storage.load()
        # A refresh token that was refused once is not sent again: authorization servers that rotate tokens may take
        # a second use for a theft, and revoke the login.
        refused = self.refused_refresh_token
        if refused is not None and (record.tokens or {}).get("refresh_token") == refused:
            record = replace(record, tokens=None)
        self.use(record)

    def _capture_record(self) -> TokenRecord:
        """Return the record with what the SDK's flow has found out: the issuer, its metadata, the registered client.

        The SDK changes its context during a flow, and stores none of these: without them no token could be refreshed
        after a restart of the program. A client that the user configured is not stored, its secret least of all.
        """
        context = self.context
        metadata = context.oauth_metadata
        return replace(
            self.record,
            issuer=context.auth_server_url or (str(metadata.issuer) if metadata is not None else None),
            client=_to_json(context.client_info if self.oauth.settings.client_id is None else None),
            metadata=_to_json(metadata),
            resource=_to_json(context.protected_resource_metadata),
        )

    def _build_configured_client(self) -> OAuthClientInformationFull | None:
        settings, metadata = self.oauth.settings, self.context.oauth_metadata
        if settings.client_id is None:
            return None
        # Without a list in the metadata, HTTP Basic is the default.
        methods = (metadata.token_endpoint_auth_methods_supported if metadata else None) or ["client_secret_basic"]
        with_secret = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        method = "private_key_jwt" if settings.private_key else with_secret if settings.client_secret else "none"
        return OAuthClientInformationFull(
            client_id=settings.client_id, client_secret=settings.client_secret, token_endpoint_auth_method=method
        )

    def _select_authorization_server(self, advertised: list[str]) -> str:
        configured = self.oauth.settings.issuer
        if configured is None:
            return advertised[0]
        # If the server does not advertise the configured issuer, `_check_issuer` refuses the one returned here.
        return next((issuer for issuer in advertised if issuers_match(issuer, configured)), advertised[0])

    async def _perform_authorization(self) -> httpx2.Request:
        context, settings = self.context, self.oauth.settings
        self._check_issuer()
        context.client_info = self._build_configured_client() or context.client_info
        if settings.scopes is not None:
            context.client_metadata.scope = " ".join(settings.scopes) or None
        else:
            # The new token replaces the old one, so it must have the old scopes, too (MCP, "Scope Challenge Handling").
            missing = self.record.wanted_scope
            granted = (self.record.tokens or {}).get("scope") if missing else None
            scope = union_scopes(union_scopes(granted, context.client_metadata.scope), missing)
            context.client_metadata.scope = scope
        if settings.grant is OAuthGrant.AUTHORIZATION_CODE:
            self._check_pkce()
        return await super()._perform_authorization()

    async def _refresh_token(self) -> httpx2.Request:
        self._check_issuer()  # a refresh token is as good as a login: it must not reach another server
        return await super()._refresh_token()

    async def build_revocation(self, record: TokenRecord) -> httpx2.Request:
        """Return the request that revokes the refresh token of a record, else its access token (RFC 7009, 2.1).

        Raises:
            LoginFailed: There is no revocation endpoint, or tokens must not be sent there; or the client is not known.
        """
        self.use(record)
        metadata, tokens, client = self.context.oauth_metadata, self.context.current_tokens, self.context.client_info
        if metadata is None or metadata.revocation_endpoint is None:
            raise LoginFailed("it has no revocation endpoint")
        if tokens is None or client is None:
            raise LoginFailed("its stored login is not complete")
        self._check_issuer()
        endpoint = str(metadata.revocation_endpoint)
        self.oauth.url_policy.check_token_endpoint(str(metadata.issuer), endpoint)
        # A server that revokes a refresh token also ends the access tokens of the same login, as far as it can.
        kind = "refresh_token" if tokens.refresh_token else "access_token"
        form = {"token": tokens.refresh_token or tokens.access_token, "token_type_hint": kind}
        form, headers = await self._authenticate_client(form | {"client_id": client.client_id})
        return httpx2.Request("POST", endpoint, data=form, headers=headers | {"Accept": "application/json"})

    async def _authenticate_client(self, form: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return a form and headers with the client's authentication, as for the token endpoint."""
        return self.context.prepare_token_auth(form, {})

    def _check_issuer(self) -> None:
        """Check that the authorization server is the one the client belongs to, and check its token endpoint.

        An MCP server names its authorization server. A malicious one could name its own, to get the secret of a client
        that was registered elsewhere, or the user's code for another server (mix-up, RFC 9207).

        Raises:
            LoginFailed: The server leads to another authorization server, or the token endpoint is not allowed.
        """
        metadata = self.context.oauth_metadata
        issuer = str(metadata.issuer) if metadata is not None else self._expected_issuer()
        # A configured client id without issuer is bound to the issuer of its first login.
        bound = self.oauth.settings.issuer or (
            self.record.issuer if self.oauth.settings.client_id is not None else None
        )
        if bound is not None and not issuers_match(bound, issuer):
            raise LoginFailed(
                f"its clientId belongs to {to_display(bound)}, but the server now leads to {to_display(issuer)}"
            )
        if metadata is not None:
            self.oauth.url_policy.check_token_endpoint(str(metadata.issuer), str(metadata.token_endpoint))

    def _check_pkce(self) -> None:
        """Check that the authorization server announces PKCE (MCP, "Authorization Code Protection").

        Without PKCE, who intercepts the code, for example another program on the redirect's port, gets the token. The
        specification says that a client must refuse to continue; the SDK (mcp 2.3) continues.

        Some authorization servers check PKCE and do not say so, and a server of a protocol before 2025-06 may be its
        own authorization server without metadata. They are accepted only if the user says that they check it.

        Raises:
            LoginFailed: PKCE is not announced.
        """
        metadata, named = self.context.oauth_metadata, self.context.auth_server_url
        if metadata is None and named is not None:
            raise LoginFailed(f"{to_display(named)} does not say how to log in: it has no metadata")
        methods = metadata.code_challenge_methods_supported if metadata is not None else None
        issuer = str(metadata.issuer) if metadata is not None else find_origin(self.oauth.server.url or "")
        if methods and "S256" not in methods:
            raise LoginFailed(f"{to_display(issuer)} does not protect codes with PKCE (S256)")
        if not (methods or self.oauth.settings.allow_unannounced_pkce or self.oauth.url_policy.is_trusted(issuer)):
            words = (
                "does not announce PKCE" if metadata is not None else "has no metadata, so it does not announce PKCE"
            )
            raise LoginFailed(f"{to_display(issuer)} {words} (S256){_PKCE_HINT}")

    async def _set_url(self, url: str) -> None:
        self._url = to_browser_url(url)  # the server has made it up: it may hold a command for the shell
        if self.can_register_anew and await self.oauth.http.is_client_refused(url, UNKNOWN_CLIENT_ERRORS):
            raise ClientUnknown("the authorization server does not know this program")

    async def _log_in(self) -> AuthorizationCodeResult:
        login, scope = self.oauth.login, self.context.client_metadata.scope
        assert login is not None
        self.has_requested_login = True
        scopes = tuple(to_one_line(word, 100) for word in (scope or "").split())
        metadata = self.context.oauth_metadata
        says_issuer = metadata is not None and bool(metadata.authorization_response_iss_parameter_supported)
        reason = _NEW_REGISTRATION if self.has_lost_client else ""
        request = LoginRequest(self.oauth.server.name, self._url, find_origin(self._url), scopes, says_issuer, reason)
        caller = call_context.find_current()
        with call_context.pause_deadlines([caller] if caller is not None else []):
            address = await login(request)
        answer = parse_redirect(address, parse_qs(urlsplit(self._url).query)["state"][0])
        # The SDK compares `iss` if there is one; leaving it out must not help an attacker (RFC 9207, 2.4).
        if request.needs_issuer and not answer.iss:
            raise LoginFailed("the redirect names no issuer (iss), as this authorization server's redirects do")
        if answer.iss and metadata is not None and self.issuer_text:
            # Compared to the letter (RFC 9207, 2.4; SEP-2468 forbids to normalize it), with the text of the metadata:
            # the SDK compares it with the issuer that the server names, from which that may differ by a slash.
            if answer.iss != self.issuer_text:
                raise LoginFailed(f"the redirect names another issuer (iss mismatch): {to_display(answer.iss)}")
            answer.iss = str(metadata.issuer)
        return answer


def parse_redirect(address: str, state: str) -> AuthorizationCodeResult:
    """Parse the URL to which the authorization server redirected the browser (RFC 6749, 4.1.2; RFC 9207).

    Raises:
        LoginFailed: The redirect belongs to another login, has no code, or says that the login was refused.
    """
    fields = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    # Any page in the browser can open the redirect URI with a code of its own, and so log the user in to the account of
    # an attacker (CSRF): only this login knows its state.
    if fields.get("state") != state:
        raise LoginFailed("the redirect belongs to another login")
    if "error" in fields:
        words = ": ".join(fields[name] for name in ("error", "error_description") if name in fields)
        kind = ClientUnknown if fields["error"] in UNKNOWN_CLIENT_ERRORS else LoginFailed
        raise kind(f"the login was refused: {to_one_line(words, 200)}")
    if "code" not in fields:
        raise LoginFailed("the redirect has no code")
    return AuthorizationCodeResult(code=fields["code"], state=fields["state"], iss=fields.get("iss"))


def _to_json(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _read(kind: type[Model], data: dict[str, Any] | None) -> Model | None:
    try:
        return None if data is None else kind.model_validate(data)
    except ValidationError:
        return None
