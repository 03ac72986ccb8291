"""Logins without a person: a client with a secret or a key of its own (MCP extension "OAuth Client Credentials")."""

from __future__ import annotations

import warnings

from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)

from dial_client.servers.oauth.authorization import GuardedProvider, NoStorage, Site


class MachineProvider(GuardedProvider, ClientCredentialsOAuthProvider):
    """A client with a secret."""


class SigningProvider(GuardedProvider, PrivateKeyJWTOAuthProvider):
    """A client with a key."""


def machine_for(site: Site) -> GuardedProvider:
    """Make what logs in with the id and the secret, or the key, of the settings."""
    how, url = site.how, site.server.url or ""
    assert how.client_id is not None
    scope = " ".join(how.scopes) if how.scopes is not None else None
    provider: GuardedProvider
    with warnings.catch_warnings():
        # That no issuer is given: the first one that is met is the one, from then on.
        warnings.simplefilter("ignore")
        if how.private_key is not None:
            signing = SignedJWTParameters(
                issuer=how.client_id,
                subject=how.client_id,
                signing_key=how.private_key,
                signing_algorithm=how.signing_algorithm,
            )
            assertions = signing.create_assertion_provider()
            provider = SigningProvider(url, NoStorage(), how.client_id, assertions, scope, how.issuer)
        else:
            secret = how.client_secret or ""
            provider = MachineProvider(url, NoStorage(), how.client_id, secret, scope=scope, issuer=how.issuer)
    provider.at(site)
    return provider
