"""Logins by the user's login at the identity provider of a company (MCP, "Enterprise-Managed Authorization").

The provider exchanges the user's ID token for an assertion of the identity (ID-JAG), and the authorization server of
the MCP server exchanges the assertion for a token. The configuration names both: the MCP server is never asked where
to send an assertion.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import httpx2
from anyio import to_thread
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientMetadata, OAuthToken

from dial_client.messages.errors import LoginFailed
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.oauth.authorization import NO_STORAGE, OAuthContext, OAuthProvider
from dial_client.servers.oauth.oauth_http_client import read_oauth_error, to_display

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - the name of a grant
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the name of a type
# Maximum bytes of an ID token.
MAX_ID_TOKEN = 64 * 1024
_MAX_WORDS = 300


class IdentityAssertionProvider(OAuthProvider):
    """The SDK's flow for identity assertions, with assertions that this module gets from the identity provider."""

    def __init__(self, oauth: OAuthContext) -> None:
        settings, url = oauth.settings, oauth.server.url or ""
        metadata = OAuthClientMetadata(redirect_uris=None, grant_types=[JWT_BEARER_GRANT_TYPE])
        super().__init__(url, metadata, NO_STORAGE)
        self.connect(oauth)
        self._issuer = settings.issuer or ""
        self._scope = " ".join(settings.scopes or ())
        self._grant = IdentityAssertionOAuthProvider(
            url,
            cast("Any", self),
            settings.client_id or "",
            settings.client_secret or "",
            self._issuer,
            self._fetch_assertion,
            self._scope or None,
        )

    async def get_tokens(self) -> OAuthToken | None:
        """Return None: the SDK's flow begins only when a stored token is of no more use."""
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Use and store new tokens."""
        tokens.refresh_token = None  # a new assertion replaces it: the provider may have ended the user's access
        self.context.current_tokens, self.context.auth_server_url = tokens, self._issuer
        self.context.update_token_expiry(tokens)
        await super().set_tokens(tokens)

    def _expected_issuer(self) -> str:
        return self._issuer

    def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        return self._grant._auth_flow(request)  # noqa: SLF001 (as `ServerAuth` drives the other flows)

    async def _fetch_assertion(self, audience: str, resource: str) -> str:
        """Exchange the user's ID token for an identity assertion (RFC 8693).

        Raises:
            LoginFailed: The ID token cannot be read, or the identity provider gives no assertion for it.
        """
        settings = self.oauth.settings
        form = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": ID_JAG,
            "audience": audience,
            "resource": resource,
            "scope": self._scope,
            "subject_token": await self._find_id_token(),
            "subject_token_type": ID_TOKEN,
            "client_id": settings.identity_client_id or settings.client_id or "",
            "client_secret": settings.identity_client_secret or "",
        }
        data = {name: value for name, value in form.items() if value}
        headers = {"Accept": "application/json"}
        request = httpx2.Request("POST", settings.identity_provider or "", data=data, headers=headers)
        response = await self.oauth.http.send(request)
        error, place = read_oauth_error(response), to_display(str(request.url))
        if response.status_code != 200 or error:
            words = ": ".join(to_one_line(text, _MAX_WORDS) for text in error.values())
            raise LoginFailed(f"{place} gives no identity assertion: {words or f'HTTP {response.status_code}'}")
        try:
            document: Any = json.loads(response.content)
        except (ValueError, RecursionError):
            document = None
        assertion = document.get("access_token") if isinstance(document, dict) else None
        if not isinstance(assertion, str) or document.get("issued_token_type") != ID_JAG:
            raise LoginFailed(f"{place} gives a token that is no ID-JAG")
        return assertion

    async def _find_id_token(self) -> str:
        if self.oauth.settings.identity_file is not None:
            return await to_thread.run_sync(_read_id_token, self.oauth.settings.identity_file)
        if (token := self.oauth.find_id_token()) is None:
            raise LoginFailed("there is no ID token: name its file (identityFile), or log in to the service anew")
        return token


def _read_id_token(path: str) -> str:
    try:
        with Path(path).expanduser().open("rb") as file:
            text = file.read(MAX_ID_TOKEN).decode().strip()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: there is no home folder
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise LoginFailed(f"the ID token cannot be read from {to_one_line(path, 200)}: {reason}") from None
    if not text:
        raise LoginFailed(f"the file of the ID token, {to_one_line(path, 200)}, is empty")
    return text
