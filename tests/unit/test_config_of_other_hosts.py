"""Configurations written for other hosts work unchanged, or the error says what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inner import load_config, parse
from tests.support.config_files import (
    CLAUDE_CODE,
    CLAUDE_DESKTOP,
    CLINE,
    CURSOR,
    GEMINI,
    RUN,
    VS_CODE,
    error_of,
    server,
)


def test_keys_of_other_hosts_and_comments_are_ignored_without_a_warning() -> None:
    entry = RUN | {"description": "d", "icon": "i", "oauth": {}, "version": "1", "_x": 1, "//": "c", "$schema": "s"}
    assert server(entry).warnings == ()


def test_a_value_with_a_different_meaning_in_other_hosts_gets_a_warning() -> None:
    (timeout,) = server(RUN | {"timeout": 60}).warnings
    assert timeout == "time.timeout: less than a second (timeout is in milliseconds, toolTimeout in seconds)"
    (variable,) = server(RUN | {"env": {"TOKEN": "$MY_TOKEN"}}).warnings
    problem = "this is not a variable, and is used literally"
    assert variable == f"time.env.TOKEN: {problem} (a variable is written ${{NAME}})"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CLAUDE_DESKTOP, {"filesystem": "stdio", "git": "stdio"}),
        (CLAUDE_CODE, {"api": "http", "local": "stdio", "old": "sse"}),
        (VS_CODE, {"github": "http", "playwright": "stdio"}),
        (CURSOR, {"linear": "sse", "mine": "stdio"}),
        (CLINE, {"weather": "stdio", "remote": "http"}),
        (GEMINI, {"py": "stdio", "http": "http", "sse": "sse"}),
    ],
    ids=["claude-desktop", "claude-code", "vs-code", "cursor", "cline", "gemini-cli"],
)
def test_configurations_of_other_hosts_work_unchanged(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    (tmp_path / ".env").write_text("FROM_FILE=1\n")
    path = tmp_path / "mcp.json"
    path.write_text(text)
    read = load_config(path, {"API_KEY": "k", "DB_URL": "db", "HOME": "/home/me", "USERPROFILE": "/home/me"})
    assert {name: entry.transport.value for name, entry in read.servers.items()} == expected
    assert [warning.partition("mcpServers.")[2].partition(":")[0] for warning in read.warnings] == (
        ["weather.timeout"] if text is CLINE else []
    )


def test_variables_timeouts_and_tool_lists_of_other_hosts_are_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FROM_FILE=1\nDEBUG=1\n")
    environ = {"API_KEY": "k", "DB_URL": "db", "HOME": "/home/me", "USERPROFILE": "/home/me"}
    playwright = parse(VS_CODE, folder=tmp_path, environ=environ).servers["playwright"]
    assert playwright.env == {"FROM_FILE": "1", "PORT": "8931", "KEY": "k"}
    assert playwright.args[-1] == f"--root={tmp_path}"
    api = parse(CLAUDE_CODE, environ=environ).servers["api"]
    assert (api.url, api.headers) == ("https://api.example.test/mcp", {"Authorization": "Bearer k"})
    py = parse(GEMINI, folder=tmp_path, environ=environ).servers["py"]
    assert (py.cwd, py.tool_timeout) == (str(tmp_path / "server"), 600.0)
    assert (py.enabled_tools, py.disabled_tools, py.auto_approve, py.trusted) == (("safe",), ("unsafe",), (), False)
    assert parse(CLINE, environ=environ).servers["weather"].auto_approve == ("get_forecast",)
    assert parse(CLAUDE_DESKTOP, environ={}).servers["filesystem"].args[2] == r"C:\Users\me\Desktop"


def test_an_input_of_vs_code_is_refused_with_a_hint() -> None:
    text = """{"inputs": [{"type": "promptString", "id": "key", "password": true}],
    "servers": {"a": {"command": "x", "env": {"KEY": ⟦"${input:key}"}}}}"""
    error = error_of(text)
    assert error.problem == "servers.a.env.KEY: ${input:…} is not supported"
    assert error.hint == "set an environment variable and write ${NAME}"
