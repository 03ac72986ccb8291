"""Foreign or damaged rows in the database: an invalid row does not affect valid rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import Message, SQLStore
from tests.inner import APPROVAL, EPOCH, HandoffStore, Peers, PendingRequests, RemoteTurns, ServedModel, TurnRegistry
from tests.support.http_service import MODEL, HttpService, serve
from tests.support.other_process import other_process
from tests.support.temporary_stores import database_url, needs_postgres, place

pytestmark = [pytest.mark.anyio, pytest.mark.once]

KINDS = ["sqlite", pytest.param("postgres", marks=needs_postgres)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def nested(levels: int, inside: str = "1") -> str:
    return '{"a":' * levels + inside + "}" * levels


def calling(arguments: str) -> str:
    return (
        f'{{"role": "assistant", "content": "", "tool_calls": [{{"id": "1", "name": "x", "arguments": {arguments}}}]}}'
    )


MESSAGES: Mapping[str, str] = {
    "no JSON": "{",
    "empty": "",
    "a list": "[]",
    "a number": "1",
    "null": "null",
    "far too deep": '{"role": "user", "content": ' + nested(100_000) + "}",
    "deep": calling(nested(900)),
    "an echo of other types": '{"role": "assistant", "content": "a", "echo": {"provider": 7, "data": {"x": [1]}}}',
    "an echo that is none": '{"role": "assistant", "content": "a", "echo": [1]}',
    "a deep echo": '{"role": "assistant", "content": "a", "echo": {"provider": "chat", "data": ' + nested(900) + "}}",
    "no numbers": calling('{"a": NaN, "b": -Infinity, "c": 1e999}'),
    "a long number": calling('{"a": 1' + "0" * 4_000 + "}"),
    "half a surrogate and NUL": r'{"role": "user", "content": "\ud800 \u0000"}',
    "parts of other types": '{"role": "user", "content": [{"type": "text", "text": 7}]}',
    "an image that is none": '{"role": "user", "content": [{"type": "image", "data": "!", "mime_type": "../../x"}]}',
    "content that is none": '{"role": "user", "content": {"type": "text"}}',
    "calls that are text": '{"role": "assistant", "content": "", "tool_calls": "abc"}',
    "a result of no call": '{"role": "tool", "content": "x", "name": ["x"]}',
    "an unknown role": '{"role": "wizard", "content": "x"}',
}
COLUMNS: Mapping[str, tuple[str, str]] = {
    "no time": ("created_at", "'garbage'"),
    "no time of change": ("updated_at", "'zzzz'"),
    "a day": ("updated_at", "'2026-01-01'"),
    "a title that controls": ("title", "'\x1b]0;x\x07 Title'"),
    "too many messages": ("message_count", "1000000"),
    "fewer messages than none": ("message_count", "-5"),
    "held for ever": ("turn = 'x', held_until", "CAST('Infinity' AS DOUBLE PRECISION)"),
    "a turn that controls": ("turn", "'\x1b[2J'"),
    "nothing unfinished": ("unfinished", "'{'"),
    "unfinished that is none": ("unfinished", "'[1, null]'"),
    "unfinished that is far too deep": ("unfinished", f"'{nested(100_000)}'"),
}
SQLITE_COLUMNS: Mapping[str, tuple[str, str]] = {
    "a title of bytes": ("title", "x'ff00'"),
    "a title that is no UTF-8": ("title", "CAST(x'ff41' AS TEXT)"),
    "a time of bytes": ("created_at", "x'ff'"),
    "a count that is text": ("message_count", "'abc'"),
    "held until a word": ("turn = 'x', held_until", "'abc'"),
    "held for longer than for ever": ("turn = 'x', held_until", "9e999"),
}


async def write(store: SQLStore, statement: str, **values: Any) -> None:
    """Execute a statement on the connections of the store."""
    from sqlalchemy import text

    async with store._database._engine.begin() as connection:  # type: ignore[union-attr]
        if values:
            await connection.execute(text(statement), values)
        else:  # colons of the statement are not parameters
            await connection.exec_driver_sql(statement)


async def add_message(store: SQLStore, conversation: str, message: str) -> None:
    statement = "INSERT INTO messages VALUES (:id, 0, '2026', :message, '')"
    await write(store, statement, id=conversation, message=message)
    await write(store, "UPDATE conversations SET message_count = 1 WHERE id = :id", id=conversation)


async def can_be_used(server: HttpService, where: str) -> None:
    await server.json("GET", where)
    await server.json("POST", f"{where}/fork", 201, json={})
    assert (await server.http.get(f"{where}/export?format=markdown")).status_code == 200
    assert (await server.http.get(f"{where}/export")).status_code == 200
    await server.json("PATCH", where, json={"title": "Named"})


@pytest.mark.parametrize("kind", KINDS)
async def test_an_unreadable_message_is_left_out_and_its_conversation_continues(kind: str, tmp_path: Path) -> None:
    async with (
        place(kind, tmp_path) as url,
        serve(["Hello."] * len(MESSAGES), store=(store := SQLStore(url))) as server,
    ):
        for message in MESSAGES.values():
            where = await server.conversation()
            await add_message(store, where.rpartition("/")[2], message)
            await can_be_used(server, where)
            assert (await server.json("POST", f"{where}/chat", json={"text": "Hi", "stream": False}))[
                "text"
            ] == "Hello."
        assert len((await server.json("GET", "/conversations?limit=200"))["conversations"]) == 2 * len(MESSAGES)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_invalid_row_does_not_hide_valid_rows(kind: str, tmp_path: Path) -> None:
    columns = COLUMNS if kind == "postgres" else {**COLUMNS, **SQLITE_COLUMNS}
    columns = {name: column for name, column in columns.items() if kind == "postgres" or "CAST('Inf" not in column[1]}
    async with place(kind, tmp_path) as url, serve(["Hello."] * 99, store=(store := SQLStore(url))) as server:
        good = await server.conversation()
        made = {name: await server.conversation() for name in columns}
        for name, (column, value) in columns.items():
            where_id = made[name].rpartition("/")[2]
            await write(store, f"UPDATE conversations SET {column} = {value} WHERE id = '{where_id}'")
        found = (await server.json("GET", "/conversations?limit=200"))["conversations"]
        assert len(found) == 1 + len(columns)
        assert not [row for row in found if row["running"] or "\x1b" in row["title"]]
        for where in made.values():
            await can_be_used(server, where)
        for where in (good, *(made[name] for name in made if "messages" not in name and "count" not in name)):
            assert (await server.json("POST", f"{where}/chat", json={"text": "Hi", "stream": False}))[
                "text"
            ] == "Hello."
        for where in made.values():
            await server.json("DELETE", where, 204)


async def test_pages_continue_after_rows_without_a_valid_time(tmp_path: Path) -> None:
    store = SQLStore(tmp_path / "talk.db")
    ids = [(await store.create(str(at))).id for at in range(6)]
    for id_ in (ids[2], ids[4]):
        await write(store, "UPDATE conversations SET updated_at = '2zzz' WHERE id = :id", id=id_)
    found, cursor = [], None
    for _ in range(6):
        page = await store.list(3, cursor=cursor)
        found += [summary.id for summary in page]
        if (cursor := page.cursor) is None:
            break
    assert set(found) == set(ids)
    assert (await store.get(ids[2])).updated_at == EPOCH
    await store.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_text_of_fifty_megabytes_is_read(kind: str, tmp_path: Path) -> None:
    async with place(kind, tmp_path) as url:
        store = SQLStore(url)
        conversation = await store.create("x" * 50_000_000, [Message.user("y" * 50_000_000)])
        read = await store.get(conversation.id)
        assert (len(read.title), len(read.messages[0].text)) == (60, 50_000_000)
        await store.aclose()


WRONG = [
    "",
    "{",
    "[]",
    "7",
    "null",
    '"x"',
    "[[1]]",
    '{"id": 1}',
    '{"id": {}, "about": {}, "key": "", "to": ""}',
    nested(100_000),
]


@needs_postgres
async def test_invalid_pending_requests_and_grants_are_not_listed() -> None:
    good = {"id": "7", "kind": APPROVAL, "about": {"tool": "x"}, "grant_key": "k", "owner": "", "asked_at": 7}
    wrong = [*WRONG, *(json.dumps(good | {name: value}) for name in good for value in (None, ["x"]))]
    granted = {"key": "k", "server": "it", "tool": "x", "conversation_id": "", "owner": ""}
    async with database_url() as url, SQLStore(url) as store:
        requests = PendingRequests(Peers(store))
        for topic, right, bodies in ((APPROVAL, good, wrong), ("grant", granted, WRONG)):
            for at, body in enumerate((*bodies, json.dumps(right))):
                await store.values.put(topic, f"{at:03}", body, 60.0)
        (request,) = await requests.list_all(APPROVAL)
        assert request.about == good["about"]
        (grant,) = await requests.list_granted()
        assert grant.tool == "x"


async def test_shared_values_of_bytes_or_numbers_are_not_decoded(tmp_path: Path) -> None:
    async with SQLStore(tmp_path / "talk.db") as store:
        for at, value in enumerate(("x'ff00'", "CAST(x'ff' AS TEXT)", "7")):
            await write(
                store, f"INSERT INTO shared_values (topic, name, value, until) VALUES ('t', '{at}', {value}, 9e15)"
            )
        found = await store.values.read("t")
    assert [type(value) for value in found.values()] == [str] * 3


async def test_invalid_handoffs_are_ignored_and_the_clients_messages_are_used(tmp_path: Path) -> None:
    call = "call_" + "0" * 32
    asked = Message.from_dict(
        {"role": "assistant", "content": "", "tool_calls": [{"id": call, "name": "x", "arguments": {}}]}
    )
    wrong = [
        *WRONG,
        '{"messages": 7, "inner": {}, "owner": ""}',
        '{"messages": [], "inner": {}, "owner": 7}',
        '{"messages": [], "inner": [1], "owner": ""}',
        f'{{"messages": [], "inner": {{"{call}": 7}}, "owner": ""}}',
    ]
    async with SQLStore(tmp_path / "talk.db") as store:
        for body in wrong:
            await store.values.put("handoff", call, body, 60.0)
            messages = await HandoffStore(store.values).restore([Message.user("Hi"), asked])
            assert messages[:2] == (Message.user("Hi"), asked)


@needs_postgres
async def test_invalid_answers_are_skipped_and_later_answers_are_delivered() -> None:
    heard: list[Any] = []
    async with database_url() as url, SQLStore(url) as store:
        requests = PendingRequests(Peers(store))
        with requests.receive_answers("right", lambda answer: heard.append(answer["decision"])):
            for body in (*WRONG, '{"decision": "once"}'):
                await store.values.put("answer", "right", body, 60.0)
                await requests.collect_answers()
    assert heard == ["once"]


@needs_postgres
async def test_invalid_messages_of_another_process_are_skipped() -> None:
    forms = ("", "{", "7", "[7]", '[["1", "x"]]', "[[1, 2]]", nested(100_000))
    async with database_url() as url, SQLStore(url) as store:
        peers = Peers(store)
        turns = RemoteTurns(peers, lambda *_: None, TurnRegistry(), ServedModel(MODEL))
        id_ = (await store.create()).id
        await store.acquire(id_, "turn", [Message.user("Hi")], expected_count=0, lease=60.0, title="")
        async with anyio.create_task_group() as group, other_process(store, {"turn": [[1, "one"], [None, "end"]]}):
            group.start_soon(peers.run)
            stranger = Peers(store)
            group.start_soon(stranger.run)
            lines = await turns.find_events(id_, "turn", 0)
            assert lines is not None
            (reader,) = turns._readers
            for form in forms:
                await stranger._notify(form)
                await stranger._notify(
                    '{"kind": "events", "from": "x", "reader": "' + reader + f'", "events": {form or 7}}}'
                )
            await write(store, "SELECT pg_notify('dial_client', 'no message of this program')")
            streamed = [line async for line in lines]
            group.cancel_scope.cancel()
    assert streamed[1:] == ["one", "end"]
