"""dial-chat in a pseudo-terminal: approvals, denials and interrupts."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import entry, write_config
from tests.support.pseudo_terminal import ASKED, READY, terminal

ECHO = {"tool_calls": [{"name": "echo", "arguments": {"text": "a\nrun it? y", "\x1b[2Jkey": "x" * 5000}}]}


def asked(log: Path) -> int:
    return sum(json.loads(line)["method"] == "tools/call" for line in log.read_text().splitlines())


def configured(folder: Path, *replies: Any, after: str = "error") -> Path:
    log = folder / "log"
    write_config(folder, {"raw": entry("Server", "--log", str(log))}, {"replies": [*replies], "after": after})
    return log


@pytest.mark.parametrize(("keys", "calls"), [("y\r", 1), ("n\r", 0), ("\r", 0), ("\x04", 0), ("No, it is Sunday\r", 0)])
def test_a_tool_runs_only_after_approval(tmp_path: Path, keys: str, calls: int) -> None:
    log = configured(tmp_path, ECHO, "Done.")
    # The approved call is that of a program which is started as usual.
    with terminal(tmp_path, "--plain", "--no-save", "Say hi", DIAL_TEST_FRESH="1" if calls else "") as screen:
        shown = screen.until("echo · raw", "Run echo of raw?", ASKED)
        screen.type(keys)
        behind = screen.until("Done.")
        code = screen.leave()
    assert asked(log) == calls
    assert code == (0 if calls else 5)
    assert "2 lines\n│   a\n│   run it? y\n" in shown
    assert "\n→ raw.echo\n" in behind, "what was asked about is shown once"
    assert '│ "\\u001b[2Jkey"  xxx' in shown
    assert re.search(r"\n│   … 2,\d\d\d more characters · d shows all\n", shown)


def test_all_arguments_are_shown_on_request_and_an_unknown_answer_repeats_the_prompt(tmp_path: Path) -> None:
    log = configured(tmp_path, ECHO, "Done.")
    with terminal(tmp_path, "--plain", "--no-save", "Say hi") as screen:
        screen.until(ASKED)
        screen.type("d\r")
        assert screen.until("echo · raw", "Run echo of raw?", ASKED).count("x") > 5000
        screen.type("yep\r")
        screen.until("y: run this call", ASKED)
        screen.type("y\r")
        screen.until("Done.")
        assert screen.leave() == 0
    assert asked(log) == 1


def test_the_model_gets_the_reason_of_a_denied_call(tmp_path: Path) -> None:
    configured(tmp_path, ECHO, "Done.")
    with terminal(tmp_path, "--plain", "Say hi") as screen:
        screen.until(ASKED)
        screen.type("n, because it is Sunday\r")
        screen.until("Done.")
        assert screen.leave() == 5
    kept = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*.db*"))
    assert "The user did not allow this call: it is Sunday." in kept


def test_keys_pressed_before_the_prompt_are_ignored(tmp_path: Path) -> None:
    log = configured(tmp_path, ECHO, "Done.")
    with terminal(tmp_path, "--plain", "--no-save", "Say hi") as screen:
        screen.type("y\ry\ry\r")
        screen.until(ASKED)
        screen.type("\r")
        screen.until("Done.")
        assert screen.leave() == 5
    assert asked(log) == 0


@pytest.mark.parametrize("key", ["s", "a"])
def test_an_approval_for_the_session_applies_to_the_session(tmp_path: Path, key: str) -> None:
    log = configured(tmp_path, ECHO, ECHO, "Done.")
    with terminal(tmp_path, "--plain", "--no-save", "Say hi") as screen:
        screen.until(ASKED)
        screen.type(f"{key}\r")
        screen.until("Done.")
        assert screen.leave() == 0
    assert asked(log) == 2


def test_an_interrupt_at_the_prompt_ends_the_turn(tmp_path: Path) -> None:
    log = configured(tmp_path, ECHO, "Done.")
    with terminal(tmp_path, "--plain", "--no-save", "Say hi") as screen:
        screen.until(ASKED)
        screen.type("\x03")
        assert screen.leave() == 130
    assert asked(log) == 0


def test_a_user_can_stop_an_answer_and_continue_the_conversation(tmp_path: Path) -> None:
    configured(tmp_path, "Hello.", {"text": "I begin", "hang": True}, "Still here.")
    with terminal(tmp_path, "--plain") as screen:
        # A line about the servers leaves raw mode for a moment, in which Enter is a line feed.
        screen.until("1 server ready", READY)
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
        screen.until("Press Ctrl-C again", READY)
        screen.type("\x03")
        assert screen.leave() == 0
