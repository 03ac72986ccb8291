"""A database that is away for a moment, and a disk that is full for a moment, lose nothing of a turn."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest
from sqlalchemy import event

from tests.inner import (
    INTERRUPTED,
    STORING,
    CallChunk,
    Completion,
    Conversation,
    ConversationBusy,
    ConversationManager,
    Delta,
    DialClient,
    DurableTimings,
    DurableTurns,
    FinishReason,
    MemoryStore,
    Message,
    ModelInfo,
    ModelRequest,
    Role,
    ScriptedProvider,
    SQLStore,
    StatusChanged,
    StopReason,
    StoreUnavailable,
    TextChunk,
    ToolCallRequest,
    Turn,
    database,
    persistence,
)
from tests.support.database_proxy import DatabaseProxy
from tests.support.managed_conversations import assert_valid
from tests.support.program import LONG
from tests.support.temporary_stores import POSTGRES, database_url, needs_dbos, needs_postgres

pytestmark = pytest.mark.anyio

TEXTS = ["Look!", "Let me see.", "seen", "All is well."]


@pytest.fixture
def anyio_backend() -> str:
    """The event loop that databases need."""
    return "asyncio"


class Model:
    """A model that calls a tool once and then answers; `lose` runs before what is named in `when` must be stored."""

    info = ModelInfo("model")

    def __init__(self, when: str, lose: Callable[[], object], rest: str = "") -> None:
        self._when = when
        self._lose = lose
        self._rest = rest

    def _reach(self, moment: str) -> None:
        if moment == self._when:
            self._when = ""
            self._lose()

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        await anyio.lowlevel.checkpoint()  # as every request, whose turn may have been cancelled
        if request.messages[-1].role is Role.USER:
            self._reach("calls")
            yield TextChunk(f"Let me see.{self._rest}")
            yield CallChunk(ToolCallRequest("call_1", "look", {}))
            yield Completion(FinishReason.TOOL_CALLS)
        else:
            self._reach("answer")
            yield TextChunk(f"All is well.{self._rest}")
            yield Completion(FinishReason.STOP)

    def look(self) -> str:
        """Look."""
        self._reach("result")
        return f"seen{self._rest}"

    async def aclose(self) -> None:
        pass


MOMENTS = pytest.mark.parametrize("moment", ["calls", "result", "answer"])


class WatchedStore(SQLStore):
    """A store that calls `lose` when a durable turn has been accepted, before its question is stored."""

    lose: Callable[[], object] = staticmethod(lambda: None)
    _reads = 0

    async def read_turn(self, conversation_id: str) -> tuple[str, bool]:
        self._reads += 1
        if self._reads == 2:  # the first one is of `submit`
            self.lose()
        return await super().read_turn(conversation_id)


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[DatabaseProxy, WatchedStore]]:
    async with database_url() as url:
        with DatabaseProxy(url) as proxy:
            store = WatchedStore(proxy.url)
            try:
                yield proxy, store
            finally:
                proxy.restore()
                await store.aclose()


async def chat(store: Any, model: Model, **options: Any) -> tuple[Turn, Conversation]:
    with anyio.fail_after(LONG):
        async with DialClient(model, tools=[model.look]) as dial:
            manager = ConversationManager(dial, store, **options)
            conversation = await manager.create()
            turn = await manager.chat(conversation.id, "Look!")
            return turn, await manager.get(conversation.id)


def check_nothing_is_lost(turn: Turn, read: Conversation) -> None:
    assert [message.text.rstrip("x") for message in turn.messages] == TEXTS
    assert read.messages == turn.messages
    assert (read.turn, read.notes) == ("", ())


@needs_postgres
@MOMENTS
async def test_a_database_that_is_away_for_a_moment_loses_nothing(moment: str) -> None:
    async with proxied() as (proxy, store):
        check_nothing_is_lost(*await chat(store, Model(moment, lambda: proxy.cut(refusals=3))))
        assert proxy.refused == 3


@needs_postgres
async def test_a_lost_database_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "dial_client")
    async with proxied() as (proxy, store):
        await chat(store, Model("result", lambda: proxy.cut(refusals=5)))
    events = ("database_failed", "database_works_again")
    assert [event for record in caplog.records for event in events if event in record.message] == [*events]


@MOMENTS
async def test_a_disk_that_is_full_for_a_moment_loses_nothing(tmp_path: Path, moment: str) -> None:
    store = SQLStore(tmp_path / "talk.db")
    engine = await store._database.open()
    failures, is_full = 0, False

    @event.listens_for(engine.sync_engine, "begin")
    def limit(connection: Any) -> None:
        # SQLite rounds the limit up to the pages that the file has.
        connection.exec_driver_sql(f"PRAGMA max_page_count = {1 if is_full else 1_000_000}")

    @event.listens_for(engine.sync_engine, "handle_error")
    def count(context: Any) -> None:
        nonlocal failures, is_full
        assert "disk is full" in str(context.original_exception)
        failures += 1
        is_full = failures < 3

    def fill() -> None:
        nonlocal is_full
        is_full = True

    check_nothing_is_lost(*await chat(store, Model(moment, fill, rest="x" * 20_000)))
    assert failures == 3
    await store.aclose()


class ForgetfulStore(MemoryStore):
    """A store whose acknowledgements are lost: it does what it is asked to, and says that it failed."""

    has_failed = False

    async def acquire(self, *arguments: Any, **options: Any) -> bool:
        has_begun = await super().acquire(*arguments, **options)
        self._fail()
        return has_begun

    async def append(self, *arguments: Any, **options: Any) -> None:
        await super().append(*arguments, **options)
        self._fail()

    async def release(self, *arguments: Any, **options: Any) -> None:
        await super().release(*arguments, **options)
        self._fail()

    def _fail(self) -> None:
        self.has_failed = not self.has_failed
        if self.has_failed:
            raise StoreUnavailable("the connection to the database broke")


async def test_a_message_whose_acknowledgement_was_lost_is_stored_once() -> None:
    turn, read = await chat(ForgetfulStore(), Model("", lambda: None))
    check_nothing_is_lost(turn, read)


@needs_postgres
@MOMENTS
async def test_a_database_that_is_away_for_longer_than_the_lease_loses_nothing(moment: str) -> None:
    statuses: list[str] = []
    async with proxied() as (proxy, store):
        model = Model(moment, lambda: proxy.cut(refusals=4))
        with anyio.fail_after(LONG):
            async with DialClient(model, tools=[model.look]) as dial:
                manager = ConversationManager(dial, store, lease=0.2)
                conversation = await manager.create()
                turn = await manager.start(conversation.id, "Look!")
                statuses += [event.text async for event in turn.events() if isinstance(event, StatusChanged)]
                check_nothing_is_lost(await turn.result(), await manager.get(conversation.id))
    assert proxy.refused == 4
    assert statuses.count(STORING) == 1


@needs_postgres
async def test_a_turn_that_lost_its_conversation_while_the_database_was_away_overwrites_nothing() -> None:
    async with database_url() as url, SQLStore(url) as direct_store:
        with DatabaseProxy(url) as proxy, anyio.fail_after(LONG):
            store, model = SQLStore(proxy.url), Model("answer", proxy.cut)
            async with DialClient(model, tools=[model.look]) as dial, DialClient(ScriptedProvider(["Well."])) as client:
                manager = ConversationManager(dial, store, lease=0.4)
                conversation = await manager.create()
                turn = await manager.start(conversation.id, "Look!")
                await (direct := ConversationManager(client, direct_store)).chat(conversation.id, "And now?")
                stored = (await direct.get(conversation.id)).messages
                proxy.restore()
                with pytest.raises(ConversationBusy, match="taken over"):
                    await turn.result()
                assert (await direct.get(conversation.id)).messages == stored
            await store.aclose()
    assert [message.text for message in stored][-2:] == ["And now?", "Well."]


@needs_postgres
async def test_a_program_that_stops_a_turn_while_the_database_is_away_does_not_wait_for_the_database() -> None:
    async with proxied() as (proxy, store):
        model = Model("result", proxy.cut)
        with anyio.fail_after(LONG):
            async with DialClient(model, tools=[model.look]) as dial, anyio.create_task_group() as group:
                manager = ConversationManager(dial, store, lease=0.2)
                turn = await manager.start((await manager.create()).id, "Look!")
                with pytest.raises(StoreUnavailable, match="the end of this turn is not stored"):
                    async for event in turn.events():
                        if event == StatusChanged(STORING):
                            group.start_soon(turn.stop)


@needs_postgres
async def test_a_turn_that_a_person_stops_is_stored_when_the_database_is_back_after_the_end_of_the_lease() -> None:
    async with proxied() as (proxy, store):
        model = Model("result", lambda: proxy.cut(refusals=10))
        with anyio.fail_after(LONG):
            async with DialClient(model, tools=[model.look]) as dial:
                manager = ConversationManager(dial, store, lease=0.2)
                conversation = await manager.create()
                turn = await manager.start(conversation.id, "Look!")
                async for event in turn.events():
                    if event == StatusChanged(STORING):
                        turn.cancel()
                read = await manager.get(conversation.id)
    assert (await turn.result()).stop_reason is StopReason.CANCELLED
    assert [message.text for message in read.messages] == TEXTS[:3]
    assert (read.turn, read.notes) == ("", ())


@needs_postgres
@pytest.mark.parametrize(("moment", "kept"), [("calls", 1), ("result", 2), ("answer", 3)])
async def test_a_database_that_stays_away_ends_the_turn_and_the_note_is_true(
    monkeypatch: pytest.MonkeyPatch, moment: str, kept: int
) -> None:
    monkeypatch.setattr(persistence, "STORING_SECONDS", 0.0)
    async with proxied() as (proxy, store):
        model = Model(moment, proxy.cut)
        with anyio.fail_after(LONG):
            async with DialClient(model, tools=[model.look]) as dial:
                manager = ConversationManager(dial, store, lease=0.6)
                conversation = await manager.create()
                with pytest.raises(StoreUnavailable, match="the end of this turn is not stored"):
                    await manager.chat(conversation.id, "Look!")
                proxy.restore()
                while (read := await manager.get(conversation.id)).running:  # noqa: ASYNC110 - until the lease expires
                    await anyio.sleep(0.02)
        assert [message.text for message in read.messages][:kept] == TEXTS[:kept]
        assert [message.text for message in read.messages][kept:] == ([INTERRUPTED] if moment == "result" else [])
        assert [note.partition(", ")[2] for note in read.notes] == ["or could not store the rest"]
        assert_valid(read.messages)


@needs_postgres
async def test_a_question_that_cannot_be_stored_is_refused_at_once_and_leaves_nothing() -> None:
    async with proxied() as (proxy, store):
        model = Model("", lambda: None)
        async with DialClient(model, tools=[model.look]) as dial:
            manager = ConversationManager(dial, store)
            conversation = await manager.create()
            proxy.cut()
            with pytest.raises(StoreUnavailable):
                await manager.chat(conversation.id, "Look!")
            proxy.restore()
            turn = await manager.chat(conversation.id, "Look!")
            check_nothing_is_lost(turn, await manager.get(conversation.id))


@needs_postgres
async def test_a_failover_leaves_the_connections_to_the_old_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PING_TIMEOUT", 0.1)
    async with proxied() as (proxy, store):
        made = await store.create()
        name = urlsplit(proxy.url).path[1:]
        operator = await asyncpg.connect(proxy.url)
        await operator.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        proxy.cut(refusals=0)
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            await store.append(made.id, [Message.user("It is a standby now.")])
        operator = await asyncpg.connect(proxy.url, server_settings={"default_transaction_read_only": "off"})
        await operator.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await store.append(made.id, [Message.user("This is the new one.")])
        proxy.silence()
        with anyio.fail_after(LONG):
            await store.append(made.id, [Message.user("The old one is off the network.")])
        assert [message.text for message in (await store.get(made.id)).messages] == [
            "This is the new one.",
            "The old one is off the network.",
        ]


def has_failed(manager: ConversationManager, conversation_id: str, until: str) -> bool:
    turn = manager.find_turn(conversation_id)
    return turn is not None and turn.failure is not None and (turn.has_ended or until == "failed")


@needs_postgres
@needs_dbos
@pytest.mark.parametrize(
    ("moment", "until"),
    [("question", "soon"), ("answer", "soon"), ("result", "failed"), ("answer", "failed"), ("answer", "ended")],
)
async def test_a_durable_turn_outlives_a_database_that_is_away(
    monkeypatch: pytest.MonkeyPatch, moment: str, until: str
) -> None:
    monkeypatch.setattr(persistence, "STORING_SECONDS", 0.0)
    async with proxied() as (proxy, store):
        lose = partial(proxy.cut, refusals=5) if until == "soon" else proxy.cut
        model = Model(moment, lose)
        if moment == "question":
            store.lose = lose
        with anyio.fail_after(LONG):
            async with (
                DialClient(model, tools=[model.look]) as dial,
                DurableTurns(
                    dial,
                    store,
                    proxy.url,
                    timings=DurableTimings(recovery_interval=0.2, idle_interval=0.2),
                    lease=10.0 if until == "soon" else 0.6,
                ) as turns,
            ):
                conversation = await turns.manager.create()
                turn = await turns.submit(conversation.id, "Look!")
                if until != "soon":
                    while not has_failed(turns.manager, conversation.id, until):  # noqa: ASYNC110 - the workflow runs it
                        await anyio.sleep(0.02)
                    proxy.restore()
                assert (await turns.result(turn)).text == "All is well."
                read = await turns.manager.get(conversation.id)
        assert [message.text for message in read.messages] == TEXTS
        assert (read.turn, read.notes) == ("", ())
        assert Message.user("Look!") == read.messages[0]


@needs_postgres
@needs_dbos
async def test_dbos_is_not_asked_for_turns_while_the_database_is_away(caplog: pytest.LogCaptureFixture) -> None:
    # DBOS itself would try again later and later, and resume nothing for a minute after the database is back.
    caplog.set_level(logging.WARNING, "dial_client")
    async with proxied() as (proxy, store):
        model = Model("", lambda: None)
        timings = DurableTimings(recovery_interval=0.1, idle_interval=0.1, database_timeout=0.5)
        with anyio.fail_after(LONG):
            async with (
                DialClient(model, tools=[model.look]) as dial,
                DurableTurns(dial, store, proxy.url, timings=timings),
            ):
                proxy.cut()
                # The first search ends with one of these, and the next one begins with the other.
                for event in ("durable_turns_not_seen", "database_failed"):
                    while event not in caplog.text:  # noqa: ASYNC110 - the log has no event to wait for
                        await anyio.sleep(0.02)
                proxy.restore()
                while "database_works_again" not in caplog.text:  # noqa: ASYNC110 - as above
                    await anyio.sleep(0.02)


@needs_postgres
async def test_an_open_database_that_is_renamed_is_unavailable_and_its_name_is_not_told() -> None:
    async with database_url() as url, SQLStore(url) as store:
        made = await store.create()
        name = urlsplit(url).path[1:]
        operator = await asyncpg.connect(POSTGRES)
        await operator.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        await operator.execute(f'ALTER DATABASE "{name}" RENAME TO "{name}_away"')
        with pytest.raises(StoreUnavailable) as failure:
            await store.get(made.id)
        await operator.execute(f'ALTER DATABASE "{name}_away" RENAME TO "{name}"')
        await operator.close()
        assert name not in f"{failure.value} {failure.value.__dict__}"
        assert (await store.get(made.id)).id == made.id
