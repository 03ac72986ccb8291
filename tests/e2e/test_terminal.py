"""dial-chat in a pseudo-terminal: approvals, denials and interrupts."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import LONG, entry, environment, start_dial_chat, write_config

pty: Any = pytest.importorskip("pty", reason="Windows has no pseudo-terminals of this kind")
termios: Any = pytest.importorskip("termios")

ECHO = {"tool_calls": [{"name": "echo", "arguments": {"text": "a\nrun it? y", "\x1b[2Jkey": "x" * 5000}}]}
READY = ">"
ASKED = "[q]uit turn"
LINES_ONLY = {"TERM": "xterm", "COLUMNS": "200", "LINES": "50", "NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"}
"""The environment of a terminal without a live area."""


class Terminal:
    """A pseudo-terminal with the program, as a user sees and uses it."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.raw = ""
        self._descriptor = descriptor
        self._read_from = 0

    def until(self, *texts: str) -> str:
        """Read until the texts have appeared in order since the last call, and return the output."""
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            shown = plain(self.raw[self._read_from :])
            if re.search(".*".join(map(re.escape, texts)), shown, re.DOTALL):
                self._read_from = len(self.raw)
                return shown
            if select.select([self._descriptor], [], [], 0.1)[0]:
                try:
                    data = os.read(self._descriptor, 65536).decode(errors="replace")
                except OSError:
                    break
                self.raw += data
        raise AssertionError(f"{texts} did not appear: {plain(self.raw)!r}")

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def leave(self) -> int:
        """Read until the program has ended, and return its exit code."""
        end = time.monotonic() + LONG
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self._descriptor], [], [], 0.1)[0]:
                with suppress(OSError):
                    self.raw += os.read(self._descriptor, 65536).decode(errors="replace")
        with suppress(OSError):  # what the program wrote at its end
            while select.select([self._descriptor], [], [], 0)[0] and (data := os.read(self._descriptor, 65536)):
                self.raw += data.decode(errors="replace")
        return self.process.wait(1)


def plain(raw: str) -> str:
    return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|[()][0-9A-Za-z]|[=>])", "", raw).replace("\r", "")


@contextmanager
def terminal(folder: Path, *words: str, **env: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, 200))
    variables = environment(folder, **(LINES_ONLY | env))
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = start_dial_chat(folder, *words, env=variables, **streams, start_new_session=True)
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def asked(log: Path) -> int:
    return sum(json.loads(line)["method"] == "tools/call" for line in log.read_text().splitlines())


def configured(folder: Path, *replies: Any, after: str = "error") -> Path:
    log = folder / "log"
    write_config(folder, {"raw": entry("Server", "--log", str(log))}, {"replies": [*replies], "after": after})
    return log


@pytest.mark.parametrize(("keys", "calls"), [("y\r", 1), ("n\r", 0), ("\r", 0), ("\x04", 0), ("No, it is Sunday\r", 0)])
def test_a_tool_runs_only_after_approval(tmp_path: Path, keys: str, calls: int) -> None:
    log = configured(tmp_path, ECHO, "Done.")
    with terminal(tmp_path, "--no-save", "Say hi", DIAL_TEST_FRESH="1") as screen:
        shown = screen.until("raw wants to run echo", "Run echo of raw?", ASKED)
        screen.type(keys)
        behind = screen.until("Done.")
        code = screen.leave()
    assert asked(log) == calls
    assert code == (0 if calls else 5)
    assert "│ text: |\n│   a\n│   run it? y\n" in shown
    assert "\n→ raw.echo\n" in behind, "what was asked about is shown once"
    assert '│ "\\u001b[2Jkey": xxx' in shown
    assert re.search(r"\n  … 2,\d\d\d more characters: \[v\]iew all\n", shown)


def test_all_arguments_are_shown_on_request_and_an_unknown_answer_repeats_the_prompt(tmp_path: Path) -> None:
    log = configured(tmp_path, ECHO, "Done.")
    with terminal(tmp_path, "--no-save", "Say hi") as screen:
        screen.until(ASKED)
        screen.type("v\r")
        assert screen.until("raw wants to run echo", "Run echo of raw?", ASKED).count("x") > 5000
        screen.type("yep\r")
        screen.until("y: run this call", ASKED)
        screen.type("y\r")
        screen.until("Done.")
        assert screen.leave() == 0
    assert asked(log) == 1


def test_the_model_gets_the_reason_of_a_denied_call(tmp_path: Path) -> None:
    configured(tmp_path, ECHO, "Done.")
    with terminal(tmp_path, "Say hi") as screen:
        screen.until(ASKED)
        screen.type("n, because it is Sunday\r")
        screen.until("Done.")
        assert screen.leave() == 5
    kept = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*.db*"))
    assert "The user did not allow this call: it is Sunday." in kept


def test_keys_pressed_before_the_prompt_are_ignored(tmp_path: Path) -> None:
    log = configured(tmp_path, ECHO, "Done.")
    with terminal(tmp_path, "--no-save", "Say hi") as screen:
        screen.type("y\ry\ry\r")
        screen.until(ASKED)
        screen.type("\r")
        screen.until("Done.")
        assert screen.leave() == 5
    assert asked(log) == 0


@pytest.mark.parametrize("key", ["s", "a"])
def test_an_approval_for_the_session_applies_to_the_session(tmp_path: Path, key: str) -> None:
    log = configured(tmp_path, ECHO, ECHO, "Done.")
    with terminal(tmp_path, "--no-save", "Say hi") as screen:
        screen.until(ASKED)
        screen.type(f"{key}\r")
        screen.until("Done.")
        assert screen.leave() == 0
    assert asked(log) == 2


def test_an_interrupt_at_the_prompt_ends_the_turn(tmp_path: Path) -> None:
    log = configured(tmp_path, ECHO, "Done.")
    with terminal(tmp_path, "--no-save", "Say hi") as screen:
        screen.until(ASKED)
        screen.type("\x03")
        assert screen.leave() == 130
    assert asked(log) == 0


def test_a_user_can_stop_an_answer_and_continue_the_conversation(tmp_path: Path) -> None:
    configured(tmp_path, "Hello.", {"text": "I begin", "hang": True}, "Still here.")
    with terminal(tmp_path) as screen:
        screen.until(READY)
        screen.type("First\r")
        screen.until("Hello.", READY)
        screen.type("/servers\r")
        screen.until("raw: ready: 1 tool", READY)
        screen.type("Second\r")
        screen.until("I begin")
        os.killpg(screen.process.pid, 2)
        screen.until("interrupted", READY)
        screen.type("Third\r")
        screen.until("Still here.", READY)
        screen.type("\x03")
        screen.until("Ctrl-C again leaves", READY)
        screen.type("\x03")
        assert screen.leave() == 0
