"""Durable turns: a turn is answered even if its process is killed, and no completed step runs twice."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from anyio import to_thread

import dial_client
from dial_client import (
    ClientResults,
    Conversation,
    ConversationManager,
    DialClient,
    Limits,
    Message,
    SQLStore,
    ToolSpec,
)
from dial_client.testing import ScriptedProvider
from tests.inner import (
    INTERRUPTED,
    LEASE,
    MAX_RESUMED,
    SQLITE_IS_TOO_OLD,
    ConfigError,
    ConversationBusy,
    ConversationNotFound,
    DialError,
    DurableResult,
    DurableTimings,
    DurableTurns,
    EntryKind,
    Finished,
    ImagePart,
    Role,
    RoundStarted,
    StoreUnavailable,
    TextPart,
    TurnHandle,
    WhenBusy,
    apply_edits,
    build_entry,
    create_attempt_id,
    default_database,
    persistence,
    repair_history,
    stop_queues,
)
from tests.support.durable_worker import ROUNDS
from tests.support.program import LONG, start_python
from tests.support.temporary_stores import database_url, needs_dbos, needs_postgres, query

pytestmark = [pytest.mark.anyio, needs_dbos]

TURNS = 50
TOLD_LATE = 2.0
"""Seconds in which another execution of a workflow looks for its turn."""
ROUND = {"tool_calls": [{"name": "look", "arguments": {}}]}
new_enough = pytest.mark.skipif(SQLITE_IS_TOO_OLD, reason="DBOS needs a newer SQLite than that of this Python")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that DBOS supports."""
    return "asyncio"


SOON = DurableTimings(recovery_interval=0.1, idle_interval=0.1)


@contextmanager
def worker(folder: Path, url: str, name: str, conversations: list[str]) -> Iterator[subprocess.Popen[str]]:
    job = {"store": url, "database": url, "log": str(folder / "log"), "name": name, "conversations": conversations}
    arguments = ["-m", "tests.support.durable_worker", json.dumps(job)]
    pipe = subprocess.PIPE
    with start_python(folder, arguments, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def durable(
    folder: Path,
    *replies: object,
    limits: Limits | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    kind: type[SQLStore] = SQLStore,
    when_busy: WhenBusy = "refuse",
    timings: DurableTimings = SOON,
    lease: float = LEASE,
) -> AsyncIterator[tuple[ConversationManager, DurableTurns]]:
    """Run one of several successive programs on the database of the folder."""
    store = kind(folder / "talk.db")
    async with DialClient(ScriptedProvider(list(replies)), limits=limits) as dial:
        database = default_database(store.where)
        async with DurableTurns(
            dial, store, database, timings=timings, is_stopping=is_stopping, when_busy=when_busy, lease=lease
        ) as turns:
            yield turns.manager, turns
    await store.aclose()


async def wait_for_request(manager: ConversationManager, conversation: str) -> TurnHandle:
    """Wait until another program or the workflow has sent the model request of a turn, and return its handle."""
    with anyio.fail_after(LONG):
        while (live := manager.find_turn(conversation)) is None:  # noqa: ASYNC110 - until the workflow has begun it
            await anyio.sleep(0.01)
    async for _, event in live.log.events():
        if isinstance(event, RoundStarted):
            break
    return live


async def leave_unfinished(folder: Path) -> tuple[Conversation, str]:
    """Run a program that ends while the model still answers; return the conversation and the id of the turn."""
    async with durable(folder, {"hang": True}) as (manager, turns):
        conversation = await manager.create()
        turn = await turns.submit(conversation.id, "Hi!")
        await wait_for_request(manager, conversation.id)
    return conversation, turn


async def read_texts(manager: ConversationManager, conversation: str) -> list[str]:
    return [message.text for message in (await manager.get(conversation)).messages]


def is_open(conversation: Conversation) -> bool:
    """Return True if the conversation has a turn that goes on, or none yet."""
    return bool(conversation.turn) or not conversation.messages


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def read_log(log: Path, what: str) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.removeprefix(f"{what} ") for line in lines if line.startswith(what)]


@needs_postgres
async def test_turns_go_on_after_the_few_connections_to_the_database_were_cut() -> None:
    async with (
        database_url() as url,
        SQLStore(url) as store,
        DialClient(ScriptedProvider(["One.", "Two."])) as dial,
        DurableTurns(dial, store, url, timings=SOON) as turns,
    ):
        for answer in ("One.", "Two."):
            conversation = await turns.manager.create()
            assert (await turns.result(await turns.submit(conversation.id, "Hi"))).text == answer
            assert 0 < await cut_connections(url, "dbos_transact") <= 2


async def cut_connections(url: str, program: str) -> int:
    """End the connections of a program, and return their number."""
    connection = await asyncpg.connect(url)
    selected = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"
    ended = await connection.fetch(f"SELECT pg_terminate_backend(pid) {selected}", program)
    await connection.close()
    return len(ended)


@needs_postgres
async def test_dbos_has_the_names_that_let_it_ask_less() -> None:
    from dbos import _dbos

    async with (
        database_url() as url,
        SQLStore(url) as store,
        DialClient(ScriptedProvider([])) as dial,
        DurableTurns(dial, store, url, timings=SOON),
    ):
        instance: Any = _dbos._dbos_global_instance
        assert instance._background_jobs_stop_event.is_set()
        assert hasattr(type(instance._sys_db), "list_queues")
        assert instance._sys_db.list_queues(application_name="dial-client") == []
        queue = instance._registry.get_internal_queue()
        with anyio.fail_after(LONG):
            while queue.polling_interval_sec != SOON.idle_interval:  # noqa: ASYNC110 - until the first search
                await anyio.sleep(0.01)


@needs_postgres
@pytest.mark.once
async def test_another_worker_finishes_the_turns_of_a_killed_worker_and_repeats_no_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with database_url() as url:
        store = SQLStore(url)
        ids = [(await store.create()).id for _ in range(TURNS + 5)]
        with worker(tmp_path, url, "b", ids[TURNS:]) as _, worker(tmp_path, url, "a", ids[:TURNS]) as killed:
            with anyio.fail_after(LONG):
                assert await to_thread.run_sync(first_line, killed, abandon_on_cancel=True) == "started"
                while len(read_log(log, "called a")) < TURNS:  # noqa: ASYNC110 - another process's file
                    await anyio.sleep(0.02)
                killed.kill()
                done_before = Counter(read_log(log, "called"))
                conversations = [await store.get(id_) for id_ in ids]
                assert any(conversation.turn for conversation in conversations), "some have to be in the middle"
                while any(map(is_open, conversations)):
                    await anyio.sleep(0.2)
                    conversations = [
                        await store.get(conversation.id) if is_open(conversation) else conversation
                        for conversation in conversations
                    ]
        await store.aclose()

    called, asked = Counter(read_log(log, "called")), Counter(read_log(log, "asked"))
    assert called >= done_before
    assert set(called.values()) == {1}, "no call may be made twice"
    for conversation in map(apply_edits, conversations):
        assert conversation.messages == repair_history(conversation.messages)
        name = conversation.messages[0].text
        assert conversation.messages[-1].text == f"Done {name}."
        results = [message.text for message in conversation.messages if message.role is Role.TOOL]
        assert len(results) == ROUNDS
        assert set(results) <= {"stepped", INTERRUPTED}
    # A reply that was incomplete when the worker was killed is requested again; a complete reply never is.
    assert {name: count for name, count in asked.items() if count > 2} == {}


@new_enough
async def test_a_turn_is_answered_and_its_answer_can_be_read_again(tmp_path: Path) -> None:
    async with durable(tmp_path, "Hello.") as (manager, turns):
        turn = await turns.submit((await manager.create()).id, "Hi!")
        assert await turns.result(turn) == await turns.result(turn) == DurableResult("Hello.", "answered")
        with pytest.raises(DialError, match="there is no durable turn 'nothing'"):
            await turns.result("nothing")


@new_enough
async def test_a_message_with_untrusted_content_is_answered_and_keeps_its_taint(tmp_path: Path) -> None:
    async with durable(tmp_path, "Noted.") as (manager, turns):
        conversation = await manager.create()
        turn = await turns.submit(conversation.id, Message(Role.USER, "a page says so", taint="web"))
        assert await turns.result(turn) == DurableResult("Noted.", "answered")
        stored = [(message.text, message.taint) for message in (await manager.get(conversation.id)).messages]
        assert stored == [("a page says so", "web"), ("Noted.", "")]


@new_enough
async def test_the_example_in_the_documentation_runs(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "conversations.md").read_text(encoding="utf-8")
    example = next(
        found for found in re.findall(r"```python\n(.*?)```", document, re.DOTALL) if "DurableTurns" in found
    )
    example = example.replace("postgresql://user@host/database", f"sqlite:///{(tmp_path / 'turns.db').as_posix()}")
    names: dict[str, Any] = {"DurableTurns": DurableTurns}
    body = textwrap.indent(f"{example}\nreturn answer", "    ")
    exec(f"async def example(dial, store, conversation):\n{body}", names)
    store = SQLStore(tmp_path / "talk.db")
    async with DialClient(ScriptedProvider(["Noon."])) as dial:
        answer = await names["example"](dial, store, await store.create())
    await store.aclose()
    assert answer == DurableResult("Noon.", "answered")


@new_enough
async def test_the_next_program_resumes_the_turns_of_an_ended_program(tmp_path: Path) -> None:
    conversation, turn = await leave_unfinished(tmp_path)
    async with durable(tmp_path, "Hello again.") as (manager, turns):
        with anyio.fail_after(LONG):
            assert await turns.result(turn) == DurableResult("Hello again.", "answered")
        assert await read_texts(manager, conversation.id) == ["Hi!", "Hello again."]


@new_enough
async def test_the_next_program_resumes_turns_that_the_ended_program_had_resumed(tmp_path: Path) -> None:
    conversation, turn = await leave_unfinished(tmp_path)
    async with durable(tmp_path, {"hang": True}) as (manager, _):
        await wait_for_request(manager, conversation.id)
    async with durable(tmp_path, "Hello at last.") as (manager, turns):
        with anyio.fail_after(LONG):
            assert await turns.result(turn) == DurableResult("Hello at last.", "answered")
        assert await read_texts(manager, conversation.id) == ["Hi!", "Hello at last."]


@new_enough
async def test_a_stopping_program_resumes_no_turns(tmp_path: Path) -> None:
    from dbos import DBOS

    conversation, turn = await leave_unfinished(tmp_path)
    async with durable(tmp_path, "Too late.", is_stopping=lambda: True) as (manager, turns):
        await DBOS.resume_workflow_async(turn)  # as another program does that has found the turn
        with anyio.fail_after(LONG):
            while turn not in turns._abandoned:  # noqa: ASYNC110 - DBOS passes the workflow to the first reader
                await anyio.sleep(0.02)
        assert manager.find_turn(conversation.id) is None
    async with durable(tmp_path, "Hello again.") as (manager, turns):
        with anyio.fail_after(LONG):
            assert await turns.result(turn) == DurableResult("Hello again.", "answered")
        assert await read_texts(manager, conversation.id) == ["Hi!", "Hello again."]


def has_queue_threads() -> bool:
    return any(thread.name.startswith("queue-worker-") for thread in threading.enumerate())


@new_enough
async def test_a_workflow_that_is_resumed_while_the_queues_end_waits_for_the_next_program(tmp_path: Path) -> None:
    from dbos import DBOS, _dbos

    _, turn = await leave_unfinished(tmp_path)
    async with durable(tmp_path, "Too late.", is_stopping=lambda: True):
        with anyio.fail_after(LONG):
            while not has_queue_threads():  # noqa: ASYNC110 - DBOS starts the threads in a thread of its own
                await anyio.sleep(0.01)
        await to_thread.run_sync(stop_queues, _dbos._dbos_global_instance, LONG)
        assert not has_queue_threads()
        await DBOS.resume_workflow_async(turn)
        status = await DBOS.get_workflow_status_async(turn)
        assert status is not None
        assert status.status == "ENQUEUED"
    async with durable(tmp_path, "Hello again.") as (_, turns):
        with anyio.fail_after(LONG):
            assert await turns.result(turn) == DurableResult("Hello again.", "answered")


async def resume_without_queues(folder: Path, attempts: Sequence[str]) -> list[str]:
    """Look for the turn once for each attempt, which holds it then, and return the states of the workflow afterwards.

    No queue takes the workflow: it is again with a process that does not renew its lease, as at the beginning.
    """
    from dbos import _dbos

    states = []
    async with durable(folder, "Too late.", is_stopping=lambda: True) as (_, turns):
        with anyio.fail_after(LONG):
            while not has_queue_threads():  # noqa: ASYNC110 - DBOS starts the threads in a thread of its own
                await anyio.sleep(0.01)
        await to_thread.run_sync(stop_queues, _dbos._dbos_global_instance, LONG)
        for attempt in attempts:
            query(folder / "talk.db", "UPDATE conversations SET turn = ?", attempt)
            query(folder / "talk.db-turns", "UPDATE workflow_status SET status = 'PENDING'")
            for _ in range(2):  # a workflow that was resumed has the time of one search to begin
                await turns._recover_once(has_failed=False)
            states += [status for (status,) in query(folder / "talk.db-turns", "SELECT status FROM workflow_status")]
    return states


@new_enough
async def test_a_turn_whose_process_was_often_too_slow_is_still_resumed_when_that_process_is_killed(
    tmp_path: Path,
) -> None:
    async with durable(tmp_path, {"hang": True}) as (manager, turns):
        conversation = await manager.create()
        turn = await turns.submit(conversation.id, "Hi!")
        attempt = (await wait_for_request(manager, conversation.id)).id
    states = await resume_without_queues(tmp_path, [attempt] * (MAX_RESUMED + 2))
    assert set(states) == {"ENQUEUED"}
    async with durable(tmp_path, "Hello again.") as (manager, turns):
        with anyio.fail_after(LONG):
            assert await turns.result(turn) == DurableResult("Hello again.", "answered")


@new_enough
async def test_a_turn_all_whose_attempts_were_abandoned_is_given_up(tmp_path: Path) -> None:
    _, turn = await leave_unfinished(tmp_path)
    attempts = [create_attempt_id(turn) for _ in range(MAX_RESUMED + 1)]
    assert await resume_without_queues(tmp_path, attempts) == ["ENQUEUED"] * MAX_RESUMED + ["CANCELLED"]


class ResumedMeanwhile(SQLStore):
    """A store of a slow process: it resumes the workflow that looks for its turn, and learns late of a stored end."""

    turn_id = ""
    _attempt = ""
    _looks = 0
    _looks_again = anyio.Event()

    async def read_turn(self, conversation_id: str) -> tuple[str, bool]:
        from dbos import DBOS

        if self.turn_id:
            self._looks += 1
        if self._looks == 1:
            self._looks_again, self._attempt = anyio.Event(), (await super().read_turn(conversation_id))[0]
            await DBOS.resume_workflow_async(self.turn_id)
            with anyio.fail_after(LONG):
                await self._looks_again.wait()
        elif self._looks == 2:
            self._looks_again.set()
            # Until the other execution has resumed the turn, which may have ended already.
            with anyio.fail_after(LONG):
                while (await super().read_turn(conversation_id))[0] == self._attempt:  # noqa: ASYNC110 - in the database
                    await anyio.sleep(0.01)
        return await super().read_turn(conversation_id)

    async def release(self, *arguments: Any, **more: Any) -> None:
        await super().release(*arguments, **more)
        with anyio.move_on_after(TOLD_LATE):
            while await read_status(self.turn_id) != "SUCCESS":  # noqa: ASYNC110 - in the database
                await anyio.sleep(0.02)


async def read_status(turn: str) -> str:
    from dbos import DBOS

    status = await DBOS.get_workflow_status_async(turn)
    assert status is not None
    return status.status


@new_enough
async def test_a_turn_whose_workflow_was_resumed_by_its_own_slow_process_says_why_it_ended(tmp_path: Path) -> None:
    _, turn = await leave_unfinished(tmp_path)
    seldom = DurableTimings(recovery_interval=LONG, idle_interval=LONG)
    async with durable(tmp_path, "Hello again.", kind=ResumedMeanwhile, timings=seldom) as (manager, turns):
        from dbos import DBOS

        assert isinstance(manager.store, ResumedMeanwhile)
        manager.store.turn_id = turn
        await DBOS.resume_workflow_async(turn)
        with anyio.fail_after(LONG):
            assert await turns.result(turn) == DurableResult("Hello again.", "answered")


class FailsOnce(SQLStore):
    """A store that another program keeps locked while the first turn begins."""

    has_failed = False

    async def acquire(self, *arguments: Any, **more: Any) -> bool:
        if not self.has_failed:
            self.has_failed = True
            raise DialError("another program keeps the database locked")
        return await super().acquire(*arguments, **more)


@new_enough
async def test_a_turn_is_resumed_after_the_store_failed_once(tmp_path: Path) -> None:
    _, turn = await leave_unfinished(tmp_path)
    async with durable(tmp_path, "Hello again.", kind=FailsOnce) as (_, turns):
        with anyio.fail_after(LONG):
            assert await turns.result(turn) == DurableResult("Hello again.", "answered")


class BegunElsewhere(SQLStore):
    """A store in which a slow process, whose turn this one has taken over, begins the turn just before this one does.

    It is killed then, or it has the whole answer.
    """

    answer = ""
    has_begun = False

    async def acquire(self, conversation_id: str, turn: str, messages: Sequence[Message], **more: Any) -> bool:
        if not self.has_begun:
            self.has_begun = True
            slow = f"{turn.partition('.')[0]}.slow"
            assert await super().acquire(conversation_id, slow, messages, **more | {"lease": 0.0})
            if self.answer:
                answer = Message.assistant(self.answer), build_entry(EntryKind.TURN, {"turn": slow, "messages": 1})
                await self.release(conversation_id, slow, answer)
        return await super().acquire(conversation_id, turn, messages, **more)


class AnsweredElsewhere(BegunElsewhere):
    answer = "From there."


@new_enough
@pytest.mark.parametrize("when_busy", ["wait", "refuse"])
async def test_a_turn_that_a_slow_process_begins_before_it_is_killed_is_resumed(
    tmp_path: Path, when_busy: WhenBusy
) -> None:
    async with durable(tmp_path, "Hello.", kind=BegunElsewhere, when_busy=when_busy) as (manager, turns):
        conversation = await manager.create()
        with anyio.fail_after(LONG):
            answer = await turns.result(await turns.submit(conversation.id, "Hi!"))
        assert answer == DurableResult("Hello.", "answered")
        assert await read_texts(manager, conversation.id) == ["Hi!", "Hello."]


@new_enough
async def test_a_turn_that_a_slow_process_has_answered_is_not_begun_again(tmp_path: Path) -> None:
    async with durable(tmp_path, "Hello.", kind=AnsweredElsewhere) as (manager, turns):
        conversation = await manager.create()
        with anyio.fail_after(LONG):
            answer = await turns.result(await turns.submit(conversation.id, "Hi!"))
        assert answer.text == "From there."
        assert await read_texts(manager, conversation.id) == ["Hi!", "From there."]


class StoresNoReply(SQLStore):
    """A store that stores no reply, while `is_broken`."""

    is_broken = True

    async def append(self, *arguments: Any, **more: Any) -> None:
        if self.is_broken:
            raise StoreUnavailable("the disk is full")
        await super().append(*arguments, **more)


@new_enough
async def test_a_turn_whose_answer_can_never_be_stored_is_given_up_and_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "STORING_SECONDS", 0.0)
    replies = [f"Hello {number}." for number in range(MAX_RESUMED + 2)]
    async with durable(tmp_path, *replies, kind=StoresNoReply, lease=0.1) as (manager, turns):
        conversation = await manager.create()
        turn = await turns.submit(conversation.id, "Hi!")
        with anyio.fail_after(LONG), pytest.raises(DialError, match="the disk is full"):
            await turns.result(turn)
        from dbos import DBOS

        status = await DBOS.get_workflow_status_async(turn)
        assert status is not None
        assert status.status == "ERROR"
        assert "could not store the rest" in str((await manager.get(conversation.id)).notes)
        assert isinstance(manager.store, StoresNoReply)
        manager.store.is_broken = False
        # Each attempt has asked the model once, and none is made later: the last reply is left for the next question.
        answer = await turns.manager.chat(conversation.id, "Hello?")
        assert answer.text == replies[-1]
        assert await read_texts(manager, conversation.id) == ["Hi!", "Hello?", replies[-1]]


@new_enough
async def test_a_newer_version_resumes_the_turns_of_an_older_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, turn = await leave_unfinished(tmp_path)
    # By default DBOS does not resume workflows of other code versions or of other versions of DBOS.
    monkeypatch.setattr("dbos._utils.GlobalParams.dbos_version", "99.0")
    monkeypatch.setattr(dial_client, "__version__", "99.0")
    async with durable(tmp_path, "Hello again.") as (_, turns):
        with anyio.fail_after(LONG):
            assert await turns.result(turn) == DurableResult("Hello again.", "answered")


@new_enough
async def test_a_turn_of_this_process_can_be_read_and_refuses_a_second_turn(tmp_path: Path) -> None:
    async with durable(tmp_path, "Hello.", {"hang": True}) as (manager, turns):
        conversation = await manager.create()
        live = await turns.start(conversation.id, "Hi!")
        events = [event async for _, event in live.log.events()]
        assert isinstance(events[-1], Finished)
        assert manager.find_turn(conversation.id, live.id) is live
        await turns.start(conversation.id, "And now?")
        with pytest.raises(ConversationBusy):
            await turns.start(conversation.id, "Quick!")
        assert await read_texts(manager, conversation.id) == ["Hi!", "Hello.", "And now?"]
        with pytest.raises(ConversationNotFound):
            await turns.start("nobody", "Hi!")


@new_enough
async def test_a_finished_turn_leaves_no_data_outside_its_conversation(tmp_path: Path) -> None:
    from dbos import DBOS

    async with durable(tmp_path, "Hello.", timings=replace(SOON, retention=0.0)) as (manager, turns):
        conversation = await manager.create()
        live = await turns.start(conversation.id, "A secret.")
        (written,) = await DBOS.list_workflows_async()
        assert "secret" not in str(written.input)
        await live.result()
        with anyio.fail_after(LONG):
            while await DBOS.list_workflows_async():  # noqa: ASYNC110 - workflows are deleted at intervals
                await anyio.sleep(0.02)


@new_enough
async def test_turns_of_the_manager_may_have_ids_that_differ_after_a_dot_only(tmp_path: Path) -> None:
    async with durable(tmp_path, "One.", "Two.") as (manager, _):
        conversation = (await manager.create()).id
        for number, text in enumerate(("First", "Second")):
            await (await manager.start(conversation, text, turn_id=f"run.{number}")).result()
        assert await read_texts(manager, conversation) == ["First", "One.", "Second", "Two."]


@new_enough
async def test_an_abandoned_turn_is_resumed_before_another_turn_begins(tmp_path: Path) -> None:
    picture = (TextPart("What is this?"), ImagePart("aGVsbG8=", "image/png"))
    async with durable(tmp_path, {"hang": True}) as (manager, turns):
        conversation = await manager.create()
        live = await turns.start(conversation.id, Message(Role.USER, picture))
        live.abandon()
        with pytest.raises(ConversationBusy):
            await live.result()
        waiting = await turns.manager.get(conversation.id)
        assert (waiting.running, waiting.turn) == (True, live.id)
        with pytest.raises(ConversationBusy):
            await turns.start(conversation.id, "Never mind.")
    async with durable(tmp_path, "A cat.") as (manager, turns):
        with anyio.fail_after(LONG):
            while (await turns.manager.get(conversation.id)).running:  # noqa: ASYNC110 - the workflow ends by itself
                await anyio.sleep(0.02)
        messages = (await turns.manager.get(conversation.id)).messages
    assert [message.content for message in messages] == [picture, "A cat."]


@new_enough
async def test_a_submitted_message_may_have_attachments(tmp_path: Path) -> None:
    picture = Message(Role.USER, (TextPart("What is this?"), ImagePart("aGVsbG8=", "image/png")))
    async with durable(tmp_path, "A cat.") as (manager, turns):
        conversation = await manager.create()
        assert await turns.result(await turns.submit(conversation.id, picture)) == DurableResult("A cat.", "answered")
        assert (await manager.get(conversation.id)).messages == (picture, Message.assistant("A cat."))


@new_enough
async def test_a_resumed_turn_keeps_the_schema_of_its_typed_answer(tmp_path: Path) -> None:
    async with durable(tmp_path, {"hang": True}) as (manager, turns):
        conversations = [await manager.create() for _ in range(2)]
        (await turns.start(conversations[0].id, "How many?", output_type=list[int])).abandon()
    async with durable(tmp_path, "Three.", '{"result": [3]}') as (manager, turns):
        with anyio.fail_after(LONG):
            while (await turns.manager.get(conversations[0].id)).running:  # noqa: ASYNC110 - the workflow ends by itself
                await anyio.sleep(0.02)
        assert await read_texts(manager, conversations[0].id) == ["How many?", "[3]"]
    async with durable(tmp_path, {"hang": True}) as (manager, turns):
        turn_id = await turns.submit(conversations[1].id, "How many?", output_type=list[int])
        await wait_for_request(manager, conversations[1].id)
    async with durable(tmp_path, "Four.", '{"result": [4]}') as (manager, turns):
        assert (await turns.result(turn_id)).text == "[4]"


@new_enough
async def test_a_resumed_turn_keeps_the_tools_of_its_caller(tmp_path: Path) -> None:
    mine = ToolSpec("mine", "Mine.", {"type": "object"}, tool="mine")
    ask = {"tool_calls": [{"name": "mine", "arguments": {}, "id": "one"}]}
    async with durable(tmp_path, {"hang": True}) as (manager, turns):
        conversation = await manager.create()
        (await turns.start(conversation.id, "Do it.", client_tools=[mine])).abandon()
    async with durable(tmp_path, ask, "Done.") as (manager, turns):
        with anyio.fail_after(LONG):
            while (waiting := await manager.find_client_calls(conversation.id)) is None:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        results = [Message(Role.TOOL, "It is.", tool_call_id=call.id) for call in waiting.calls]
        turn = await turns.start(conversation.id, ClientResults(tuple(results)), client_tools=[mine])
        assert (await turn.result()).text == "Done."
        assert await read_texts(manager, conversation.id) == ["Do it.", "", "It is.", "Done."]


@new_enough
async def test_a_resumed_turn_counts_its_earlier_rounds_towards_max_depth(tmp_path: Path) -> None:
    limits = Limits(max_depth=2)
    async with durable(tmp_path, ROUND, {"hang": True}, limits=limits) as (manager, turns):
        conversation = await manager.create()
        live = await turns.start(conversation.id, "Look!")
        async for _, event in live.log.events():
            if isinstance(event, RoundStarted) and event.depth == 1:
                break
    async with durable(tmp_path, ROUND, ROUND, "That is all I saw.", limits=limits) as (manager, turns):
        turn = await wait_for_request(manager, conversation.id)
        ended = await turn.result()
    assert (ended.stop_reason, ended.depth, ended.text) == ("max_depth", 2, "That is all I saw.")


@new_enough
async def test_the_result_of_a_turn_has_the_error_of_an_unreachable_model(tmp_path: Path) -> None:
    async with durable(tmp_path, {"error": {"message": "the endpoint is busy", "status": 503}}) as (manager, turns):
        conversation = await manager.create()
        answer = await turns.result(await turns.submit(conversation.id, "Hi!"))
    assert (answer.text, answer.stop_reason) == ("", "")
    assert "busy" in answer.error


@new_enough
async def test_a_missing_conversation_is_reported_at_once(tmp_path: Path) -> None:
    async with durable(tmp_path) as (_, turns):
        with pytest.raises(ConversationNotFound):
            await turns.submit("nobody", "Hi!")


async def test_a_database_that_cannot_be_used_is_reported_at_once(tmp_path: Path) -> None:
    async with DialClient(ScriptedProvider([])) as dial:
        store = SQLStore(tmp_path / "talk.db")
        with pytest.raises(ConfigError):
            await DurableTurns(dial, store, "mysql://nobody@127.0.0.1/turns").__aenter__()
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError):
            await DurableTurns(dial, store, f"sqlite:///{tmp_path / 'file' / 'turns.db'}").__aenter__()


@pytest.mark.skipif(not SQLITE_IS_TOO_OLD, reason="the SQLite of this Python is new enough")
async def test_an_unsupported_sqlite_version_is_reported_at_once(tmp_path: Path) -> None:
    async with DialClient(ScriptedProvider([])) as dial:
        store = SQLStore(tmp_path / "talk.db")
        with pytest.raises(ConfigError, match="need SQLite"):
            await DurableTurns(dial, store, f"sqlite:///{tmp_path / 'turns.db'}").__aenter__()


@new_enough
async def test_a_new_turn_waits_until_an_abandoned_turn_is_answered(tmp_path: Path) -> None:
    async with durable(tmp_path, {"hang": True}) as (manager, turns):
        conversation = await manager.create()
        await turns.submit(conversation.id, "One?")
        await wait_for_request(manager, conversation.id)
    async with durable(tmp_path, "One.", "Two.", when_busy="wait") as (manager, turns):
        assert (await turns.result(await turns.submit(conversation.id, "Two?"))).text == "Two."
        assert await read_texts(manager, conversation.id) == ["One?", "One.", "Two?", "Two."]
