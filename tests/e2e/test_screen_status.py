"""The status line below the input line, the modes that Shift-Tab changes, and what fills the context window."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.inner import QUIET
from tests.support.model_endpoint import Say, model_endpoint
from tests.support.program import dial_chat, entry, python_server, write_config
from tests.support.screens import ScreenReader, screen

pytestmark = pytest.mark.once

SERVER = '''
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("files")


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def read() -> str:
    """Read a file."""
    return "it was read"


@server.tool()
def write() -> str:
    """Write a file."""
    return "it was written"


server.run()
'''
BACK_TAB = "\x1b[Z"
BROKEN = {"command": sys.executable, "args": ["-S", "-c", "raise SystemExit('no')"]}
READ: dict[str, Any] = {"tool_calls": [{"name": "read", "arguments": {}}]}
WRITE: dict[str, Any] = {"tool_calls": [{"name": "write", "arguments": {}}]}
COUNTED: dict[str, Any] = {"text": "Done.", "usage": {"input_tokens": 900, "output_tokens": 100}}


def write_files_config(folder: Path, replies: list[Any], **servers: Any) -> None:
    (folder / "files.py").write_text(SERVER, encoding="utf-8")
    write_config(folder, {"files": python_server(folder / "files.py", trusted=True), **servers}, replies)


def begin(person: ScreenReader) -> None:
    person.until("tools available")
    person.until_true(lambda: person.lines[-1:] == [">"] and "mode" in person.status, "no status line")


def choose_mode(person: ScreenReader, mode: str) -> None:
    for _ in range(4):
        if f"mode {mode}" in person.status:
            return
        press_key_of_modes(person)
    raise AssertionError(person.status)


def press_key_of_modes(person: ScreenReader) -> None:
    before = person.status
    person.type(BACK_TAB)
    person.until_true(lambda: person.status != before, "the mode does not change")


def test_the_status_line_is_the_last_row_and_has_the_servers_that_are_not_ready(tmp_path: Path) -> None:
    write_files_config(tmp_path, ["Hello."], broken=BROKEN)
    with screen(tmp_path, "--no-save", columns=100) as person:
        begin(person)
        person.until_true(lambda: "1 server failed" in person.status, "the failed server is not shown")
        assert person.status == "scripted · mode ask (Shift-Tab) · 1 server failed"
        person.resize(40, 30)
        person.until_true(lambda: person.status == "scripted · mode ask · 1 server failed", "not in 40 columns")
        person.resize(40, 6)
        person.until_true(lambda: not person.status, "a low terminal has no row for it")
        person.type("\x04")
        assert person.leave() == 0
    assert "mode ask" not in person.text, "it is erased at the end"


def test_shift_tab_changes_the_mode_in_a_circle(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Hello."])
    with screen(tmp_path, "--no-save") as person:
        person.until_true(lambda: "mode ask" in person.status, "no status line")
        for mode in ("read", "plan", "auto", "ask"):
            press_key_of_modes(person)
            assert f"mode {mode}" in person.status
        person.type("text that stays")
        person.type(BACK_TAB)
        person.until_true(lambda: "mode read" in person.status, "not while a line is typed")
        assert person.lines[-1] == "> text that stays"


def test_a_mode_chosen_by_the_key_decides_the_next_calls(tmp_path: Path) -> None:
    write_files_config(tmp_path, [READ, "It is read.", WRITE, "A plan.", READ, WRITE, "All done."])
    with screen(tmp_path, "--no-save", columns=100, rows=40) as person:
        begin(person)
        choose_mode(person, "read")
        person.type("read it\r")
        person.until("It is read.")
        choose_mode(person, "plan")
        person.type("write it\r")
        person.until("A plan.")
        assert "the user wants a plan first" in person.text
        choose_mode(person, "auto")
        person.type("now\r")
        person.until("All done.")
    assert "wants to run" not in person.text, "nothing was asked"
    assert "it was written" in person.text


def test_a_message_that_follows_the_key_at_once_is_answered_in_its_mode(tmp_path: Path) -> None:
    write_files_config(tmp_path, [WRITE, "Done."])
    with screen(tmp_path, "--no-save", columns=100, rows=40) as person:
        begin(person)
        person.type(BACK_TAB * 3 + "go\r")
        person.until("Done.")
    assert "it was written" in person.text


def test_the_mode_changes_while_a_question_is_shown_and_holds_for_the_next_call(tmp_path: Path) -> None:
    write_files_config(tmp_path, [WRITE, READ, "Done."])
    with screen(tmp_path, "--no-save", columns=100, rows=40) as person:
        begin(person)
        person.type("go\r")
        person.until_true(lambda: "[y]es" in person.text or "y yes" in person.text, "no question")
        press_key_of_modes(person)
        assert "mode read" in person.status
        pressed = time.monotonic()
        person.until_true(lambda: time.monotonic() - pressed > QUIET, "time stands still")
        person.type("y")
        person.until("Done.")  # without a second answer
    assert "it was written" in person.text
    assert "it was read" in person.text


def test_a_folder_that_is_not_trusted_has_no_mode_auto(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Hello."])
    (tmp_path / "servers.json").write_text('{"mcpServers": {"new": {"command": "x"}}}')
    words = ("-m", "scripted:replies.json", "--no-save")
    with screen(tmp_path, *words, columns=100, rows=60) as person:
        person.until("[t]rust, [n]ot now")
        person.type("n\r")
        person.until_true(lambda: "mode ask" in person.status, "no status line")
        for mode in ("read", "plan", "ask"):
            press_key_of_modes(person)
            assert f"mode {mode}" in person.status
        person.type("/mode auto\r")
        person.until("the mode auto is not possible here: you have not trusted the servers.json of this folder")


def test_the_context_window_and_the_cost_are_shown_after_an_answer(tmp_path: Path) -> None:
    write_files_config(tmp_path, [READ, COUNTED, "More."])
    with screen(tmp_path, "--no-save", "--mode", "read", columns=100, rows=40) as person:
        begin(person)
        assert "context" not in person.status
        person.type("/context\r")
        person.until("All numbers are estimates.")
        assert re.search(r"tools of files \(2, [\d,]+ bytes\)", person.text)
        person.type("read it\r")
        person.until("Done.")
        person.type("/context\r")
        person.until("Context window: 1,000 tokens, as the endpoint counted the last request")
        person.until("The parts are estimates")  # the last line
    rows = person.text.splitlines()
    parts = [row for row in rows if row.startswith("  ") and "%" in row][-4:]
    assert [re.sub(r", [\d,]+ bytes", "", row.split("  ")[1]) for row in parts] == [
        "instructions of the program (1)",
        "tools of files (2)",
        "messages (3)",
        "results of calls (1)",
    ]
    assert sum(int(row.split("about ")[1].split()[0]) for row in parts) == 1000


def test_a_continued_conversation_has_its_answer_as_it_was_wrapped_and_a_status_line_with_the_filled_part(
    tmp_path: Path,
) -> None:
    rows = [f"{'a' * 29} {'b' * 30}", f"{'c' * 29} end."]
    with model_endpoint([Say(" ".join(rows))]) as endpoint:
        profile = {"api": "chat", "base_url": f"{endpoint.url}/v1", "model": "m", "context_window": 8000}
        write_config(tmp_path, models={"own": profile}, defaultModel="own")
        with screen(tmp_path, columns=60) as person:
            person.until_true(lambda: "mode ask" in person.status, "no status line")
            person.type("Hello\r")
            person.until_true(lambda: rows[1] in person.lines and person.lines[-1] == ">", "no answer")
            assert rows[0] in person.lines
            person.type("\x04")
            assert person.leave() == 0
        with screen(tmp_path, "--continue", columns=60) as person:
            person.until_true(lambda: "mode ask" in person.status, "no status line")
            assert "context ~" in person.status
            assert rows == [row for row in person.lines if row in rows]


@pytest.mark.parametrize("mode", [{"TERM": "dumb"}], ids=["dumb"])
def test_without_a_live_area_there_is_no_status_line_but_the_command(tmp_path: Path, mode: Any) -> None:
    write_config(tmp_path, {}, ["Hello."])
    with screen(tmp_path, "--no-save", "--mode", "plan", **mode) as person:
        person.until(">")
        assert person.status == ""
        person.type("/mode\r")
        person.until("→ plan")
        person.type("/mode read\r")
        person.until("Mode read: runs what only reads, and asks about the rest.")


# --- without a terminal -----------------------------------------------------------------------------

MODES = [("ask", 5, ""), ("read", 5, "it was read"), ("plan", 5, "it was read"), ("auto", 0, "it was written")]


@pytest.mark.parametrize(("mode", "code", "result"), MODES)
def test_a_mode_decides_what_runs_without_a_terminal(tmp_path: Path, mode: str, code: int, result: str) -> None:
    write_files_config(tmp_path, [{"tool_calls": [*READ["tool_calls"], *WRITE["tool_calls"]]}, "Done."])
    ran = dial_chat(tmp_path, "--no-save", "--output", "json", "--mode", mode, "go")
    assert ran.returncode == code
    assert result in ran.stdout


def test_the_option_yes_is_the_mode_auto_and_answers_forced_questions(tmp_path: Path) -> None:
    servers = {"raw": entry("Server")}
    write_config(tmp_path, servers, [{"tool_calls": [{"name": "echo", "arguments": {}}]}, "Ok."], policy=[{"ask": "*"}])
    assert dial_chat(tmp_path, "--mode", "auto", "go").returncode == 5
    assert dial_chat(tmp_path, "-y", "go").returncode == 0
    assert dial_chat(tmp_path, "-y", "--mode", "auto", "go").returncode == 0
    refused = dial_chat(tmp_path, "-y", "--mode", "read", "go")
    assert (refused.returncode, "--yes cannot be combined with --mode read" in refused.stderr) == (2, True)


@pytest.mark.parametrize("text", ['{"mcpServers": {"new": {"command": "x"}}}', "{"], ids=["new", "broken"])
def test_the_option_cannot_begin_with_auto_in_a_folder_that_is_not_trusted(tmp_path: Path, text: str) -> None:
    write_config(tmp_path, {}, ["Hello."])
    (tmp_path / "own.json").write_text("{}")
    (tmp_path / "servers.json").write_text(text)
    words = ("-c", "own.json", "-m", "scripted:replies.json", "--no-save", "--mode")
    assert dial_chat(tmp_path, *words, "read", "go").returncode == 0
    refused = dial_chat(tmp_path, *words, "auto", "go")
    assert (refused.returncode, "--mode auto is not possible here" in refused.stderr) == (2, True)
