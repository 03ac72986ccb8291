"""``dial-chat call``, and servers of the command line."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.inner import ConfigError, find_nearest_by_words, read_arguments
from tests.support.program import RAW, dial_chat, entry, write_config

MARKER = {"command": sys.executable, "args": ["-c", "open('started', 'w').close()"]}
SCHEMA: dict[str, Any] = {
    "properties": {
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "filter": {"type": "object"},
        "text": {"type": "string"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    }
}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], {}),
        (["count=3"], {"count": 3}),
        (["ratio=0.5", "deep=true"], {"ratio": 0.5, "deep": True}),
        (["tags=a", "tags=b"], {"tags": ["a", "b"]}),
        (["tags=a"], {"tags": ["a"]}),
        (['tags=["a", "b"]'], {"tags": ["a", "b"]}),
        (['filter={"a": 1}'], {"filter": {"a": 1}}),
        (["text=3"], {"text": "3"}),
        (["text=a=b"], {"text": "a=b"}),
        (["text="], {"text": ""}),
        (["text=@@ada"], {"text": "@ada"}),
        (["limit=null"], {"limit": None}),
        (["unknown=x"], {"unknown": "x"}),
        (['{"count": 3}'], {"count": 3}),
    ],
    ids=str,
)
def test_arguments_have_the_types_of_the_schema(words: list[str], arguments: dict[str, Any]) -> None:
    assert read_arguments(words, SCHEMA) == arguments


def test_an_argument_can_be_the_text_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("two\nlines")
    assert read_arguments([f"text=@{tmp_path / 'note.txt'}"], SCHEMA) == {"text": "two\nlines"}
    with pytest.raises(ConfigError, match=r"missing\.txt cannot be read: .*written @@missing\.txt"):
        read_arguments(["text=@missing.txt"], SCHEMA)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("get_time", "get_current_time"),
        ("getCurrentTime", "get_current_time"),
        ("convert", "convert_time"),
        ("get_wether", "get_weather"),
        ("nothing-like-it", ""),
    ],
)
def test_the_nearest_name_has_the_same_words(name: str, nearest: str) -> None:
    assert find_nearest_by_words(name, ["convert_time", "get_current_time", "get_weather"]) == nearest


def test_only_the_server_of_the_tool_starts(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server"), "marker": MARKER, "unset": {"command": "x", "cwd": "${NOT_SET}"}})
    done = dial_chat(tmp_path, "call", "raw/echo", "text=hello")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"text": "hello"})
    assert not (tmp_path / "started").exists()
    near = dial_chat(tmp_path, "call", "raw/echoes")
    assert (near.returncode, near.stdout) == (2, "")
    assert "there is no tool 'echoes' of raw (did you mean \"raw/echo\"?)" in near.stderr
    assert "there is no server 'rav'" in dial_chat(tmp_path, "call", "rav/echo").stderr
    assert "'hello' is not an argument" in dial_chat(tmp_path, "call", "raw/echo", "hello").stderr


def test_a_long_result_is_printed_whole_whatever_a_model_would_read_of_it(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server")}, limits={"maxResultChars": 2_000})
    text = "word " * 40_000
    (tmp_path / "text").write_text(text)
    done = dial_chat(tmp_path, "call", "raw/echo", "text=@text")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"text": text})


def test_a_tool_that_was_listed_is_known_by_its_name_alone(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server"), "marker": MARKER})
    assert dial_chat(tmp_path, "tools").returncode == 0
    (tmp_path / "started").unlink()
    assert dial_chat(tmp_path, "call", "echo", "text=hello").returncode == 0
    assert not (tmp_path / "started").exists()


def test_a_server_of_the_command_line_is_used_for_one_run(tmp_path: Path) -> None:
    command = shlex.join([*RAW, "Server"])
    done = dial_chat(tmp_path, "tools", "--server", f"mine={command}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "mine: " in done.stdout
    called = dial_chat(tmp_path, "call", "--server", f"mine={command}", "mine/echo", "text=hello")
    assert json.loads(called.stdout) == {"text": "hello"}
    calls = [{"tool_calls": [{"name": "echo", "arguments": {"text": "hi"}}]}, "Done."]
    (tmp_path / "replies.json").write_text(json.dumps(calls))
    options = ["-m", "scripted:replies.json", "--server", f"mine={command}", "--allow", "mine/*"]
    answer = json.loads(dial_chat(tmp_path, *options, "--output", "json", "Hi").stdout)
    assert [(call["server"], call.get("error")) for call in answer["tool_calls"]] == [("mine", None)]
    assert "no servers.json here" in dial_chat(tmp_path, "tools").stderr  # nothing was written


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("npx server", "has no name and command"),
        ("a=", "has no name and command"),
        ("a='b", "a quotation mark is not closed"),
        ("raw=other", "there is a server 'raw' already"),
        ("a=ftp://x", ""),
    ],
)
def test_a_server_of_the_command_line_in_another_form_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    write_config(tmp_path, {"raw": {"command": "x", "disabled": True}})
    done = dial_chat(tmp_path, "tools", "--server", text)
    assert done.returncode == (2 if problem else 0)
    assert problem in done.stderr
