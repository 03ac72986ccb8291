"""The gateway's entry in the files of other hosts: what is printed for a host is what that host's reader reads."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    ConfigError,
    HostName,
    build_gateway_entry,
    find_host_by_name,
    find_own_program,
    is_gateway,
    is_gateway_of_service,
    read_deep_link,
    read_host_file,
    write_gateway_text,
)

ENVIRON = {"PATH": "/home/me/.nvm/bin:/usr/bin", "DOCS_TOKEN": "secret-value"}
PROGRAM = ["/home/me/.local/bin/dial-chat"]
PRINTED = {
    HostName.CLAUDE_CODE: "mcp.json",
    HostName.CLAUDE_DESKTOP: "claude_desktop_config.json",
    HostName.CODEX: "config.toml",
    HostName.CURSOR: "mcp.json",
    HostName.GEMINI_CLI: "settings.json",
    HostName.GOOSE: "config.yaml",
    HostName.VS_CODE: "mcp.json",
    HostName.ZED: "settings.json",
}


def build(host: HostName, *arguments: str, platform: str = "linux", environ: dict[str, str] = ENVIRON) -> Any:
    return build_gateway_entry(host, PROGRAM, arguments, ("DOCS_TOKEN", "UNSET"), environ, platform)


@pytest.mark.parametrize("host", PRINTED)
def test_what_is_printed_for_a_host_is_read_back_as_the_gateway(tmp_path: Path, host: HostName) -> None:
    printed = write_gateway_text(host, build(host, "--config", "/home/me/my servers.json"), "linux")
    (tmp_path / PRINTED[host]).write_text(printed.text)
    (server,) = read_host_file(tmp_path / PRINTED[host], host, tmp_path)
    entry = server.entry or {}
    assert (server.name, server.losses) == ("dial", ())
    assert entry["command"] == PROGRAM[0]
    assert entry["args"] == ["gateway", "--config", "/home/me/my servers.json"]
    assert is_gateway(entry)
    assert "secret-value" not in printed.text + printed.command


DESKTOP = ("claude-desktop", "cursor", "vscode", "zed", "goose")


@pytest.mark.parametrize("host", PRINTED)
def test_a_host_that_the_desktop_starts_gets_the_path_of_the_terminal(host: HostName) -> None:
    expected = ENVIRON["PATH"] if host in DESKTOP else None
    assert build(host).get("env", {}).get("PATH") == expected
    assert "PATH" not in build(host, platform="win32").get("env", {})
    assert "PATH" not in build(host, environ={}).get("env", {})


def test_hosts_that_filter_variables_get_the_names_of_those_that_servers_need() -> None:
    codex = write_gateway_text(HostName.CODEX, build(HostName.CODEX), "linux").text
    assert 'env_vars = ["DOCS_TOKEN", "UNSET"]' in codex
    assert "startup_timeout_sec = 60" in codex and "tool_timeout_sec = 600" in codex
    gemini = json.loads(write_gateway_text(HostName.GEMINI_CLI, build(HostName.GEMINI_CLI), "linux").text)
    assert gemini["mcpServers"]["dial"]["env"] == {"DOCS_TOKEN": "${DOCS_TOKEN}"}


def test_the_yaml_for_goose_can_be_pasted_into_a_file_that_has_extensions() -> None:
    text = write_gateway_text(HostName.GOOSE, build(HostName.GOOSE), "linux").text
    assert text.splitlines()[:4] == ["extensions:", "  dial:", "    type: stdio", "    name: dial"]


def test_the_yaml_for_continue_is_a_whole_file() -> None:
    """Continue 1.5.47 refuses a file without a name or a version."""
    text = write_gateway_text(HostName.CONTINUE, build(HostName.CONTINUE), "linux").text
    assert [line.partition(":")[0] for line in text.splitlines()[:4]] == ["name", "version", "schema", "mcpServers"]


@pytest.mark.parametrize(
    ("host", "command"),
    [
        (HostName.CLAUDE_CODE, "claude mcp add --scope user dial -- /home/me/.local/bin/dial-chat gateway -c x"),
        (
            HostName.GEMINI_CLI,
            f"gemini mcp add --scope user -e 'DOCS_TOKEN=${{DOCS_TOKEN}}' dial {PROGRAM[0]} gateway -- -c x",
        ),
        (HostName.CODEX, ""),  # its command knows no time limits and no names of variables
        (HostName.ZED, ""),
        (HostName.GOOSE, ""),
    ],
)
def test_a_host_with_a_command_of_its_own_gets_that_command(host: HostName, command: str) -> None:
    assert write_gateway_text(host, build(host, "-c", "x"), "linux").command == command


def test_the_link_for_cursor_and_the_command_for_vs_code_have_the_entry() -> None:
    link = write_gateway_text(HostName.CURSOR, build(HostName.CURSOR), "linux").command
    server = read_deep_link(link)
    assert (server.name, (server.entry or {})["args"]) == ("dial", ["gateway"])
    words = shlex.split(write_gateway_text(HostName.VS_CODE, build(HostName.VS_CODE), "linux").command)
    assert words[:2] == ["code", "--add-mcp"]
    assert json.loads(words[2]) == {"name": "dial", **build(HostName.VS_CODE)}


def test_the_file_of_a_host_is_named_for_each_operating_system() -> None:
    files = {host: write_gateway_text(host, build(host), "linux").files for host in PRINTED}
    assert files[HostName.CLAUDE_CODE] == ("~/.claude.json (Linux, macOS)", "%USERPROFILE%\\.claude.json (Windows)")
    assert files[HostName.VS_CODE] == (
        "~/.config/Code/User/mcp.json (Linux)",
        "~/Library/Application Support/Code/User/mcp.json (macOS)",
        "%APPDATA%\\Code\\User\\mcp.json (Windows)",
    )


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        (["/home/me/.local/bin/dial-chat", "gateway"], True),
        (["C:\\Users\\me\\Scripts\\dial-chat.exe", "gateway", "--tools", "search"], True),
        (["/usr/bin/python3", "-m", "dial_client", "gateway"], True),
        (["uvx", "dial-client", "gateway"], True),
        (["uvx", "--from", "dial-client", "dial-chat", "gateway"], True),
        (["dial-chat", "serve"], False),
        (["npx", "-y", "some-gateway"], False),
        (["npx", "gateway"], False),
    ],
)
def test_the_gateway_is_recognised_however_it_is_started(command: list[str], is_one: bool) -> None:
    assert is_gateway({"command": command[0], "args": command[1:]}) is is_one
    assert not is_gateway({"url": "https://x.example/gateway"})


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("http://127.0.0.1:8000/mcp", True),
        ("http://localhost:8000/mcp/", True),
        ("http://[::1]:8000/mcp", True),
        ("http://127.0.0.1:8001/mcp", False),
        ("http://127.0.0.1:8000/sse", False),
        ("https://docs.example/mcp", False),
        ("http://127.0.0.1:x/mcp", False),
        (None, False),
    ],
)
def test_a_service_recognises_its_own_gateway(url: str | None, is_one: bool) -> None:
    assert is_gateway_of_service(url, "127.0.0.1", 8000) is is_one


def test_the_program_is_an_absolute_path_whose_links_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "venv" / "dial-chat"
    target.parent.mkdir()
    target.write_text("")
    link = tmp_path / "bin" / "dial-chat"
    link.parent.mkdir()
    link.symlink_to(target)
    assert find_own_program([str(link)]) == [str(link)]
    (command, *rest) = find_own_program(["/somewhere/pytest"])
    assert Path(command).is_absolute()
    assert (Path(command).stem, rest) in (("dial-chat", []), (Path(sys.executable).stem, ["-m", "dial_client"]))


def test_a_program_in_the_cache_of_uv_is_started_by_uvx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = tmp_path / "uv" / "archive-v0" / "abc" / "bin" / "dial-chat"
    cached.parent.mkdir(parents=True)
    cached.write_text("")
    uvx = tmp_path / "uvx"
    uvx.write_text("#!/bin/sh\n")
    uvx.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_own_program([str(cached)]) == [str(uvx), "dial-client"]


def test_a_host_has_a_short_name_and_the_nearest_name_is_a_hint() -> None:
    assert find_host_by_name("gemini") is HostName.GEMINI_CLI
    with pytest.raises(ConfigError, match="cursr") as wrong:
        find_host_by_name("cursr")
    assert 'did you mean "cursor"' in wrong.value.hint
