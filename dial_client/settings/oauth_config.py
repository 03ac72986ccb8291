"""Reads the key ``oauth`` of a server's entry as `OAuthSettings`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from dial_client.settings.config_types import OAuthGrant, OAuthSettings
from dial_client.settings.jsonc import Node, one_of
from dial_client.text.similar_names import did_you_mean


@runtime_checkable
class _HttpAuth(Protocol):
    """An ``httpx2.Auth``, or an object of the same form; settings do not import the package."""

    def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]: ...


def oauth(node: Node) -> OAuthSettings:
    """Read the OAuth settings: an object, "oauth" or true for the defaults, or in Python an ``httpx2.Auth``.

    Raises:
        ConfigError: A value is invalid, or values contradict each other.
    """
    if node.value == "oauth" or node.value is True:
        return OAuthSettings()
    if isinstance(node.value, _HttpAuth):
        return OAuthSettings(auth=node.value)
    found, unknown = node.known(OAUTH_KEYS, OAUTH_ALIASES)
    for key, child in unknown.items():
        if key not in _OF_OTHER_HOSTS and (hint := did_you_mean(key, OAUTH_KEYS)):
            raise child.error("unknown setting of a login", hint, at_name=True)
    settings = OAuthSettings(**{_FIELDS[key]: OAUTH_KEYS[key](child) for key, child in found.items()})
    if settings.private_key is not None and settings.grant is not OAuthGrant.CLIENT_CREDENTIALS:
        raise found["privateKey"].error('needs "grantType": "client_credentials"', at_name=True)
    has_secret = settings.client_secret is not None or settings.private_key is not None
    if (has_secret or settings.grant is OAuthGrant.CLIENT_CREDENTIALS) and settings.client_id is None:
        raise node.error("clientId is not given")
    if settings.grant is OAuthGrant.CLIENT_CREDENTIALS and not has_secret:
        raise node.error("neither clientSecret nor privateKey is given", "client_credentials needs one of them")
    return settings


def _scopes(node: Node) -> tuple[str, ...]:
    return tuple(node.value.split()) if isinstance(node.value, str) else node.strings()


def _port(node: Node) -> int:
    if node.count() > 65_535:
        raise node.error("expected a port between 1 and 65535")
    return node.count()


def _address(node: Node) -> str:
    parts = urlsplit(node.string())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise node.error("expected an http:// or https:// address")
    return node.string()


def _document(node: Node) -> str:
    parts = urlsplit(_address(node))
    if parts.scheme != "https" or parts.path in ("", "/"):
        raise node.error("expected an https:// address with a path")
    return node.string()


def _addresses(node: Node) -> tuple[str, ...]:
    return tuple(_address(element) for element in node.elements())


OAUTH_KEYS: Mapping[str, Callable[[Node], Any]] = {
    "grantType": one_of({grant: grant for grant in OAuthGrant}),
    "clientId": Node.string,
    "clientSecret": Node.string,
    "privateKey": Node.string,
    "signingAlgorithm": Node.string,
    "clientMetadataUrl": _document,
    "callbackPort": _port,
    "scopes": _scopes,
    "issuer": _address,
    "trustedOrigins": _addresses,
}
_FIELDS = {
    "grantType": "grant",
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "privateKey": "private_key",
    "signingAlgorithm": "signing_algorithm",
    "clientMetadataUrl": "client_metadata_url",
    "callbackPort": "callback_port",
    "scopes": "scopes",
    "issuer": "issuer",
    "trustedOrigins": "trusted_origins",
}
OAUTH_ALIASES = {"scope": "scopes", "grant": "grantType"}
_OF_OTHER_HOSTS = frozenset(("authorizationUrl", "authServerMetadataUrl", "registrationUrl", "tokenUrl"))
