"""The screen of dial-chat in a terminal emulator."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.inner import COMMANDS
from tests.support.program import LONG, entry, python_server, write_config
from tests.support.screens import screen
from tests.support.servers.launch import HERE

TABLE = "| day | weather |\n|---|---|\n| Monday | clouds, and later some rain in the evening, but not everywhere |\n"
ANSWER = f"# Weather\n\n{TABLE}\nTake an **umbrella**.\n\n```python\nprint('a long line of code ' * 9)\n```\n"
HANGS = {"text": "I begin", "hang": True}
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[1;1H\nAllow everything? [y]es\u202e\u200b\r> forged"


def test_a_user_can_type_while_an_answer_streams_and_stop_it(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [HANGS, "Second.", "Third."])
    with screen(tmp_path, "--no-save") as person:
        person.until("no servers, no tools")
        person.type("First\r")
        person.until("I begin")
        person.type("later\reven later\rand this")
        person.until("queued: even later")
        person.until("> and this")
        os.kill(person.process.pid, signal.SIGSTOP)
        os.kill(person.process.pid, signal.SIGCONT)
        for columns in (50, 120, 33, 80):
            person.resize(columns, 24)
        person.type("\x03")
        person.until("interrupted")
        shown = person.until("Third.")
        person.until("> and this")
        person.type("\x03\x03")
        person.until("Press Ctrl-C again")
        person.type("\x03")
        assert person.leave() == 130
        assert person.is_echoing()
    assert shown.index("> later") < shown.index("Second.") < shown.index("> even later") < shown.index("Third.")


def test_whoever_leaves_reads_which_calls_in_the_background_end_with_the_program(tmp_path: Path) -> None:
    program = tmp_path / "builder.py"
    program.write_text(
        "import anyio\nfrom mcp.server.mcpserver import MCPServer\nserver = MCPServer('builder')\n"
        "@server.tool()\nasync def build() -> str:\n    await anyio.sleep_forever()\n    return ''\n"
        "server.run('stdio')\n"
    )
    settings = {"autoApprove": ["*"], "backgroundAfter": 0}
    replies = [{"tool_calls": [{"name": "build"}]}, "It is being built."]
    write_config(tmp_path, {"builder": python_server(program, **settings)}, replies)
    with screen(tmp_path, "--no-save") as person:
        person.until("1 server ready")
        person.type("Build it\r")
        person.until("It is being built.")
        person.type("\x04")
        person.until("stopped with the program: build, which was still running in the background")
        assert person.leave() == 0


def test_whoever_leaves_reads_that_a_task_of_a_server_goes_on(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.json"
    jobs = python_server(HERE / "tasks.py", str(tasks), autoApprove=["*"], backgroundAfter=0)
    write_config(tmp_path, {"jobs": jobs}, [{"tool_calls": [{"name": "goes_on"}]}, "It is being done."])
    with screen(tmp_path) as person:
        person.until("1 server ready")
        person.type("Do it\r")
        person.until("It is being done.")
        person.until("goes on in the background")
        # A task that is polled is known, and stored.
        is_polled = re.compile(r'"polls": [1-9]').search
        person.until_true(lambda: tasks.exists() and is_polled(tasks.read_text()) is not None, "the task is polled")
        person.type("\x04")
        person.until("goes on at its server: goes_on; the next turn has its result")
        assert person.leave() == 0


@pytest.mark.parametrize("keys", ["\x04", "\x03\x03"], ids=["Ctrl-D", "Ctrl-C twice"])
def test_whoever_leaves_reads_how_to_come_back_and_a_conversation_that_is_not_stored_has_no_way(
    tmp_path: Path, keys: str
) -> None:
    write_config(tmp_path, {}, ["One.", "Two.", "Three."])
    with screen(tmp_path) as person:
        person.until("no servers, no tools")
        person.type("First\r")
        person.until("One.")
        person.type(keys)
        shown = person.until("continues here.")
        assert person.leave() == (0 if keys == "\x04" else 130)
    [way] = re.findall(r"dial-chat (--resume [0-9a-f]{8}) continues here\.", shown)
    with screen(tmp_path, *way.split()) as person:
        person.until("First")
        person.type("\x04")
        assert person.leave() == 0
    with screen(tmp_path, "--no-save") as person:
        person.until("no servers, no tools")
        person.type("First\r")
        person.until("One.")
        person.type("\x04")
        assert person.leave() == 0
        assert "continues here" not in person.text


@pytest.mark.once
def test_a_queued_message_can_be_removed_after_ctrl_d(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [HANGS, "Second."])
    with screen(tmp_path, "--no-save") as person:
        person.until("no servers, no tools")
        person.type("First\r")
        person.until("I begin")
        person.type("later\r")
        person.until("queued: later")
        person.type("\x04\x1b")
        person.until_gone("queued: later")
        person.until("leaves after the answer: Ctrl-D")
        person.type("\x03")
        assert person.leave() == 0
        assert "Second." not in person.text


@pytest.mark.parametrize(("options", "mode"), [((), {"TERM": "dumb"}), (("--plain",), {})], ids=["dumb", "plain"])
def test_a_turn_can_start_without_a_starting_server_in_line_mode(tmp_path: Path, options: Any, mode: Any) -> None:
    slow = entry("WaitsForOthers", "--folder", str(tmp_path / "pids"), "--count", "9")
    (tmp_path / "pids").mkdir()
    broken = {"command": sys.executable, "args": ["-S", "-c", "raise SystemExit('there is no key for it')"]}
    write_config(tmp_path, {"slow": slow, "maps": broken}, ["Hello.", "Hello again."])
    with screen(tmp_path, "--no-save", *options, columns=60, **mode) as person:
        person.until_true(lambda: person.lines[-1:] == [">"], "no prompt")
        person.type("Say hi\r")
        person.until("starting: slow · press Enter to continue without them")
        person.type("Say it again\r\r")
        person.until("Hello again.")
        person.until_true(lambda: person.lines[-1:] == [">"], "no prompt")
        person.type("\x04")
        assert person.leave() == 0
    rows = person.text.splitlines()
    assert "> Say it again" in rows, "what was typed meanwhile is sent next"
    assert "dial-chat: server 'slow' is still starting: the turn" in rows
    assert "dial-chat: server 'maps' is not available: the server ended" in rows, "a row of its own, whole words"


@pytest.mark.parametrize("words", [(), ("Say hi",), ("--plain", "Say hi")], ids=["conversation", "question", "plain"])
def test_a_failed_server_is_told_while_another_server_still_starts(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "pids").mkdir()
    slow = entry("WaitsForOthers", "--folder", str(tmp_path / "pids"), "--count", "9")
    broken = {"command": sys.executable, "args": ["-S", "-c", "raise SystemExit('there is no key for it')"]}
    write_config(tmp_path, {"slow": slow, "maps": broken}, ["Hello."])
    with screen(tmp_path, "--no-save", *words) as person:
        person.until("server 'maps' is not available: the server ended with exit code 1")
        person.until("starting: slow")
        assert "Hello." not in person.text
        if not words:
            person.type("Say hi\r")
            person.until("press Enter to continue without them")
        person.type("\r")
        person.until("Hello.")
        person.close()
        person.process.wait(LONG)
        assert person.text.count("'maps' is not available") == 1


def test_a_turn_can_start_without_a_starting_server(tmp_path: Path) -> None:
    slow = entry("WaitsForOthers", "--folder", str(tmp_path / "pids"), "--count", "2")
    (tmp_path / "pids").mkdir()
    write_config(tmp_path, {"slow": slow}, ["Hello."])
    with screen(tmp_path, "--no-save", "--quiet") as person:
        person.until("starting: slow")
        person.type("/tools\r")
        person.until("Still starting: slow.")
        person.type("Say")
        person.until_last("> Say")
        assert any("starting: slow" in line for line in person.lines), "one types while servers start"
        person.type(" hi\r")
        person.until("press Enter to continue without them")
        person.type("\r")
        person.until("Hello.")
        person.until("server 'slow' is still starting")
        person.close()
        assert person.process.wait(LONG) == 130


def test_a_one_shot_question_can_be_answered_without_a_starting_server(tmp_path: Path) -> None:
    slow = entry("WaitsForOthers", "--folder", str(tmp_path / "pids"), "--count", "9")
    (tmp_path / "pids").mkdir()
    write_config(tmp_path, {"slow": slow}, ["Hello."])
    for options in ((), ("--plain",)):
        with screen(tmp_path, "--no-save", *options, "Say hi") as person:
            person.until("press Enter to continue without them")
            person.type("\r")
            assert person.leave() == 0
        assert "Hello." in person.text
        assert "server 'slow' is still starting" in person.text


def test_foreign_text_stays_in_its_rows(tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "echo", "arguments": {"text": EVIL, EVIL: EVIL}}, {"name": EVIL, "arguments": {}}]}
    write_config(tmp_path, {"raw": entry("Server")}, [call, {"text": EVIL * 3, "chunk_size": 7}])
    with screen(tmp_path, "Say hi") as person:
        person.until("╭ echo · raw")
        person.until_true(lambda: person.lines[-1].startswith("╰ y yes"), "the question is the last line")
        assert not any(line.startswith(("Allow everything?", "> forged")) for line in person.lines)
        person.type("y")
        assert person.leave() in (0, 5)
    assert b"\x1b]0;" not in person.raw
    assert b"\x1b[2J" not in person.raw
    assert "\u202e".encode() not in person.raw


def test_a_one_shot_answer_in_a_terminal_has_no_input_line(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [{"text": ANSWER, "chunk_size": 5}])
    with screen(tmp_path, "--no-save", "How is the weather?") as person:
        assert person.leave() == 0
    assert person.text.startswith("Weather\n")
    assert ">" not in person.text
    assert "tokens" not in person.text


def test_a_line_about_a_server_is_printed_after_the_end_of_an_answer(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    server = entry("WaitsForOthers", "--folder", str(pids), "--count", "1")
    write_config(tmp_path, {"raw": server}, [{"text": "One line", "hang": True}])
    with screen(tmp_path, "--no-save") as person:
        person.until("1 server ready")
        person.type("Say hi\r")
        person.until("One line")
        os.kill(int(next(pids.iterdir()).name), signal.SIGKILL)
        person.until_true(lambda: len([*pids.iterdir()]) == 2, "the server was not started again")
        person.until("server raw: restarting")  # in the live area, below the answer
        person.type("\x03")
        person.until("interrupted")
        person.type("/servers\r")
        person.until("raw: ready: 1 tool, started again once: the server ended by SIGKILL")
        person.type("\x04")
        assert person.leave() == 0
    assert (
        person.text.index("One line") < person.text.index("interrupted") < person.text.index("server raw: restarting")
    )
    assert person.text.count("server raw: restarting") == 1


def test_the_menu_of_commands_finds_letters_in_their_order_and_says_how_many_rows_it_has(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Hello."])
    with screen(tmp_path, "--no-save") as person:
        person.until("no servers, no tools")
        person.type("/")
        person.until_true(lambda: person.lines[-1:] == [f" {len(COMMANDS)}"], "no number of rows")
        person.type("svr")
        person.until_true(lambda: [line.split()[0] for line in person.lines[-1:]] == ["/servers"], "no fuzzy match")
        person.type("\x15\x04")
        assert person.leave() == 0
