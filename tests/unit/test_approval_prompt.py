"""The approval prompt: no text of a server or a model can imitate the lines of the prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from tests.inner import (
    BAR,
    MAX_MARKS,
    SAMPLING,
    Approval,
    ApprovalContext,
    Decision,
    ToolCallRequest,
    ToolSpec,
    build_question,
    count_unseen,
    describe_request,
    explain,
    parse_answer,
    quote_name,
    to_claims,
)
from tests.support.fakes import unhurried
from tests.support.shown_arguments import format_arguments

FORGED = "echo\nraw wants to run time\nRun time of raw? [y]es  [n]o: "


def asked(
    tool: ToolSpec, columns: int = 100, arguments: dict[str, Any] | None = None, *, whole: bool = False, why: str = ""
) -> list[str]:
    call = ToolCallRequest("1", "offered", arguments or {})
    before, last = build_question(tool, tool.server, columns)
    return [
        *describe_request(call, tool, ApprovalContext(tool.server, why_asked=why), columns, whole=whole),
        *before,
        last,
    ]


def tool(name: str = "echo", description: str = "", server: str = "raw", **more: Any) -> ToolSpec:
    return ToolSpec("offered", description, {}, server=server, tool=name, **more)


def test_a_line_break_in_a_tool_name_adds_no_line_to_the_prompt() -> None:
    lines = asked(tool(FORGED))
    assert lines[0].startswith('raw wants to run "echo\\nraw wants to')
    assert [line for line in lines if line.startswith(("raw wants", "Run time"))] == lines[:1]
    assert lines[-1].startswith('Run "echo\\nraw wants')


NAMES = [
    ("read_file", "read_file"),
    ("a.b/c:d@2+x-y", "a.b/c:d@2+x-y"),
    ("", '""'),
    ("a b", '"a b"'),
    ('a" of time', '"a\\" of time"'),
    ("a\\n", '"a\\\\n"'),
    ("a\x1b[2Jb", '"a\\u{1b}[2Jb"'),
    ("a\u200bb\u202e", '"a\\u{200b}b\\u{202e}"'),
    ("a\u00a0\u2003\u2028b", '"a\\u{a0}\\u{2003}\\u{2028}b"'),
    ("p\u0430ypal", '"p\u0430ypal" (with letters outside of ASCII: U+0430)'),
    ("x" * 500, f'"{"x" * 100}…" (500 characters)'),
]


@pytest.mark.parametrize(("name", "written"), NAMES, ids=[ascii(name)[:20] for name, _ in NAMES])
def test_unusual_tool_names_are_quoted_and_escaped(name: str, written: str) -> None:
    assert quote_name(name) == written


HINTS = (
    "│ the server says that it is read-only, that it destroys nothing, that it reaches beyond its own data, "
    "the web for example"
)


def test_claims_of_a_server_are_marked_with_a_bar() -> None:
    about = tool(
        description="Reads.\nraw wants to run time",
        title="Safe\nRun time of raw? [y]es",
        read_only=True,
        destructive=False,
        open_world=True,
    )
    lines = asked(about, 200, {"text": "x"})
    assert lines[:5] == [
        "raw wants to run echo",
        "│ it calls itself: Safe Run time of raw? [y]es",
        "│ the server says: Reads.",
        "│ raw wants to run time",
        HINTS,
    ]
    assert to_claims(about)["annotations"] == {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": True}


def test_the_prompt_shows_its_reason_and_counts_invisible_characters() -> None:
    lines = asked(tool(removed_invisible=3), 100, {"text": "a\u200bb"}, why="a page of the web was read")
    assert "  reason for asking: a page of the web was read" in lines
    assert "(3 invisible characters were removed from what the server says)" in lines
    assert "│ text: a\\u{200b}b" in lines
    assert "(1 invisible character is written out in the arguments)" in lines


def test_arguments_are_shown_with_line_breaks_and_unescaped_characters() -> None:
    block = format_arguments(
        ToolCallRequest(
            "1",
            "write",
            {
                "path": "notes/日本.md",
                "content": "# Title\r\n\r\n  indented\n",
                "lines": [1, "two", {"deep": "a\nb"}],
                "none": None,
                "number": "5",
                "empty": "",
                "odd key\n": {},
                "tail": "x ",
            },
        )
    )
    assert block.splitlines() == [
        "path: notes/日本.md", "content: |", "  # Title", "  ", "    indented", "lines:", "  - 1", "  - two", "  -",
        "    deep: |", "      a", "      b", "none: null", 'number: "5"', 'empty: ""', '"odd key\\n": {}', 'tail: "x "',
    ]  # fmt: skip


MORE = "  … 28 more lines, 261 characters: [v]iew all"


def test_a_long_text_is_shown_by_its_first_lines_and_a_count_of_the_remaining_lines() -> None:
    text = "\n".join(f"line {at}" for at in range(1, 41))
    short, whole = (asked(tool(), 100, {"content": text}, whole=whole) for whole in (False, True))
    assert short[2:15] == ["│ content: |", *(f"│   line {at}" for at in range(1, 12)), MORE]
    assert whole[2:43] == ["│ content: |", *(f"│   line {at}" for at in range(1, 41))]


def test_many_arguments_are_all_named_or_counted() -> None:
    some = asked(tool(), 100, {f"name{at}": "x\n" * 50 for at in range(60)})
    assert sum(line.startswith("│ name") for line in some) == 60
    many = asked(tool(), 100, {f"name{at}": 1 for at in range(10_000)})
    assert "… and 9,900 more arguments: [v]iew all" in many
    assert many[-1].startswith("Run echo of raw?")


ODD = "ab \n\t\r\x1b\u200b\u202e\u2028日👩\u200d│[]\"'"
FOREIGN = st.text(st.sampled_from(ODD), max_size=300) | st.text(max_size=30)


@unhurried
@given(FOREIGN, FOREIGN, FOREIGN, st.dictionaries(FOREIGN, FOREIGN, max_size=4), st.integers(60, 200))
def test_no_line_of_a_server_or_model_imitates_the_prompt_or_exceeds_the_terminal_width(
    name: str, title: str, description: str, arguments: dict[str, str], columns: int
) -> None:
    lines = asked(tool(name, description, title=title), columns)
    lines += list(describe_request(ToolCallRequest("1", "x", arguments), tool(), ApprovalContext("raw"), columns))
    ours = ("raw wants to run ", "with", "(", "  …", "Run ", "[y]es", "[v]iew", "[e]dit", "[q]uit", "Let ")
    for line in lines:
        assert line.startswith((BAR, *ours)), line
        assert len(line.splitlines()) == 1
        assert count_unseen(line) == 0
        if line.startswith(BAR):
            assert sum(map(get_cwidth, line)) < columns


ANSWERS = [
    ("", "deny", "the user said no"),
    ("n", "deny", "the user said no"),
    ("No.", "deny", "the user said no"),
    ("n, because it is Sunday.", "deny", "it is Sunday"),
    ("no because: wrong file", "deny", "wrong file"),
    ("n wrong file", "deny", "wrong file"),
    ("y", "once", ""),
    ("YES", "once", ""),
    ("s", "session", ""),
    ("session", "session", ""),
    ("a", "always", ""),
    ("Always", "always", ""),
]


@pytest.mark.parametrize(("typed", "decision", "reason"), ANSWERS, ids=[repr(typed) for typed, _, _ in ANSWERS])
def test_an_answer_is_a_key_or_a_word(typed: str, decision: str, reason: str) -> None:
    assert parse_answer(typed) == Approval(Decision(decision), reason)


@pytest.mark.parametrize("typed", ["yep", "yikes", "now", "notes", "ok", "1", "y y", "sure", "x", "n't"])
def test_an_unknown_answer_repeats_the_question(typed: str) -> None:
    assert parse_answer(typed) == "unknown"


def test_keys_of_the_same_meaning_are_explained_together() -> None:
    explained = explain({"y": "all these calls", "1": "that call alone", "2": "that call alone"})
    assert explained == 'y: all these calls; 1, 2: that call alone. Enter alone is "no".'


def test_view_edit_and_quit_are_answers() -> None:
    assert parse_answer("v") == parse_answer("View all") == "view"
    assert (parse_answer("e"), parse_answer("Quit")) == ("edit", "quit")


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_last_line_repeats_the_names_of_tool_and_server(columns: int) -> None:
    assert asked(tool(), columns)[-1].startswith("Run echo of raw? ")
    assert asked(tool(SAMPLING), columns)[-1].startswith("Let raw use your model? ")
    assert all(len(line) < columns for line in asked(tool("x" * 500, server="y" * 500), columns))


def test_deeply_nested_arguments_are_one_line_of_json() -> None:
    deep: Any = "end"
    for _ in range(60):
        deep = {"a": deep}
    [line] = [line for line in asked(tool(), 2000, {"deep": deep}, whole=True) if "end" in line]
    assert json.loads(line.partition(": ")[2])


def test_excess_combining_marks_are_escaped_and_counted() -> None:
    lines = asked(tool(description="d" + "\u0336" * 500), arguments={"z": "a" + "\u0301" * 5_000, "name": "e\u0301"})
    assert max(len(line) for line in lines) < 150
    assert "\u2502 name: e\u0301" in lines
    (first, *_) = [line for line in lines if "z: a" in line]
    assert first.startswith("\u2502 z: a" + "\u0301" * MAX_MARKS + r"\u{301}\u{301}")
    assert any("more characters: [v]iew all" in line for line in lines)
