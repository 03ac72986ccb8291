from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dial_client.config import (
    QUIRKS,
    ModelSettings,
    Protocol,
    ServerSettings,
    Settings,
    Transport,
    Wire,
    find_config,
    load,
    parse,
    server_from_mapping,
)
from dial_client.errors import ConfigError
from dial_client.model import ToolFormat

HERE = "⟦"
"""Marks in a text the place that the error has to name."""


def error_of(text: str, environ: Mapping[str, str] | None = None, folder: Path | None = None) -> ConfigError:
    """Give the error of a text, after checking that it names the marked place."""
    before = text.partition(HERE)[0]
    with pytest.raises(ConfigError) as caught:
        parse(text.replace(HERE, ""), path="servers.json", folder=folder, environ=environ or {})
    error = caught.value
    assert (error.line, error.column) == (before.count("\n") + 1, len(before) - before.rfind("\n")), str(error)
    assert error.path == "servers.json"
    assert str(error).startswith(f"servers.json:{error.line}:{error.column}: ")
    return error


def in_a_file(entry: str) -> str:
    return f'{{"mcpServers": {{\n  "time": {entry}\n}}}}'


def server(entry: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> ServerSettings:
    return server_from_mapping("time", entry, environ=environ or {}, folder="/conf")


def test_the_example_of_the_contract_is_read() -> None:
    text = """{
      "mcpServers": {
        "time": {"command": "mcp-server-time", "args": ["--local-timezone", "${TZ:-UTC}"], "autoApprove": ["*"]},
        "docs": {"url": "https://example.test/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}},
        "old": {"url": "https://example.test/sse", "type": "sse", "disabled": true}
      },
      "models": {
        "qwen": {"wire": "chat", "base_url": "http://127.0.0.1:11434/v1", "model": "qwen3.5",
                 "api_key": "${QWEN_KEY:-none}"}
      },
      "defaultModel": "qwen"
    }"""
    assert parse(text, path="servers.json", environ={"DOCS_TOKEN": "abc"}) == Settings(
        servers={
            "time": ServerSettings(
                "time",
                Transport.STDIO,
                command="mcp-server-time",
                args=("--local-timezone", "UTC"),
                auto_approve=("*",),
            ),
            "docs": ServerSettings(
                "docs",
                Transport.HTTP,
                url="https://example.test/mcp",
                headers={"Authorization": "Bearer abc"},
            ),
            "old": ServerSettings("old", Transport.SSE, url="https://example.test/sse", enabled=False),
        },
        models={"qwen": ModelSettings("qwen", Wire.CHAT, "http://127.0.0.1:11434/v1", "qwen3.5", "none")},
        default_model="qwen",
        path=Path("servers.json"),
    )


ENTRY = '{"command": "x"}'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f'{{"mcpServers": {{"b": {ENTRY}, "a": {ENTRY}}}}}', ["b", "a"]),
        (f'{{"servers": {{"b": {ENTRY}}}, "inputs": []}}', ["b"]),
        (f'{{"b": {ENTRY}, "a": {ENTRY}}}', ["b", "a"]),
        (f'{{"$schema": "…", "_comment": "mine", "//": "mine", "b": {ENTRY}}}', ["b"]),
        (f'{{"theme": "dark", "mcpServers": {{"b": {ENTRY}}}, "model": {{}}}}', ["b"]),
        ('{"models": {}, "defaultModel": "local"}', []),
        ('{"mcpServers": {}}', []),
        ("{}", []),
    ],
)
def test_servers_stand_under_one_of_two_keys_or_at_the_top(text: str, names: list[str]) -> None:
    read = parse(text, environ={})
    assert list(read.servers) == names
    assert read.warnings == ()


HTTP = {"url": "http://h/mcp"}
RUN = {"command": "x"}


@pytest.mark.parametrize(
    ("entry", "name", "value"),
    [
        (RUN, "transport", Transport.STDIO),
        (RUN | {"type": "stdio"}, "transport", Transport.STDIO),
        (RUN | {"transport": "stdio"}, "transport", Transport.STDIO),
        (RUN | {"type": "local"}, "transport", Transport.STDIO),
        (RUN | {"url": None}, "transport", Transport.STDIO),
        (HTTP, "transport", Transport.HTTP),
        (HTTP | {"type": "http"}, "transport", Transport.HTTP),
        (HTTP | {"type": "streamable-http"}, "transport", Transport.HTTP),
        (HTTP | {"type": "streamableHttp"}, "transport", Transport.HTTP),
        (HTTP | {"transport": "streamable_http"}, "transport", Transport.HTTP),
        (HTTP | {"type": "http", "transport": "http"}, "transport", Transport.HTTP),
        (HTTP | {"type": "sse"}, "transport", Transport.SSE),
        ({"url": "http://h/sse"}, "transport", Transport.SSE),
        ({"url": "http://h/a/sse/?x=1"}, "transport", Transport.SSE),
        ({"url": "http://h/sse", "type": "http"}, "transport", Transport.HTTP),
        ({"url": "http://sse"}, "transport", Transport.HTTP),
        ({"url": "http://h/mcp?next=/sse"}, "transport", Transport.HTTP),
        ({"url": "http://h/asse"}, "transport", Transport.HTTP),
        ({"httpUrl": "http://h/sse"}, "transport", Transport.HTTP),
        ({"httpUrl": "http://h/mcp"}, "url", "http://h/mcp"),
        ({"url": "HTTPS://user:word@[::1]:8443/ü?a=b#c"}, "url", "HTTPS://user:word@[::1]:8443/ü?a=b#c"),
        ({"command": Path("bin") / "x"}, "command", str(Path("bin") / "x")),
        (RUN | {"args": ["-a", "", "b c"]}, "args", ("-a", "", "b c")),
        (RUN | {"args": ("a",)}, "args", ("a",)),
        (RUN | {"args": None}, "args", ()),
        (
            RUN | {"env": {"A": "x", "B": 1, "C": 1.5, "D": True, "E": None}},
            "env",
            {"A": "x", "B": "1", "C": "1.5", "D": "true"},
        ),
        (RUN | {"cwd": "sub"}, "cwd", str(Path("/conf/sub").absolute())),
        (RUN | {"cwd": "/abs"}, "cwd", str(Path("/conf", "/abs").absolute())),
        (RUN, "cwd", None),
        (HTTP | {"headers": {"X-A": "  b c\t", "X-B": 2, "X-C": None}}, "headers", {"X-A": "b c", "X-B": "2"}),
        (RUN, "enabled", True),
        (RUN | {"disabled": True}, "enabled", False),
        (RUN | {"disabled": False}, "enabled", True),
        (RUN | {"enabled": False}, "enabled", False),
        (RUN | {"enabled": True, "disabled": False}, "enabled", True),
        (RUN | {"autoApprove": ["a", "b*"]}, "auto_approve", ("a", "b*")),
        (RUN | {"alwaysAllow": ["a"]}, "auto_approve", ("a",)),
        (RUN | {"auto_approve": ["a"]}, "auto_approve", ("a",)),
        (RUN | {"autoApprove": ["a"], "alwaysAllow": ["a"]}, "auto_approve", ("a",)),
        (RUN, "enabled_tools", None),
        (RUN | {"enabledTools": []}, "enabled_tools", ()),
        (RUN | {"includeTools": ["a"]}, "enabled_tools", ("a",)),
        (RUN | {"enabled_tools": ["a"]}, "enabled_tools", ("a",)),
        (RUN | {"disabledTools": ["a"]}, "disabled_tools", ("a",)),
        (RUN | {"excludeTools": ["a"]}, "disabled_tools", ("a",)),
        (RUN | {"disabled_tools": ["a"]}, "disabled_tools", ("a",)),
        (RUN, "startup_timeout", 60.0),
        (RUN | {"startupTimeout": 5}, "startup_timeout", 5.0),
        (RUN | {"startup_timeout_sec": 0.5}, "startup_timeout", 0.5),
        (RUN, "tool_timeout", None),
        (RUN | {"toolTimeout": 7.5}, "tool_timeout", 7.5),
        (RUN | {"tool_timeout_sec": 7}, "tool_timeout", 7.0),
        (RUN | {"timeout": 30000}, "tool_timeout", 30.0),
        (RUN | {"timeout": 30000, "toolTimeout": 7}, "tool_timeout", 7.0),
        (RUN, "protocol", Protocol.AUTO),
        (RUN | {"protocol": "legacy"}, "protocol", Protocol.LEGACY),
        (RUN | {"protocol": "2026-07-28"}, "protocol", Protocol.MODERN),
        (RUN, "resources", "user"),
        (RUN | {"resources": "tools"}, "resources", "tools"),
        (RUN | {"required": True}, "required", True),
        (RUN | {"trusted": True}, "trusted", True),
    ],
)
def test_every_key_of_a_server_has_its_meaning(entry: dict[str, Any], name: str, value: object) -> None:
    read = server(entry)
    assert getattr(read, name) == value
    assert read.warnings == ()


VARIABLES = {"A": "one", "EMPTY": "", "NESTED": "${A}", "HOME": "/home/me", "USERPROFILE": "/home/me", "a b": "two"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("${A}", "one"),
        ("<${A}${A}>", "<oneone>"),
        ("${env:A}", "one"),
        ("${A:-x}", "one"),
        ("${env:A:-x}", "one"),
        ("${MISSING:-x y}", "x y"),
        ("${env:MISSING:-x}", "x"),
        ("${MISSING:-}", ""),
        ("${MISSING:-a:-b}", "a:-b"),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${NESTED}", "${A}"),
        ("${MISSING:-$}{A}", "${A}"),
        ("${a b}", "two"),
        ("${userHome}/x", "/home/me/x"),
        ("${workspaceFolder}/x", f"{Path('/conf').absolute()}/x"),
        ("$A $$ $ {A} %A%", "$A $$ $ {A} %A%"),
        ("~/x", "~/x"),
    ],
)
def test_variables_are_put_in_once(written: str, meant: str) -> None:
    entry = {"command": "x", "args": [written], "env": {"K": written, "${A}": "key"}}
    read = server(entry, VARIABLES)
    assert read.args == (meant,)
    assert read.env == {"K": meant, "${A}": "key"}


@pytest.mark.parametrize(
    ("entry", "name", "value"),
    [
        ({"command": "${A}/x"}, "command", "one/x"),
        ({"command": "~/x"}, "command", "/home/me/x"),
        ({"command": "~"}, "command", "/home/me"),
        ({"command": "~you/x"}, "command", "~you/x"),
        ({"command": "${TILDE:-~}/x"}, "command", "~/x"),
        ({"command": "x", "cwd": "~/x"}, "cwd", str(Path("/conf", "/home/me/x").absolute())),
        ({"command": "x", "cwd": "${A}"}, "cwd", str(Path("/conf/one").absolute())),
        ({"url": "http://${A}/${env:A}"}, "url", "http://one/one"),
        ({"url": "${MISSING:-http://h/sse}"}, "transport", Transport.SSE),
        ({"url": "http://h", "headers": {"X": "Bearer ${A}"}}, "headers", {"X": "Bearer one"}),
        ({"command": "x", "autoApprove": ["${A}"]}, "auto_approve", ("${A}",)),
    ],
)
def test_variables_and_the_tilde_are_put_in_where_they_belong(entry: dict[str, Any], name: str, value: object) -> None:
    assert getattr(server(entry, VARIABLES), name) == value


def test_the_environment_of_the_process_is_used_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAL_TEST_VALUE", "found")
    assert parse('{"t": {"command": "${DIAL_TEST_VALUE}"}}').servers["t"].command == "found"
    assert server_from_mapping("t", {"command": "${DIAL_TEST_VALUE}"}).command == "found"


def test_a_server_that_is_disabled_needs_no_variable_and_no_file() -> None:
    entry = {
        "url": "${BASE}/[${X}/sse",
        "headers": {"A": "${TOKEN}"},
        "env": {"B": "${input:x}"},
        "cwd": "${WHERE}",
        "envFile": "${MISSING}.env",
        "disabled": True,
    }
    read = server(entry)
    assert (read.enabled, read.url, read.headers, read.cwd) == (
        False,
        "${BASE}/[${X}/sse",
        {"A": "${TOKEN}"},
        "${WHERE}",
    )


ENV_FILE = r"""
# a comment
PLAIN=one two   # not part of it
export EXPORTED = three
HASH=a#b
SINGLE='it is ${A} \n "x" # y'   # a comment
DOUBLE="a \"b\" \\ \n\$ \d # c"
EMPTY=
QUOTED_EMPTY=""
COMMENTED= # nothing
LATER=1
LATER=2
dotted.name-x=ok
  SPACED  =  x
OVERRIDDEN=file
REMOVED=file
EQUALS=a=b==
"""


def test_an_env_file_is_read_below_what_env_says(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".env").write_bytes(b"\xef\xbb\xbf" + ENV_FILE.replace("\n", "\r\n").encode())
    entry = '{"command": "x", "envFile": "${A}/.env", "env": {"OVERRIDDEN": "entry", "REMOVED": null, "OWN": "1"}}'
    assert parse(f'{{"t": {entry}}}', folder=tmp_path, environ={"A": "sub"}).servers["t"].env == {
        "PLAIN": "one two",
        "EXPORTED": "three",
        "HASH": "a#b",
        "SINGLE": 'it is ${A} \\n "x" # y',
        "DOUBLE": 'a "b" \\ \n$ \\d # c',
        "EMPTY": "",
        "QUOTED_EMPTY": "",
        "COMMENTED": "",
        "LATER": "2",
        "dotted.name-x": "ok",
        "SPACED": "x",
        "OVERRIDDEN": "entry",
        "EQUALS": "a=b==",
        "OWN": "1",
    }


@pytest.mark.parametrize("line", ["no equals sign", "A='open", 'A="open', "A='x' y", "export B", "=x", "A B=x"])
def test_a_bad_line_of_an_env_file_is_named_without_showing_it(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.env").write_text(f"FIRST=1\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        parse('{"t": {"command": "x", "envFile": "x.env"}}', folder=tmp_path)
    assert str(caught.value) == "x.env:2:1: expected KEY=VALUE (a quote is closed in its line)"


@pytest.mark.parametrize("content", [None, b"A=\xff", b"A=\0"])
def test_an_env_file_that_cannot_be_read_is_an_error_at_its_key(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.env").write_bytes(content)
    error = error_of(in_a_file(f'{{"command": "x",\n "envFile": {HERE}"x.env"}}'), folder=tmp_path)
    assert error.problem == "mcpServers.time.envFile: there is no such file, or it cannot be read"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a matter of POSIX")
def test_an_env_file_that_would_never_end_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.env")
    error_of(in_a_file(f'{{"command": "x", "envFile": {HERE}"x.env"}}'), folder=tmp_path)


ENTRY_ERRORS = [
    ("⟦3", "time: expected an object, found a number", ""),
    ("⟦null", "time: expected an object, found null", ""),
    ('⟦"npx"', "time: expected an object, found a string", ""),
    ('{"command": ⟦3}', "time.command: expected a string, found a number", "double quotes"),
    ('{"command": ⟦["npx", "-y"]}', "time.command: expected a string, found a list", ""),
    ('{"command": ⟦""}', "time.command: expected the name or the path of a program", ""),
    (r'{"command": ⟦"C:\\x\node.exe"}', "time.command: expected the name", r"written \\"),
    ('{"command": ⟦"${E}"}', "time.command: expected the name or the path of a program", ""),
    ('{"command": ⟦"a\\u0000b"}', "time.command: a NUL character cannot be passed on", ""),
    ('{"command": "x", "args": ["a", ⟦8080]}', "time.args[1]: expected a string, found a number", "double quotes"),
    ('{"command": "x", "args": ⟦"a b"}', "time.args: expected a list, found a string", ""),
    ('{"command": "x", "args": [⟦"\\u0000"]}', "time.args[0]: a NUL character cannot be passed on", ""),
    ('{"command": "x", "env": ⟦["A=1"]}', "time.env: expected an object, found a list", ""),
    ('{"command": "x", "env": {"A": ⟦["x"]}}', "time.env.A: expected a string, found a list", ""),
    ('{"command": "x", "env": {"A": ⟦"\\u0000"}}', "time.env.A: a NUL character", ""),
    ('{"command": "x", "env": {⟦"A=B": "x"}}', "time.env['A=B']: expected the name of a variable", ""),
    ('{"command": "x", "env": {⟦"": "x"}}', "time.env['']: expected the name of a variable", ""),
    ('{"command": "x", "cwd": ⟦1}', "time.cwd: expected a string", ""),
    ('{"command": "x", ⟦"url": "http://h"}', "time.url: stands beside command", "not both"),
    ('⟦{"args": []}', "time: neither command nor url is given", 'a program ("command") or an address ("url")'),
    ('⟦{"comand": "x"}', "time: neither command nor url is given", 'did you mean "command"?'),
    ('{"type": ⟦"http", "command": "x"}', "time.type: this type needs url", "leave the type out"),
    ('{"type": ⟦"stdio", "url": "http://h"}', "time.type: this type needs command", "leave the type out"),
    ('{"type": ⟦"ws", "url": "http://h"}', 'time.type: expected one of "stdio", "http", "sse"', ""),
    ('{"transport": ⟦"streamhttp", "url": "http://h"}', "time.transport: expected one of", '"streamable-http"?'),
    ('{"type": "http", ⟦"transport": "sse", "url": "http://h"}', "time.transport: says something else than type", ""),
    ('{"url": ⟦"ftp://h"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"unix:///run/x"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"localhost:8000/mcp"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"http:///mcp"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"http://h:port/"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"http://[::1/"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"http://h/a b"}', "time.url: expected an http:// or https:// address", ""),
    ('{"url": ⟦"http://h/${LINES}"}', "time.url: expected an http:// or https:// address", ""),
    ('{"httpUrl": ⟦"x"}', "time.httpUrl: expected an http:// or https:// address", ""),
    (
        '{"url": "http://h", "headers": {"A": ⟦"${LINES}"}}',
        "time.headers.A: expected one line",
        "end with a line break?",
    ),
    (
        '{"url": "http://h", "headers": {"A": ⟦"a\\r\\nB: c"}}',
        "time.headers.A: expected one line of printable ASCII",
        "",
    ),
    ('{"url": "http://h", "headers": {"A": ⟦"é"}}', "time.headers.A: expected one line of printable ASCII", ""),
    ('{"url": "http://h", "headers": {⟦"A b": "c"}}', "time.headers['A b']: expected the name of a header", ""),
    ('{"url": "http://h", "headers": {⟦"A\\n": "c"}}', "time.headers['A\\n']: expected the name of a header", ""),
    ('{"command": "x", "disabled": ⟦"true"}', "time.disabled: expected true or false, found a string", ""),
    ('{"command": "x", "enabled": true, ⟦"disabled": true}', "time.disabled: says something else than enabled", ""),
    ('{"command": "x", "autoApprove": ⟦"*"}', "time.autoApprove: expected a list, found a string", ""),
    ('{"command": "x", "alwaysAllow": [⟦1]}', "time.alwaysAllow[0]: expected a string", ""),
    ('{"command": "x", "autoApprove": [], ⟦"alwaysAllow": ["a"]}', "time.alwaysAllow: says something else", "keep one"),
    ('{"command": "x", "includeTools": ⟦true}', "time.includeTools: expected a list, found true or false", ""),
    ('{"command": "x", "startupTimeout": ⟦-1}', "time.startupTimeout: expected a number that is not negative", ""),
    ('{"command": "x", "startupTimeout": ⟦0}', "time.startupTimeout: expected a number greater than 0", ""),
    ('{"command": "x", "toolTimeout": ⟦true}', "time.toolTimeout: expected a finite number, found true or false", ""),
    ('{"command": "x", "toolTimeout": ⟦"60"}', "time.toolTimeout: expected a finite number, found a string", ""),
    ('{"command": "x", "timeout": ⟦-5}', "time.timeout: expected a number that is not negative", ""),
    (
        '{"command": "x", "protocol": ⟦"2025-11-25"}',
        'time.protocol: expected one of "auto", "legacy", "2026-07-28"',
        "",
    ),
    ('{"command": "x", "resources": ⟦"model"}', 'time.resources: expected one of "user", "tools"', ""),
    ('{"command": "x", "protocol": ⟦"legasy"}', "time.protocol: expected one of", 'did you mean "legacy"?'),
    ('{"command": "x", "required": ⟦1}', "time.required: expected true or false, found a number", ""),
    ('{"command": "x", "trusted": ⟦[]}', "time.trusted: expected true or false, found a list", ""),
    ('{"command": "x", "args": [⟦"${TOKEN}"]}', "time.args[0]: the variable TOKEN is not set", "${TOKEN:-…}"),
    ('{"command": ⟦"${env:TOKEN}"}', "time.command: the variable TOKEN is not set", "${TOKEN:-…}"),
    ('{"command": "x", "env": {"A": ⟦"${TOKEN}"}}', "time.env.A: the variable TOKEN is not set", ""),
    ('{"command": "x", "cwd": ⟦"${TOKEN}"}', "time.cwd: the variable TOKEN is not set", ""),
    ('{"command": "x", "envFile": ⟦"${TOKEN}"}', "time.envFile: the variable TOKEN is not set", ""),
    ('{"url": ⟦"http://${TOKEN}"}', "time.url: the variable TOKEN is not set", ""),
    ('{"url": "http://h", "headers": {"A": ⟦"${TOKEN}"}}', "time.headers.A: the variable TOKEN is not set", ""),
    ('{"command": "x", "args": [⟦"${input:token}"]}', "time.args[0]: ${input:…} is not asked for", "write ${NAME}"),
    ('{"command": "x", "args": [⟦"${command:pick}"]}', "time.args[0]: this ${…} is not known", "${VAR:-default}"),
    ('{"command": "x", "args": [⟦"${}"]}', "time.args[0]: this ${…} is not known", "${VAR:-default}"),
    ('{"command": "x", "args": [⟦"${:-x}"]}', "time.args[0]: this ${…} is not known", ""),
    ('{"command": "x", "args": [⟦"${TOKEN"]}', "time.args[0]: this ${…} is not known", ""),
    ('{"command": "x", "args": [⟦"${A:-${E}}"]}', "time.args[0]: this ${…} is not known", "none inside another"),
    ('{"command": "x", "args": [⟦"${a\\u001bb}"]}', "time.args[0]: this ${…} is not known", ""),
]


@pytest.mark.parametrize(("entry", "problem", "hint"), ENTRY_ERRORS)
def test_what_is_wrong_with_a_server_is_named_with_its_place(entry: str, problem: str, hint: str) -> None:
    marked = entry if not entry.startswith(HERE + "{") else entry.removeprefix(HERE)
    text = in_a_file(marked)
    if marked is not entry:  # the entry as a whole is to blame: its name is pointed at
        text = text.replace('"time"', f'{HERE}"time"')
    error = error_of(text, {"E": "", "A": "", "LINES": "a\nb"})
    assert error.problem.startswith("mcpServers." + problem)
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("⟦[]", "expected an object, found a list", ""),
        ("⟦3", "expected an object, found a number", ""),
        ('{"mcpServers": ⟦[]}', "mcpServers: expected an object, found a list", ""),
        ('{"mcpServers": {}, ⟦"servers": {}}', "servers: stands beside mcpServers", "keep one of the two"),
        ('{"mcpServers": {⟦"": {"command": "x"}}}', "mcpServers['']: expected a name that can be read", ""),
        ('{"mcpServers": {⟦" ": {"command": "x"}}}', "mcpServers[' ']: expected a name that can be read", ""),
        ('{"mcpServers": {⟦"a\\u001b[0m": {"command": "x"}}}', "mcpServers['a\\x1b[0m']: expected a name", ""),
        ('{"mcpServers": {"a": {"command": "x"},\n ⟦"a": {}}}', "the key 'a' stands twice in one object", "line 1"),
        ('{⟦"mcpServer": {"a": {"command": "x"}}}', "mcpServer: neither command nor url", 'did you mean "mcpServers"?'),
        ('{"theme": ⟦"dark"}', "theme: expected a server's entry, found a string", 'under "mcpServers"'),
        ('{"defaultModl": ⟦"m"}', "defaultModl: expected a server's entry", 'did you mean "defaultModel"?'),
        ('{"defaultModel": ⟦3}', "defaultModel: expected a string, found a number", ""),
        ('{"defaultModel": ⟦"${NO}"}', "defaultModel: the variable NO is not set", ""),
        ('{"models": ⟦[]}', "models: expected an object, found a list", ""),
        ('{"models": {⟦"": {}}}', "models['']: expected a name", ""),
        ('{"models": {"m": ⟦"x"}}', "models.m: expected an object, found a string", ""),
        (
            '{"models": {"m": {"wire": ⟦"respones"}}}',
            'models.m.wire: expected one of "chat", "responses"',
            '"responses"?',
        ),
        ('{"models": {"m": {"wire": ⟦null}}}'.replace("null", "3"), "models.m.wire: expected one of", ""),
        ('{"models": {"m": {"base_url": ⟦"h/v1"}}}', "models.m.base_url: expected an http:// or https:// address", ""),
        ('{"models": {"m": {"base_url": ⟦"${NO}"}}}', "models.m.base_url: the variable NO is not set", "${NO:-…}"),
        ('{"models": {"m": {"api_key": ⟦"a\\nb"}}}', "models.m.api_key: expected one line", ""),
        ('{"models": {"m": {"api_key": ⟦"${NO}"}}}', "models.m.api_key: the variable NO is not set", ""),
        ('{"models": {"m": {"tool_format": ⟦"reakt"}}}', 'models.m.tool_format: expected one of "native"', '"react"?'),
        ('{"models": {"m": {"temperature": ⟦-1}}}', "models.m.temperature: expected a number that is not negative", ""),
        ('{"models": {"m": {"max_tokens": ⟦1.5}}}', "models.m.max_tokens: expected a whole number", ""),
        ('{"models": {"m": {"context_window": ⟦0}}}', "models.m.context_window: expected a number greater than 0", ""),
        (
            '{"models": {"m": {⟦"echo_reasonin": "none"}}}',
            "models.m.echo_reasonin: this is not a setting",
            '"echo_reasoning"?',
        ),
        ('{"models": {"m": {⟦"temprature": 1}}}', "models.m.temprature: this is not a setting", '"temperature"?'),
        ('{"models": {"m": {⟦"frobnicate": 1}}}', "models.m.frobnicate: this is not a setting of a model", ""),
        (
            '{"models": {"m": {"echo_reasoning": ⟦"tool_turn"}}}',
            'expected one of "none", "tool_turns"',
            '"tool_turns"?',
        ),
        ('{"models": {"m": {"tools": ⟦"react"}}}', 'models.m.tools: expected one of "native", "text"', ""),
        ('{"models": {"m": {"extra_body": ⟦[]}}}', "models.m.extra_body: expected an object, found a list", ""),
        ('{"models": {"m": {"headers": {"A": ⟦"a\\nb"}}}}', "models.m.headers.A: expected one line", ""),
        ('{"models": {"m": {"strict": ⟦"yes"}}}', "models.m.strict: expected true or false, found a string", ""),
        ('{"models": {"m": {"tool_name_len": ⟦true}}}', "models.m.tool_name_len: expected a finite number", ""),
        ('{"models": {"m": {"tool_name_re": ⟦"("}}}', "models.m.tool_name_re: expected a regular expression", ""),
        ('{"models": {"m": {"reasoning_in": ⟦"x"}}}', "models.m.reasoning_in: expected a list, found a string", ""),
        ('{"models": {"m": {"parallel": ⟦true}}}', 'models.m.parallel: expected one of "omit"', ""),
    ],
)
def test_what_is_wrong_with_the_rest_is_named_with_its_place(text: str, problem: str, hint: str) -> None:
    error = error_of(text)
    assert problem in error.problem
    assert hint in error.hint


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, True, "60", 10**400])
def test_a_timeout_made_in_python_is_checked_like_one_in_a_file(seconds: object) -> None:
    with pytest.raises(ConfigError, match=r"^time\.toolTimeout: expected"):
        server(RUN | {"toolTimeout": seconds})


def test_an_error_without_a_file_names_the_server_and_the_key() -> None:
    with pytest.raises(ConfigError) as caught:
        server({"command": "x", "args": [3]})
    assert str(caught.value) == "time.args[0]: expected a string, found a number (put it in double quotes)"
    with pytest.raises(ConfigError, match=r"^server: neither command nor url is given \(a server is"):
        server_from_mapping("server", {})


def test_a_model_has_sensible_defaults_and_every_key_its_meaning() -> None:
    text = """{"models": {
      "gpt-6": {},
      "full": {
        "wire": "messages", "baseUrl": "https://${H}/v1", "model": "m-${H}", "apiKey": "${K}\\t",
        "tool_format": "react", "temperature": 0, "max_tokens": 10, "contextWindow": 4096, "_comment": "mine",
        "tools": "text", "reasoning_in": ["reasoning", "${H}"], "echo_reasoning": "tool_turns",
        "reasoning_field": "reasoning_content", "idle_timeout": 30, "key_header": "x-key", "api_version": "v1",
        "headers": {"X-A": "${K}"}, "extra_body": {"a": {"b": ["${K}", 1]}}, "images": false, "prompt_cache": true,
        "documents": true, "short_ids": true, "tool_choice": false, "echo_call_extra": true, "tool_content": "str",
        "user_after_tool": false, "forced_choice": false, "sampling": false, "parallel": false,
        "max_tokens_field": "max_tokens", "stream_usage": true, "tool_name_re": "^[a-z]+$", "tool_name_len": 32,
        "constrain": "grammar",
        "schema_dialect": "gemini", "strict": false, "tool_search": true
      },
      "known": {"preset": "${P:-groq}"},
      "auto": {"tool_format": "auto", "wire": "${W:-responses}", "api_key": null}
    }}"""
    models = parse(text, environ={"H": "host", "K": "key"}).models
    assert models["gpt-6"] == ModelSettings("gpt-6", model="gpt-6")
    assert models["known"] == ModelSettings("known", model="known", preset="groq")
    assert models["auto"] == ModelSettings("auto", Wire.RESPONSES, model="auto")
    quirks = dict(models["full"].quirks)
    assert models["full"] == ModelSettings(
        "full", Wire.MESSAGES, "https://host/v1", "m-host", "key", ToolFormat.REACT, 0.0, 10, 4096, quirks
    )
    assert quirks == {
        "tools": "text",
        "reasoning_in": ("reasoning", "host"),
        "echo_reasoning": "tool_turns",
        "reasoning_field": "reasoning_content",
        "idle_timeout": 30.0,
        "key_header": "x-key",
        "api_version": "v1",
        "headers": {"X-A": "key"},
        "extra_body": {"a": {"b": ["key", 1]}},
        "images": False,
        "documents": True,
        "prompt_cache": True,
        "short_ids": True,
        "tool_choice": False,
        "tool_content": "str",
        "parallel": "false",
        "max_tokens_field": "max_tokens",
        "tool_name_re": "^[a-z]+$",
        "tool_name_len": 32,
        "constrain": "grammar",
        "schema_dialect": "gemini",
        "echo_call_extra": True,
        "user_after_tool": False,
        "forced_choice": False,
        "sampling": False,
        "stream_usage": True,
        "strict": False,
        "tool_search": True,
    }
    assert quirks.keys() == QUIRKS.keys()


def test_unknown_keys_give_one_warning_for_each_entry() -> None:
    text = """{"mcpServers": {
      "time": {"command": "x", "autoAprove": ["*"], "frob": 1},
      "more": {"command": "y", "q1": 1, "q2": 1, "q3": 1, "q4": 1, "q5": 1, "q6": 1},
      "fine": {"command": "z"}
    }}"""
    read = parse(text, path="servers.json", environ={})
    first, second = read.warnings
    assert first == (
        "servers.json:2:32: mcpServers.time.autoAprove: unknown keys have no effect: "
        "'autoAprove' (did you mean \"autoApprove\"?), 'frob'"
    )
    assert second.endswith("unknown keys have no effect: 'q1', 'q2', 'q3', 'q4', 'q5' and 1 more")
    assert read.servers["time"].warnings == (first,)
    assert read.servers["time"].auto_approve == ()


def test_keys_of_other_hosts_and_comments_are_passed_over_in_silence() -> None:
    entry = RUN | {"description": "d", "icon": "i", "oauth": {}, "version": "1", "_x": 1, "//": "c", "$schema": "s"}
    assert server(entry).warnings == ()


def test_what_other_hosts_mean_otherwise_is_warned_about() -> None:
    (timeout,) = server(RUN | {"timeout": 60}).warnings
    assert timeout == "time.timeout: less than a second (timeout is in milliseconds, toolTimeout in seconds)"
    (variable,) = server(RUN | {"env": {"TOKEN": "$MY_TOKEN"}}).warnings
    assert variable == "time.env.TOKEN: this is passed on as it is written (a variable is written ${NAME})"


CLAUDE_DESKTOP = r"""
{
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "C:\\Users\\me\\Desktop", "/Users/me/Downloads"]
    },
    "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"GIT_AUTHOR_NAME": "me"}}
  },
  "globalShortcut": "Ctrl+Space",
  "preferences": {"sidebar": true}
}
"""
CLAUDE_CODE = """
{
  "mcpServers": {
    "api": {
      "type": "http",
      "url": "${API_BASE_URL:-https://api.example.test}/mcp",
      "headers": {"Authorization": "Bearer ${API_KEY}"},
      "oauth": {"clientId": "abc", "callbackPort": 8080}
    },
    "local": {"type": "stdio", "command": "/opt/server", "args": ["--db", "${DB_URL}"], "env": {"CACHE": "/tmp"}},
    "old": {"type": "sse", "url": "https://old.example.test/events"}
  }
}
"""
VS_CODE = """
// written by hand
{
  /* what is asked for */
  "inputs": [],
  "servers": {
    "github": {"type": "http", "url": "https://api.example.test/mcp/"}, // remote
    "playwright": {
      "command": "npx",
      "args": ["-y", "@microsoft/mcp-server-playwright", "--root=${workspaceFolder}"],
      "env": {"PORT": 8931, "DEBUG": null, "KEY": "${env:API_KEY}",},
      "envFile": "${workspaceFolder}/.env",
      "dev": {"watch": "src/**", "debug": {"type": "node"}},
    },
  },
}
"""
CURSOR = """
{"mcpServers": {
  "linear": {"url": "https://mcp.example.test/sse", "headers": {"X-Key": "${env:API_KEY}"}},
  "mine": {"command": "${userHome}/bin/mine", "args": ["${workspaceFolder}/src"], "env": {"KEY": "${env:API_KEY}"}}
}}
"""
CLINE = """
{"mcpServers": {
  "weather": {
    "autoApprove": ["get_forecast"], "disabled": false, "timeout": 60, "type": "stdio",
    "command": "node", "args": ["/path/build/index.js"], "env": {"KEY": "abc"}
  },
  "remote": {"type": "streamableHttp", "url": "https://h.example.test/mcp", "alwaysAllow": [], "disabled": true}
}}
"""
GEMINI = """
{
  "theme": "GitHub",
  "model": {"name": "gemini-4-pro"},
  "mcp": {"allowed": ["py"]},
  "mcpServers": {
    "py": {
      "command": "python", "args": ["-m", "server", "--port", "8080"], "cwd": "./server", "timeout": 600000,
      "env": {"KEY": "${API_KEY}"}, "trust": false, "includeTools": ["safe"], "excludeTools": ["unsafe"]
    },
    "http": {"httpUrl": "http://localhost:3000/mcp", "headers": {"Authorization": "Bearer t"}, "timeout": 5000},
    "sse": {"url": "http://localhost:8080/sse", "description": "events", "authProviderType": "google_credentials"}
  }
}
"""


@pytest.mark.parametrize(
    ("text", "said"),
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
def test_configurations_of_other_hosts_work_as_they_are(tmp_path: Path, text: str, said: dict[str, str]) -> None:
    (tmp_path / ".env").write_text("FROM_FILE=1\n")
    path = tmp_path / "mcp.json"
    path.write_text(text)
    read = load(path, {"API_KEY": "k", "DB_URL": "db", "HOME": "/home/me", "USERPROFILE": "/home/me"})
    assert {name: entry.transport.value for name, entry in read.servers.items()} == said
    assert [warning.partition("mcpServers.")[2].partition(":")[0] for warning in read.warnings] == (
        ["weather.timeout"] if text is CLINE else []
    )


def test_the_details_of_other_hosts_are_understood(tmp_path: Path) -> None:
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


def test_an_input_of_vs_code_is_refused_with_what_to_write_instead() -> None:
    text = """{"inputs": [{"type": "promptString", "id": "key", "password": true}],
    "servers": {"a": {"command": "x", "env": {"KEY": ⟦"${input:key}"}}}}"""
    error = error_of(text)
    assert error.problem == "servers.a.env.KEY: ${input:…} is not asked for here"
    assert error.hint == "set an environment variable and write ${NAME}"


def test_a_file_is_read_and_its_folder_is_where_paths_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "conf" / "servers.json"
    path.parent.mkdir()
    path.write_text('{"t": {"command": "x", "cwd": "work", "args": ["${workspaceFolder}"]}}')
    expected = (str(path.parent / "work"), (str(path.parent),))
    read = load(path)
    assert (read.path, read.servers["t"].cwd, read.servers["t"].args) == (path, *expected)
    monkeypatch.chdir(tmp_path)
    read = load("conf/servers.json")
    assert (read.path, read.servers["t"].cwd, read.servers["t"].args) == (Path("conf/servers.json"), *expected)


@pytest.mark.parametrize("name", ["missing.json", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be read: ") as caught:
        load(path)
    assert caught.value.path == path


def test_the_configuration_that_was_named_wins_and_has_to_exist(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{}")
    assert find_config(str(tmp_path / "mine.json")) == tmp_path / "mine.json"
    with pytest.raises(ConfigError) as caught:
        find_config(str(tmp_path / "missing.json"))
    assert str(caught.value) == f"{tmp_path / 'missing.json'}: there is no such file"
    with pytest.raises(ConfigError):
        find_config("a\0b")


def test_the_current_folder_comes_before_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(platformdirs, "user_config_dir", lambda name: str(tmp_path / "user" / name))
    assert find_config(None) is None
    own = tmp_path / "user" / "dial-client" / "servers.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    assert find_config(None) == own
    (tmp_path / "servers.json").write_text("{}")
    assert find_config() == Path("servers.json")


def test_reading_a_configuration_loads_no_heavy_library() -> None:
    heavy = ["mcp", "openai", "anthropic", "pydantic", "httpx2", "sqlalchemy", "structlog", "anyio", "platformdirs"]
    program = "import sys, dial_client.config as c; c.parse('{}'); print([m for m in sys.argv[1:] if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SECRET = "s3cr3t-7Fq9"
WITH_SECRETS: dict[str, Any] = {
    "mcpServers": {
        "a": {
            "command": "x",
            "args": ["--key", SECRET, "${TOKEN}"],
            "env": {"KEY": SECRET, "OTHER": "${TOKEN}"},
            "envFile": "a.env",
        },
        "b": {"url": f"https://u:{SECRET}@h/mcp?key=${{TOKEN}}", "headers": {"Authorization": f"Bearer {SECRET}"}},
    },
    "models": {
        "m": {
            "base_url": f"https://{SECRET}@h/v1",
            "api_key": "${TOKEN}",
            "headers": {"X-Key": "${TOKEN}"},
            "extra_body": {"user": SECRET},
            "temperature": 0.5,
            "strict": True,
        }
    },
    "defaultModel": "m",
}


def test_no_secret_is_in_a_repr(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text(f"FILE_KEY={SECRET}\n")
    read = parse(json.dumps(WITH_SECRETS), folder=tmp_path, environ={"TOKEN": SECRET})
    assert read.servers["a"].env["FILE_KEY"] == SECRET
    assert read.servers["b"].headers["Authorization"] == f"Bearer {SECRET}"
    assert read.models["m"].api_key == SECRET
    assert SECRET not in repr(read)
    for name in ("env", "headers", "args", "url"):
        assert not next(field for field in fields(ServerSettings) if field.name == name).repr


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_secret_is_in_an_error_or_a_warning(data: st.DataObject) -> None:
    """One place of the configuration is spoilt, then one place of its text."""
    spoilt = json.loads(json.dumps(WITH_SECRETS))
    del spoilt["mcpServers"]["a"]["envFile"]
    holder, key = data.draw(st.sampled_from(places(spoilt)))
    holder[key] = data.draw(
        st.sampled_from([3, True, None, [SECRET], {"k": SECRET}, f"ftp://{SECRET}\n", "${TOKEN}\0", "${TOKEN", "${NO}"])
    )
    text = json.dumps(spoilt, indent=1)
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.sampled_from(["", '"', "\\", "\n", ",", "}", "]", "#", "x"])) + text[at:]
    try:
        said = "".join(parse(text, environ={"TOKEN": f"{SECRET}\n"}).warnings)
    except ConfigError as error:
        said = f"{error} {error!r} {error.args}"
    assert SECRET not in said


def places(value: Any) -> list[tuple[Any, Any]]:
    """Give the holder and the key of every value below this one."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *places(value[key]))]


KEYS = st.sampled_from(
    [
        *("command", "args", "env", "envFile", "cwd", "url", "httpUrl", "headers", "type", "transport", "disabled"),
        *("enabled", "autoApprove", "alwaysAllow", "enabledTools", "timeout", "toolTimeout", "startupTimeout", "wire"),
        *("protocol", "required", "trusted", "base_url", "api_key", "tool_format", "temperature", "tool_name_re"),
        *("mcpServers", "servers", "models", "defaultModel", "inputs", "reasoning_in", "parallel", "strict"),
    ]
)
WORDS = st.sampled_from(
    [
        *("x", "http://h/sse", "https://[", "http", "sse", "stdio", "${A}", "${B:-x}", "${userHome}", "${", "~/x", "~"),
        *("chat", "auto", "legacy", "native", "(", "a\0b", "a\nb", "", "..", "/"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=5),
    max_leaves=12,
)


def settings_or_config_error(text: str | bytes) -> None:
    try:
        assert isinstance(parse(text, path="servers.json", folder="/conf", environ={"A": "a\n"}), Settings)
    except ConfigError as error:
        assert error.path
        assert error.line >= 1
        assert error.column >= 1


@given(st.text() | st.binary())
@settings(deadline=None)
def test_any_text_and_any_bytes_give_settings_or_a_config_error(text: str | bytes) -> None:
    settings_or_config_error(text)


@given(st.sampled_from(["mcpServers", "servers", "models", "defaultModel", "other"]), VALUES)
@settings(max_examples=300, deadline=None)
def test_any_json_under_the_top_key_gives_settings_or_a_config_error(key: str, value: Any) -> None:
    settings_or_config_error(json.dumps({key: value}))
    settings_or_config_error(json.dumps({key: {"name": value}}))


@given(st.dictionaries(KEYS, VALUES, max_size=6))
@settings(max_examples=400, deadline=None)
def test_any_entry_gives_settings_or_a_config_error(entry: dict[str, Any]) -> None:
    settings_or_config_error(json.dumps({"mcpServers": {"a": entry}, "models": {"m": entry}}))
    settings_or_config_error(json.dumps({"mcpServers": {"a": {"command": "x"} | entry}}))
    try:
        assert isinstance(server_from_mapping("a", entry, environ={}), ServerSettings)
    except ConfigError as error:
        assert error.problem.startswith("a")


@given(st.sampled_from([CLAUDE_CODE, VS_CODE, CURSOR, CLINE, GEMINI]), st.data())
@settings(max_examples=300, deadline=None)
def test_a_valid_file_with_a_mistake_gives_settings_or_a_config_error(text: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 10)))
    settings_or_config_error(text[:begin] + data.draw(st.text(max_size=3) | WORDS) + text[end:])


@given(st.text(st.sampled_from("${}AB:-~envx"), max_size=12), st.text(st.sampled_from("ab$"), max_size=3))
@settings(max_examples=300, deadline=None)
def test_values_of_variables_are_never_looked_through_again(value: str, around: str) -> None:
    entry = {
        "command": "x",
        "args": [f"{around}${{A}}{around}", "${NO:-" + value.replace("}", "").replace("{", "") + "}"],
    }
    args = server_from_mapping("t", entry, environ={"A": value, "B": "wrong", "AB": "wrong"}).args
    assert args == (f"{around}{value}{around}", value.replace("}", "").replace("{", ""))
