"""Reads the key ``oauth`` of a server's entry as `OAuthSettings`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from dial_client.runtime.text import did_you_mean
from dial_client.settings.config_types import OAuthGrant, OAuthSettings
from dial_client.settings.jsonc import Node, build_choice_reader


@runtime_checkable
class _HttpAuth(Protocol):
    """An ``httpx2.Auth``, or an object of the same form; settings do not import the package."""

    def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]: ...


def read_oauth(node: Node) -> OAuthSettings:
    """Read the OAuth settings: an object, "oauth" or true for the defaults, or in Python an ``httpx2.Auth``.

    Raises:
        ConfigError: A value is invalid, or values contradict each other.
    """
    if node.value == "oauth" or node.value is True:
        return OAuthSettings()
    if isinstance(node.value, _HttpAuth):
        return OAuthSettings(auth=node.value)
    found, unknown = node.split_members(OAUTH_KEYS, OAUTH_ALIASES)
    for key, child in unknown.items():
        if key not in _OF_OTHER_HOSTS and (hint := did_you_mean(key, OAUTH_KEYS)):
            raise child.build_error("unknown setting of a login", hint, at_name=True)
    settings = OAuthSettings(**{_FIELDS[key]: OAUTH_KEYS[key](child) for key, child in found.items()})
    if settings.private_key is not None and settings.grant is not OAuthGrant.CLIENT_CREDENTIALS:
        raise found["privateKey"].build_error('needs "grantType": "client_credentials"', at_name=True)
    has_secret = settings.client_secret is not None or settings.private_key is not None
    if (has_secret or settings.grant is OAuthGrant.CLIENT_CREDENTIALS) and settings.client_id is None:
        raise node.build_error("clientId is not given")
    if settings.grant is OAuthGrant.CLIENT_CREDENTIALS and not has_secret:
        raise node.build_error("neither clientSecret nor privateKey is given", "client_credentials needs one of them")
    return settings


def _read_scopes(node: Node) -> tuple[str, ...]:
    return tuple(node.value.split()) if isinstance(node.value, str) else node.read_strings()


def _read_port(node: Node) -> int:
    if node.read_count() > 65_535:
        raise node.build_error("expected a port between 1 and 65535")
    return node.read_count()


def _read_address(node: Node) -> str:
    parts = urlsplit(node.read_string())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise node.build_error("expected an http:// or https:// address")
    return node.read_string()


def _read_document_url(node: Node) -> str:
    parts = urlsplit(_read_address(node))
    if parts.scheme != "https" or parts.path in ("", "/"):
        raise node.build_error("expected an https:// address with a path")
    return node.read_string()


def _read_addresses(node: Node) -> tuple[str, ...]:
    return tuple(_read_address(element) for element in node.read_elements())


OAUTH_KEYS: Mapping[str, Callable[[Node], Any]] = {
    "grantType": build_choice_reader({grant: grant for grant in OAuthGrant}),
    "clientId": Node.read_string,
    "clientSecret": Node.read_string,
    "privateKey": Node.read_string,
    "signingAlgorithm": Node.read_string,
    "clientMetadataUrl": _read_document_url,
    "callbackPort": _read_port,
    "scopes": _read_scopes,
    "issuer": _read_address,
    "trustedOrigins": _read_addresses,
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
