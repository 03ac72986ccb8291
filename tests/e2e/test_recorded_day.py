"""A part of the recorded day (`tests.pictures.day`): dial-chat in tmux, as a person uses it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.program import entry, write_config

pytestmark = [pytest.mark.once, pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")]
CALLS = [{"name": "echo", "arguments": {"text": text}} for text in ("one", "two", "three")]
REPLIES = [{"tool_calls": CALLS}, "All are there.", {"text": "I begin", "hang": True}, "Second."]


@pytest.mark.parametrize("look", ["dark", "dumb"])
def test_a_part_of_the_day_in_tmux(tmp_path: Path, look: str) -> None:
    from tests.pictures.day import Day

    write_config(tmp_path, {"raw": entry("Server")}, REPLIES)
    screens = tmp_path / "screens"
    screens.mkdir()
    day = Day(tmp_path, screens, 80, look)
    try:
        day.start()
        day.ask("Say three words")
        day.expect_question("3 calls to decide", "Run all 3", "three-calls")
        day.answer("y")
        day.until("All are there.")
        day.ask("Begin")
        day.until("I begin")
        day.press("C-c" if day.is_dumb else "Escape")
        day.until("interrupted")
        day.ask("Go on")
        day.until("Second.")
        day.until_idle()
        day.keep("end")
        day.leave()
        text = day.text
    finally:
        day.close()
    assert text.count("echo") >= 3
    assert not any(mark in text for mark in "╭╰"), "no box remains"
    drawn = (screens / "01-three-calls.svg").read_text(encoding="utf-8")
    assert "three" in drawn
