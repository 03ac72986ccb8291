"""Which changes of a trusted configuration need no question, and what of a changed one is used without an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.inner import compare_configs, configuration, keep_trusted_parts

SERVER: dict[str, Any] = {
    "command": "serve",
    "args": ["--port", "1"],
    "env": {"A": "1"},
    "autoApprove": ["read_*", "list"],
    "enabledTools": ["read_file", "list", "write"],
    "disabledTools": ["erase"],
    "untrusted": ["fetch"],
    "trusted": True,
    "instructions": True,
    "resources": "tools",
    "startupTimeout": 5,
}
TRUSTED: dict[str, Any] = {
    "mcpServers": {"s": SERVER, "off": {"command": "other", "disabled": True}},
    "models": {"m": {"base_url": "https://own.example/v1", "api_key": "${KEY}"}},
    "defaultModel": "m",
    "policy": [{"allow": "s/read_*"}, {"deny": "*/erase"}, {"allow": "s/*", "tainted": True}],
    "limits": {"timeout": 60, "maxDepth": 5},
    "profiles": {"work": {"system": "Be brief."}},
}


def outline(settings: dict[str, Any]) -> Any:
    return configuration.outline(json.dumps(settings))


def with_server(**changes: Any) -> dict[str, Any]:
    return {**TRUSTED, "mcpServers": {**TRUSTED["mcpServers"], "s": {**SERVER, **changes}}}


def changes_to(settings: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the places of all changes, and whether each is harmless."""
    return [(change.place, change.is_harmless) for change in compare_configs(outline(TRUSTED), outline(settings))]


def kept(settings: dict[str, Any]) -> Any:
    """Return the configuration that is used without an answer."""
    changes = compare_configs(outline(TRUSTED), outline(settings))
    return configuration.parse(
        keep_trusted_parts(json.dumps(TRUSTED), json.dumps(settings), changes), environ={"KEY": "secret"}
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("startupTimeout", 50),
        ("toolTimeout", 600),
        ("backgroundAfter", {"print_*": 0}),
        ("timeout", 60_000),
        ("required", True),
        ("lazy", True),
        ("pinned", True),
        ("description", "another"),
        ("_comment", "text"),
        ("disabled", True),
        ("enabled", False),
        ("autoApprove", ["list"]),
        ("autoApprove", None),
        ("enabledTools", ["list"]),
        ("enabledTools", []),
        ("disabledTools", ["erase", "write"]),
        ("untrusted", ["fetch", "search"]),
        ("untrusted", True),
        ("trusted", False),
        ("trusted", None),
        ("instructions", False),
        ("resources", "user"),
    ],
)
def test_what_waits_describes_or_takes_away_is_harmless(key: str, value: Any) -> None:
    assert [is_harmless for _, is_harmless in changes_to(with_server(**{key: value}))] == [True]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("command", "sh"),
        ("args", ["--port", "2"]),
        ("env", {"A": "2"}),
        ("env", None),
        ("envFile", ".env"),
        ("cwd", "/"),
        ("headers", {"X": "1"}),
        ("oauth", {"clientId": "x"}),
        ("roots", ["/"]),
        ("protocol", "legacy"),
        ("autoApprove", ["read_*", "list", "write"]),
        ("autoApprove", ["*"]),
        ("alwaysAllow", ["*"]),
        ("enabledTools", ["read_file", "list", "write", "shell"]),
        ("enabledTools", None),
        ("disabledTools", []),
        ("disabledTools", None),
        ("untrusted", None),
        ("untrusted", False),
        ("untrusted", []),
        ("trust", True),
        ("keyOfALaterVersion", 1),
        ("startupTimeoutX", 1),
    ],
)
def test_what_runs_sends_or_allows_more_needs_a_question(key: str, value: Any) -> None:
    entry = {**SERVER, key: value}
    if key == "alwaysAllow":
        entry.pop("autoApprove")
    settings = {**TRUSTED, "mcpServers": {**TRUSTED["mcpServers"], "s": entry}}
    assert [is_harmless for _, is_harmless in changes_to(settings)] == [False]
    assert not kept(settings).servers["s"].enabled


def test_the_stricter_value_is_harmless_in_one_direction_only() -> None:
    strict = with_server(trusted=False, instructions=False, resources="user")
    back = compare_configs(outline(strict), outline(TRUSTED))
    assert {change.key for change in back if not change.is_harmless} == {"trusted", "instructions", "resources"}


def test_a_server_that_was_disabled_does_not_start_without_a_question() -> None:
    enabled = {**TRUSTED, "mcpServers": {**TRUSTED["mcpServers"], "off": {"command": "other"}}}
    assert changes_to(enabled) == [("server off: disabled", False)]
    assert not kept(enabled).servers["off"].enabled
    # A new command is a question also while the server is disabled: a later `servers enable` would trust it.
    changed = {**TRUSTED, "mcpServers": {**TRUSTED["mcpServers"], "off": {"command": "sh", "disabled": True}}}
    assert changes_to(changed) == [("server off: command", False)]


def test_an_added_server_is_a_question_and_trusted_servers_run() -> None:
    settings = {**TRUSTED, "mcpServers": {**TRUSTED["mcpServers"], "evil": {"command": "sh"}}}
    assert changes_to(settings) == [("server evil is new", False)]
    used = kept(settings)
    assert [name for name, server in used.servers.items() if server.enabled] == ["s"]


def test_rules_for_a_server_that_is_gone_do_not_fall_to_a_server_of_another_file() -> None:
    settings = {**TRUSTED, "mcpServers": {"off": TRUSTED["mcpServers"]["off"]}}
    assert changes_to(settings) == [("server s is gone", False)]
    own = configuration.ConfigFile('{"mcpServers": {"s": {"command": "own"}}}')
    changes = compare_configs(outline(TRUSTED), outline(settings))
    text = keep_trusted_parts(json.dumps(TRUSTED), json.dumps(settings), changes)
    used = configuration.combine((own, configuration.ConfigFile(text, environ={"KEY": "x"})))
    assert not used.servers["s"].enabled
    without_rules = {key: value for key, value in TRUSTED.items() if key not in ("policy", "profiles")}
    gone = {**without_rules, "mcpServers": {}}
    assert all(change.is_harmless for change in compare_configs(outline(without_rules), outline(gone)))


@pytest.mark.parametrize(
    ("rules", "is_harmless"),
    [
        ([{"deny": "mail/*"}, *TRUSTED["policy"]], True),
        ([*TRUSTED["policy"], {"ask": "s/write"}], True),
        ([{"allow": "*"}, *TRUSTED["policy"]], False),
        ([{"Allow": "*"}, *TRUSTED["policy"]], False),
        (TRUSTED["policy"][1:], False),  # the rule for tainted conversations would take the place of the first
        (TRUSTED["policy"][:1], False),
        ([*TRUSTED["policy"][::-1]], False),
        ([{"allow": "s/*"}, *TRUSTED["policy"][1:]], False),
        (None, False),
        ("*", False),
    ],
)
def test_rules_that_ask_or_deny_may_be_added(rules: Any, is_harmless: bool) -> None:
    assert changes_to({**TRUSTED, "policy": rules}) == [("policy is gone" if rules is None else "policy", is_harmless)]


def test_without_an_answer_the_trusted_rules_hold_after_the_new_restrictions() -> None:
    used = kept({**TRUSTED, "policy": [{"allow": "*"}, {"deny": "s/write"}, {"ask": "s/list"}]})
    effects = [(rule.effect.value, rule.tools) for rule in used.policy]
    assert effects == [
        ("deny", ("s/write",)),
        ("ask", ("s/list",)),
        ("allow", ("s/read_*",)),
        ("deny", ("*/erase",)),
        ("allow", ("s/*",)),
    ]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"defaultModel": "openai:gpt-5"}, "defaultModel"),
        ({"models": {"m": {"base_url": "https://stranger.example", "api_key": "${KEY}"}}}, "model m: base_url"),
        ({"models": {}}, "model m is gone"),
        ({"limits": {"timeout": 60, "maxDepth": 500}}, "limits"),
        ({"fallbackModels": ["openai:gpt-5"]}, "fallbackModels is new"),
        ({"profiles": {"work": {"policy": [{"allow": "*"}]}}}, "profiles"),
        ({"inputs": [{"id": "x", "default": "y"}]}, "inputs is new"),
        ({"keyOfALaterVersion": 1}, "keyOfALaterVersion is new"),
    ],
)
def test_without_an_answer_models_and_other_keys_keep_their_trusted_values(changes: dict[str, Any], place: str) -> None:
    settings = {**TRUSTED, **changes}
    assert changes_to(settings) == [(place, False)]
    used, trusted = kept(settings), configuration.parse(json.dumps(TRUSTED), environ={"KEY": "secret"})
    assert (used.models, used.default_model, used.limits, used.fallback_models, used.profiles) == (
        trusted.models,
        trusted.default_model,
        trusted.limits,
        trusted.fallback_models,
        trusted.profiles,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"limits": {"timeout": 600, "maxDepth": 5}},
        {"startupPatience": 30},
        {"notify": "none"},
        {"$schema": "https://example.com/schema.json"},
        {"//": "a comment"},
    ],
    ids=str,
)
def test_times_and_comments_at_the_top_are_harmless(changes: dict[str, Any]) -> None:
    assert [is_harmless for _, is_harmless in changes_to({**TRUSTED, **changes})] == [True]


def test_layout_comments_and_other_spellings_of_a_key_are_no_change() -> None:
    text = '// my servers\n{"mcpServers": {"s": {"command": "x", /* why */ "autoApprove": ["a"],},}}'
    same = '{"servers": {"s": {"auto_approve": ["a"], "command": "x"}}}'
    assert compare_configs(configuration.outline(text), configuration.outline(same)) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"s": {"command": "sh"}}',
        '{"Servers": {"s": {"command": "sh"}}, "Policy": [{"allow": "*"}]}',
        '{"mcpServers": {"s": {"command": "sh", "isActive": true}}, "Default_Model": "evil"}',
        '{"mcpServers": {"s": {"command": "sh"}}, "MODELS": {"m": {"base_url": "https://stranger.example"}}}',
        '{"mcpServers": {"s": {"command": "sh", "disabled": null}}, "policy": null, "models": null}',
        '\ufeff{"mcpServers": {"s": {"command": "sh"}, "t": {"url": "https://stranger.example"}}}\r\n',
    ],
)
def test_no_form_of_a_text_starts_or_sends_more_than_was_trusted(text: str) -> None:
    changes = compare_configs(outline(TRUSTED), configuration.outline(text))
    used = configuration.parse(keep_trusted_parts(json.dumps(TRUSTED), text, changes), environ={"KEY": "secret"})
    assert [name for name, server in used.servers.items() if server.enabled] == []
    assert used.default_model == "m"
    assert used.models["m"].base_url == "https://own.example/v1"
    assert [rule.tools for rule in used.policy] == [("s/read_*",), ("*/erase",), ("s/*",)]
