"""Approvals on the screen: single keys, several calls at once, a diff, a reason, and changed arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import entry, write_config
from tests.support.screens import screen

CALLS: list[dict[str, Any]] = [
    {"name": "echo", "arguments": {"path": "notes.txt", "content": "one\n日本\n"}},
    {"name": "echo", "arguments": {"number": 1, "text": "two"}},
    {"name": "echo", "arguments": {"text": "three"}},
]


def test_calls_are_decided_by_keys(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_config(tmp_path, {"raw": entry("Server", "--log", str(log))}, [{"tool_calls": CALLS}, "Done."])
    (tmp_path / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    with screen(tmp_path, "--no-save", "Say hi", columns=100, rows=40) as person:
        shown = person.until("Run all 3: 1 echo of raw, 2 echo of raw, 3 echo of raw?")
        person.until("waits for permission")
        assert person.lines[-1].startswith("Run all 3"), "the question is the last line"
        assert "│ content: (compared with the file as it is)\n│ one\n│-two\n│+日本\n2" in shown.replace("本 ", "本")
        person.type("3")
        person.until("Run echo of raw?")
        person.type("n")
        person.until("No, because")
        person.type("it is Sunday\r")
        person.until("Run echo of raw? no, because it is Sunday")
        person.until("Run all 2: 1 echo of raw, 2 echo of raw?")
        person.type("2")
        person.until("Run echo of raw?", 2)
        person.type("e")
        person.until("Which argument?")
        person.type("2")
        person.until_last("text: two")
        person.type("\x15changed\r")
        person.until("│ text: (changed by you)\n│-two\n│+changed")
        person.type("y")
        person.until("Run echo of raw? yes")
        person.until("Run echo of raw?", 3)
        person.type("s")
        assert person.leave() == 5
    assert '✓ raw.echo(number=1, text="changed")' in person.text, "the line has what ran"
    called = [json.loads(line) for line in log.read_text().splitlines()]
    arguments = [line["params"]["arguments"] for line in called if line["method"] == "tools/call"]
    assert sorted(arguments, key=len, reverse=True) == [CALLS[0]["arguments"], {"number": 1, "text": "changed"}]
    assert "✗ raw.echo" in person.text
    assert person.text.endswith("Done.")
    assert "The user changed the arguments" in person.text


@pytest.mark.parametrize(("options", "mode"), [((), {"TERM": "dumb"}), (("--plain",), {})], ids=["dumb", "plain"])
def test_an_argument_is_changed_line_by_line(tmp_path: Path, options: Any, mode: Any) -> None:
    write_config(tmp_path, {"raw": entry("Server")}, [{"tool_calls": CALLS[1:2]}, "Done."])
    with screen(tmp_path, "--no-save", *options, "Say hi", **mode) as person:
        person.until("Run echo of raw?")
        for answer, shown in (
            ("?", "y: run this call; n: do not run it; a reason may follow"),
            ("e", "Which argument?"),
            ("2", "text: [two]"),
            ("changed", "│ text: (changed by you)\n│-two\n│+changed"),
            ("y", "Done."),
        ):
            person.until_true(lambda: person.lines[-1].rstrip().endswith(("?", ":", "]")), "no question")
            person.type(f"{answer}\r")
            person.until(shown)
        assert person.leave() == 0
    assert b"\x1b[6n" not in person.raw, "a terminal that does not say where its cursor is would get a warning"
    assert all(not line.endswith(" rea") for line in person.text.splitlines()), "lines are broken between words"


def test_quitting_ends_the_turn(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server")}, [{"tool_calls": CALLS}, "Done."])
    with screen(tmp_path, "--no-save", "Say hi") as person:
        person.until("Run all 3:")
        person.type("q")
        assert person.leave() == 130
    assert "Done." not in person.text
