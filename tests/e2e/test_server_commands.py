"""The ``dial-chat servers`` commands that add, remove, test, import and export servers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.program import dial_chat, write_config

pytestmark = pytest.mark.once


def test_a_server_is_added_used_disabled_and_removed(tmp_path: Path) -> None:
    write_config(tmp_path)
    (tmp_path / "servers.json").write_text("{\n  // mine\n}\n")
    assert dial_chat(tmp_path, "trust", "servers.json").returncode == 0
    added = dial_chat(tmp_path, "servers", "add", "time", "--allow", "*", "--", "mcp-server-time")
    assert (added.returncode, added.stderr) == (0, "")
    assert f"added time in {tmp_path / 'servers.json'} (backup: servers.json.bak)" in added.stdout
    called = dial_chat(tmp_path, "call", "get_current_time", '{"timezone": "Asia/Tokyo"}')
    assert called.returncode == 0 and "Asia/Tokyo" in called.stdout, called.stderr  # the changed file is still trusted
    assert dial_chat(tmp_path, "servers", "disable", "time").returncode == 0
    assert dial_chat(tmp_path, "servers").stdout.startswith("time: disabled")
    assert dial_chat(tmp_path, "servers", "remove", "time").returncode == 0
    assert (tmp_path / "servers.json").read_text() == '{\n  // mine\n  "mcpServers": {\n  }\n}\n'


def test_without_a_file_in_the_folder_the_users_own_file_is_changed(tmp_path: Path) -> None:
    added = dial_chat(
        tmp_path,
        "servers",
        "add",
        "docs",
        "https://docs.example/mcp",
        "--header",
        "Authorization: Bearer ${DOCS_TOKEN}",
    )
    assert added.returncode == 0
    assert added.stderr == "dial-chat: the variable DOCS_TOKEN is not set yet: the server needs it\n"
    assert not (tmp_path / "servers.json").exists()
    secret = dial_chat(tmp_path, "servers", "add-json", "git", '{"command": "x-y", "env": {"API_KEY": "sk-abcdef123"}}')
    assert "write ${API_KEY} in its place" in secret.stderr
    assert "'x-y' was not found" in secret.stderr
    assert "sk-abcdef123" not in secret.stdout + secret.stderr
    folder = dial_chat(tmp_path, "servers", "add", "here", "--folder", "--", sys.executable, "-c", "pass")
    assert "a new file" in folder.stdout
    assert list(json.loads((tmp_path / "servers.json").read_text())["mcpServers"]) == ["here"]
    assert dial_chat(tmp_path, "trust", "--list").stdout.split()[1] == "unchanged"
    assert "removed docs in" in dial_chat(tmp_path, "servers", "remove", "docs").stdout  # from the user's own file


def test_an_untrusted_file_is_changed_only_with_an_option(tmp_path: Path) -> None:
    hostile = '{"mcpServers": {"evil": {"command": "evil"}}}'
    (tmp_path / "servers.json").write_text(hostile)
    refused = dial_chat(tmp_path, "servers", "add", "a", "--", "b")
    assert (refused.returncode, (tmp_path / "servers.json").read_text()) == (2, hostile)
    assert "--user" in refused.stderr
    changed = dial_chat(tmp_path, "servers", "add", "a", "--folder", "--", "b")
    assert "You have not trusted this file" in changed.stdout
    assert dial_chat(tmp_path, "servers").returncode == 2  # the change did not make it trusted


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["add", "x"], "give a command or a URL"),
        (["add", "x", "https://a.example/mcp", "more"], "nothing may follow a URL"),
        (["add", "x", "--header", "A: b", "--", "y"], "a program has no headers"),
        (["add", "x", "--env", "A", "--", "y"], "--env KEY=VALUE"),
        (["add", "a/b", "--", "y"], "cannot contain /"),
        (["add", "x", "--user", "--folder", "--", "y"], "--user and --folder name different files"),
        (["add", "x", "--transport", "stdoi", "--", "y"], 'did you mean "stdio"'),
        (["add-json", "x", "[]"], "not a JSON object"),
        (["add-json", "x", '{"comand": "y"}'], 'did you mean "command"'),
        (["remove", "x"], "there is no configuration"),
    ],
)
def test_invalid_arguments_are_exit_code_2_with_a_hint(tmp_path: Path, words: list[str], problem: str) -> None:
    done = dial_chat(tmp_path, "servers", *words)
    assert (done.returncode, problem in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "servers.json").exists()


NOTES = """
import sys
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("notes", version="3.1")

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find(word: str) -> str:
    return word

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def count() -> str:
    '''Count the notes.'''
    print("counting", file=sys.stderr, flush=True)
    return "three notes"

@server.tool()
def wipe() -> str:
    sys.exit(3)

server.run()
"""


def test_servers_test_lists_the_tools_and_makes_a_harmless_call(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(NOTES)
    notes = {"command": sys.executable, "args": ["-W", "ignore", "notes.py"], "cwd": ".", "lazy": True}
    write_config(tmp_path, {"notes": notes, "bad": {"command": sys.executable, "args": ["-c", "import nothing_here"]}})
    tried = dial_chat(tmp_path, "servers", "test", "notes")
    assert (tried.returncode, tried.stderr) == (0, "")
    lines = tried.stdout.splitlines()
    assert re.fullmatch(r"notes: ready in \d+\.\d\d s, MCP [\d-]+, notes 3\.1", lines[0]), lines
    assert lines[1:5] == ["3 tools", "  count  Count the notes.", "  find", "  wipe"]
    assert re.fullmatch(r"count was called, and answered in \d+\.\d\d s: three notes", lines[7])
    assert lines[8] == "standard error:" and "  counting" in lines[9:]
    assert (
        "no tool was called: --no-call was given" in dial_chat(tmp_path, "servers", "test", "notes", "--no-call").stdout
    )
    seen = json.loads(dial_chat(tmp_path, "servers", "test", "notes", "--no-call", "--json").stdout)
    assert (seen["state"], seen["called"], sorted(seen["seconds"])) == (
        "ready",
        None,
        ["prompts", "resources", "start"],
    )
    failed = dial_chat(tmp_path, "servers", "test", "bad")
    assert failed.returncode == 1
    assert "No module named 'nothing_here'" in failed.stdout.splitlines()[0]
    unknown = dial_chat(tmp_path, "servers", "test", "note")
    assert (unknown.returncode, 'did you mean "notes"' in unknown.stderr) == (2, True)


CURSOR = {
    "mcpServers": {
        "time": {"command": "mcp-server-time"},
        "docs": {"url": "https://docs.example/mcp", "headers": {"X-Key": "${env:DOCS_KEY}"}, "headersHelper": "x"},
    }
}


def test_servers_of_another_mcp_host_are_imported_and_exported(tmp_path: Path) -> None:
    write_config(tmp_path, {"time": {"command": "mine"}})
    (tmp_path / "home" / ".cursor").mkdir(parents=True)
    (tmp_path / "home" / ".cursor" / "mcp.json").write_text(json.dumps(CURSOR))
    unasked = dial_chat(tmp_path, "servers", "import", "cursor")
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    assert '"https://docs.example/mcp"' in unasked.stdout
    done = dial_chat(tmp_path, "servers", "import", "--yes")
    assert done.returncode == 0, done.stderr
    assert "  time: left out: there is a server of this name (--replace)" in done.stdout
    assert "    headersHelper: there is no such setting here" in done.stdout
    assert "docs: the variable DOCS_KEY is not set yet" in done.stderr
    written = json.loads((tmp_path / "servers.json").read_text())["mcpServers"]
    assert written == {
        "time": {"command": "mine"},
        "docs": {"url": "https://docs.example/mcp", "headers": {"X-Key": "${env:DOCS_KEY}"}},
    }
    again = dial_chat(tmp_path, "servers", "import", "--yes")
    assert (again.returncode, "There is nothing to import." in again.stdout) == (0, True)
    exported = dial_chat(tmp_path, "servers", "export", "docs", "--to", "gemini-cli")
    assert json.loads(exported.stdout)["mcpServers"]["docs"]["headers"] == {"X-Key": "${DOCS_KEY}"}
    for words in (["import", "cursr"], ["import", "zed"], ["import", "cursor", "--server", "dosc"], ["export", "dosc"]):
        wrong = dial_chat(tmp_path, "servers", *words)
        assert wrong.returncode == 2, wrong.stderr


def test_files_of_the_working_folder_are_imported_only_if_their_mcp_host_is_named(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"evil": {"command": "evil"}}}))
    done = dial_chat(tmp_path, "servers", "import", "--yes")
    assert "dial-chat servers import claude-code reads it" in done.stderr
    assert not (tmp_path / "home" / "xdg_config_home" / "dial-client").exists()
