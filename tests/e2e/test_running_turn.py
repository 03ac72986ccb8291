"""What a person can do at the screen while an answer is written: stop it, steer it, and ask about the program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import dial_chat, write_config
from tests.support.pseudo_terminal import terminal
from tests.support.screens import screen

HANGS = {"text": "I begin", "hang": True}
ESC = "\x1b"


@pytest.mark.once
def test_esc_stops_an_answer_and_keeps_what_is_typed(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [HANGS, "Second."])
    with screen(tmp_path, "--no-save") as person:
        person.until("no servers, no tools")
        person.type("First\r")
        person.until("I begin")
        person.until("Esc stops")
        person.type(f"and this{ESC}")
        person.until("interrupted")
        person.until_gone("Esc stops")
        person.until_last("> and this")
        person.type("\r")
        person.until("Second.")


@pytest.mark.once
def test_keys_that_begin_with_esc_do_not_stop_an_answer(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [HANGS, "Second."])
    with screen(tmp_path, "--no-save") as person:
        person.until("no servers, no tools")
        person.type("First\r")
        person.until("I begin")
        person.type(f"two words{ESC}b{ESC}[D{ESC}OD-")
        person.until_last("> tw-o words")
        assert "interrupted" not in person.text
        person.type("\x15/he")
        person.until("list the commands")
        person.type(ESC)
        person.until_gone("list the commands")
        person.type("\x15\x12fir")
        person.until("First", 2)
        person.type(ESC)
        person.until_last("> First")
        assert "interrupted" not in person.text, "Esc leaves the menu, and takes what the search found"
        person.type(ESC)
        person.until("interrupted")


@pytest.mark.once
def test_esc_removes_a_queued_message_before_it_stops_the_answer(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [HANGS, "Second."])
    with screen(tmp_path, "--no-save") as person:
        person.until("no servers, no tools")
        person.type("First\r")
        person.until("I begin")
        person.type("later\r")
        person.until("Esc removes it")
        person.until("Ctrl-C stops")
        person.type(ESC)
        person.until_gone("queued: later")
        assert "interrupted" not in person.text
        person.type(ESC)
        person.until("interrupted")


@pytest.mark.once
def test_esc_in_vi_mode_ends_the_insertion_first(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [HANGS, "Second."])
    with screen(tmp_path, "--no-save", DIAL_EDITING_MODE="vi") as person:
        person.until("no servers, no tools")
        person.type("First\r")
        person.until("I begin")
        person.type(f"abc{ESC}")
        person.until_true(lambda: b"\x1b[2 q" in person.raw, "no cursor of the navigation mode")
        person.type("x")
        person.until_last("> ab")
        assert "interrupted" not in person.text
        person.type(ESC)
        person.until("interrupted")


@pytest.mark.once
def test_esc_stops_the_answer_of_a_single_question(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [HANGS])
    with screen(tmp_path, "Tell me") as person:
        person.until("I begin")
        person.until("Esc stops")
        person.type(ESC)
        assert person.leave() == 130


def waits_for(path: Path) -> dict[str, Any]:
    """Return the entry of a server whose tool ends once a file exists."""
    program = (
        "import pathlib, sys, time\nfrom mcp.server import MCPServer\nserver = MCPServer('slow')\n"
        "@server.tool()\ndef look() -> str:\n    while not pathlib.Path(sys.argv[1]).exists():\n"
        "        time.sleep(0.02)\n    return 'a garden'\nserver.run('stdio')\n"
    )
    return {"command": sys.executable, "args": ["-c", program, str(path)], "autoApprove": ["*"]}


LOOK = {"tool_calls": [{"name": "look", "arguments": {}}]}


@pytest.mark.once
def test_alt_enter_and_now_steer_the_running_turn(tmp_path: Path) -> None:
    done = tmp_path / "done"
    (tmp_path / "hint.txt").write_text("It is late.", encoding="utf-8")
    write_config(tmp_path, {"slow": waits_for(done)}, [LOOK, "A kitchen.", "Third."])
    with screen(tmp_path) as person:
        person.until("1 server ready")
        person.type("What is there?\r")
        person.until("slow.look")
        person.type(f"Not the garden{ESC}\r")
        person.until("with the next results: Not the garden")
        person.type(f"wrong{ESC}\r")
        person.until("with the next results: wrong")
        person.type(f"{ESC}[A")
        person.until_gone("with the next results: wrong")
        person.type("\x15")
        person.type("/now and hurry as @hint.txt says\r")
        person.until("with the next results: and hurry as @hint.txt says")
        person.type("and then?\r")
        person.until("queued: and then?")
        done.touch()
        shown = person.until("Third.")
        person.type("\x04")
        assert person.leave() == 0
    assert "with the next results" not in "\n".join(person.lines)
    order = ["a garden", "> Not the garden", "> and hurry", "A kitchen.", "> and then?", "Third."]
    places = [shown.index(text) for text in order]
    assert places == sorted(places)
    [conversation] = json.loads(dial_chat(tmp_path, "conversations", "--json").stdout)
    stored = json.loads(dial_chat(tmp_path, "conversations", "show", conversation["id"], "--json").stdout)["messages"]
    assert [message["role"] for message in stored].count("user") == 4
    first, second = (message["content"] for message in stored if message.get("steers"))
    assert first == "Not the garden"
    assert "It is late." in second[1]["text"]
    assert "It is late." not in shown, "an attached text is not shown"


@pytest.mark.once
def test_a_steering_message_for_a_turn_that_only_answers_is_the_next_question(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [HANGS, "Second.", "Third."])
    with screen(tmp_path, "--no-save") as person:
        person.until("no servers, no tools")
        person.type("First\r")
        person.until("I begin")
        person.type(f"sooner{ESC}\r")
        person.until("with the next results: sooner")
        person.type("later\r")
        person.until("queued: later")
        person.type("\x03")
        shown = person.until("Third.")
    assert shown.index("> sooner") < shown.index("Second.") < shown.index("> later") < shown.index("Third.")


@pytest.mark.once
def test_commands_that_inform_answer_at_once_and_stand_after_the_answer(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [HANGS, "Second."])
    with screen(tmp_path, "--no-save", rows=50) as person:
        person.until("no servers, no tools")
        person.type("First\r")
        person.until("I begin")
        for command, shown in (
            ("/servers", "No servers are configured."),
            ("/tools", "There are no tools."),
            ("/usage", "Tokens:"),
            ("/help model", "/model [NAME]"),
            ("/grants", "There are no rules"),
        ):
            person.type(f"{command}\r")
            person.until(shown)
            person.until(f"> {command}")
        person.until("printed when the answer ends")
        person.type("/rename Weather\r")
        person.until("queued: /rename Weather")
        person.type("\x03")
        person.until("Renamed: Weather")
    rows = person.text.splitlines()
    places = [rows.index(row) for row in ("I begin", "> /servers", "No servers are configured.", "> /grants")]
    assert places == sorted(places), "the answer is whole, and all lines are printed below it"


@pytest.mark.once
def test_a_steering_message_stays_in_the_conversation_of_a_killed_program(tmp_path: Path) -> None:
    write_config(tmp_path, {"slow": waits_for(tmp_path / "never")}, [LOOK, "Sure."])
    with screen(tmp_path) as person:
        person.until("1 server ready")
        person.type("What is there?\r")
        person.until("slow.look")
        person.type("/now Not the garden\r")
        person.until("with the next results: Not the garden")
        [conversation] = json.loads(dial_chat(tmp_path, "conversations", "--json").stdout)

        def is_stored() -> bool:
            database = next(tmp_path.rglob("*.db"))
            return any(b"Not the garden" in path.read_bytes() for path in database.parent.glob("*.db*"))

        person.until_true(is_stored, "not stored")
        person.process.kill()
    shown = json.loads(dial_chat(tmp_path, "conversations", "show", conversation["id"], "--json").stdout)
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant", "tool", "user"]
    assert shown["messages"][-1]["content"] == "Not the garden"


@pytest.mark.once
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_now_steers_without_a_live_area_too(tmp_path: Path, term: str) -> None:
    done = tmp_path / "done"
    write_config(tmp_path, {"slow": waits_for(done)}, [LOOK, "A kitchen.", "Third."])
    with terminal(tmp_path, "--plain", TERM=term) as typed:
        typed.until(">")
        typed.type("What is there?\r")
        typed.until("slow.look")
        typed.type("/now Not the garden\r")
        typed.until("with the next results: Not the garden")
        typed.type("and then?\r")
        done.touch()
        typed.until("A kitchen.", "> and then?", "Third.")
        typed.type("\x04")
        assert typed.leave() == 0
    [conversation] = json.loads(dial_chat(tmp_path, "conversations", "--json").stdout)
    stored = json.loads(dial_chat(tmp_path, "conversations", "show", conversation["id"], "--json").stdout)["messages"]
    assert [message["content"] for message in stored if message.get("steers")] == ["Not the garden"]


@pytest.mark.once
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_paste_during_a_turn_without_a_live_area_is_one_question_and_runs_nothing(tmp_path: Path, term: str) -> None:
    done = tmp_path / "done"
    write_config(tmp_path, {"slow": waits_for(done)}, [LOOK, "A kitchen.", "Translated."])
    with terminal(tmp_path, "--plain", TERM=term, SHELL="/bin/sh") as typed:
        typed.until(">")
        typed.type("What is there?\r")
        typed.until("slow.look")
        typed.type("!touch made\r/quit\r\r@nothing.txt\r")
        typed.until("@nothing.txt")
        done.touch()
        if term == "xterm":  # where a person sees a paste in the line before Enter
            typed.until("A kitchen.", "[pasted 4 lines]")
            typed.type("\r")
        typed.until("Translated.", ">")
        typed.type("\x04")
        assert typed.leave() == 0
    [conversation] = json.loads(dial_chat(tmp_path, "conversations", "--json").stdout)
    stored = json.loads(dial_chat(tmp_path, "conversations", "show", conversation["id"], "--json").stdout)["messages"]
    asked = [message["content"] for message in stored if message["role"] == "user"]
    assert asked == ["What is there?", "!touch made\n/quit\n\n@nothing.txt"]
    assert not (tmp_path / "made").exists()


@pytest.mark.once
def test_a_question_without_a_live_area_gets_the_line_that_is_typed(tmp_path: Path) -> None:
    calls = {"tool_calls": [{"name": "open__look", "arguments": {}}, {"name": "shut__look", "arguments": {}}]}
    done = tmp_path / "done"
    servers = {"open": waits_for(done), "shut": waits_for(done) | {"autoApprove": []}}
    write_config(tmp_path, servers, [calls, "Done."])
    with terminal(tmp_path, "--plain") as typed:
        typed.until(">")
        typed.type("Look\r")
        typed.until("q stop:")
        typed.type("y\r")
        done.touch()
        typed.until("Done.")


@pytest.mark.once
def test_alt_enter_before_the_turn_has_started_queues_the_message(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["First answer.", "Second answer."])
    with screen(tmp_path, "--no-save") as person:
        person.until_last(">")
        person.type(f"First\rSecond{ESC}\r")
        person.until("Second answer.")
