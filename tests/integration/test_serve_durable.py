"""``dial-chat serve --durable``: an accepted message is answered even if a process is killed or stopped."""

from __future__ import annotations

import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.inner import INTERRUPTED, NOT_DURABLE, DurableTimings, Message, SQLStore, run
from tests.integration.test_conversation_routes import Maths, chat
from tests.integration.test_durable import new_enough
from tests.integration.test_serve_shutdown import ask, no_signals, serving
from tests.support.http_service import ServerSentEvent, join_text, serve
from tests.support.program import LONG, entry, environment, waiting_for, write_config
from tests.support.temporary_stores import database_url, needs_postgres, query

WAITS = {"text": "Let me see.", "tool_calls": [{"name": "wait", "arguments": {}}]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@new_enough
@pytest.mark.anyio
async def test_durable_conversations_have_the_same_routes(tmp_path: Path) -> None:
    maths, store = Maths(), SQLStore(tmp_path / "kept.db")
    async with serve(
        ["Hello you.", WAITS, "Done."], {"maths": maths.server}, allow=["*"], store=store, durable=True
    ) as server:
        where = await server.conversation()
        assert join_text(await chat(server, where)) == "Hello you."
        async with anyio.create_task_group() as group:
            group.start_soon(chat, server, where, "Go!")
            await maths.gate.begun.wait()
            refused = await server.json("POST", f"{where}/chat", 409, json={"text": "Hi"})
            maths.gate.open.set()
        read = await server.json("GET", where)
    assert refused["error"]["code"] == "conversation_busy"
    assert [message["content"] for message in read["messages"] if message["role"] == "user"] == ["Hello?", "Go!"]
    assert (tmp_path / "kept.db-turns").stat().st_mode & 0o077 == 0 or sys.platform == "win32"


@new_enough
@pytest.mark.anyio
async def test_the_next_process_resumes_a_turn_that_did_not_end_in_time(tmp_path: Path) -> None:
    maths = Maths()
    events: list[ServerSentEvent] = []
    async with serve(
        [WAITS], {"maths": maths.server}, allow=["*"], store=SQLStore(tmp_path / "kept.db"), grace=0.0, durable=True
    ) as server:
        where = await server.conversation()

        async def send() -> None:
            events.extend(await chat(server, where, "Go!"))

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await maths.gate.begun.wait()
            server.server.shut_down()
    assert (events[-2].name, events[-2].data["type"], events[-1].data) == ("error", "ConversationBusy", "[DONE]")
    async with serve(
        [], store=SQLStore(tmp_path / "kept.db"), durable=True, timings=DurableTimings(recovery_interval=LONG)
    ) as server:
        assert (await server.json("GET", where))["running"]
        refused = await server.json("POST", f"{where}/stop", 409)
        assert refused["error"]["code"] == "not_running_yet"
    async with serve(["Here I am."], store=SQLStore(tmp_path / "kept.db"), durable=True) as server:
        read = await server.json("GET", where)
        assert read["running"]
        with waiting_for("the end of the resumed turn"):
            while (read := await server.json("GET", where))["running"]:  # noqa: ASYNC110 - another's turn
                await anyio.sleep(0.05)
    contents = [message["content"] for message in read["messages"]]
    assert contents == ["Go!", "Let me see.", INTERRUPTED, "Here I am."]


@new_enough
@pytest.mark.anyio
@pytest.mark.parametrize("is_locked", [False, True])
async def test_a_failing_database_of_durable_turns_is_an_error_after_a_bounded_wait(
    tmp_path: Path, is_locked: bool
) -> None:
    timings = DurableTimings(recovery_interval=0.1, idle_interval=0.1, database_timeout=0.3)
    file = tmp_path / "kept.db-turns"
    async with serve([], store=SQLStore(tmp_path / "kept.db"), durable=True, timings=timings) as server:
        made = await server.store.create()
        await server.store.acquire(made.id, "killed.1", [Message.user("Hi")], expected_count=0, lease=0.0, title="")
        with broken(file, is_locked=is_locked):
            read = await server.json("GET", f"/conversations/{made.id}", 503)
            failed = await server.json("POST", f"/conversations/{made.id}/chat", 503, json={"text": "Hello?"})
        assert (await server.json("GET", f"/conversations/{made.id}"))["running"] is None
    assert (read["error"]["code"], failed["error"]["code"]) == ("no_database", "no_database")


@new_enough
@pytest.mark.anyio
async def test_a_question_whose_turn_could_not_be_made_durable_has_a_note_that_says_so(tmp_path: Path) -> None:
    timings = DurableTimings(recovery_interval=0.1, idle_interval=0.1, database_timeout=0.3)
    async with serve([{"hang": True}], store=SQLStore(tmp_path / "kept.db"), durable=True, timings=timings) as server:
        where = await server.conversation()
        with broken(tmp_path / "kept.db-turns", is_locked=True):
            await server.json("POST", f"{where}/chat", 503, json={"text": "Hello?"})
        while (read := await server.json("GET", where))["running"]:  # noqa: ASYNC110 - its end is being stored
            await anyio.sleep(0.02)
    assert read["messages"][0]["content"] == "Hello?"
    assert [turn["notes"] for turn in read["turns"]] == [[NOT_DURABLE]]


@contextmanager
def broken(file: Path, *, is_locked: bool) -> Iterator[None]:
    if is_locked:
        with closing(sqlite3.connect(file, isolation_level=None)) as blocker:
            blocker.execute("BEGIN EXCLUSIVE")
            yield
            blocker.execute("ROLLBACK")
    else:
        query(file, "ALTER TABLE workflow_status RENAME TO away")
        yield
        query(file, "ALTER TABLE away RENAME TO workflow_status")


@needs_postgres
@no_signals
@pytest.mark.anyio
async def test_another_process_answers_the_turn_of_a_killed_process(tmp_path: Path) -> None:
    calls = {"tool_calls": [{"name": "echo", "arguments": {}}]}
    first, second = tmp_path / "one", tmp_path / "two"
    for folder, server, replies in ((first, "NeverAnswers", [calls]), (second, "Server", [calls, "Done after all."])):
        folder.mkdir()
        write_config(folder, {"it": entry(server)}, replies)
    async with database_url() as store:
        words = ("--durable", "--store", store)
        # The second process starts late: it would take over a first turn that stands still for longer than its lease.
        with serving(first, *words, "-y") as (killed, url, token):
            where = "/conversations/" + ask(url, token, "/conversations", "POST").json()["id"]
            begun = wait_for_event(url, token, where, "tool_progress")
            with serving(second, *words) as (survivor, url2, token2), waiting_for("the end of the resumed turn"):
                killed.kill()
                while not (waiting := ask(url2, token2, "/approvals").json()["approvals"]):  # noqa: ASYNC110 - of another
                    await anyio.sleep(0.2)
                running = ask(url2, token2, where).json()["running"]
                assert waiting[0]["turn"] == running != begun
                ask(url2, token2, f"/approvals/{waiting[0]['id']}", "POST", json={"decision": "once"})
                read = ask(url2, token2, f"{where}/turns/{running}/events").text
                messages = ask(url2, token2, where).json()["messages"]
                survivor.send_signal(signal.SIGTERM)
                assert survivor.wait(LONG) == 0
                assert survivor.stderr is not None
                assert survivor.stderr.read() == ""
    assert "Done after all." in read
    assert [(message["role"], message["content"]) for message in messages] == [
        ("user", "Go!"),
        ("assistant", ""),
        ("tool", INTERRUPTED),
        ("assistant", ""),
        ("tool", "{}"),
        ("assistant", "Done after all."),
    ]


@needs_postgres
@no_signals
@pytest.mark.anyio
async def test_an_approval_survives_its_process_and_so_does_its_answer(tmp_path: Path) -> None:
    calls = {"tool_calls": [{"name": "echo", "arguments": {}}]}
    first, second = tmp_path / "one", tmp_path / "two"
    for folder, replies in ((first, [calls]), (second, ["Done after all."])):
        folder.mkdir()
        write_config(folder, {"it": entry("Server")}, replies)
    async with database_url() as store:
        words = ("--durable", "--store", store)
        # The second process starts late, as above.
        with serving(first, *words) as (killed, url, token):
            where = "/conversations/" + ask(url, token, "/conversations", "POST").json()["id"]
            wait_for_event(url, token, where, "approval")
            with serving(second, *words) as (_, url2, token2), waiting_for("the end of the resumed turn"):
                killed.kill()
                killed.wait()
                (waiting,) = ask(url2, token2, "/approvals").json()["approvals"]
                answered = ask(url2, token2, f"/approvals/{waiting['id']}", "POST", json={"decision": "once"})
                again = ask(url2, token2, f"/approvals/{waiting['id']}", "POST", json={"decision": "deny"})
                while (read := ask(url2, token2, where).json())["running"]:  # noqa: ASYNC110 - another's turn
                    await anyio.sleep(0.2)
    assert (answered.status_code, again.status_code) == (204, 404)
    assert [(message["role"], message["content"]) for message in read["messages"]] == [
        ("user", "Go!"),
        ("assistant", ""),
        ("tool", "{}"),
        ("assistant", "Done after all."),
    ]


@needs_postgres
@no_signals
@pytest.mark.anyio
@pytest.mark.parametrize(("place", "is_durable"), [("process", True), ("person", True), ("process", False)])
async def test_a_turn_that_waits_for_a_place_outlives_its_process_or_says_that_it_was_interrupted(
    tmp_path: Path, place: str, is_durable: bool
) -> None:
    calls = {"tool_calls": [{"name": "echo", "arguments": {}}]}
    first, second = tmp_path / "one", tmp_path / "two"
    for folder, server, replies in ((first, "NeverAnswers", [calls]), (second, "Server", ["Done."] * 2)):
        folder.mkdir()
        write_config(folder, {"it": entry(server)}, replies)
    async with database_url() as store:
        (tmp_path / "limits.json").write_text('{"*": {"turns": 1}}', encoding="utf-8")
        limit = ("--max-turns", "1") if place == "process" else ("--owner-limits", str(tmp_path / "limits.json"))
        words = ("--store", store, *limit, *(["--durable"] if is_durable else []))
        # The second process starts late, as above.
        with serving(first, *words, "-y") as (killed, url, token):
            wheres = [f"/conversations/{ask(url, token, '/conversations', 'POST').json()['id']}" for _ in range(2)]
            wait_for_event(url, token, wheres[0], "tool_progress")
            wait_for_event(url, token, wheres[1], "queued")
            with serving(second, *words) as (_, url2, token2), waiting_for("the end of both turns"):
                killed.kill()
                killed.wait()
                reads = []
                for where in wheres:
                    while (read := ask(url2, token2, where).json())["running"]:  # noqa: ASYNC110 - another's turn
                        await anyio.sleep(0.2)
                    reads.append(read)
                if not is_durable:
                    ask(url2, token2, f"{wheres[1]}/regenerate", "POST", json={"stream": False})
                again = ask(url2, token2, wheres[1]).json()
    assert [len(read["notes"]) for read in reads] == ([0, 0] if is_durable else [1, 1])
    assert [read["messages"][-1]["content"] for read in reads] == (
        ["Done.", "Done."] if is_durable else [INTERRUPTED, "Go!"]
    )
    assert [message["content"] for message in again["messages"]] == ["Go!", "Done."]


def wait_for_event(url: str, token: str, where: str, name: str) -> str:
    """Send a message, wait for an event, and return the id of the turn."""
    with (
        httpx2.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, verify=False
        ) as http,
        http.stream("POST", f"{where}/chat", json={"text": "Go!"}, timeout=LONG) as answer,
    ):
        lines = []
        for line in answer.iter_lines():
            lines.append(line)
            if name in line:
                break
        assert name in lines[-1], lines
        return answer.headers["x-turn-id"]


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "pip install 'dial-client[durable]'"), (["--no-save"], "--durable cannot be combined with --no-save")],
)
def test_a_missing_requirement_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    write_config(tmp_path, {}, ["Hello."])
    monkeypatch.chdir(tmp_path)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "dbos", None)
    assert run(["serve", "--durable", "--port", "0", *words]) == 2
    assert message in capsys.readouterr().err
