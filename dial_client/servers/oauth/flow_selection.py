"""Which login a server wants: of a person, or of a machine."""

from __future__ import annotations

from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl

from dial_client.servers.oauth.authorization import NOWHERE, GuardedProvider, NoStorage, Site
from dial_client.settings.config_types import OAuthGrant


def provider_for(site: Site) -> GuardedProvider:
    """Make what carries out the login that the server's settings ask for."""
    how = site.how
    if how.grant is OAuthGrant.CLIENT_CREDENTIALS:
        from dial_client.servers.oauth.client_credentials import machine_for  # its signatures take a while to load

        return machine_for(site)
    back = site.login.redirect_uri if site.login is not None else NOWHERE
    metadata = OAuthClientMetadata(client_name="dial-client", redirect_uris=[AnyUrl(back)])
    provider = GuardedProvider(
        site.server.url or "", metadata, NoStorage(), client_metadata_url=how.client_metadata_url
    )
    provider.at(site)
    return provider
