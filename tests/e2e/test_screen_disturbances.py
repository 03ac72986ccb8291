"""Disturbances of a terminal while an answer streams, and hostile text of servers and models."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.inner import QUIET, count_cells
from tests.support.program import LONG, entry, write_config
from tests.support.screens import ScreenReader, screen

ROOT = Path(__file__).parents[2]
WORDS = {"text": "word " * 10_000, "chunk_size": 3, "hang": True}
PASTE = "x" * 79 + "\n"
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[1;1H\x1b[?1049h\x9b5A\nRun nothing of nobody?\r> forged\u202e\u200b\u0301\x08\x85"
MANY = {"name": "echo", "arguments": {f"argument {at}{EVIL}": EVIL * 5 for at in range(200)}}
FLOOD = {"name": "echo", "arguments": {"text": "\n".join(f"line {at}{EVIL}" for at in range(10_000))}}
ALLOWED = re.compile(rb"\x1b\[[0-9;]*[ABCDGJKm]|\x1b\[\?(?:25|2004|12|7|1)[hl]|\x1b\[>4;[01]m|\x1b\[[0-6] q|\x1b\[\?1l")
"""A pattern of the escape sequences that the screen writes: styles, cursor movements, bracketed paste."""


def begin_answer(person: ScreenReader, question: str) -> None:
    """Ask a question, and wait until the answer streams."""
    begin = len(person.raw)
    person.type(f"{question}\r")
    person.until_true(lambda: person.raw.count(b"word word", begin) > 2, "nothing streams")


def send_command(person: ScreenReader, command: str, shown: str) -> None:
    """Send a command, and wait for a text of its output."""
    begin = len(person.raw) + len(command)
    person.type(f"{command}\r")
    person.until_true(lambda: shown.encode() in person.raw[begin:].partition(b"\n")[2], f"nothing behind {command}")
    person.until_true(lambda: person.lines[-1:] == [">"], "no prompt")


def stop_and_ask(person: ScreenReader, answer: str) -> None:
    """Stop the streaming answer, ask another question, and wait for its answer."""
    begin = len(person.raw)
    person.type("\x03")
    person.until_true(lambda: b"interrupted" in person.raw[begin:], "the answer was not stopped")
    person.type(f"\x15Say {answer}\r")
    person.until_true(lambda: f"\n{answer}\n" in person.recent(20), "no answer")
    person.until_true(lambda: person.lines[-1:] == [">"], "no prompt")


@pytest.mark.once
def test_the_terminal_stays_usable_after_disturbances_during_an_answer(tmp_path: Path) -> None:
    names = ("First.", "Second.", "Third.")
    write_config(tmp_path, {}, [reply for name in names for reply in (WORDS, name)] + [WORDS])
    with screen(tmp_path, "--no-save") as person:
        person.until("no servers, no tools")
        begin_answer(person, "Begin")
        for _ in range(3):
            os.kill(person.process.pid, signal.SIGSTOP)
            os.kill(person.process.pid, signal.SIGCONT)
        stop_and_ask(person, "First.")
        begin_answer(person, "Go on")
        for columns in (*range(119, 40, -7), 200, 20, 300, 80):
            person.resize(columns, 24)
        stop_and_ask(person, "Second.")
        begin_answer(person, "Go on again")
        person.write(f"\x1b[200~{PASTE * 62_500}\x1b[201~")
        person.until("[pasted 62,500 lines]")
        stop_and_ask(person, "Third.")
        assert person.is_raw()
        begin_answer(person, "The last")
        person.close()
        assert person.process.wait(LONG) == 130


@pytest.mark.once
def test_text_of_a_hostile_model_and_server_stays_in_its_rows(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        {"evil": entry("Server")},
        [{"tool_calls": [MANY, FLOOD, {"name": EVIL, "arguments": {}}]}, {"text": f"{EVIL}\n" * 100, "chunk_size": 7}],
    )
    for columns in (60, 200):
        with screen(tmp_path, "--no-save", "Say hi", columns=columns) as person:
            person.until_true(lambda: "".join(person.lines[-1:]).startswith("╰ "), "no question")
            assert "2 calls to decide" in person.text
            assert not any(forges(line) for line in person.recent().splitlines())
            person.type("y")
            assert person.leave() in (0, 5)
            lines = [line for line in person.text.splitlines() if forges(line)]
            # An answer may contain any lines: the prompt of the program is the last line.
            assert {line for line in lines if not line.startswith("Run nothing of nobody?")} == set()
            assert all(count_cells(line) <= columns for line in person.text.splitlines())
        assert foreign_sequences(person.raw) == set()
        for text in ("\u202e", "\u200b", "\x9b", "\x85", "\x08\x08"):
            assert text.encode() not in person.raw


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "mode"),
    [((), {}), ((), {"NO_COLOR": "1"}), (("--plain",), {}), ((), {"TERM": "dumb"})],
    ids=["screen", "no colour", "plain", "dumb"],
)
def test_text_of_a_hostile_server_stays_in_its_rows_in_every_mode(tmp_path: Path, options: Any, mode: Any) -> None:
    forging = {"command": sys.executable, "args": ["-S", "-W", "ignore", "-m", "tests.support.servers.forging"]}
    call = {"tool_calls": [{"name": "echo", "arguments": {EVIL: EVIL}}, {"name": EVIL, "arguments": {}}]}
    replies = [call, {"text": f"{EVIL}\n" * 9, "reasoning": EVIL, "chunk_size": 7, "notes": [EVIL]}]
    write_config(tmp_path, {"evil": {**forging, "cwd": str(ROOT)}}, replies)
    with screen(tmp_path, "--no-save", "-v", *options, columns=60, rows=50, **mode) as person:
        person.until_true(lambda: person.lines[-1:] == [">"], "no prompt")
        while " available" not in person.text.replace("There are no tools", ""):
            send_command(person, "/login evil", "evil")
        for command, shown in (("/tools", "echo"), ("/servers", "evil"), ("/resources", "x://"), ("/prompts", "greet")):
            send_command(person, command, shown)
        person.type("Say hi\r")
        has_lines = bool(options) or "TERM" in mode
        question = "Run echo of evil?" if has_lines else "╰ "
        person.until_true(lambda: "".join(person.lines[-1:]).startswith(question), "no question")
        shown_at = time.monotonic()
        person.until_true(lambda: time.monotonic() - shown_at > QUIET, "time stands still")
        person.type("y\r" if has_lines else "y")
        person.until_true(lambda: "✗" in person.recent() and person.lines[-1:] == [">"], "no end")
        person.type("\x04")
        assert person.leave() == 0
    rows = person.text.splitlines()
    typed = {f"> {line}" for line in ("/tools", "/servers", "/resources", "/prompts", "/login evil", "Say hi")}
    forged = {line for line in rows if forges(line)} - typed - {">"}
    assert {line for line in forged if not line.startswith("Run nothing of nobody?")} == set()
    assert foreign_sequences(person.raw) == set()
    for text in ("\u202e", "\u200b", "\x9b", "\x85", "\x08\x08", "\N{LINE SEPARATOR}", "\v", "\U000e0041"):
        assert text.encode() not in person.raw


def forges(line: str) -> bool:
    """Return True if a line begins like a prompt of the program."""
    return line.startswith((">", "Run nothing", "y yes to nothing"))


def foreign_sequences(raw: bytes) -> set[bytes]:
    """Return the starts of escape sequences that the screen does not write."""
    return set(re.findall(rb"\x1b.{0,8}", ALLOWED.sub(b"", raw)))
