"""Durable turns: whoever is killed, what was asked is answered, and nothing that was done is done again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from dial_client import ConversationManager, DialClient, ScriptedProvider, SQLStore
from dial_client.durable import SQLITE_IS_TOO_OLD, DurableAnswer, DurableTurns
from dial_client.errors import ConfigError, ConversationNotFound
from dial_client.events import RoundStarted
from dial_client.histories import INTERRUPTED, valid_history
from dial_client.messages import Role
from tests.durable_worker import ROUNDS
from tests.programs import LONG, environment
from tests.stores import database_url, needs_postgres

pytest.importorskip("dbos", reason="DBOS is not installed: pip install 'dial-client[durable]'")
pytestmark = pytest.mark.anyio

TURNS = 50
new_enough = pytest.mark.skipif(SQLITE_IS_TOO_OLD, reason="DBOS needs a newer SQLite than that of this Python")
ROOT = Path(__file__).parent.parent


@pytest.fixture
def anyio_backend() -> str:
    """DBOS needs asyncio."""
    return "asyncio"


@contextmanager
def worker(folder: Path, url: str, name: str, conversations: list[str]) -> Iterator[subprocess.Popen[str]]:
    wanted = {"store": url, "database": url, "log": str(folder / "log"), "name": name, "conversations": conversations}
    command = [sys.executable, "-m", "tests.durable_worker", json.dumps(wanted)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(folder), stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def durable(folder: Path, *replies: object) -> AsyncIterator[tuple[ConversationManager, DurableTurns]]:
    store = SQLStore(folder / "talk.db")
    async with DialClient({}, ScriptedProvider(list(replies))) as dial:
        manager = ConversationManager(dial, store)
        async with DurableTurns(manager, f"sqlite:///{folder / 'turns.db'}") as turns:
            yield manager, turns
    await store.aclose()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def said_in(log: Path, what: str) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.removeprefix(f"{what} ") for line in lines if line.startswith(what)]


@needs_postgres
async def test_what_a_killed_worker_was_doing_is_finished_by_another_and_nothing_is_done_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with database_url() as url:
        store = SQLStore(url)
        ids = [(await store.create()).id for _ in range(TURNS + 5)]
        with worker(tmp_path, url, "b", ids[TURNS:]) as _, worker(tmp_path, url, "a", ids[:TURNS]) as killed:
            with anyio.fail_after(LONG):
                assert await to_thread.run_sync(first_line, killed, abandon_on_cancel=True) == "started"
                while len(said_in(log, "called a")) < TURNS:  # noqa: ASYNC110 - another process's file
                    await anyio.sleep(0.02)
                killed.kill()
                done_before = Counter(said_in(log, "called"))
                conversations = [await store.get(id_) for id_ in ids]
                assert any(conversation.turn for conversation in conversations), "some have to be in the middle"
                while any(conversation.turn or not conversation.messages for conversation in conversations):
                    await anyio.sleep(0.2)
                    conversations = [await store.get(id_) for id_ in ids]
        await store.aclose()

    called, asked = Counter(said_in(log, "called")), Counter(said_in(log, "asked"))
    assert called >= done_before
    assert set(called.values()) == {1}, "no call may be made twice"
    for conversation in conversations:
        assert conversation.messages == valid_history(conversation.messages)
        name = conversation.messages[0].text
        assert conversation.messages[-1].text == f"Done {name}."
        results = [message.text for message in conversation.messages if message.role is Role.TOOL]
        assert len(results) == ROUNDS
        assert set(results) <= {"stepped", INTERRUPTED}
    # A reply that was being written when the worker was killed is asked for once more; a whole one never is.
    assert {name: count for name, count in asked.items() if count > 2} == {}


@new_enough
async def test_a_turn_is_answered_and_the_answer_can_be_had_again(tmp_path: Path) -> None:
    async with durable(tmp_path, "Hello.") as (manager, turns):
        conversation = await manager.create()
        turn = await turns.start(conversation.id, "Hi!")
        assert await turns.answer(turn) == await turns.answer(turn) == DurableAnswer("Hello.", "answered")
        assert [message.text for message in (await manager.get(conversation.id)).messages] == ["Hi!", "Hello."]


@new_enough
async def test_the_example_in_the_documentation_runs(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "conversations.md").read_text(encoding="utf-8")
    example = next(
        found for found in re.findall(r"```python\n(.*?)```", document, re.DOTALL) if "DurableTurns" in found
    )
    example = example.replace("postgresql://user@host/database", f"sqlite:///{(tmp_path / 'turns.db').as_posix()}")
    names: dict[str, Any] = {"DurableTurns": DurableTurns}
    body = textwrap.indent(f"{example}\nreturn answer", "    ")
    exec(f"async def example(manager, conversation):\n{body}", names)
    store = SQLStore(tmp_path / "talk.db")
    async with DialClient({}, ScriptedProvider(["Noon."])) as dial:
        manager = ConversationManager(dial, store)
        answer = await names["example"](manager, await manager.create())
    await store.aclose()
    assert answer == DurableAnswer("Noon.", "answered")


@new_enough
async def test_a_program_that_ends_leaves_its_turns_to_the_next_one(tmp_path: Path) -> None:
    async with durable(tmp_path, {"hang": True}) as (manager, turns):
        conversation = await manager.create()
        turn = await turns.start(conversation.id, "Hi!")
        with anyio.fail_after(LONG):
            while (live := manager.live(conversation.id)) is None:  # noqa: ASYNC110 - until the workflow has begun it
                await anyio.sleep(0.01)
        async for _, event in live.events():
            if isinstance(event, RoundStarted):
                break
    async with durable(tmp_path, "Hello again.") as (manager, turns):
        with anyio.fail_after(LONG):
            assert await turns.answer(turn) == DurableAnswer("Hello again.", "answered")
        messages = (await manager.get(conversation.id)).messages
    assert [message.text for message in messages] == ["Hi!", "Hello again."]


@new_enough
async def test_a_model_that_cannot_be_reached_is_an_answer_too(tmp_path: Path) -> None:
    async with durable(tmp_path, {"error": {"message": "the endpoint is busy", "status": 503}}) as (manager, turns):
        conversation = await manager.create()
        answer = await turns.answer(await turns.start(conversation.id, "Hi!"))
    assert (answer.text, answer.stop_reason) == ("", "")
    assert "busy" in answer.error


@new_enough
async def test_a_conversation_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    async with durable(tmp_path) as (_, turns):
        with pytest.raises(ConversationNotFound):
            await turns.start("nobody", "Hi!")


async def test_a_database_that_cannot_be_used_is_told_at_once(tmp_path: Path) -> None:
    async with DialClient({}, ScriptedProvider([])) as dial:
        manager = ConversationManager(dial, SQLStore(tmp_path / "talk.db"))
        with pytest.raises(ConfigError):
            await DurableTurns(manager, f"sqlite:///{tmp_path / 'missing' / 'turns.db'}").__aenter__()


@pytest.mark.skipif(not SQLITE_IS_TOO_OLD, reason="the SQLite of this Python is new enough")
async def test_a_sqlite_that_is_too_old_is_told_at_once(tmp_path: Path) -> None:
    async with DialClient({}, ScriptedProvider([])) as dial:
        manager = ConversationManager(dial, SQLStore(tmp_path / "talk.db"))
        with pytest.raises(ConfigError, match="need SQLite"):
            await DurableTurns(manager, f"sqlite:///{tmp_path / 'turns.db'}").__aenter__()
