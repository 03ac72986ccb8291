"""Programs that are killed while the user is asked about a call: the next run asks again, and the call runs once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
import pytest

from tests.inner import sandbox
from tests.integration.test_serve_shutdown import ask, no_signals, serving
from tests.support.program import LONG, dial_chat, entry, write_config
from tests.support.pseudo_terminal import ASKED, terminal

CALLS = {"tool_calls": [{"name": "echo", "arguments": {"text": "once"}}]}
# The second call of the program waits when its process is killed.
SOURCE = "first = await echo(text='first')\nprint(first)\nawait echo(text=f'after {first}')"
PROGRAM = {"tool_calls": [{"name": "run_code", "arguments": {"code": SOURCE}}]}
needs_code = pytest.mark.skipif(not sandbox.is_installed(), reason="the extra 'code' is not installed")


def configure(folder: Path, *replies: Any) -> None:
    """Configure a run: a server that logs what it receives, and the replies of the model in this run."""
    write_config(folder, {"raw": entry("Server", "--log", str(folder / "log"))}, list(replies))


def list_calls(folder: Path) -> list[str]:
    received = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return [message["params"]["arguments"]["text"] for message in received if message["method"] == "tools/call"]


def test_the_continued_conversation_asks_again_and_the_call_runs_once(tmp_path: Path) -> None:
    configure(tmp_path, CALLS)
    with terminal(tmp_path, "--plain", "Say hi") as screen:
        screen.until("Run echo of raw?", ASKED)
        screen.process.kill()
    assert list_calls(tmp_path) == []
    configure(tmp_path, "Done.", "And more.")
    with terminal(tmp_path, "--plain", "--continue", "--all") as screen:
        screen.until("a call waits for approval", "Run echo of raw?", ASKED)
        screen.type("y\r")
        screen.until("Done.")
        screen.type("\x04")
        assert screen.leave() == 0
    assert list_calls(tmp_path) == ["once"]


@needs_code
def test_the_continued_conversation_goes_on_with_a_program_and_repeats_none_of_its_calls(tmp_path: Path) -> None:
    mode = ("--plain", "--tool-format", "code")
    configure(tmp_path, PROGRAM)
    with terminal(tmp_path, *mode, "Say hi") as screen:
        screen.until("text  first", "Run echo of raw?", ASKED)
        screen.type("y\r")
        screen.until("after ", "Run echo of raw?", ASKED)
        screen.process.kill()
    assert list_calls(tmp_path) == ["first"]
    configure(tmp_path, "Done.")
    [stored] = json.loads(dial_chat(tmp_path, "conversations", "--json", "--all").stdout)
    for is_killed in (True, False):
        with terminal(tmp_path, *mode, "--resume", stored["id"], "--all") as screen:
            screen.until("a call waits for approval", "after ", "Run echo of raw?", ASKED)
            if is_killed:
                screen.process.kill()
            else:
                screen.type("y\r")
                screen.until("Done.")
                screen.type("\x04")
                assert screen.leave() == 0
    assert list_calls(tmp_path) == ["first", 'after {"text": "first"}']


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
    assert list_calls(tmp_path) == ["once"]


@no_signals
@needs_code
def test_the_service_goes_on_with_a_program_and_repeats_none_of_its_calls(tmp_path: Path) -> None:
    configure(tmp_path, PROGRAM)
    mode = ("--tool-format", "code")
    with serving(tmp_path, *mode) as (killed, url, token):
        where = "/conversations/" + ask(url, token, "/conversations", "POST").json()["id"]
        threading.Thread(target=send, args=(url, token, where), daemon=True).start()
        first = wait_for_approval(url, token)
        assert ask(url, token, f"/approvals/{first['id']}", "POST", json={"decision": "once"}).status_code == 204
        second = wait_for_approval(url, token, after=first)
        killed.kill()
    assert list_calls(tmp_path) == ["first"]
    configure(tmp_path, "Done.")
    with serving(tmp_path, *mode) as (_, url, token):
        assert wait_for_approval(url, token)["id"] == second["id"]
        assert ask(url, token, f"/approvals/{second['id']}", "POST", json={"decision": "once"}).status_code == 204
        read_until(url, token, where, lambda read: read["messages"][-1]["content"] == "Done.")
    assert list_calls(tmp_path) == ["first", 'after {"text": "first"}']


def send(url: str, token: str, where: str) -> None:
    """Send a message and read the events until the service is killed."""
    with suppress(httpx2.HTTPError):
        ask(url, token, f"{where}/chat", "POST", json={"text": "Say hi"})


def wait_for_approval(url: str, token: str, after: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    end = time.monotonic() + LONG
    while not (waiting := ask(url, token, "/approvals").json()["approvals"]) or waiting[0]["id"] == after.get("id"):
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
