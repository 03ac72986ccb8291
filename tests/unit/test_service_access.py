"""Which options of ``dial-chat serve`` say who may use it, and which contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    ConfigError,
    MemoryStore,
    OidcLogin,
    Person,
    Refusal,
    ServeOptions,
    SQLStore,
    choose_access,
    list_host_names,
)

ISSUER = "https://login.example.com/realm"
TOKEN = "0123456789abcdef0123456789abcdef"
PROXY: dict[str, Any] = {"auth": "proxy", "proxy": ("10.0.0.2",)}

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIAL_SERVE_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"auth": "ldap"}, "there is no choice 'ldap'"),
        ({"auth": "tokens"}, "cannot be combined with --no-save"),
        ({"auth": "oidc"}, "needs the OpenID provider"),
        ({"auth": "oidc", "oidc_issuer": ISSUER}, "tokens of any audience"),
        ({"auth": "oidc", "oidc_issuer": ISSUER, "oidc_client_id": "dial"}, "needs the URL of this service"),
        ({"auth": "oidc", "oidc_issuer": "http://login.example.com", "oidc_audience": ("dial",)}, "not the URL"),
        ({"auth": "oidc", "oidc_issuer": ISSUER, "no_token": True}, "--no-token cannot be combined"),
        ({"auth": "proxy"}, "needs the address of the proxy"),
        ({**PROXY, "group_scopes": ("staff",)}, "has not the form GROUP=SCOPE"),
        ({**PROXY, "group_scopes": ("staff=chat,write",)}, "there is no scope 'write'"),
        ({**PROXY, "oidc_issuer": ISSUER}, "are for --auth oidc"),
        ({"oidc_client_id": "dial"}, "are for --auth oidc"),
        ({"oidc_audience": ("dial",)}, "are for --auth oidc"),
        ({"group_scopes": ("staff=chat",)}, "is for --auth oidc and --auth proxy"),
    ],
)
def test_options_that_would_let_in_nobody_or_others_than_they_say_are_refused(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        choose_access(ServeOptions(**options), MemoryStore())


async def test_a_proxy_names_persons_and_the_operator_has_a_token() -> None:
    groups = ("*=chat", "the staff=read,approve")
    access = choose_access(ServeOptions(**PROXY, token=TOKEN, group_scopes=groups), MemoryStore())
    assert access.authenticator is not None
    named = {"x-forwarded-user": "anna", "x-forwarded-groups": "the staff, others"}
    person = await access.authenticator.authenticate(named | {"authorization": f"Bearer {TOKEN}"})
    operator = await access.authenticator.authenticate({"authorization": f"Bearer {TOKEN}"})
    groups_of_anna = frozenset({"the staff", "others"})
    assert person == Person("anna", frozenset({"chat", "read", "approve"}), groups=groups_of_anna)
    assert operator == Person()
    assert access.proxy_headers == {"x-forwarded-user", "x-forwarded-groups"}


async def test_who_comes_without_the_proxy_is_told_of_the_proxy_and_whose_token_is_wrong_of_the_token() -> None:
    access = choose_access(ServeOptions(**PROXY, token=TOKEN), MemoryStore())
    assert access.authenticator is not None
    unnamed = await access.authenticator.authenticate({})
    wrong = await access.authenticator.authenticate({"authorization": "Bearer wrong"})
    assert isinstance(unnamed, Refusal) and isinstance(wrong, Refusal)
    assert unnamed.message == "this service is used through its proxy, which logs persons in"
    assert wrong.has_token


async def test_without_groups_persons_may_do_all_but_change_the_service() -> None:
    access = choose_access(ServeOptions(**PROXY), MemoryStore())
    assert access.authenticator is not None
    person = await access.authenticator.authenticate({"x-forwarded-user": "anna"})
    assert isinstance(person, Person)
    assert person.scopes == {"chat", "read", "approve", "gateway"}


def test_with_a_client_id_the_page_logs_persons_in_and_clients_of_mcp_find_the_provider(tmp_path: Path) -> None:
    options = ServeOptions(
        auth="oidc", oidc_issuer=ISSUER, oidc_client_id="dial", public_url="https://chat.example.com/"
    )
    access = choose_access(options, SQLStore(tmp_path / "kept.db"))
    assert isinstance(access.login, OidcLogin)
    assert access.token is None
    assert access.authenticator is not None
    metadata = access.authenticator.metadata
    assert metadata is not None
    assert (metadata.resource, metadata.authorization_servers) == ("https://chat.example.com/mcp", (ISSUER,))


def test_the_host_of_the_public_url_is_a_name_of_the_service() -> None:
    options = ServeOptions(allow_host=("chat",), public_url="https://Chat.Example.com:8443/below")
    assert list_host_names(options) == ("chat", "chat.example.com")
    assert list_host_names(ServeOptions()) == ()
    for url in ("chat.example.com", "https://[::1"):
        with pytest.raises(ConfigError, match="has no host"):
            list_host_names(ServeOptions(public_url=url))
