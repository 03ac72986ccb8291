"""Configuration files of other hosts, as documented by their vendors: import, and export back."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import (
    HOSTS,
    ConfigError,
    HostName,
    find_host_files,
    list_user_paths,
    parse,
    read_host_file,
    read_servers,
    write_host_text,
)

FILES = Path(__file__).parents[1] / "support" / "host_files"
NO_SETTING = "there is no such setting here"

CASES: dict[HostName, tuple[str, dict[str, Any], dict[str, tuple[str, ...]]]] = {
    HostName.CLAUDE_DESKTOP: (
        "claude_desktop_config.json",
        {
            "filesystem": {
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-filesystem", "C:\\Users\\me\\Desktop"],
            },
            "github": {
                "command": "docker",
                "args": [
                    *("run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN"),
                    "ghcr.io/github/github-mcp-server",
                ],
                "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0000000000000000000000000000000000"},
            },
        },
        {},
    ),
    HostName.CLAUDE_CODE: (
        "claude.json",
        {
            "paper": {"type": "sse", "url": "https://paper.example/sse"},
            "notes": {"type": "stdio", "command": "notes-mcp", "disabled": True},
            "sentry": {
                "type": "http",
                "url": "https://mcp.sentry.dev/mcp",
                "headers": {"Authorization": "Bearer ${SENTRY_TOKEN}"},
            },
            "db": {
                "type": "stdio",
                "command": "npx",
                "args": ["-y", "@bytebase/dbhub", "--dsn", "${DSN:-postgresql://localhost/app}"],
                "env": {},
            },
            "internal": {
                "type": "http",
                "url": "https://mcp.internal.example/mcp",
                "oauth": {"clientId": "abc", "callbackPort": 8080},
            },
            "elsewhere": None,
        },
        {
            "internal": (f"headersHelper: {NO_SETTING}",),
            "elsewhere": ("it belongs to the project /somewhere/else: import it there",),
        },
    ),
    HostName.CURSOR: (
        "cursor_mcp.json",
        {
            "local": {
                "type": "stdio",
                "command": "${userHome}/bin/mcp",
                "args": ["--root", "${workspaceFolder}/src".replace("/", "\\" if sys.platform == "win32" else "/")],
                "env": {"API_KEY": "${env:API_KEY}"},
                "envFile": ".env",
            },
            "linear": {
                "url": "https://mcp.linear.app/mcp",
                "headers": {"X-Key": "${env:LINEAR_KEY}"},
                "auth": {"CLIENT_ID": "abc", "CLIENT_SECRET": "def", "scopes": ["read"]},
            },
        },
        {
            "local": (
                "here ${workspaceFolder} is the folder of the configuration file",
                "envFile: here a relative path begins at the folder of the configuration file",
            )
        },
    ),
    HostName.VS_CODE: (
        "vscode_mcp.json",
        {
            "perplexity": {
                "type": "stdio",
                "command": "npx",
                "args": ["-y", "server-perplexity-ask", "--region=${REGION:-eu}"],
                "env": {"PERPLEXITY_API_KEY": "${PERPLEXITY_KEY}"},
            },
            "fetch": {"type": "http", "url": "https://fetch.example/mcp"},
            "picked": {"command": "x", "args": ["${command:pickProcess}"], "disabled": True},
        },
        {
            "perplexity": (
                f"dev: {NO_SETTING}",
                "the other host asks for ${input:region}: set REGION",
                "the other host asks for ${input:perplexity-key} (Perplexity API Key): set PERPLEXITY_KEY",
            ),
            "picked": ("${command:pickProcess} is not supported here: replace it by a value, then enable the server",),
        },
    ),
    HostName.WINDSURF: (
        "windsurf_mcp_config.json",
        {
            "remote": {
                "url": "https://mcp.example/mcp",
                "headers": {"Authorization": "Bearer ${env:AUTH_TOKEN}"},
                "disabledTools": ["delete_all"],
            },
            "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {}, "disabled": True},
        },
        {},
    ),
    HostName.GEMINI_CLI: (
        "gemini_settings.json",
        {
            "python": {
                "command": "python",
                "args": ["-m", "my_server", "--port", "8080"],
                "cwd": "./mcp-servers/python",
                "env": {"DATABASE_URL": "${DB_CONNECTION}", "KEY": "${KEY}"},
                "timeout": 15000,
                "includeTools": ["safe_tool"],
                "excludeTools": ["unsafe_tool"],
            },
            "http": {
                "httpUrl": "https://api.example/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}"},
                "oauth": {"clientId": "id", "scopes": ["read"], "redirectUri": "http://localhost:7777/oauth/callback"},
            },
            "events": {"type": "sse", "url": "http://localhost:8080/events", "disabled": True},
            "google": {"httpUrl": "https://google.example/mcp", "description": "With ADC", "disabled": True},
        },
        {
            "python": (
                'trust: it lets all calls run without approval; here "autoApprove": ["*"] does that',
                "cwd: here a relative path begins at the folder of the configuration file",
            ),
            "google": (f"authProviderType: {NO_SETTING}",),
        },
    ),
    HostName.CODEX: (
        "codex_config.toml",
        {
            "context7": {
                "command": "npx",
                "args": ["-y", "@upstash/context7-mcp"],
                "env": {"LOCAL_TOKEN": "${LOCAL_TOKEN}", "OTHER_TOKEN": "${OTHER_TOKEN}", "MY_ENV_VAR": "MY_ENV_VALUE"},
                "startupTimeout": 20,
            },
            "figma": {
                "url": "https://mcp.figma.com/mcp",
                "headers": {
                    "X-Figma-Region": "us-east-1",
                    "X-Trace": "${TRACE_ID}",
                    "Authorization": "Bearer ${FIGMA_OAUTH_TOKEN}",
                },
                "oauth": {"scopes": ["file:read"]},
            },
            "chrome_devtools": {
                "url": "http://localhost:3000/mcp",
                "enabledTools": ["open", "screenshot"],
                "disabledTools": ["screenshot"],
                "toolTimeout": 45,
                "enabled": False,
                "required": True,
                "autoApprove": ["open"],
            },
        },
        {"chrome_devtools": (f"experimental_environment: {NO_SETTING}",)},
    ),
    HostName.GOOSE: (
        "goose_config.yaml",
        {
            "developer": None,
            "gdrive": {
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-gdrive"],
                "env": {"GDRIVE_OAUTH_PATH": "/home/me/gcp-oauth.keys.json", "GDRIVE_KEY": "${GDRIVE_KEY}"},
                "toolTimeout": 300,
                "enabled": True,
            },
            "remote": {
                "type": "http",
                "url": "https://mcp.example/mcp",
                "headers": {"Authorization": "Bearer t"},
                "toolTimeout": 60,
                "enabledTools": ["search"],
                "enabled": False,
            },
        },
        {
            "developer": ("it is a part of goose (builtin), not a server",),
            "gdrive": ("the values of GDRIVE_KEY are in the keyring of goose: set variables of these names",),
        },
    ),
    HostName.ZED: (
        "zed_settings.json",
        {
            "local-mcp-server": {"command": "some-command", "args": ["arg-1", "arg-2"], "env": {}},
            "remote-mcp-server": {
                "url": "https://custom.example/mcp",
                "headers": {"Authorization": "Bearer t"},
                "enabled": False,
            },
            "older": {"command": "/usr/bin/older", "args": ["run"], "env": {"A": "b"}, "toolTimeout": 30},
            "postgres-context-server": None,
        },
        {"postgres-context-server": ("an extension of Zed starts it",)},
    ),
    HostName.OPENCODE: (
        "opencode.json",
        {
            "everything": {
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-everything"],
                "env": {"API_KEY": "${API_KEY}"},
                "toolTimeout": 10,
            },
            "jira": {
                "url": "https://jira.example.com/mcp",
                "disabled": True,
                "headers": {"Authorization": "Bearer {file:~/.jira-token}"},
            },
            "sentry": {"url": "https://mcp.sentry.dev/mcp", "oauth": {}},
        },
        {"jira": ("{file:…} is not supported here: replace it by a value, then enable the server",)},
    ),
    HostName.CRUSH: (
        "crush.json",
        {
            "filesystem": {
                "type": "stdio",
                "command": "node",
                "args": ["/path/to/mcp-server.js"],
                "toolTimeout": 120,
                "disabled": False,
                "disabledTools": ["write_file"],
                "env": {"NODE_ENV": "production"},
            },
            "github": {
                "type": "http",
                "url": "https://api.githubcopilot.com/mcp/",
                "headers": {"Authorization": "Bearer ${TOKEN}"},
            },
            "streaming": {
                "type": "sse",
                "url": "https://example.com/mcp/sse",
                "headers": {"API-Key": "$(echo ${API_KEY})"},
                "disabled": True,
            },
        },
        {"streaming": ("$(…) is not supported here: replace it by a value, then enable the server",)},
    ),
    HostName.AMP: (
        "amp_settings.json",
        {
            "playwright": {"command": "npx", "args": ["-y", "@playwright/mcp@latest"], "includeTools": ["browser_*"]},
            "linear": {"url": "https://mcp.linear.app/mcp", "headers": {"Authorization": "Bearer ${LINEAR_KEY}"}},
        },
        {},
    ),
    HostName.LIBRECHAT: (
        "librechat.yaml",
        {
            "puppeteer": {
                "type": "stdio",
                "command": "npx",
                "args": ["-y", "@modelcontextprotocol/server-puppeteer"],
                "timeout": 60000,
                "startupTimeout": 10,
            },
            "search": {
                "type": "streamable-http",
                "url": "https://example.com/api/",
                "headers": {"X-API-Key": "${API_KEY}"},
            },
            "per-user": {
                "type": "streamable-http",
                "url": "https://example.com/mine",
                "headers": {"X-User-ID": "{{LIBRECHAT_USER_ID}}"},
                "disabled": True,
            },
            "socket": None,
        },
        {
            "puppeteer": (f"serverInstructions: {NO_SETTING}",),
            "per-user": ("{{…}} is not supported here: replace it by a value, then enable the server",),
            "socket": ("websocket: there is no such transport here",),
        },
    ),
    HostName.CONTINUE: (
        "continue_config.yaml",
        {
            "sqlite": {
                "command": "npx",
                "args": ["-y", "mcp-sqlite", "/home/me/test.db"],
                "env": {"KEY": "${KEY}"},
                "startupTimeout": 5,
            },
            "remote": {
                "type": "streamable-http",
                "url": "https://mcp.example/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}"},
            },
            "organization-mcp-block": None,
        },
        {
            "organization-mcp-block": (
                "its name in the other host is 'organization/mcp-block'; names in servers.json must not contain /",
                "it is a block of Continue's hub: add the server itself",
            )
        },
    ),
}


def install_sample(host: HostName, home: Path) -> Path:
    """Copy the sample of a host to the usual path of the host below `home`, and return the path."""
    paths = list_user_paths(HOSTS[host], {"HOME": str(home), "USERPROFILE": str(home)}, sys.platform)
    path = next(paths, home / CASES[host][0])
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(FILES / CASES[host][0], path)
    if host is HostName.CLAUDE_CODE:
        path.write_text(path.read_text().replace('"PROJECT"', json.dumps(str(home))))
    return path


@pytest.mark.parametrize("host", CASES)
def test_a_host_configuration_is_imported_and_its_losses_are_listed(tmp_path: Path, host: HostName) -> None:
    _, entries, losses = CASES[host]
    found = read_host_file(install_sample(host, tmp_path), host, tmp_path)
    assert {server.name: server.entry for server in found} == entries
    assert {server.name: server.losses for server in found if server.losses} == losses
    text = json.dumps({"mcpServers": {server.name: server.entry for server in found if server.entry}})
    names = "API_KEY SENTRY_TOKEN LINEAR_KEY PERPLEXITY_KEY AUTH_TOKEN DB_CONNECTION KEY TOKEN LOCAL_TOKEN OTHER_TOKEN"
    variables = dict.fromkeys([*names.split(), "FIGMA_OAUTH_TOKEN", "TRACE_ID", "GDRIVE_KEY"], "v")
    read = parse(text, environ=variables | {"HOME": "/home/me", "USERPROFILE": "/home/me"}, read=lambda _: b"")
    assert read.warnings == ()
    assert list(read.servers) == [name for name, entry in entries.items() if entry is not None]


def test_the_files_of_all_hosts_are_found_and_recognized(tmp_path: Path) -> None:
    for host in CASES:
        install_sample(host, tmp_path)
    (tmp_path / "project" / ".vscode").mkdir(parents=True)
    (tmp_path / "project" / ".vscode" / "mcp.json").write_text("{}")
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    found = list(find_host_files(tmp_path / "project", home))
    assert [file.host.name for file in found if not file.is_of_folder] == [
        host for host in CASES if host is not HostName.LIBRECHAT
    ]
    assert [file.path.parent.name for file in found if file.is_of_folder] == [".vscode"]


OF_COMMON_FORM = (HostName.CURSOR, HostName.WINDSURF, HostName.GEMINI_CLI)


@pytest.mark.parametrize("host", [host for host in CASES if host not in OF_COMMON_FORM])
def test_the_host_of_a_file_without_its_usual_name_is_guessed_from_its_content(tmp_path: Path, host: HostName) -> None:
    name, entries, _ = CASES[host]
    path = tmp_path / f"copy{Path(name).suffix}"
    shutil.copy(FILES / name, path)
    found = read_host_file(path, None, tmp_path)
    if host is HostName.CLAUDE_CODE:  # without its project
        entries = {name: entry for name, entry in entries.items() if name == "elsewhere"}
    assert {server.name: server.entry for server in found if server.name in entries} == entries


@pytest.mark.parametrize(
    "text",
    [
        '{"customizations": {"vscode": {"mcp": {"servers": {"x": {"command": "foo"}}}}}}',
        '{"mcp": {"servers": {"x": {"command": "foo"}}}}',
        '{"mcpServers": [{"name": "x", "command": "foo"}]}',
        '{"mcp": {"x": {"command": "foo"}}}',
        '{"mcp": {"x": {"type": "local", "command": ["foo"]}}}',
    ],
    ids=["devcontainer", "settings of VS Code", "a list", "Crush without its schema", "opencode without its schema"],
)
def test_servers_are_found_wherever_a_file_has_them(tmp_path: Path, text: str) -> None:
    (tmp_path / "some.json").write_text(text)
    (server,) = read_host_file(tmp_path / "some.json", None, tmp_path)
    assert (server.name, (server.entry or {})["command"]) == ("x", "foo")


@pytest.mark.parametrize("key", ["isActive", "active"])
def test_a_server_that_another_host_switched_off_does_not_start(tmp_path: Path, key: str) -> None:
    text = json.dumps({"mcpServers": {"x": {"command": "foo", key: False}, "y": {"command": "foo", key: True}}})
    (tmp_path / "some.json").write_text(text)
    imported = read_host_file(tmp_path / "some.json", None, tmp_path)
    entries = {server.name: server.entry for server in imported}
    assert [server.losses for server in imported] == [(), ()]
    for servers in (parse(text).servers, parse(json.dumps({"mcpServers": entries})).servers):
        assert {name: server.enabled for name, server in servers.items()} == {"x": False, "y": True}


@pytest.mark.parametrize(
    ("platform", "host", "path"),
    [
        ("linux", HostName.CLAUDE_DESKTOP, "/h/.config/Claude/claude_desktop_config.json"),
        ("darwin", HostName.CLAUDE_DESKTOP, "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", HostName.CLAUDE_DESKTOP, "/h/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("darwin", HostName.VS_CODE, "/h/Library/Application Support/Code/User/mcp.json"),
        ("darwin", HostName.ZED, "/h/.config/zed/settings.json"),
        ("win32", HostName.ZED, "/h/AppData/Roaming/Zed/settings.json"),
        ("darwin", HostName.GOOSE, "/h/.config/goose/config.yaml"),
        ("win32", HostName.GOOSE, "/h/AppData/Roaming/Block/goose/config/config.yaml"),
        ("linux", HostName.CODEX, "/h/.codex/config.toml"),
    ],
)
def test_the_paths_of_a_host_depend_on_the_operating_system(platform: str, host: HostName, path: str) -> None:
    assert next(list_user_paths(HOSTS[host], {"HOME": "/h", "USERPROFILE": "/h"}, platform)) == Path(path)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", "{", "expected a key"),
        ("a.json", "[]", "expected an object"),
        ("a.toml", "a = ", "this is not TOML"),
        ("a.yaml", "a: [", "this is not YAML"),
        ("a.yaml", "- a", "expected a mapping"),
    ],
)
def test_an_invalid_file_is_a_config_error(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_host_file(tmp_path / name, None, tmp_path)


NESTED_ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 8)}]\n" for number in range(1, 9)
)
MERGED_ALIASES = "a0: &a0 {x: 1}\n" + NESTED_ALIASES.partition("\n")[2].replace("[", "{<<: [").replace("]", "]}")


@pytest.mark.parametrize(
    "text",
    [
        f"{NESTED_ALIASES}extensions: {{x: {{type: stdio, cmd: foo, args: *a8}}}}",
        f"{MERGED_ALIASES}extensions: {{x: {{type: stdio, cmd: foo}}}}",
        "extensions: &all\n  x: {type: stdio, cmd: foo, envs: *all}",
        *(f"extensions: {'[' * 500}{']' * 500}", f"# {'x' * 1024 * 1024}"),
    ],
    ids=["aliases of aliases", "merged aliases", "an alias of itself", "depth", "size"],
)
def test_a_yaml_file_that_expands_without_bound_is_a_config_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"too large|too deep|at most"):
        read_host_file(tmp_path / "config.yaml", HostName.GOOSE, tmp_path)


def test_keys_dates_and_aliases_of_yaml_become_json_values(tmp_path: Path) -> None:
    text = "base: &base {type: stdio, cmd: foo}\nextensions:\n  5: {<<: *base, args: [2026-01-02]}\n"
    (tmp_path / "config.yaml").write_text(text)
    (server,) = read_host_file(tmp_path / "config.yaml", HostName.GOOSE, tmp_path)
    assert (server.name, server.entry, server.losses) == ("5", {"command": "foo", "args": ["2026-01-02"]}, ())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4) | st.just("${input:x}"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYS = "type command args env url headers cwd serverUrl trust oauth timeout tools env_vars env_keys cmd uri source"
ENTRIES = st.dictionaries(st.sampled_from(KEYS.split()), JSON, max_size=4)


@given(st.sampled_from(list(HostName)), ENTRIES)
def test_any_entry_of_a_host_is_imported_as_a_valid_entry_or_left_out(host: HostName, entry: dict[str, Any]) -> None:
    key = "extensions" if host is HostName.GOOSE else "mcpServers"
    for server in read_servers(host, {key: {"a/b": entry}, "inputs": [{"id": "x"}]}, Path()):
        assert server.name == "a-b"
        if server.entry is not None:
            off = {key: value for key, value in server.entry.items() if key != "enabled"} | {"disabled": True}
            assert "a" in parse(json.dumps({"mcpServers": {"a": off}})).servers


ENTRY = {
    "command": "npx",
    "args": ["-y", "x"],
    "env": {"TOKEN": "${TOKEN}", "A": "b"},
    "toolTimeout": 45,
    "disabled": True,
    "lazy": True,
}
REMOTE = {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${env:KEY}", "X-Id": "${ID}"}}


@pytest.mark.parametrize("host", HostName)
def test_an_exported_configuration_can_be_imported_again(tmp_path: Path, host: HostName) -> None:
    text, losses = write_host_text(host, {"local": ENTRY, "remote": REMOTE})
    suffix = Path(CASES[host][0]).suffix
    path = tmp_path / f"exported{suffix}"
    path.write_text(text)
    servers = {server.name: server.entry or {} for server in read_host_file(path, host, tmp_path)}
    assert "local: lazy: the host has no such setting" in losses
    assert servers["local"]["command"] == "npx" and servers["local"]["args"] == ["-y", "x"]
    assert servers["local"]["env"]["TOKEN"] in ("${TOKEN}", "${env:TOKEN}")
    if host is HostName.CLAUDE_DESKTOP:
        assert any(loss.startswith("remote: it is left out") for loss in losses)
        return
    remote = parse(json.dumps({"mcpServers": {"r": servers["remote"]}}), environ={"KEY": "k", "ID": "7"}).servers["r"]
    assert (remote.url, dict(remote.headers)) == (REMOTE["url"], {"Authorization": "Bearer k", "X-Id": "7"})


def test_the_export_for_codex_has_the_names_of_variables_and_not_their_values() -> None:
    text, _ = write_host_text(HostName.CODEX, {"a.b": ENTRY, "r": REMOTE})
    assert tomllib.loads(text)["mcp_servers"] == {
        "a.b": {
            "command": "npx",
            "args": ["-y", "x"],
            "enabled": False,
            "env_vars": ["TOKEN"],
            "env": {"A": "b"},
            "tool_timeout_sec": 45,
        },
        "r": {"url": "https://x.example/mcp", "bearer_token_env_var": "KEY", "env_http_headers": {"X-Id": "ID"}},
    }
