"""Servers are added, removed, enabled and disabled in the text of a configuration, and the file is written."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.inner import (
    ConfigError,
    ConfigText,
    add_server,
    list_server_names,
    parse,
    read_text,
    remove_server,
    set_enabled,
    trust_read_only_tools,
    write_text,
)

FILE = """\
{
  // the clock
  "mcpServers": {
    "time": {"command": "clock"}, // of Berlin
    "old": {"command": "x", "enabled": false},
  },
}
"""
ENTRY = {"url": "https://docs.example/mcp"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{}", ["docs"]),
        ('{"defaultModel": "local"}', ["docs"]),
        ('{"servers": {}}', ["docs"]),
        ('{"mcp-servers": {"a": {"command": "x"}}}', ["a", "docs"]),
        ('{"a": {"command": "x"}}', ["a", "docs"]),
        (FILE, ["time", "old", "docs"]),
    ],
)
def test_a_server_is_added_under_the_key_that_the_file_uses(text: str, names: list[str]) -> None:
    edited = add_server(text, "docs", ENTRY)
    assert list_server_names(edited) == names
    assert parse(edited).servers["docs"].url == ENTRY["url"]
    assert list_server_names(remove_server(edited, "docs")) == names[:-1]


def test_a_server_of_the_same_name_is_replaced_only_on_request() -> None:
    with pytest.raises(ConfigError, match="--replace"):
        add_server(FILE, "time", ENTRY)
    assert parse(add_server(FILE, "time", ENTRY, replace=True)).servers["time"].url == ENTRY["url"]


@pytest.mark.parametrize(
    "entry", ['{"command": "x"}', '{"command": "x", "disabled": true}', '{"command": "x", "enabled": false}']
)
def test_a_server_is_disabled_and_enabled(entry: str) -> None:
    text = f'{{"mcpServers": {{"a": {entry}}}}}'
    for is_enabled in (True, False, False, True):
        text = set_enabled(text, "a", is_enabled=is_enabled)
        assert parse(text).servers["a"].enabled == is_enabled
        assert set_enabled(text, "a", is_enabled=is_enabled) == text
    assert set_enabled(set_enabled(FILE, "time", is_enabled=False), "time", is_enabled=True) == FILE


def test_an_unknown_server_is_an_error_with_the_nearest_name() -> None:
    for edit in (remove_server, lambda text, name: set_enabled(text, name, is_enabled=True)):
        with pytest.raises(ConfigError, match='did you mean "time"'):
            edit(FILE, "tmie")


def write_config(path: Path, content: str) -> ConfigText:
    path.write_text(content, encoding="utf-8")
    return read_text(path)


def test_a_changed_file_keeps_its_permissions_and_leaves_a_private_backup(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    before = write_config(path, FILE)
    path.chmod(0o640)
    backup = write_text(before, add_server(FILE, "docs", ENTRY))
    assert backup == tmp_path / "servers.json.bak"
    assert backup.read_text() == FILE
    assert list_server_names(path.read_text()) == ["time", "old", "docs"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["servers.json", "servers.json.bak"]
    if sys.platform != "win32":
        assert [stat.S_IMODE(file.stat().st_mode) for file in (path, backup)] == [0o640, 0o600]


def test_a_symbolic_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    target, link = tmp_path / "dotfiles" / "mcp.json", tmp_path / "servers.json"
    target.write_text(FILE)
    try:
        link.symlink_to(target)
    except OSError:
        pytest.skip("symbolic links need a privilege here")
    write_text(read_text(link), remove_server(FILE, "old"))
    assert link.is_symlink()
    assert list_server_names(target.read_text()) == ["time"]


@pytest.mark.parametrize(
    "text", ["{", '{"mcpServers": []}', '{"mcpServers": {"a": {}}}', '{"a": {"command": "x", "url": "https://x"}}']
)
def test_an_invalid_configuration_is_not_written(tmp_path: Path, text: str) -> None:
    path = tmp_path / "servers.json"
    before = write_config(path, FILE)
    with pytest.raises(ConfigError):
        write_text(before, text)
    assert path.read_text() == FILE
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "${DOCS}/mcp", "headers": {"X": "${KEY}"}},
        {"url": "http://localhost:${PORT}/mcp"},
        {"command": "x", "envFile": "nowhere.env", "cwd": "~/x", "env": {"A": "${B:-c}"}},
    ],
)
def test_variables_that_are_not_set_yet_are_no_error(tmp_path: Path, entry: dict[str, Any]) -> None:
    before = write_config(tmp_path / "servers.json", FILE)
    write_text(before, add_server(FILE, "docs", entry))


def test_removing_an_invalid_server_makes_a_file_valid(tmp_path: Path) -> None:
    broken = '{"mcpServers": {"a": {}, "b": {"command": "x"}}}'
    path = tmp_path / "servers.json"
    write_text(write_config(path, broken), remove_server(broken, "a"))
    assert list_server_names(path.read_text()) == ["b"]


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    before = write_config(path, FILE)
    path.write_text("{}")
    with pytest.raises(ConfigError, match="meanwhile"):
        write_text(before, remove_server(FILE, "old"))
    assert path.read_text() == "{}"


def test_a_file_that_is_not_utf_8_is_not_edited(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_bytes(FILE.encode("utf-16"))
    with pytest.raises(ConfigError, match="UTF-8"):
        read_text(path)
    with pytest.raises(ConfigError, match="regular file"):
        read_text(tmp_path)


RULE = {"allow": "a/*", "annotations": {"readOnlyHint": True}}
LAYOUTS = [
    ("", [RULE]),
    (', "policy": []', [RULE]),
    (', "policy": [{"deny": "b/*"}]', [{"deny": "b/*"}, RULE]),
    (', "policy": [\n    {"deny": "b/*"}, // never\n  ]', [{"deny": "b/*"}, RULE]),
    (', "policy": [\n    {"deny": "b/*"} // never\n  ]', [{"deny": "b/*"}, RULE]),
]


@pytest.mark.parametrize(("rest", "rules"), LAYOUTS)
@pytest.mark.parametrize("entry", ['{"command": "x"}', '{"command": "x", "trusted": false}'])
def test_the_tools_that_only_read_are_allowed_behind_the_other_rules(
    entry: str, rest: str, rules: list[dict[str, Any]]
) -> None:
    edited = trust_read_only_tools(f'{{"mcpServers": {{"a": {entry}}}{rest}}}', "a")
    read = parse(edited)
    assert read.servers["a"].trusted
    written = [{key: value for key, value in rule.to_dict().items() if key != "rule"} for rule in read.policy]
    assert written == [
        {key: [value] if isinstance(value, str) else value for key, value in rule.items()} for rule in rules
    ]
    assert ("// never" in edited) == ("// never" in rest), "comments stay"
    assert trust_read_only_tools(edited, "a") == edited


def test_a_name_with_characters_of_globs_allows_only_tools_of_this_server() -> None:
    edited = trust_read_only_tools('{"mcpServers": {"[ab]": {"command": "x"}, "a": {"command": "x"}}}', "[ab]")
    assert parse(edited).policy[0].tools == ("[[]ab]/*",)


def test_servers_at_the_top_level_get_the_rule_beside_them() -> None:
    edited = trust_read_only_tools('{"a": {"command": "x"}}', "a")
    assert list(parse(edited).servers) == ["a"]
    assert parse(edited).policy[0].tools == ("a/*",)
