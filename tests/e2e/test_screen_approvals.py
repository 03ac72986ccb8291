"""Approvals on the screen: single keys, several calls at once, a diff, a reason, and changed arguments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.inner import live_area
from tests.support.program import entry, write_config
from tests.support.screens import screen

CALLS: list[dict[str, Any]] = [
    {"name": "echo", "arguments": {"path": "notes.txt", "content": "one\n日本\n"}},
    {"name": "echo", "arguments": {"number": 1, "text": "two"}},
    {"name": "echo", "arguments": {"text": "three"}},
]


def test_several_calls_have_a_row_each_in_one_box(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server")}, [{"tool_calls": CALLS}, "Done."])
    (tmp_path / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    with screen(tmp_path, "--no-save", "Say hi", columns=100, rows=40) as person:
        person.until("╭ 3 calls to decide ─")
        person.until("q stop")
        assert person.lines[-4:-1] == [
            row.ljust(len(person.lines[-1]) - 1) + "│"
            for row in (
                '│ 1  echo · raw  path="notes.txt", content +1 -1 lines',
                '│ 2  echo · raw  number=1, text="two"',
                '│ 3  echo · raw  text="three"',
            )
        ]
        assert person.lines[-1].startswith("╰ y yes to all · n no to all… · s this session"), "the last row"
        person.type("y")
        assert person.leave() == 0
    assert "allowed: echo · raw, echo · raw, echo · raw" in person.text


def test_calls_are_decided_by_keys(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_config(tmp_path, {"raw": entry("Server", "--log", str(log))}, [{"tool_calls": CALLS}, "Done."])
    (tmp_path / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    with screen(tmp_path, "--no-save", "Say hi", columns=100, rows=40) as person:
        person.until("3 calls to decide")
        person.type("3")
        person.until("│ text  three")
        person.type("n")
        person.until("No, because")
        person.type("it is Sunday\r")
        person.until("not allowed: echo · raw: it is Sunday")
        person.until("2 calls to decide")
        person.type("1")
        shown = person.until("│   - two").replace("本 ", "本")
        assert "│ content  +1 -1 lines" in shown
        person.until("│   + 日本")
        person.type("b")
        person.until("2 calls to decide")
        person.type("2")
        person.until("│ number  1")
        person.type("e")
        person.until("Which argument?")
        person.type("2")
        person.until_last("text: two")
        person.type("\x15changed\r")
        person.until("+1 -1 lines · changed by you")
        person.until("│   + changed")
        person.type("y")
        person.until("allowed with changed arguments: echo · raw")
        person.until("│ path     notes.txt")
        person.type("s")
        assert person.leave() == 5
    assert '✓ raw.echo(number=1, text="changed")' in person.text, "the line has what ran"
    called = [json.loads(line) for line in log.read_text().splitlines()]
    arguments = [line["params"]["arguments"] for line in called if line["method"] == "tools/call"]
    assert sorted(arguments, key=len, reverse=True) == [CALLS[0]["arguments"], {"number": 1, "text": "changed"}]
    assert "✗ raw.echo" in person.text
    assert person.text.endswith("Done.")
    assert "The user changed the arguments" not in person.text, "it is a note for the model"
    assert not re.search("[╭╰]", person.text), "no box remains"


def test_esc_denies_a_call_and_one_line_remains(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server")}, [{"tool_calls": CALLS[2:]}, "Done."])
    with screen(tmp_path, "--no-save", "Say hi") as person:
        person.until("╭ echo · raw")
        person.type("\x1b")
        assert person.leave() == 5
    rows = person.text.splitlines()
    assert rows[rows.index("not allowed: echo · raw") + 1].startswith('✗ raw.echo(text="three")')
    assert not re.search("[╭╰]", person.text)


def test_a_call_that_has_finished_is_shown_as_finished_while_another_waits(tmp_path: Path) -> None:
    calls = [{"name": "closed__echo", "arguments": {"text": "a"}}, {"name": "open__echo", "arguments": {"text": "b"}}]
    servers = {"closed": entry("Server"), "open": entry("Server", autoApprove=["*"])}
    write_config(tmp_path, servers, [{"tool_calls": calls}, "Done."])
    with screen(tmp_path, "--no-save", "Say hi") as person:
        person.until("╭ echo · closed")
        shown = person.until('✓ open.echo(text="b")')
        person.until_true(lambda: person.lines[-1].startswith("╰ y yes"), "the question is below")
        assert not re.search(f"[{live_area.SPINNER}] open.echo", shown)
        person.type("y")
        assert person.leave() == 0
    assert person.text.count('✓ open.echo(text="b")') == 1


def test_details_are_shown_in_place_and_can_be_moved(tmp_path: Path) -> None:
    text = "\n".join(f"line {at}" for at in range(1, 101))
    write_config(
        tmp_path, {"raw": entry("Server")}, [{"tool_calls": [{"name": "echo", "arguments": {"text": text}}]}, "."]
    )
    with screen(tmp_path, "--no-save", "Say hi", rows=24) as person:
        person.until("… 89 more lines, 624 characters · d shows all")
        assert "Says it again." not in person.text
        person.type("d")
        person.until("rows 1 to ")
        person.until_gone("89 more lines")
        for _ in range(9):
            person.type("\x1b[6~")
        person.until("│   line 100 ")
        person.until("the server says: Says it again.")
        person.type("d")
        person.until("89 more lines")
        person.type("y")
        assert person.leave() == 0
    assert "line 50" not in person.text, "nothing of it is left behind"


@pytest.mark.parametrize("columns", [30, 60, 160])
def test_the_box_fits_at_any_width(tmp_path: Path, columns: int) -> None:
    write_config(tmp_path, {"raw": entry("Server")}, [{"tool_calls": CALLS[:1]}, "Done."])
    with screen(tmp_path, "--no-save", "Say hi", columns=columns) as person:
        person.until("q stop")
        person.resize(columns + 20, 30)
        person.until("q stop")
        person.resize(columns, 30)
        person.until("q stop")
        person.type("y")
        assert person.leave() == 0
    assert person.overrun == []
    assert not re.search("[╭╰]", person.text)


@pytest.mark.parametrize(("options", "mode"), [((), {"TERM": "dumb"}), (("--plain",), {})], ids=["dumb", "plain"])
def test_an_argument_is_changed_line_by_line(tmp_path: Path, options: Any, mode: Any) -> None:
    write_config(tmp_path, {"raw": entry("Server")}, [{"tool_calls": CALLS[1:2]}, "Done."])
    with screen(tmp_path, "--no-save", *options, "Say hi", **mode) as person:
        person.until("Run echo of raw?")
        for answer, shown in (
            ("?", "y: run this call; n: do not run it; a reason may follow"),
            ("e", "Which argument?"),
            ("2", "text: [two]"),
            ("changed", "│ text    +1 -1 lines · changed by you\n│   - two\n│   + changed"),
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
        person.until("3 calls to decide")
        person.type("q")
        assert person.leave() == 130
    assert "Done." not in person.text


@pytest.mark.once
def test_an_approval_that_waits_for_ten_seconds_is_a_desktop_notification(tmp_path: Path) -> None:
    write_config(tmp_path, {"raw": entry("Server")}, [{"tool_calls": CALLS[2:]}, "Done."], notify="osc9")
    with screen(tmp_path, "--no-save", "Say hi") as person:
        person.until("╭ echo · raw")
        person.until_true(lambda: b"\x1b]9;dial-chat: A call waits" in person.raw, "no notification")
        person.type("y")
        assert person.leave() == 0
    assert person.raw.count(b"\x1b]9;") == 1
