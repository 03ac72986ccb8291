"""``dial-chat config set`` and ``unset`` on a file: the place of the servers, and values that are not JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.inner import ConfigError, Options, build_user_config_path, configuration_edits, outline

TIME = {"command": "mcp-server-time"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "servers.json"


def change(path: Path, key: str, value: str | None) -> None:
    if value is None:
        configuration_edits.unset_key(Options(config=path), key, in_user_file=False)
    else:
        configuration_edits.set_key(Options(config=path), key, value, in_user_file=False)


@pytest.mark.parametrize("place", ["mcpServers", "servers", ""])
@pytest.mark.parametrize("word", ["mcpServers", "servers"])
def test_a_server_is_set_where_the_file_has_its_servers(path: Path, place: str, word: str) -> None:
    servers = {"time": TIME, "my.git": {"command": "mcp-server-git"}}
    path.write_text(json.dumps({place: servers} if place else servers))
    change(path, f"{word}.time.disabled", "true")
    change(path, f"{word}.my.git.args", '["-v"]')
    change(path, f"{word}.new", '{"command": "x"}')
    changed = {"time": {**TIME, "disabled": True}, "my.git": {"command": "mcp-server-git", "args": ["-v"]}}
    changed["new"] = {"command": "x"}
    assert json.loads(path.read_text()) == ({place: changed} if place else changed)
    change(path, f"{word}.time", None)
    assert list(outline(path.read_text()).servers) == ["my.git", "new"]


def test_all_servers_cannot_be_replaced_at_once_if_they_are_at_the_top_of_the_file(path: Path) -> None:
    path.write_text(json.dumps({"time": TIME}))
    with pytest.raises(ConfigError, match="are top-level keys of this file"):
        change(path, "mcpServers", "{}")
    assert json.loads(path.read_text()) == {"time": TIME}


def test_the_first_server_of_a_file_is_added_under_mcpservers(path: Path) -> None:
    path.write_text('{"defaultModel": "local"}')
    change(path, "servers.time", json.dumps(TIME))
    assert json.loads(path.read_text()) == {"defaultModel": "local", "mcpServers": {"time": TIME}}


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", "[1e999]", '"\\ud800"', "9" * 5000, "[" * 100_000])
def test_a_value_that_is_not_valid_json_is_stored_as_text(path: Path, value: str) -> None:
    path.write_text("{}")
    change(path, "defaultModel", value)
    assert json.loads(path.read_text()) == {"defaultModel": value}


QWEN = {"api": "chat", "base_url": "http://127.0.0.1/v1", "model": "qwen3.5"}


@pytest.mark.parametrize(
    ("key", "value", "warning"),
    [
        ("defaultModel", "qwne", "there is no model 'qwne' (did you mean qwen?)"),
        ("defaultModel", "claude-opus-5", "there is no model 'claude-opus-5' (did you mean anthropic:claude-opus-5?)"),
        ("defaultModel", "openai:", "'openai:' has no model ID (expected openai:ID)"),
        ("fallbackModels", '["qwen", "lokal"]', "there is no model 'lokal' (did you mean local?)"),
        ("models.qwen.fallback_models", '["locl"]', "there is no model 'locl' (did you mean local?)"),
        ("profiles.fast", '{"model": "locall"}', "there is no model 'locall' (did you mean local?)"),
        ("models.qwen", None, "there is no model 'qwen'"),
        ("defaultModel", "mine", ""),
        ("defaultModel", "${MODEL:-nobody}", ""),
        ("defaultModel", "local:small", ""),
        ("policy", "[]", ""),
    ],
)
def test_a_change_that_names_no_model_says_so_at_once(
    path: Path,
    key: str,
    value: str | None,
    warning: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(path.parent / "own"))
    monkeypatch.setenv("APPDATA", str(path.parent / "own"))
    own = build_user_config_path()
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"models": {"mine": QWEN}}))
    path.write_text(json.dumps({"models": {"qwen": QWEN, "old": QWEN | {"fallback_models": ["was-wrong-before"]}}}))
    change(path, "defaultModel", "qwen")
    assert capsys.readouterr().err == ""
    change(path, key, value)
    assert capsys.readouterr().err.startswith(f"dial-chat: {warning}" if warning else "")
    assert capsys.readouterr().err == ""
