"""The JSON Schema of servers.json describes the keys that are read, with their defaults."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.inner import (
    ANNOTATIONS,
    CONDITIONS,
    MODEL_ALIASES,
    MODEL_KEYS,
    OAUTH_ALIASES,
    OAUTH_KEYS,
    PROFILE_KEYS,
    SERVER_ALIASES,
    SERVER_KEYS,
    TOP_KEYS,
    Effect,
    ServerSettings,
    Transport,
    parse,
    read,
    read_schema,
)

ROOT = Path(__file__).parents[2]

SCHEMA: dict[str, Any] = json.loads(read_schema())
DEFINITIONS = SCHEMA["$defs"]


def properties(name: str) -> dict[str, Any]:
    found: dict[str, Any] = DEFINITIONS[name]["properties"]
    return found


def test_the_schema_describes_exactly_the_keys_that_are_read() -> None:
    assert {*SCHEMA["properties"]} == {*TOP_KEYS, "$schema"}
    assert {*properties("server")} == {*SERVER_KEYS, *SERVER_ALIASES}
    assert {*properties("model")} == {*MODEL_KEYS, *MODEL_ALIASES}
    assert {*properties("oauth")} == {*OAUTH_KEYS, *OAUTH_ALIASES}
    assert {*properties("profile")} == {*PROFILE_KEYS}
    assert {*properties("rule")} == {*Effect, *CONDITIONS}
    assert {*properties("rule")["annotations"]["properties"]} == {*ANNOTATIONS}


def test_the_description_of_every_key_is_a_sentence() -> None:
    described = {**SCHEMA["properties"], **{k: v for name in DEFINITIONS for k, v in properties(name).items()}}
    assert [key for key, schema in described.items() if not schema["description"].endswith(".")] == []


def test_the_defaults_of_the_schema_are_those_of_the_settings() -> None:
    usual = ServerSettings("x", Transport.STDIO)
    names = {re.sub(r"_(\w)", lambda found: found[1].upper(), field.name): field.name for field in fields(usual)}
    differing = [
        key
        for key, schema in properties("server").items()
        if "default" in schema and key in names and (schema["default"] or None) != (_plain(usual, names[key]) or None)
    ]
    assert differing == []


def _plain(settings: ServerSettings, name: str) -> Any:
    value = getattr(settings, name)
    return list(value) if isinstance(value, tuple) else value


def test_a_configuration_with_every_form_of_value_is_valid_and_is_read() -> None:
    content = {
        "$schema": "./servers.schema.json",
        "mcpServers": {
            "time": {"command": "mcp-server-time", "env": {"TZ": "UTC", "N": 1, "OFF": None}, "untrusted": ["a"]},
            "docs": {"url": "https://example.test/mcp", "oauth": {"clientId": "x", "scopes": ["a"]}, "_note": 1},
        },
        "models": {"m": {"base_url": "http://127.0.0.1:1/v1", "parallel": False, "headers": {"X": "y"}}},
        "fallbackModels": ["m", "local"],
        "policy": [{"deny": ["a/*"], "paths": {"*": "~/.ssh"}}, {"ask": "b/*", "annotations": {"readOnlyHint": True}}],
        "profiles": {"work": {"servers": ["time"], "model": "m", "system": "s", "policy": []}},
    }
    jsonschema_rs.validate(SCHEMA, content)
    assert parse(json.dumps(content), environ={}, profile="work").default_model == "m"


@pytest.mark.parametrize(
    "content",
    [
        {"mcpServers": {"a": {"command": 3}}},
        {"mcpServers": {"a": {"command": "x", "type": "tcp"}}},
        {"models": {"m": {"api": "soap"}}},
        {"defaultModel": "a", "fallbackModels": "b"},
        {"models": {"m": {"modle": "x"}}},
        {"policy": [{"allow": "a/b", "deny": "a/c"}]},
        {"policy": [{"reason": "x"}]},
        {"profiles": {"p": {"servers": "time"}}},
        {"mcpServers": {"a": {"command": "x", "startupTimeout": 0}}},
    ],
)
def test_the_schema_refuses_what_the_program_refuses(content: dict[str, Any]) -> None:
    assert not jsonschema_rs.is_valid(SCHEMA, content)


def test_the_examples_of_the_documents_are_valid() -> None:
    documents = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    blocks = [
        block for path in documents for block in re.findall(r"```jsonc?\n(.*?)```", path.read_text("utf-8"), re.DOTALL)
    ]
    contents = [read(block).value for block in blocks if '"mcpServers"' in block or '"models"' in block]
    contents += [read((ROOT / "servers.json").read_text("utf-8")).value]
    assert len(contents) > 3
    for content in contents:
        jsonschema_rs.validate(SCHEMA, content)
