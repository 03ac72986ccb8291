"""Programs that are killed while the user is asked about a call: the next run asks again, and the call runs once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.test_serve_shutdown import ask, no_signals, serving
from tests.support.program import LONG, entry, write_config
from tests.support.pseudo_terminal import ASKED, terminal

CALLS = {"tool_calls": [{"name": "echo", "arguments": {"text": "once"}}]}


def configure(folder: Path, *replies: Any) -> None:
    """Configure a run: a server that logs what it receives, and the replies of the model in this run."""
    write_config(folder, {"raw": entry("Server", "--log", str(folder / "log"))}, list(replies))


def count_calls(folder: Path) -> int:
    return sum(json.loads(line)["method"] == "tools/call" for line in (folder / "log").read_text().splitlines())


def test_the_continued_conversation_asks_again_and_the_call_runs_once(tmp_path: Path) -> None:
    configure(tmp_path, CALLS)
    with terminal(tmp_path, "--plain", "Say hi") as screen:
        screen.until("Run echo of raw?", ASKED)
        screen.process.kill()
    assert count_calls(tmp_path) == 0
    configure(tmp_path, "Done.", "And more.")
    with terminal(tmp_path, "--plain", "--continue", "--all") as screen:
        screen.until("a call waits for approval", "Run echo of raw?", ASKED)
        screen.type("y\r")
        screen.until("Done.")
        screen.type("\x04")
        assert screen.leave() == 0
    assert count_calls(tmp_path) == 1


@no_signals
@pytest.mark.parametrize("is_pressed_at_once", [False, True])
def test_the_service_asks_again_and_the_call_runs_once(tmp_path: Path, is_pressed_at_once: bool) -> None:
    configure(tmp_path, CALLS)
    with serving(tmp_path) as (killed, url, token):
        where = "/conversations/" + ask(url, token, "/conversations", "POST").json()["id"]
        threading.Thread(target=send, args=(url, token, where), daemon=True).start()
        before = wait_for_approval(url, token)
        killed.kill()
    configure(tmp_path, "Done.")
    with serving(tmp_path) as (_, url, token):
        button = f"/approvals/{before['id']}"
        if is_pressed_at_once:  # the killed process still seems to run the turn
            assert ask(url, token, button, "POST", json={"decision": "once"}).status_code == 204
        else:
            read_until(url, token, where, lambda read: read["running"] not in (None, before["turn"]))
            assert wait_for_approval(url, token)["id"] == before["id"]
            assert ask(url, token, button, "POST", json={"decision": "once"}).status_code == 204
        read = read_until(url, token, where, lambda read: read["messages"][-1]["content"] == "Done.")
        assert ask(url, token, "/approvals").json()["approvals"] == []
    assert [message["content"] for message in read["messages"]] == ["Say hi", "", '{"text": "once"}', "Done."]
    assert count_calls(tmp_path) == 1


def send(url: str, token: str, where: str) -> None:
    """Send a message and read the events until the service is killed."""
    with suppress(httpx2.HTTPError):
        ask(url, token, f"{where}/chat", "POST", json={"text": "Say hi"})


def wait_for_approval(url: str, token: str) -> dict[str, Any]:
    end = time.monotonic() + LONG
    while not (waiting := ask(url, token, "/approvals").json()["approvals"]):
        assert time.monotonic() < end
        time.sleep(0.05)
    return dict(waiting[0])


def read_until(url: str, token: str, where: str, is_so: Callable[[Any], bool]) -> Any:
    """Read the conversation, as the page does, until it fulfils a condition."""
    end = time.monotonic() + LONG
    while not is_so(read := ask(url, token, where).json()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return read
