"""An option of a command does what its help says, or the command refuses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program import dial_chat, entry, write_config


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["audit", "show", "--follow"], "--follow"),
        (["audit", "verify", "-n", "3"], "--lines"),
        (["audit", "verify", "--server", "x"], "--server"),
        (["audit", "verify", "--tool", "x"], "--tool"),
        (["audit", "verify", "--since", "2d"], "--since"),
        (["audit", "verify", "--conversation", "x"], "--conversation"),
        (["audit", "--head", "0" * 64], "--head"),
        (["conversations", "show", "x", "--search", "word"], "--search"),
        (["conversations", "delete", "x", "--limit", "3"], "--limit"),
        (["conversations", "export", "x", "--cursor", "c"], "--cursor"),
        (["conversations", "list", "--format", "json"], "--format"),
        (["policy", "--tainted"], "--tainted"),
        (["models", "test", "local", "--refresh"], "--refresh"),
        (["config", "get", "defaultModel", "--origin"], "--origin"),
        (["config", "show", "--user"], "--user"),
        (["config", "set", "defaultModel", "x", "--json"], "--json"),
        (["config", "unset", "defaultModel", "--profile", "x"], "--profile"),
        (["config", "set", "defaultModel", "x", "--model", "y"], "--model"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_an_option_without_effect_is_refused(tmp_path: Path, words: list[str], option: str) -> None:
    done = dial_chat(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option} has no effect with {words[0]} " in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["trust", "--revoke", "--json"],
        ["trust", "--json"],
        ["servers", "add", "x", "--folder", "--yes", "--", "program"],
        ["servers", "add", "x", "https://x.example/mcp", "--folder", "--set", "A=1"],
    ],
    ids=" ".join,
)
def test_an_option_of_another_form_of_the_command_is_refused(tmp_path: Path, words: list[str]) -> None:
    done = dial_chat(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "belongs to" in done.stderr
    assert not (tmp_path / "servers.json").exists()


def test_the_number_of_entries_holds_for_show_too(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server")})
    for _ in range(2):
        assert dial_chat(tmp_path, "call", "raw/echo").returncode == 0
    everything = dial_chat(tmp_path, "audit", "--json").stdout.splitlines()
    assert len(everything) == 4
    assert dial_chat(tmp_path, "audit", "-n", "3", "--json").stdout.splitlines() == everything[-3:]
    assert dial_chat(tmp_path, "audit", "tail", "-n", "1", "--json").stdout.splitlines() == everything[-1:]


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("maxDepth", "50", 'did you mean "limits.maxDepth"?'),
        ("defaultModle", "local", 'did you mean "defaultModel"?'),
        ("colour", "red", "`dial-chat config schema` lists the keys"),
        ("mcpServers.raw.allowTools", '["a"]', "`dial-chat config schema` lists the keys"),
        ("mcpServers.raw.disabledTool", '["a"]', 'did you mean "mcpServers.raw.disabledTools"?'),
        ("limits.maxDeth", "5", 'did you mean "maxDepth"?'),
    ],
)
def test_a_key_without_effect_is_not_set(tmp_path: Path, key: str, value: str, hint: str) -> None:
    write_config(tmp_path, {"raw": {"command": "x"}})
    before = (tmp_path / "servers.json").read_text()
    done = dial_chat(tmp_path, "config", "set", key, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr
    assert (tmp_path / "servers.json").read_text() == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("limits.maxDepth", "50"),
        ("mcpServers.raw.auto_approve", '["a"]'),
        ("mcpServers.raw.description", "text"),
        ("mcpServers.raw._why", "text"),
        ("mcpServers.raw.env.ANY_NAME", "text"),
        ("mcpServers.new.command", "x"),
        ("$schema", "https://example.com/schema.json"),
    ],
)
def test_known_keys_comments_and_names_can_be_set(tmp_path: Path, key: str, value: str) -> None:
    write_config(tmp_path, {"raw": {"command": "x"}})
    done = dial_chat(tmp_path, "config", "set", key, value)
    assert (done.returncode, done.stdout.startswith(f"set {key} in ")) == (0, True), done.stderr
    assert value.strip('[]"') in json.dumps(json.loads((tmp_path / "servers.json").read_text()))
