"""What persons fill in for ``${user.NAME}``: where it may be, and that nobody decides more than a value."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client import ConfigError
from tests.inner import (
    ServerSettings,
    Transport,
    configuration,
    fill_in,
    find_secrets,
    find_user_variables,
    serves_persons,
)


def read(entry: dict[str, Any]) -> ServerSettings:
    return configuration.read_server_mapping("it", entry)


def web(url: str, **more: Any) -> ServerSettings:
    return read({"url": url, **more})


def test_an_entry_names_what_each_person_fills_in() -> None:
    entry = read({"command": "x", "args": ["-k", "${user.KEY}"], "env": {"A": "${user.B}-${user.KEY}"}})
    filled = fill_in(entry, {"KEY": "k1", "B": "b1"})
    assert find_user_variables(entry) == ("B", "KEY")
    assert (filled.args, filled.env) == (("-k", "k1"), {"A": "b1-k1"})
    assert not find_user_variables(filled)
    assert serves_persons(entry)
    assert serves_persons(read({"command": "x", "perUser": True}))
    assert not serves_persons(read({"command": "x"}))


def test_a_reference_inside_a_value_is_not_replaced() -> None:
    filled = fill_in(read({"command": "x", "env": {"A": "${user.A}"}}), {"A": "${user.B} ${HOME}"})
    assert filled.env == {"A": "${user.B} ${HOME}"}


def test_every_value_is_known_as_a_secret_whatever_it_looks_like() -> None:
    entry = web("https://crm.test/${user.PLACE}", headers={"X-Who": "${user.WHO}"})
    assert {"berlin", "an ordinary name"} <= find_secrets(
        fill_in(entry, {"PLACE": "berlin", "WHO": "an ordinary name"})
    )


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "https://${user.HOST}/mcp"},
        {"url": "https://crm.test${user.HOST}/mcp"},
        {"url": "https://${user.NAME}@crm.test/mcp"},
        {"command": "${user.PROGRAM}"},
        {"command": "x", "cwd": "${user.FOLDER}"},
        {"command": "x", "envFile": "${user.FILE}"},
        {"url": "https://crm.test/mcp", "oauth": {"clientId": "${user.ID}"}},
        {"command": "x", "env": {"A": "${user.not a name}"}},
    ],
)
def test_a_person_chooses_neither_the_host_nor_the_program(entry: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"user\."):
        read(entry)


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ({"url": "https://crm.test", "headers": {"A": "Bearer ${user.X}"}}, "one\r\nX-Admin: 1"),
        ({"url": "https://crm.test", "headers": {"A": "${user.X}"}}, "größe"),
        ({"url": "https://crm.test/${user.X}/mcp"}, ".."),
        ({"command": "x", "args": ["${user.X}"]}, "--config=/etc/passwd"),
    ],
)
def test_a_value_that_would_decide_more_is_refused_without_being_named(entry: dict[str, Any], value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        fill_in(read(entry), {"X": value})
    assert value not in str(refused.value)


def test_a_value_in_a_url_stays_one_part_of_it() -> None:
    filled = fill_in(web("https://crm.test/${user.X}/mcp?key=${user.X}"), {"X": "a/../b?c=d&e#f"})
    assert filled.url == "https://crm.test/a%2F..%2Fb%3Fc%3Dd%26e%23f/mcp?key=a%2F..%2Fb%3Fc%3Dd%26e%23f"
    assert filled.transport is Transport.HTTP
