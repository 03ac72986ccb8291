"""Variables, the home folder and env files in a configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inner import ConfigError, Transport, parse, read_server_mapping
from tests.support.config_files import HERE, error_of, in_a_file, server

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
def test_variables_are_expanded_once(written: str, meant: str) -> None:
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
def test_variables_and_a_tilde_are_expanded_in_the_keys_that_support_them(
    entry: dict[str, Any], name: str, value: object
) -> None:
    assert getattr(server(entry, VARIABLES), name) == value


def test_the_default_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIAL_TEST_VALUE", "found")
    assert parse('{"t": {"command": "${DIAL_TEST_VALUE}"}}').servers["t"].command == "found"
    assert read_server_mapping("t", {"command": "${DIAL_TEST_VALUE}"}).command == "found"


def test_a_disabled_server_needs_no_variable_and_no_env_file() -> None:
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


def test_values_of_env_override_values_of_the_env_file(tmp_path: Path) -> None:
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
def test_the_error_for_an_invalid_line_of_an_env_file_does_not_show_the_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.env").write_text(f"FIRST=1\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        parse('{"t": {"command": "x", "envFile": "x.env"}}', folder=tmp_path)
    assert str(caught.value) == "x.env:2:1: expected KEY=VALUE (a quote must end on its line)"


@pytest.mark.parametrize("content", [None, b"A=\xff", b"A=\0"])
def test_an_env_file_that_cannot_be_read_is_an_error_at_its_key(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.env").write_bytes(content)
    error = error_of(in_a_file(f'{{"command": "x",\n "envFile": {HERE}"x.env"}}'), folder=tmp_path)
    assert error.problem == "mcpServers.time.envFile: there is no such file, or it cannot be read"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist on POSIX systems only")
def test_a_named_pipe_as_env_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.env")
    error_of(in_a_file(f'{{"command": "x", "envFile": {HERE}"x.env"}}'), folder=tmp_path)


@given(st.text(st.sampled_from("${}AB:-~envx"), max_size=12), st.text(st.sampled_from("ab$"), max_size=3))
@settings(max_examples=300, deadline=None)
def test_values_of_variables_are_not_expanded_again(value: str, around: str) -> None:
    entry = {
        "command": "x",
        "args": [f"{around}${{A}}{around}", "${NO:-" + value.replace("}", "").replace("{", "") + "}"],
    }
    args = read_server_mapping("t", entry, environ={"A": value, "B": "wrong", "AB": "wrong"}).args
    assert args == (f"{around}{value}{around}", value.replace("}", "").replace("{", ""))
