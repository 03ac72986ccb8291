"""The key `oauth` of a server entry: the forms of other hosts, and invalid settings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inner import ConfigError, OAuthGrant, OAuthSettings, read_server_mapping

CREDENTIALS = {"grantType": "client_credentials", "clientId": "me"}


def read(oauth: Any, key: str = "oauth") -> OAuthSettings:
    settings = read_server_mapping("docs", {"url": "https://a.example/mcp", key: oauth}, environ={"ME": "abc"})
    assert settings.oauth is not None
    assert settings.warnings == ()
    return settings.oauth


@pytest.mark.parametrize(
    ("key", "oauth", "settings"),
    [
        ("oauth", {}, OAuthSettings()),
        ("auth", "oauth", OAuthSettings()),
        ("oauth", {"clientId": "${ME}", "callbackPort": 3118}, OAuthSettings(client_id="abc", callback_port=3118)),
        ("oauth", {"clientId": "a", "authServerMetadataUrl": "https://b.example"}, OAuthSettings(client_id="a")),
        ("oauth", {"scopes": "read write"}, OAuthSettings(scopes=("read", "write"))),
        (
            "auth",
            {"CLIENT_ID": "a", "CLIENT_SECRET": "b", "scopes": ["read"]},
            OAuthSettings(client_id="a", client_secret="b", scopes=("read",)),
        ),
        (
            "oauth",
            {**CREDENTIALS, "privateKey": "PEM", "signingAlgorithm": "ES256"},
            OAuthSettings(OAuthGrant.CLIENT_CREDENTIALS, "me", private_key="PEM", signing_algorithm="ES256"),
        ),
    ],
)
def test_the_oauth_settings_of_other_hosts_are_read(key: str, oauth: Any, settings: OAuthSettings) -> None:
    assert read(oauth, key) == settings


@pytest.mark.parametrize(
    ("oauth", "words"),
    [
        ({"clientID2": "a"}, 'did you mean "clientId"?'),
        ({"clientSecret": "b"}, "clientId is not given"),
        (CREDENTIALS, "neither clientSecret nor privateKey is given"),
        ({"clientId": "a", "privateKey": "PEM"}, 'needs "grantType": "client_credentials"'),
        ({"callbackPort": 70_000}, "expected a port between 1 and 65535"),
        ({"callbackHost": "app.example"}, "127.0.0.1"),
        ({"redirectUri": "http://localhost:1/x", "callbackPort": 1}, "must not be combined with callbackPort"),
        (
            {"redirectUri": "http://localhost:1/x", "callbackHost": "localhost"},
            "must not be combined with callbackHost",
        ),
        ({"redirectUri": "localhost:1"}, "http"),
        ({"grantType": "jwt-bearer", "clientId": "me", "clientSecret": "x"}, "issuer is not given"),
        ({"clientId": "me", "identityFile": "x"}, 'needs "grantType": "jwt-bearer"'),
        ({"clientMetadataUrl": "http://a.example/x"}, "expected an https:// address with a path"),
        ({"clientMetadataUrl": "https://a.example"}, "expected an https:// address with a path"),
        ({"issuer": "a.example"}, "expected an http:// or https:// address"),
        ({"trustedOrigins": "https://a.example"}, "expected a list"),
        ("a-token", "expected an object"),
    ],
)
def test_an_invalid_oauth_setting_is_an_error_that_names_the_problem(oauth: Any, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(oauth)
    assert words in str(error.value)


def test_no_repr_shows_a_secret() -> None:
    shown = repr(read({"clientId": "a", "clientSecret": "hidden-1"}))
    assert "hidden" not in shown + repr(read({**CREDENTIALS, "privateKey": "hidden-2"}))
