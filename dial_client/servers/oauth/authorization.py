"""The SDK's OAuth, with what it leaves to the host (mcp 2.3, `mcp.client.auth`).

It refreshes no token that was loaded, because it keeps neither its time nor the endpoint; it sends the code wherever
the metadata says; and it goes on with a server that does not say that it knows PKCE.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import issuers_match, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import BaseModel, ValidationError

from dial_client import call_context
from dial_client.callbacks.oauth_callbacks import Login, LoginRequest
from dial_client.errors import LoginFailed
from dial_client.logs import get_logger
from dial_client.servers.oauth.token_storage import TokenRecord, TokenStorage
from dial_client.servers.oauth.url_policy import TRUST_IT, UrlPolicy, for_a_browser, origin, shown
from dial_client.servers.secret_masking import SecretMask
from dial_client.settings.config_types import OAuthGrant, OAuthSettings, ServerSettings
from dial_client.text.safe_text import one_line

log = get_logger(__name__)

MAX_WANTED = 2_000
"""Characters of the rights that are kept in mind; who asks for more asks for no person's sake."""
NOWHERE = "http://127.0.0.1/callback"
"""A place to be sent back to for a client with nobody to send."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Site:
    """One server to log in to."""

    server: ServerSettings
    vault: TokenStorage
    territory: UrlPolicy
    login: Login | None
    mask: SecretMask

    @property
    def how(self) -> OAuthSettings:
        """How to log in."""
        return self.server.oauth or OAuthSettings()


class GuardedProvider(OAuthClientProvider):
    """The flow of a person, in a browser; and what those of machines have in common with it."""

    site: Site
    record: TokenRecord
    spent: str | None = None
    """A refresh token that was refused."""
    has_asked = False
    """Whether a person was asked to log in."""
    _url = ""

    def at(self, site: Site) -> None:
        """Say which server this is for; called once, before anything else."""
        self.site, self.record = site, TokenRecord()
        self.context.storage = self
        self.context.redirect_handler, self.context.callback_handler = self._note_url, self._ask

    async def get_tokens(self) -> OAuthToken | None:
        """Give the tokens, as the SDK's storage does."""
        return self.context.current_tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Give who this host is to the authorization server."""
        return self.context.client_info

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens, and what it takes to refresh them."""
        expires_at = time.time() + tokens.expires_in if tokens.expires_in is not None else None
        await self.keep(replace(self._with_context(), tokens=_json(tokens), expires_at=expires_at, wanted_scope=None))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep a registration."""
        await self.keep(replace(self._with_context(), client=_json(client_info), tokens=None))

    async def want(self, scope: str) -> None:
        """Keep in mind, for the next login, which rights were missing."""
        wanted = union_scopes(self.record.wanted_scope, scope)
        if wanted != self.record.wanted_scope and len(wanted or "") <= MAX_WANTED:
            await self.keep(replace(self.record, wanted_scope=wanted))

    async def keep(self, record: TokenRecord) -> None:
        """Keep a record; where it cannot be written, this connection has it all the same."""
        self.record = record
        self.site.mask.add_login(record.tokens, record.client)
        try:
            await self.site.vault.save(record)
        except OSError as error:
            log.warning("login_not_kept", server=self.site.server.name, error=error.strerror)

    def adopt(self, record: TokenRecord) -> None:
        """Go on with what a record says; what cannot be read in it counts as not there."""
        context = self.context
        self.record = record
        self.site.mask.add_login(record.tokens, record.client)
        context.current_tokens = _read(OAuthToken, record.tokens)
        context.token_expiry_time = record.expires_at
        context.oauth_metadata = _read(OAuthMetadata, record.metadata)
        context.protected_resource_metadata = _read(ProtectedResourceMetadata, record.resource)
        context.auth_server_url = record.issuer if context.protected_resource_metadata is not None else None
        context.client_info = self._configured() or _read(OAuthClientInformationFull, record.client)
        self._initialized = True

    @property
    def can_refresh(self) -> bool:
        """Whether there is a refresh token, and it is known where to use it."""
        knows_where = self.context.oauth_metadata is not None or self.context.auth_server_url is None
        return self.context.can_refresh_token() and knows_where

    def register_again_if_due(self) -> None:
        """Forget a registration that has expired, or that knows another place to be sent back to."""
        client = self.context.client_info
        if client is None or self.site.how.client_id is not None:
            return
        expired = client.client_secret_expires_at and client.client_secret_expires_at < time.time()
        wanted = self.context.client_metadata.redirect_uris or []
        if expired or (client.redirect_uris and not set(wanted) <= set(client.redirect_uris)):
            self.context.client_info = None

    async def _initialize(self) -> None:
        record = await self.site.vault.load()
        if self.spent is not None and (record.tokens or {}).get("refresh_token") == self.spent:
            record = replace(record, tokens=None)
        self.adopt(record)

    def _with_context(self) -> TokenRecord:
        context = self.context
        metadata, resource = context.oauth_metadata, context.protected_resource_metadata
        issuer = context.auth_server_url or (str(metadata.issuer) if metadata is not None else None)
        client = context.client_info if self.site.how.client_id is None else None
        return replace(
            self.record, issuer=issuer, client=_json(client), metadata=_json(metadata), resource=_json(resource)
        )

    def _configured(self) -> OAuthClientInformationFull | None:
        how, metadata = self.site.how, self.context.oauth_metadata
        if how.client_id is None:
            return None
        methods = (metadata.token_endpoint_auth_methods_supported if metadata else None) or ["client_secret_basic"]
        with_secret = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        method = "private_key_jwt" if how.private_key else with_secret if how.client_secret else "none"
        return OAuthClientInformationFull(
            client_id=how.client_id, client_secret=how.client_secret, token_endpoint_auth_method=method
        )

    def _select_authorization_server(self, advertised: list[str]) -> str:
        wanted = self.site.how.issuer
        return next((a for a in advertised if wanted is not None and issuers_match(a, wanted)), advertised[0])

    async def _perform_authorization(self) -> httpx2.Request:
        context, how = self.context, self.site.how
        self._check_issuer()
        context.client_info = self._configured() or context.client_info
        if how.scopes is not None:
            context.client_metadata.scope = " ".join(how.scopes) or None
        else:
            missed = self.record.wanted_scope
            granted = (self.record.tokens or {}).get("scope") if missed else None
            scope = union_scopes(union_scopes(granted, context.client_metadata.scope), missed)
            context.client_metadata.scope = scope
        if how.grant is OAuthGrant.AUTHORIZATION_CODE:
            self._check_pkce()
        return await super()._perform_authorization()

    async def _refresh_token(self) -> httpx2.Request:
        self._check_issuer()
        return await super()._refresh_token()

    def _check_issuer(self) -> None:
        """See that this is the authorization server the client belongs to, and that it keeps the code to itself."""
        metadata = self.context.oauth_metadata
        issuer = str(metadata.issuer) if metadata is not None else self._expected_issuer()
        # A client of the user's own belongs to whichever issuer it was first used at.
        bound = self.site.how.issuer or (self.record.issuer if self.site.how.client_id is not None else None)
        if bound is not None and not issuers_match(bound, issuer):
            raise LoginFailed(f"its clientId belongs to {shown(bound)}, but the server now leads to {shown(issuer)}")
        if metadata is not None:
            self.site.territory.check_token_endpoint(str(metadata.issuer), str(metadata.token_endpoint))

    def _check_pkce(self) -> None:
        """See that the authorization server says that it knows PKCE (MCP, "Authorization Code Protection").

        One from before 2025-06, which is the server itself and has no metadata, cannot say it: the challenge is sent,
        but whether anybody checks it is for the user to know.
        """
        metadata, named = self.context.oauth_metadata, self.context.auth_server_url
        if metadata is None and named is not None:
            raise LoginFailed(f"{shown(named)} does not say how to log in: it has no metadata")
        if metadata is None and not self.site.territory.is_trusted(self.site.server.url or ""):
            own = origin(self.site.server.url or "")
            raise LoginFailed(f"{own} has no metadata, and so does not say that it protects codes with PKCE{TRUST_IT}")
        if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise LoginFailed(f"{shown(str(metadata.issuer))} does not protect codes with PKCE (S256)")

    async def _note_url(self, url: str) -> None:
        self._url = for_a_browser(url)

    async def _ask(self) -> AuthorizationCodeResult:
        login, scope = self.site.login, self.context.client_metadata.scope
        assert login is not None
        self.has_asked = True
        scopes = tuple(one_line(word, 100) for word in (scope or "").split())
        metadata = self.context.oauth_metadata
        says_issuer = metadata is not None and bool(metadata.authorization_response_iss_parameter_supported)
        request = LoginRequest(self.site.server.name, self._url, origin(self._url), scopes, says_issuer)
        caller = call_context.current()
        with ExitStack() as stopped:
            for clock in caller.clocks if caller is not None else ():
                stopped.enter_context(clock.waiting_for_a_person())
            address = await login(request)
        answer = answer_in(address, parse_qs(urlsplit(self._url).query)["state"][0])
        if request.needs_issuer and not answer.iss:
            raise LoginFailed("what came back does not say whom it is from (iss), as this login's answers do")
        return answer


def answer_in(address: str, state: str) -> AuthorizationCodeResult:
    """Read what the authorization server sent the browser back with (RFC 6749, 4.1.2; RFC 9207).

    Raises:
        LoginFailed: it is no answer to this login, or the answer is no.
    """
    said = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    if said.get("state") != state:
        raise LoginFailed("what came back from the browser belongs to another login")
    if "error" in said:
        words = ": ".join(said[name] for name in ("error", "error_description") if name in said)
        raise LoginFailed(f"the login was refused: {one_line(words, 200)}")
    if "code" not in said:
        raise LoginFailed("the browser came back without a code")
    return AuthorizationCodeResult(code=said["code"], state=said["state"], iss=said.get("iss"))


class NoStorage:
    """Stands where a provider will stand itself, until it knows its site."""

    async def get_tokens(self) -> OAuthToken | None:
        """Give none."""
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep none."""

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Give none."""
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep none."""


def _json(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _read(kind: type[Model], said: dict[str, Any] | None) -> Model | None:
    try:
        return None if said is None else kind.model_validate(said)
    except ValidationError:
        return None
