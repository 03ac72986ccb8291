"""``dial-chat policy``, ``dial-chat grants`` and ``--policy``, together with ``-y`` and ``--allow``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.inner import GrantStore, ServerSettings, ToolSpec, Transport
from tests.support.program import dial_chat, entry, python_server, write_config

RULES = [
    {"deny": "raw/*", "paths": {"*": "~/.ssh"}, "reason": "keys stay where they are"},
    {"allow": "raw/echo", "arguments": {"to": "me"}},
]
TWICE: dict[str, Any] = {
    "replies": [*({"tool_calls": [{"name": name, "arguments": {}}]} for name in ("web__echo", "mail__echo")), "Ok."]
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_config(tmp_path, {"raw": entry("Server")}, policy=RULES)
    return tmp_path


TESTED: list[tuple[list[str], int, str]] = [
    (["raw/echo", '{"to": "me"}'], 0, "allow raw/echo: policy rule 2 (servers.json)"),
    (["raw/echo", '{"to": "you"}'], 6, "ask raw/echo: no rule: nothing allows it"),
    (["raw/echo"], 6, "ask raw/echo: no rule: nothing allows it"),
    (["raw/echo", '{"to": "~/.ssh/id"}'], 5, "deny raw/echo: policy rule 1 (servers.json): keys stay where they are"),
    (["raw/echo", '{"to": "me"}', "--tainted"], 6, "ask raw/echo: taint: the conversation holds untrusted content"),
    (["raw/echo", "--allow", "raw/*"], 0, "allow raw/echo: --allow raw/*"),
    (["raw/echo", '{"to": "me"}', "--deny", "echo"], 5, "deny raw/echo: --deny echo"),
]


@pytest.mark.parametrize(("words", "code", "output"), TESTED, ids=[" ".join(words) for words, _, _ in TESTED])
def test_policy_test_prints_the_deciding_rule_and_sets_the_exit_code(
    folder: Path, words: list[str], code: int, output: str
) -> None:
    ran = dial_chat(folder, "policy", "test", *words)
    assert (ran.returncode, ran.stdout.splitlines()[0][: len(output)]) == (code, output)
    as_json = dial_chat(folder, "policy", "test", *words, "--json")
    assert json.loads(as_json.stdout)["decision"] == output.split(maxsplit=1)[0]


def test_an_offered_name_is_known_after_the_servers_have_started_once(folder: Path) -> None:
    unknown = dial_chat(folder, "policy", "test", "echo")
    assert (unknown.returncode, "write SERVER/TOOL" in unknown.stderr) == (2, True)
    dial_chat(folder, "tools")
    known = dial_chat(folder, "policy", "test", "echo", '{"to": "me"}', "--json")
    assert known.returncode == 0
    assert json.loads(known.stdout) == {
        "decision": "allow",
        "decided_by": "policy rule 2 (servers.json)",
        "reason": "",
        "server": "raw",
        "tool": "echo",
        "is_known": True,
    }


@pytest.mark.parametrize("words", [["test"], ["list", "x"], ["test", "raw/echo", "[]"], ["test", "nope/x"]], ids=str)
def test_an_invalid_test_of_a_policy_is_an_error(folder: Path, words: list[str]) -> None:
    assert dial_chat(folder, "policy", *words).returncode == 2


def test_the_effective_rules_are_listed_with_warnings(folder: Path, tmp_path: Path) -> None:
    write_config(folder, {"raw": entry("Server", autoApprove=["*"], untrusted=True)}, policy=[{"ask": "nope/x"}])
    own = folder / "home" / "xdg_config_home" / "dial-client"
    own.mkdir(parents=True)
    (own / "servers.json").write_text(
        '{"mcpServers": {"x": {"command": "${NOT_SET}"}}, "policy": [{"deny": "raw/own"}]}'
    )
    (folder / "first.json").write_text('[{"deny": "raw/first", "paths": {"*": "x"}}]')
    words = ("policy", "--policy", "first.json", "--allow", "raw__echo", "--deny", "raw/x")
    ran = dial_chat(folder, *words)
    assert ran.stdout.splitlines() == [
        f'deny raw/first {{"paths": {{"*": ["{folder}/x"]}}}} (rule 1 (first.json))',
        "deny raw/own (rule 1 (~/xdg_config_home/dial-client/servers.json))",
        "ask nope/x (rule 1 (servers.json))",
        "deny raw/x (--deny)",
        "allow raw__echo (--allow)",
        "allow raw/* (autoApprove)",
        "taint raw/* (untrusted)",
        "ask everything else",
    ]
    assert "--allow 'raw__echo' allows nothing: a pattern is SERVER/TOOL, such as 'raw/echo'" in ran.stderr
    assert "there is no server 'nope'" in ran.stderr
    listed = json.loads(dial_chat(folder, *words, "--json").stdout)
    assert [rule["rule"] for rule in listed["policy"]] == [
        "rule 1 (first.json)",
        "rule 1 (~/xdg_config_home/dial-client/servers.json)",
        "rule 1 (servers.json)",
    ]


def test_the_users_own_policy_applies_with_every_configuration_file(tmp_path: Path) -> None:
    talk = {"replies": [{"tool_calls": [{"name": "echo", "arguments": {}}]}, "Ok."]}
    write_config(tmp_path, {"raw": entry("Server", autoApprove=["*"])}, talk, policy=[{"allow": "*"}])
    assert dial_chat(tmp_path, "go on").returncode == 0
    own = tmp_path / "home" / "xdg_config_home" / "dial-client"
    own.mkdir(parents=True)
    (own / "servers.json").write_text('{"policy": [{"deny": "raw/*", "reason": "never that one"}]}')
    assert dial_chat(tmp_path, "go on").returncode == 5
    assert dial_chat(tmp_path, "-y", "go on").returncode == 5


# --- -y and --allow '*' -----------------------------------------------------------------------------

TAINTED: list[tuple[list[str], int]] = [([], 5), (["--allow", "*"], 5), (["-y"], 0)]


@pytest.mark.parametrize(("words", "code"), TAINTED, ids=str)
def test_allowing_every_tool_does_not_skip_approvals_after_taint(tmp_path: Path, words: list[str], code: int) -> None:
    servers: dict[str, Any] = {
        "web": entry("Server", autoApprove=["*"], untrusted=True),
        "mail": entry("Server", autoApprove=["*"]),
    }
    write_config(tmp_path, servers, TWICE)
    ran = dial_chat(tmp_path, *words, "--output", "json", "go on")
    assert ran.returncode == code
    assert ("mail/echo: the conversation holds untrusted content from web/echo" in ran.stderr) == (code == 5)


# --- trust SERVER --read-only -----------------------------------------------------------------------

ANNOTATED = """
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("files")
for name, is_read in (("read", True), ("write", False)):
    server.add_tool(lambda: name, name=name, annotations=ToolAnnotations(read_only_hint=is_read))
server.run()
"""


def test_the_read_only_tools_of_a_server_run_without_a_question_after_one_command(tmp_path: Path) -> None:
    (tmp_path / "files.py").write_text(ANNOTATED, encoding="utf-8")
    replies: dict[str, Any] = {"replies": [{"tool_calls": [{"name": "read", "arguments": {}}]}, "Ok."]}
    write_config(tmp_path, {"files": python_server(tmp_path / "files.py")}, replies)
    assert dial_chat(tmp_path, "go on").returncode == 5
    ran = dial_chat(tmp_path, "trust", "files", "--read-only")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0].startswith("files is trusted, and its read-only tools are allowed in ")
    again = dial_chat(tmp_path, "trust", "files", "--read-only")
    assert "are allowed already" in again.stdout
    assert dial_chat(tmp_path, "go on").returncode == 0, "the changed file is trusted, as it was before"
    for mode, tool, code in (("read", "write", 6), ("plan", "read", 0), ("plan", "write", 5), ("auto", "write", 0)):
        assert dial_chat(tmp_path, "policy", "test", f"files/{tool}", "--mode", mode).returncode == code
    known = dial_chat(tmp_path, "trust", "files", "--read-only").stdout.splitlines()
    assert known[1:] == ["without a question: read", "asked about: write"]


@pytest.mark.parametrize("words", [["file", "--read-only"], ["--read-only"], ["x", "--read-only", "--revoke"]], ids=str)
def test_the_name_of_a_server_is_needed_to_trust_its_tools(folder: Path, words: list[str]) -> None:
    assert dial_chat(folder, "trust", *words).returncode == 2


# --- grants -----------------------------------------------------------------------------------------


def test_grants_are_listed_and_revoked(tmp_path: Path) -> None:
    store = GrantStore(tmp_path / "home" / "xdg_data_home" / "dial-client" / "grants")
    clock = ServerSettings("clock", Transport.STDIO, "clock-server", cwd="/clock")
    for server, tool in (("clock", "now"), ("clock", "set\n\x1b[31m"), ("watch", "now")):
        store.add(replace(clock, name=server, args=(server,)), ToolSpec(tool, "", {}, server, tool))
    ran = dial_chat(tmp_path, "grants")
    lines = ran.stdout.splitlines()
    assert len(lines) == 3
    assert "\x1b" not in ran.stdout
    assert lines[0].endswith(": clock-server in /clock")
    first, *_ = json.loads(dial_chat(tmp_path, "grants", "--json").stdout)
    assert (first["server"], first["tool"]) == ("clock", "now")
    assert dial_chat(tmp_path, "grants", "--revoke", "nope/x").returncode == 2
    assert dial_chat(tmp_path, "grants", "--revoke", first["id"]).stdout.splitlines() == [f"revoked: {lines[0]}"]
    assert dial_chat(tmp_path, "grants", "--revoke", "watch/*").stdout.splitlines() == [f"revoked: {lines[2]}"]
    assert dial_chat(tmp_path, "grants", "--revoke", "--all").stdout.splitlines() == [f"revoked: {lines[1]}"]
    assert store.list_grants() == ()
