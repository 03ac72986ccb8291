"""What a person can do at the screen while an answer is written: stop it, steer it, and ask about the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.program import write_config
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
