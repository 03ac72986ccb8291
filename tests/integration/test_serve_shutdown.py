"""Shutdown of the service: running turns finish or are stored, and the program exits with the right code."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.inner import MemoryStore
from tests.integration.test_conversation_routes import Maths
from tests.support.http_service import ServerSentEvent, join_text, read_events, serve
from tests.support.program import LONG, dial_chat, entry, started, write_config

WAITS = {"text": "Let me see.", "tool_calls": [{"name": "wait", "arguments": {}}]}
no_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM that a program could hear")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_running_turn_finishes_and_no_new_turn_starts() -> None:
    maths = Maths()
    events: list[ServerSentEvent] = []
    async with serve([WAITS, "Done."], {"maths": maths.server}, allow=["*"]) as server:
        where, second = await server.conversation(), await server.conversation()

        async def send() -> None:
            async with server.http.stream("POST", f"{where}/chat", json={"text": "Go!"}) as answer:
                events.extend([event async for event in read_events(answer)])

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await maths.gate.begun.wait()
            server.server.shut_down()
            refused = await server.json("POST", f"{second}/chat", 503, json={"text": "Hi"})
            maths.gate.open.set()
    assert refused["error"]["code"] == "stopping"
    assert (events[-2].data["stop_reason"], events[-1].data) == ("answered", "[DONE]")
    assert join_text(events).endswith("Done.")


@pytest.mark.anyio
async def test_a_turn_that_does_not_end_is_cancelled_and_stored() -> None:
    maths, store = Maths(), MemoryStore()
    events: list[ServerSentEvent] = []
    async with serve([WAITS], {"maths": maths.server}, allow=["*"], store=store, grace=0.0) as server:
        where = await server.conversation()

        async def send() -> None:
            async with server.http.stream("POST", f"{where}/chat", json={"text": "Go!"}) as answer:
                events.extend([event async for event in read_events(answer)])

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await maths.gate.begun.wait()
            server.server.shut_down()
        kept = await store.get(where.rpartition("/")[2])
    assert (events[-2].data["stop_reason"], events[-1].data) == ("cancelled", "[DONE]")
    assert [message.role for message in kept.messages if message.entry is None] == ["user", "assistant", "tool"]
    assert not kept.running


@contextmanager
def serving(folder: Path, *words: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run ``dial-chat serve``; yield its process, its URL, and its token, read from the output if it was generated."""
    known = words[words.index("--token") + 1] if "--token" in words else env.get("DIAL_SERVE_TOKEN", "")
    with started(folder, "serve", "--port", "0", *words, **env) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "listening on " in line:
                url, _, token = line.strip().rpartition("listening on ")[2].partition("#token=")
                yield process, url, token or known
                return
        raise AssertionError(f"it ended with {process.wait(LONG)}")


def ask(url: str, token: str, path: str, method: str = "GET", **more: Any) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx2.Client(base_url=url, headers=headers, timeout=LONG, trust_env=False, verify=False) as http:
        return http.request(method, path, **more)


@no_signals
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_service_prints_its_url_and_stops_on_a_signal(tmp_path: Path, number: int, code: int) -> None:
    calls = {"tool_calls": [{"name": "echo", "arguments": {}}]}
    write_config(tmp_path, {"it": entry("Server")}, [calls, "I may not.", "Hello."])
    with serving(tmp_path) as (process, url, token):
        assert len(token) > 30
        assert ask(url, "", "/healthz").status_code == 200
        assert ask(url, "", "/servers").status_code == 401
        messages = {"messages": [{"role": "user", "content": "Echo!"}]}
        reply = ask(url, token, "/v1/chat/completions", "POST", json=messages).json()["choices"][0]["message"]
        where = "/conversations/" + ask(url, token, "/conversations", "POST").json()["id"]
        turn = ask(url, token, f"{where}/chat", "POST", json={"text": "Hi", "stream": False}).json()
        process.send_signal(number)
        assert process.wait(LONG) == code
        assert process.stderr is not None
        rest = process.stderr.read()
        assert process.stdout is not None
        assert process.stdout.read() == ""
    assert (reply["content"], turn["text"]) == ("I may not.", "Hello.")
    assert "it/echo. Allow it with --allow it/echo" in rest
    assert token not in rest
    assert "Traceback" not in rest


def test_the_service_logs_a_failed_turn_once_without_any_option(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [{"error": {"message": "the model is gone", "status": 503}}])
    with serving(tmp_path, "--store", str(tmp_path / "kept.db")) as (process, url, token):
        where = "/conversations/" + ask(url, token, "/conversations", "POST").json()["id"]
        assert ask(url, token, f"{where}/chat", "POST", json={"text": "Hi", "stream": False}).status_code == 502
        process.terminate()
        assert process.stderr is not None
        failed = [line for line in process.stderr if "turn_failed" in line]
    assert len(failed) == 1
    assert "the model is gone" in failed[0]


@no_signals
def test_the_second_signal_stops_the_service_during_a_hanging_model_request(tmp_path: Path) -> None:
    write_config(tmp_path, {}, [{"text": "I think", "hang": True}])
    with serving(tmp_path, "--store", str(tmp_path / "kept.db")) as (process, url, token):
        where = "/conversations/" + ask(url, token, "/conversations", "POST").json()["id"]
        with (
            httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=False) as http,
            http.stream("POST", f"{where}/chat", json={"text": "Hi"}, timeout=LONG) as answer,
        ):
            assert any("I think" in line for line in answer.iter_lines())
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            assert process.wait(LONG) == 130
    with closing(sqlite3.connect(tmp_path / "kept.db")) as kept:
        assert [row[0] for row in kept.execute("SELECT message_count - entry_count FROM conversations")] == [2]


@no_signals
def test_conversations_survive_a_restart(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Hello."])
    for _ in range(2):
        with serving(tmp_path, "--store", str(tmp_path / "kept.db"), DIAL_SERVE_TOKEN="mine") as (process, url, token):
            ask(url, token, "/conversations", "POST", json={"title": "One more"})
            found = ask(url, token, "/conversations").json()["conversations"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(LONG) == 0
    assert [summary["title"] for summary in found] == ["One more", "One more"]


def test_the_token_and_the_messages_are_in_no_log(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Hello."])
    with serving(tmp_path, "--token", "a-secret-token", "--no-save", "-v") as (process, url, token):
        where = "/conversations/" + ask(url, token, "/conversations", "POST").json()["id"]
        ask(url, token, f"{where}/chat", "POST", json={"text": "a secret word"})
        ask(url, "another-token", "/servers")
        process.kill()
        assert process.stderr is not None
        log = process.stderr.read()
    assert "secret" not in log
    assert "another-token" not in log


@pytest.mark.parametrize(
    ("words", "env", "where"),
    [
        ((), {"DIAL_SERVE_TOKEN": "from-the-environment"}, "in DIAL_SERVE_TOKEN"),
        (("--token", "from-the-command-line"), {}, "given with --token"),
        (("--token", "from-the-command-line"), {"DIAL_SERVE_TOKEN": "from-the-environment"}, "given with --token"),
    ],
)
def test_a_token_that_was_given_is_not_printed(
    tmp_path: Path, words: tuple[str, ...], env: dict[str, str], where: str
) -> None:
    write_config(tmp_path, {}, ["Hello."])
    with serving(tmp_path, *words, "--no-save", "-v", **env) as (process, url, token):
        assert "#" not in url
        assert ask(url, token, "/servers").status_code == 200
        assert ask(url, "another", "/servers").status_code == 401
        process.kill()
        assert process.stderr is not None
        log = process.stderr.read()
    assert f"the page asks for the token {where}; {url}#token=TOKEN opens it directly" in log
    assert "from-the-" not in log


def test_the_option_no_token_accepts_requests_without_a_token(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Hello."])
    with serving(tmp_path, "--no-token", "--no-save") as (_, url, token):
        assert token == ""
        assert ask(url, "", "/servers").status_code == 200


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--no-token", "--host", "0.0.0.0"], "--no-token is for loopback only"),
        (["--no-token", "--token", "a"], "--token cannot be combined with --no-token"),
        (["--token", "a b"], "printable ASCII"),
        (["--host", "0.0.0.0", "--token", "x" * 31], "a token needs at least 32 characters, and this one has 31"),
        (["--host", "::", "--token", "x"], "a token needs at least 32 characters, and this one has 1"),
        (["--host", "203.0.113.1", "--token", "x" * 32], "cannot listen on 203.0.113.1"),
        (["--no-save", "--store", "x.db"], "--store cannot be combined with --no-save"),
        (["--host", "203.0.113.1"], "cannot listen on 203.0.113.1"),
        (["--port", "70000"], "'--port'"),
        (["--store", "mysql://x/y"], "the address of the database is not supported"),
    ],
)
def test_an_invalid_option_is_an_error_before_the_service_starts(
    tmp_path: Path, words: list[str], message: str
) -> None:
    write_config(tmp_path, {}, ["Hello."])
    ended = dial_chat(tmp_path, "serve", *words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    write_config(tmp_path, {}, ["Hello."])
    with serving(tmp_path, "--no-save") as (_, url, _token):
        ended = dial_chat(tmp_path, "serve", "--no-save", "--port", url.rpartition(":")[2].strip("/"))
    assert ended.returncode == 2
    assert "cannot listen" in ended.stderr


def test_a_required_server_that_does_not_start_ends_the_program(tmp_path: Path) -> None:
    write_config(tmp_path, {"it": entry("ExitsAtOnce", required=True)}, ["Hello."])
    ended = dial_chat(tmp_path, "serve", "--no-save", "--port", "0")
    assert ended.returncode == 1
    assert "it:" in ended.stderr.splitlines()[-1]
