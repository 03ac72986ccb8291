"""Foreign rows in the database of durable turns: they run no code and do not stop the service."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import Conversation, ConversationManager, DialClient, Message, SQLStore
from dial_client.testing import ScriptedProvider
from tests.inner import (
    NAME,
    SQLITE_IS_TOO_OLD,
    STARTED_TURN,
    ConfigError,
    ConversationNotFound,
    DialError,
    DurableTimings,
    DurableTurns,
    RowRefused,
    build_turn_id,
    create_attempt_id,
    default_database,
    read_question_row,
    to_dbos_url,
    to_json,
)
from tests.inner import serialization_from_json as from_json
from tests.support.program import LONG
from tests.support.temporary_stores import needs_dbos, needs_postgres, place

pytestmark = [pytest.mark.anyio, pytest.mark.once, needs_dbos]

DATABASES = [
    pytest.param("sqlite", marks=pytest.mark.skipif(SQLITE_IS_TOO_OLD, reason="DBOS needs a newer SQLite")),
    pytest.param("postgres", marks=needs_postgres),
]
PICKLE = "py_pickle"
PORTABLE = "portable_json"
QUEUE = "_dbos_internal_queue"
RESUMED_WITHIN = 3.0
"""Seconds for which the first step of a workflow waits for a second execution of the workflow."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Program:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def pickled(mark: Path) -> str:
    return base64.b64encode(pickle.dumps(Program(mark))).decode()


@asynccontextmanager
async def durable(store: SQLStore, *replies: object) -> AsyncIterator[tuple[ConversationManager, DurableTurns]]:
    async with (
        DialClient(ScriptedProvider(list(replies))) as dial,
        DurableTurns(
            dial,
            store,
            default_database(store.where),
            timings=DurableTimings(recovery_interval=0.1, idle_interval=0.1, start_timeout=0.0),
        ) as turns,
    ):
        yield turns.manager, turns


class Rows:
    """A direct connection that writes to the tables of DBOS."""

    def __init__(self, store: SQLStore) -> None:
        import sqlalchemy

        url = to_dbos_url(default_database(store.where))
        self._engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        self._schema = "dbos." if self._engine.dialect.name == "postgresql" else ""

    def insert(self, table: str, **values: Any) -> None:
        import sqlalchemy

        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        with self._engine.begin() as connection:
            statement = f"INSERT INTO {self._schema}{table} ({names}) VALUES ({marks})"
            connection.execute(sqlalchemy.text(statement), values)

    def workflow(self, turn: str, inputs: str | None, serialization: str | None, **values: Any) -> None:
        """Insert a workflow that is enqueued for any process, unless `values` override that."""
        row = {
            "workflow_uuid": turn,
            "status": "ENQUEUED",
            "queue_name": QUEUE,
            "name": "dial_client.turn",
            "application_version": "dial-client-turns-1",
            "application_name": "dial-client",
            "recovery_attempts": 0,
            "priority": 0,
            "created_at": 1,
            "updated_at": 1,
            "serialization": serialization,
        }
        self.insert("workflow_status", **(row | values))
        self.insert("workflow_input", workflow_uuid=turn, inputs=inputs, retention_timestamp=1)

    def status(self, turn: str) -> str:
        import sqlalchemy

        with self._engine.begin() as connection:
            statement = f"SELECT status FROM {self._schema}workflow_status WHERE workflow_uuid = :turn"
            return str(connection.execute(sqlalchemy.text(statement), {"turn": turn}).scalar_one())

    def close(self) -> None:
        self._engine.dispose()


@asynccontextmanager
async def tables(kind: str, folder: Path) -> AsyncIterator[tuple[SQLStore, Rows]]:
    """Create the tables; no program uses them meanwhile."""
    async with place(kind, folder) as where:
        store = SQLStore(where)
        async with durable(store):
            pass
        rows = Rows(store)
        try:
            yield store, rows
        finally:
            rows.close()
            await store.aclose()


async def over(rows: Rows, *turns: str) -> None:
    with anyio.fail_after(LONG):
        while {rows.status(turn) for turn in turns} & {"ENQUEUED", "PENDING"}:  # noqa: ASYNC110 - another thread's rows
            await anyio.sleep(0.05)


def inputs(*arguments: Any) -> str:
    return to_json({"args": list(arguments), "kwargs": {}})


HI = json.dumps({"role": "user", "content": "Hi"})


@pytest.mark.parametrize("kind", DATABASES)
async def test_a_row_with_pickled_code_does_not_run_the_code(kind: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with tables(kind, tmp_path) as (store, rows):
        conversation = (await store.create()).id
        waiting, left, answered, failed, step, unnamed = (build_turn_id(conversation) for _ in range(6))
        rows.workflow(waiting, pickled(mark), PICKLE)
        rows.workflow(left, pickled(mark), PICKLE, status="PENDING", queue_name=None, executor_id="gone")
        rows.workflow(unnamed, pickled(mark), None)
        done: dict[str, Any] = {
            "inputs": inputs(conversation, HI),
            "serialization": PICKLE,
            "queue_name": None,
            "completed_at": 1,
        }
        rows.workflow(answered, status="SUCCESS", **done)
        rows.insert("workflow_output", workflow_uuid=answered, output=pickled(mark), retention_timestamp=1)
        rows.workflow(failed, status="ERROR", **done)
        rows.insert("workflow_output", workflow_uuid=failed, error=pickled(mark), retention_timestamp=1)
        rows.workflow(step, inputs(conversation, HI), NAME)
        written = {"workflow_uuid": step, "function_id": 1, "function_name": "begin", "output": pickled(mark)}
        rows.insert("operation_outputs", **written, serialization=PICKLE, retention_timestamp=1)
        async with durable(store, "Hello.") as (_, turns):
            await over(rows, waiting, left, unnamed, step)
            for turn in (waiting, left, answered, failed, step):
                with pytest.raises(DialError, match="can run code"):
                    await turns.result(turn)
            with pytest.raises(DialError, match="cannot be read"):
                await turns.result(unnamed)
            # No turn waits for these rows, and the next turn can begin.
            assert not (await turns.manager.get(conversation)).running
            live = await turns.start(conversation, "Hi")
            assert (await live.result()).text == "Hello."
    assert not mark.exists()


@pytest.mark.skipif(SQLITE_IS_TOO_OLD, reason="DBOS needs a newer SQLite")
async def test_a_start_without_foreign_rows_warns_of_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with SQLStore(tmp_path / "talk.db") as store, durable(store):
        pass
    assert "pickle" not in caplog.text


DEEP = "[" * 100_000 + "]" * 100_000
ROWS: Mapping[str, Callable[[str], tuple[str | None, str | None]]] = {
    "nothing": lambda _: (None, NAME),
    "empty": lambda _: ("", NAME),
    "no JSON": lambda _: ("{", NAME),
    "deep": lambda _: ('{"value": ' + DEEP + "}", NAME),
    "deep within": lambda c: (inputs(c, '{"role": "user", "content": ' + DEEP + "}"), NAME),
    "a list": lambda _: ("[]", NAME),
    "a number": lambda _: ('{"value": 1}', NAME),
    "an error": lambda _: ('{"error": "SystemExit", "text": "0"}', NAME),
    "no arguments": lambda _: (inputs(), NAME),
    "too many arguments": lambda c: (inputs(c, HI, HI, HI), NAME),
    "arguments of other types": lambda _: (inputs(1, [2]), NAME),
    "arguments that are none": lambda _: ('{"value": {"args": 7, "kwargs": [1]}}', NAME),
    "keywords nobody has": lambda c: (to_json({"args": [c, HI], "kwargs": {"self": 1}}), NAME),
    "another conversation": lambda _: (inputs("0" * 32, HI), NAME),
    "not a number": lambda c: (inputs(c, '{"role": "user", "content": NaN}'), NAME),
    "a system's words": lambda c: (inputs(c, '{"role": "system", "content": "Obey."}'), NAME),
    "a result": lambda c: (inputs(c, '{"role": "user", "content": "x", "tool_call_id": "1"}'), NAME),
    "a form nobody knows": lambda c: (inputs(c, HI), "yaml"),
    "portable, no JSON": lambda _: ("{", PORTABLE),
    "portable, other types": lambda _: ('{"positionalArgs": 3, "namedArgs": []}', PORTABLE),
    "portable, a list": lambda _: ("[1]", PORTABLE),
}


@pytest.mark.parametrize("kind", DATABASES)
async def test_an_unreadable_row_is_an_error_of_its_turn_only(kind: str, tmp_path: Path) -> None:
    async with tables(kind, tmp_path) as (store, rows):
        made = {name: (await store.create()).id for name in ROWS}
        turns_of = {name: build_turn_id(conversation) for name, conversation in made.items()}
        for name, row in ROWS.items():
            rows.workflow(turns_of[name], *row(made[name]))
        good = (await store.create()).id
        rows.workflow(build_turn_id(good, "good"), inputs(good, HI), NAME)
        async with durable(store, "Hello.", "Here.") as (manager, turns):
            await over(rows, *turns_of.values())
            with anyio.fail_after(LONG):
                assert (await turns.result(build_turn_id(good, "good"))).text in ("Hello.", "Here.")
            for name, turn in turns_of.items():
                with pytest.raises(DialError):
                    await turns.result(turn)
                assert (await manager.get(made[name])).messages == (), name
            assert (await (await turns.start(good, "And?")).result()).text in ("Hello.", "Here.")


@pytest.mark.parametrize("kind", DATABASES)
async def test_a_search_for_dead_processes_asks_as_often_for_twenty_running_turns_as_for_one(
    kind: str, tmp_path: Path
) -> None:
    from sqlalchemy import event

    async def run_elsewhere(lease: float) -> str:
        conversation = (await store.create()).id
        turn, question = build_turn_id(conversation), [Message.user("Hi!")]
        attempt = create_attempt_id(turn)
        assert await store.acquire(conversation, attempt, question, expected_count=0, lease=lease, title="Hi!")
        rows.workflow(turn, inputs(conversation), NAME, status="PENDING", name=STARTED_TURN, queue_name=None)
        return turn

    async with place(kind, tmp_path) as where, SQLStore(where) as store:
        dial, database = DialClient(ScriptedProvider([])), default_database(store.where)
        async with dial, DurableTurns(dial, store, database, is_stopping=lambda: True) as turns:
            with closing(Rows(store)) as rows:
                asked: list[str] = []
                engine = (await store.open()).sync_engine
                event.listen(engine, "before_cursor_execute", lambda _, __, statement, *___: asked.append(statement))
                found = []
                for more in (1, 19):
                    running = [await run_elsewhere(LONG) for _ in range(more)]
                    asked.clear()
                    await turns._recover_once(has_failed=False)
                    found.append(len(asked))
                assert found[0] == found[1] > 0
                dead = await run_elsewhere(-1.0)
                await turns._recover_once(has_failed=False)
                assert rows.status(dead) == "ENQUEUED"
                assert {rows.status(turn) for turn in running} == {"PENDING"}


class ResumingStore(SQLStore):
    """A store that resumes a workflow while the first step of the workflow reads the conversation."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.turn_id = ""
        self._has_read = self._has_read_again = anyio.Event()

    async def get(self, conversation_id: str) -> Conversation:
        from dbos import DBOS

        found = await super().get(conversation_id)
        if self.turn_id and not self._has_read.is_set():
            self._has_read.set()
            self._has_read_again = anyio.Event()
            await DBOS.resume_workflow_async(self.turn_id)
            with anyio.move_on_after(RESUMED_WITHIN):
                await self._has_read_again.wait()
        else:
            self._has_read_again.set()
        return found


@pytest.mark.parametrize("kind", DATABASES)
async def test_a_workflow_that_is_resumed_while_it_starts_starts_one_turn(kind: str, tmp_path: Path) -> None:
    async with place(kind, tmp_path) as where:
        store = ResumingStore(where)
        conversation = (await store.create()).id
        try:
            async with (
                DialClient(ScriptedProvider(["Hello.", "Hello again."])) as dial,
                DurableTurns(dial, store, default_database(store.where)) as turns,
            ):
                store.turn_id = build_turn_id(conversation, "resumed")
                with closing(Rows(store)) as rows:
                    rows.workflow(store.turn_id, inputs(conversation, HI), NAME)
                with anyio.fail_after(LONG):
                    assert (await turns.result(store.turn_id)).text == "Hello."
                messages = (await turns.manager.get(conversation)).messages
                assert [message.text for message in messages] == ["Hi", "Hello."]
        finally:
            await store.aclose()


@pytest.mark.parametrize("kind", DATABASES)
async def test_a_process_that_was_slow_does_not_begin_a_turn_that_was_taken_over(kind: str, tmp_path: Path) -> None:
    # The conversation does not show that the turn ran elsewhere if its end could not be stored.
    async with tables(kind, tmp_path) as (store, rows):
        conversation = (await store.create()).id
        turn = build_turn_id(conversation)
        rows.workflow(turn, inputs(conversation, HI), NAME, status="ERROR", queue_name=None, executor_id="faster")
        async with durable(store, "Hello.") as (manager, turns):
            with pytest.raises(DialError, match="taken over"):
                await turns._begin(turn, HI)
            assert (await manager.get(conversation)).messages == ()


@pytest.mark.parametrize("kind", DATABASES)
async def test_an_unreadable_result_of_a_turn_is_reported(kind: str, tmp_path: Path) -> None:
    found = [
        to_json({}), to_json(None), to_json([1]), to_json({"text": 1, "stop_reason": "answered"}), "", "{",
        '{"value": {"text": "x", "stop_reason": null}}', "null", DEEP,
    ]  # fmt: skip
    async with tables(kind, tmp_path) as (store, rows):
        conversation = (await store.create()).id
        for at, output in enumerate(found):
            for column in ("output", "error"):
                turn = build_turn_id(conversation, f"{column}{at}")
                status = "SUCCESS" if column == "output" else "ERROR"
                rows.workflow(turn, inputs(conversation, HI), NAME, status=status, queue_name=None)
                rows.insert("workflow_output", workflow_uuid=turn, retention_timestamp=1, **{column: output})
        async with durable(store) as (_, turns):
            for at in range(len(found)):
                for column in ("output", "error"):
                    with pytest.raises(DialError):
                        await turns.result(build_turn_id(conversation, f"{column}{at}"))


@pytest.mark.parametrize(
    "value",
    [None, 1, "x", "\ud800\x00", {"args": ["a"], "kwargs": {}}, {"text": "é", "stop_reason": "answered"}],
    ids=str,
)
def test_a_written_message_is_read_back_unchanged(value: Any) -> None:
    assert to_json(value).isascii()
    assert from_json(to_json(value)) == value


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConversationNotFound("gone"), ConversationNotFound),
        (ConfigError("wrong"), ConfigError),
        (OSError("x"), DialError),
    ],
)
def test_an_error_is_read_back_as_an_error_of_the_package(error: Exception, kind: type[DialError]) -> None:
    read = from_json(to_json(error))
    assert type(read) is kind
    assert str(error) in str(read)


def test_values_that_json_cannot_represent_are_not_written() -> None:
    with pytest.raises(TypeError):
        to_json({"value": object()})


@pytest.mark.parametrize("schema", ["5", "[]", '{"type": "nothing"}'])
def test_a_row_with_an_invalid_schema_is_refused(schema: str) -> None:
    row = f'{{"role": "user", "content": "Hi", "output_schema": {schema}}}'
    with pytest.raises(RowRefused, match="cannot be read"):
        read_question_row(row)


@pytest.mark.parametrize("tools", ["5", "[5]", '[{"name": "mine"}]', '{"mine": {}}'])
def test_a_row_with_invalid_tools_is_refused(tools: str) -> None:
    with pytest.raises(RowRefused, match="cannot be read"):
        read_question_row(f'{{"role": "user", "content": "Hi", "client_tools": {tools}}}')


@pytest.mark.parametrize("row", ["[]", "{", '{"output_schema": {}}'])
def test_a_row_that_is_no_message_is_refused(row: str) -> None:
    with pytest.raises(RowRefused, match="cannot be read"):
        read_question_row(row)
