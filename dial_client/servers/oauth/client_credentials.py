"""Client credentials: logins with a secret or a private key (MCP extension "OAuth Client Credentials")."""

from __future__ import annotations

import warnings

from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)

from dial_client.servers.oauth.authorization import NO_STORAGE, OAuthContext, OAuthProvider


class ClientSecretProvider(OAuthProvider, ClientCredentialsOAuthProvider):
    """Client credentials with a secret."""


class PrivateKeyProvider(OAuthProvider, PrivateKeyJWTOAuthProvider):
    """Client credentials with a private key."""

    async def _authenticate_client(self, form: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        await self._add_client_authentication_jwt(token_data=form)
        return form, {}


def create_client_credentials_provider(oauth: OAuthContext) -> OAuthProvider:
    """Return the provider that logs in with the id and the secret, or the private key, of the settings."""
    settings, url = oauth.settings, oauth.server.url or ""
    assert settings.client_id is not None
    scope = " ".join(settings.scopes) if settings.scopes is not None else None
    provider: OAuthProvider
    with warnings.catch_warnings():
        # The SDK warns about a missing issuer. Here the first issuer used is stored and bound to the client.
        warnings.simplefilter("ignore")
        if settings.private_key is not None:
            signing = SignedJWTParameters(
                issuer=settings.client_id,
                subject=settings.client_id,
                signing_key=settings.private_key,
                signing_algorithm=settings.signing_algorithm,
            )
            assertions = signing.create_assertion_provider()
            provider = PrivateKeyProvider(url, NO_STORAGE, settings.client_id, assertions, scope, settings.issuer)
        else:
            secret = settings.client_secret or ""
            provider = ClientSecretProvider(
                url, NO_STORAGE, settings.client_id, secret, scope=scope, issuer=settings.issuer
            )
    provider.connect(oauth)
    return provider
