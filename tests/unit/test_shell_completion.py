"""Shell completion: the proposed values, and the installed script."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.inner import (
    SCRIPTS,
    ConfigError,
    JsonCache,
    ServerSettings,
    choose_shell,
    find_candidates,
    install,
    load_config,
    print_candidates,
)
from tests.inner import program_commands as registered  # noqa: F401 - the import registers the commands

CONFIG = {
    "mcpServers": {
        "time": {"command": "clock", "args": ["--key", "secret"]},
        "old": {"command": "x", "disabled": True},
    },
    "models": {"qwen": {"api": "chat", "base_url": "http://127.0.0.1:1/v1", "model": "q", "api_key": "secret"}},
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of a user, with a configuration, a cache of tools and a conversation."""
    if sys.platform == "win32":
        pytest.skip("on Windows, variables do not move the folders of the user")
    for name in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    (tmp_path / "CONFIG" / "dial-client").mkdir(parents=True)
    config = tmp_path / "CONFIG" / "dial-client" / "servers.json"
    config.write_text(json.dumps(CONFIG))
    server: ServerSettings = load_config(config).servers["time"]
    tools = [{"name": "get_time", "description": "Tell the time.\nIn any zone."}, {"odd": 1}, 7, {"name": "now"}]
    JsonCache(tmp_path / "CACHE" / "dial-client" / "servers").write(server, {"tools": tools})
    (tmp_path / "DATA" / "dial-client").mkdir(parents=True)
    with closing(sqlite3.connect(tmp_path / "DATA" / "dial-client" / "conversations.db")) as database:
        database.execute("CREATE TABLE conversations (id TEXT, title TEXT, updated_at TEXT)")
        database.execute("INSERT INTO conversations VALUES ('abc', 'Hi \x1b[2J', '2026'), ('abd', 'Old', '2025')")
        database.commit()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def test_values_come_from_the_configuration_the_cache_and_the_store(home: Path) -> None:
    cases = {
        ("serv",): ["serve", "servers"],
        ("-m", "q"): ["qwen"],
        ("-m", "an"): ["anthropic:"],
        ("--model=qw",): ["--model=qwen"],
        ("--allow", "time"): ["time/*", "time/get_time", "time/now"],
        ("--output", "json"): ["json", "jsonl"],
        ("--resume", "ab"): ["abc", "abd"],
        ("call", ""): ["get_time", "now"],
        ("call", "now", ""): [],
        ("servers", "log"): ["login", "logout"],
        ("servers", "login", ""): ["time", "old"],
        ("servers", "disable", "ti"): ["time"],
        ("servers", "add", "--he"): ["--header"],
        ("conversations", "show", "abd"): ["abd"],
        ("--conf",): ["--config"],
        ("--config", ""): [],
        ("--install-completion", "z"): ["zsh"],
        ("tools", "--js"): ["--json"],
        ("a question", ""): [],
        ("--config", "/nowhere", "servers", "login", ""): [],
    }
    assert {words: list(find_candidates(words)) for words in cases} == cases


def test_no_value_of_the_configuration_is_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([""], ["-"], ["-m", ""], ["--allow", ""], ["call", ""], ["servers", "login", ""], ["--resume", ""]):
        for shell in ("zsh", "fish"):
            assert print_candidates(shell, words) == 0
    printed = capsys.readouterr().out
    assert "secret" not in printed
    assert not set(printed) & set(map(chr, range(32))) - {"\t", "\n"}
    assert "get_time\tTell the time. In any zone." in printed
    assert "openai\\::OpenAI's Responses API" in printed


def test_an_untrusted_folder_contributes_no_values(home: Path) -> None:
    Path("servers.json").write_text(json.dumps({"mcpServers": {"evil": {"command": "evil"}}}))
    assert list(find_candidates(["servers", "login", ""])) == ["time", "old"]
    Path("servers.json").write_text("{")
    assert list(find_candidates(["-m", "q"])) == ["qwen"]
    assert list(find_candidates(["-c", "servers.json", "servers", "login", ""])) == []


def test_completions_for_bash_start_after_its_word_breaks(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        "dial-chat -m q": "qwen\n",
        "dial-chat -m openai": "openai:\n",
        "dial-chat --model=q": "qwen\n",
        "dial-chat --allow time/g": "time/get_time\n",
        "dial-chat --allow 'time/*": "time/*\n",
        "dial-chat --allow time/\\*": "'time/*'\n",
        "dial-chat --output ": "text\njson\njsonl\nsse\nai-sdk\nag-ui\n",
        "dial-chat 'au": "audit\n",
    }
    for line, expected in cases.items():
        assert print_candidates("bash", [], {"_DIAL_CHAT_LINE": line, "_DIAL_CHAT_BREAKS": " '\"=:"}) == 0
        assert capsys.readouterr().out == expected, line


def test_bash_gets_no_value_that_would_end_a_quote_or_run_a_command(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = load_config(home / "CONFIG" / "dial-client" / "servers.json").servers["time"]
    names = ["xplain", "x'; touch y #", 'x"; touch y #', "x$(touch y)", "x`touch y`", "x!1", "x\\"]
    JsonCache(home / "CACHE" / "dial-client" / "servers").write(server, {"tools": [{"name": name} for name in names]})
    for line, expected in {"'time/x": "time/xplain", '"time/x': "time/xplain", "time/xp": "time/xplain"}.items():
        assert print_candidates("bash", [], {"_DIAL_CHAT_LINE": f"dial-chat --allow {line}"}) == 0
        assert capsys.readouterr().out == f"{expected}\n", line


def test_installing_writes_a_script_and_a_line_once(tmp_path: Path) -> None:
    (tmp_path / ".zshrc").write_text("alias x=y")
    for _ in range(2):
        lines = install("zsh", tmp_path, {})
    assert (tmp_path / ".local/share/dial-client/completion.zsh").read_text() == SCRIPTS["zsh"]
    assert (tmp_path / ".zshrc").read_text().count("completion.zsh") == 1
    assert (tmp_path / ".zshrc").read_text().startswith("alias x=y\nsource ")
    assert lines[-1] == "Completion for zsh works in the next shell that you open."
    install("fish", tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "c")})
    assert (tmp_path / "c/fish/completions/dial-chat.fish").read_text() == SCRIPTS["fish"]


def test_the_default_shell_is_that_of_the_user() -> None:
    assert choose_shell(None, {"SHELL": "/usr/bin/fish"}) == "fish"
    assert choose_shell("pwsh", {}) == "powershell"
    with pytest.raises(ConfigError, match="no completion for 'tcsh'"):
        choose_shell(None, {"SHELL": "/bin/tcsh"})
    with pytest.raises(ConfigError, match="cannot be written"):
        install("fish", Path(__file__), {})
