"""Changes of servers in the files of other hosts, which leave everything else as it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.inner import ConfigError, HostName, read_host_file, replace_servers

FILES = Path(__file__).parents[1] / "support" / "host_files"
GATEWAY = {"command": "/bin/dial-chat", "args": ["gateway"]}

TOML = """\
model = "gpt-6"  # the model

# documentation
[mcp_servers.context7]
command = "npx"
args = [
  "-y",
  "x",
]

[mcp_servers.context7.env]
A = "b"

# figma stays
[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"

[profiles.fast]
model = "small"
"""


def test_tables_of_toml_are_cut_with_those_inside_and_comments_of_others_stay() -> None:
    changed = replace_servers(
        TOML, Path("config.toml"), [("mcp_servers", "context7")], {("mcp_servers", "dial"): GATEWAY}
    )
    assert changed == (
        'model = "gpt-6"  # the model\n\n'
        '# figma stays\n[mcp_servers.figma]\nurl = "https://mcp.figma.com/mcp"\n\n'
        '[profiles.fast]\nmodel = "small"\n'
        '\n[mcp_servers.dial]\ncommand = "/bin/dial-chat"\nargs = ["gateway"]\n'
    )


YAML = """\
GOOSE_PROVIDER: anthropic
extensions:
  developer:
    type: builtin
    enabled: true
  # the drive
  gdrive:
    type: stdio
    cmd: npx
    args:
      - -y
  # the last one
  remote: {type: streamable_http, uri: "https://mcp.example/mcp"}
# keys
GOOSE_MODE: auto
"""


def test_entries_of_yaml_are_cut_by_lines_and_an_added_entry_has_the_same_indentation() -> None:
    gateway = {"type": "stdio", "cmd": "/bin/dial-chat", "args": ["gateway"]}
    changed = replace_servers(
        YAML,
        Path("config.yaml"),
        [("extensions", "gdrive"), ("extensions", "remote")],
        {("extensions", "dial"): gateway},
    )
    assert changed == (
        "GOOSE_PROVIDER: anthropic\nextensions:\n"
        "  dial:\n    type: stdio\n    cmd: /bin/dial-chat\n    args:\n    - gateway\n"
        "  developer:\n    type: builtin\n    enabled: true\n"
        "  # the drive\n  # the last one\n# keys\nGOOSE_MODE: auto\n"
    )


@pytest.mark.parametrize("text", ["", "GOOSE_MODE: auto", "extensions: {}  # none\n", "extensions:\n"])
def test_an_entry_is_added_to_yaml_that_has_none(text: str) -> None:
    changed = replace_servers(text or "x: 1\n", Path("c.yaml"), [], {("extensions", "dial"): {"cmd": "a"}})
    assert "extensions:" in changed


def test_comments_of_json_stay() -> None:
    servers = '    // the clock\n    "time": {"command": "x"},\n    "docs": {"url": "y"},\n'
    text = f'// mine\n{{\n  "servers": {{\n{servers}  }},\n}}\n'
    changed = replace_servers(
        text, Path("mcp.json"), [("servers", "time"), ("servers", "docs")], {("servers", "dial"): GATEWAY}
    )
    assert changed.startswith('// mine\n{\n  "servers": {\n    // the clock\n')
    assert '"dial": {' in changed and "time" not in changed and "docs" not in changed


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("c.toml", 'mcp_servers.x = { command = "x" }\n', ("mcp_servers", "x")),
        ("c.toml", '[mcp_servers]\nx.command = "x"\n', ("mcp_servers", "x")),
        ("c.yaml", "extensions: {x: {type: stdio, cmd: x}, y: {type: builtin}}\n", ("extensions", "x")),
        ("c.yaml", "a: &a {type: stdio, cmd: x}\nextensions:\n  x: &x {cmd: x}\n  y: *x\n", ("extensions", "x")),
    ],
)
def test_a_form_that_cannot_be_cut_by_lines_is_an_error_and_never_a_wrong_file(
    name: str, text: str, place: tuple[str, str]
) -> None:
    with pytest.raises(ConfigError, match="cannot be changed here"):
        replace_servers(text, Path(name), [place], {(place[0], "dial"): GATEWAY})


def test_a_header_inside_a_long_string_is_no_table() -> None:
    text = 'note = """\n[mcp_servers.a]\n"""\n[mcp_servers.a]\ncommand = "x"\n'
    with pytest.raises(ConfigError):
        replace_servers(text, Path("c.toml"), [("mcp_servers", "a")], {("mcp_servers", "dial"): GATEWAY})


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("amp_settings.json", HostName.AMP),
        ("claude.json", HostName.CLAUDE_CODE),
        ("claude_desktop_config.json", HostName.CLAUDE_DESKTOP),
        ("codex_config.toml", HostName.CODEX),
        ("crush.json", HostName.CRUSH),
        ("cursor_mcp.json", HostName.CURSOR),
        ("gemini_settings.json", HostName.GEMINI_CLI),
        ("goose_config.yaml", HostName.GOOSE),
        ("opencode.json", HostName.OPENCODE),
        ("vscode_mcp.json", HostName.VS_CODE),
        ("windsurf_mcp_config.json", HostName.WINDSURF),
        ("zed_settings.json", HostName.ZED),
    ],
)
def test_each_server_of_a_documented_file_can_be_taken_out_by_its_place(
    tmp_path: Path, name: str, host: HostName
) -> None:
    text = (FILES / name).read_text().replace('"PROJECT"', f'"{tmp_path.as_posix()}"')
    (tmp_path / name).write_text(text)
    servers = [server for server in read_host_file(tmp_path / name, host, tmp_path) if server.entry is not None]
    places = [server.keys for server in servers]
    assert places and all(places)
    changed = replace_servers(text, Path(name), places, {(*keys[:-1], "dial"): GATEWAY for keys in places})
    (tmp_path / name).write_text(changed)
    left = {server.name for server in read_host_file(tmp_path / name, host, tmp_path) if server.entry is not None}
    assert not left & {server.name for server in servers}


def test_a_table_of_another_name_with_the_same_beginning_stays() -> None:
    text = '[mcp_servers.a]\ncommand = "x"\n[mcp_servers.ab]\ncommand = "y"\n'
    changed = replace_servers(text, Path("c.toml"), [("mcp_servers", "a")], {("mcp_servers", "dial"): GATEWAY})
    assert set(tomllib.loads(changed)["mcp_servers"]) == {"ab", "dial"}
