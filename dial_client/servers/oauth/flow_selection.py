"""The choice between the OAuth flows: authorization code or client credentials."""

from __future__ import annotations

from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl

from dial_client.servers.oauth.authorization import UNUSED_REDIRECT_URI, NoStorage, OAuthContext, OAuthProvider
from dial_client.settings.config_types import OAuthGrant


def create_provider(oauth: OAuthContext) -> OAuthProvider:
    """Return the provider for the flow selected in the server's settings."""
    settings = oauth.settings
    if settings.grant is OAuthGrant.CLIENT_CREDENTIALS:
        from dial_client.servers.oauth import client_credentials  # imports cryptography, which takes time

        return client_credentials.create_client_credentials_provider(oauth)
    redirect_uri = oauth.login.redirect_uri if oauth.login is not None else UNUSED_REDIRECT_URI
    metadata = OAuthClientMetadata(client_name="dial-client", redirect_uris=[AnyUrl(redirect_uri)])
    metadata_url = settings.client_metadata_url
    provider = OAuthProvider(oauth.server.url or "", metadata, NoStorage(), client_metadata_url=metadata_url)
    provider.connect(oauth)
    return provider
