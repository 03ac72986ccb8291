"""Standard input and output of the gateway: whole messages, and the start of the servers after the first ones."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, JSONRPCNotification

from tests.inner import ClientDispatcher, StandardFiles, StartSignal, open_streams

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="there the event loop cannot wait for a pipe"),
]

# More than a pipe holds.
LARGE = "x" * 300_000


def message(method: str, text: str) -> SessionMessage:
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method, params={"text": text}))


async def read_lines(file: int, count: int) -> list[Any]:
    data = b""
    while data.count(b"\n") < count:
        await anyio.wait_readable(file)
        data += os.read(file, 65_536)
    return [json.loads(line) for line in data.splitlines()]


async def test_messages_are_written_whole_and_in_order_though_their_sender_is_cancelled() -> None:
    reads, writes = os.pipe()
    signal = StartSignal(knows_tools=False)
    try:
        with anyio.fail_after(30):
            async with open_streams(StandardFiles(reads, writes), signal) as (_, output):
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await output.send(message("first", LARGE))
                await output.send(message("second", ""))
                lines = await read_lines(reads, 2)
                await output.send(message("third", ""))
                lines += await read_lines(reads, 1)
    finally:
        os.close(reads)
        os.close(writes)
    assert [line["method"] for line in lines] == ["first", "second", "third"]
    assert lines[0]["params"]["text"] == LARGE
    assert signal.is_over.is_set()


def call(id_: int, name: str) -> bytes:
    request = {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": {"name": name}}
    return json.dumps(request).encode() + b"\n"


async def test_calls_are_answered_alone_together_and_in_pieces_and_cancelled_calls_are_not() -> None:
    """A call that arrives alone is begun where it is read, every other call by the task that receives."""
    reads, to_gateway = os.pipe()
    from_gateway, writes = os.pipe()
    begun: list[Any] = []

    async def answer(_: Any, method: str, params: Any) -> dict[str, Any]:
        begun.append(params["name"])
        if params["name"] == "waits":
            await anyio.sleep_forever()
        return {"content": [method, params["name"]]}

    async def take(*_: Any) -> None:
        """A notification."""

    cancelled = b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": %d}}\n'
    answers: list[Any] = []
    try:
        with anyio.fail_after(30):
            async with (
                open_streams(StandardFiles(reads, writes), StartSignal(knows_tools=False)) as (incoming, output),
                anyio.create_task_group() as group,
            ):
                group.start_soon(ClientDispatcher(incoming, output).run, answer, take)
                for written, count in (
                    ((call(1, "alone"),), 1),
                    ((call(2, "one") + call(3, "two"),), 2),
                    (
                        (
                            call(4, "in pieces")[:30],
                            call(4, "in pieces")[30:] + call(5, "rest")[:9],
                            call(5, "rest")[9:],
                        ),
                        2,
                    ),
                    ((call(6, "waits") + cancelled % 6 + call(7, "after it"),), 1),
                    ((call(8, "waits"), cancelled % 8, call(9, "last")), 1),
                ):
                    for chunk in written:
                        await anyio.wait_all_tasks_blocked()
                        os.write(to_gateway, chunk)
                    # Calls of one read run at once, and trio begins tasks in no order.
                    answers += sorted(await read_lines(from_gateway, count), key=lambda answer: int(answer["id"]))
                os.close(to_gateway)
    finally:
        for file in (reads, writes, from_gateway):
            os.close(file)
    names = ["alone", "one", "two", "in pieces", "rest", "after it", "last"]
    assert [answer["result"]["content"] for answer in answers] == [["tools/call", name] for name in names]
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5, 7, 9]
    assert begun[-2:] == ["waits", "last"]


async def test_calls_that_wait_when_the_client_closes_its_end_are_cancelled_and_answered() -> None:
    reads, to_gateway = os.pipe()
    from_gateway, writes = os.pipe()
    ended: list[str] = []

    async def answer(_: Any, __: str, params: Any) -> dict[str, Any]:
        if params["name"] == "first":
            return {}
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(params["name"])
        raise AssertionError

    async def take(*_: Any) -> None:
        """A notification."""

    try:
        with anyio.fail_after(30):
            async with open_streams(StandardFiles(reads, writes), StartSignal(knows_tools=False)) as (incoming, output):
                async with anyio.create_task_group() as group:
                    group.start_soon(ClientDispatcher(incoming, output).run, answer, take)
                    for id_, name in enumerate(("first", "second", "third")):
                        await anyio.wait_all_tasks_blocked()
                        os.write(to_gateway, call(id_, name))
                    await anyio.wait_all_tasks_blocked()
                    os.close(to_gateway)
                answers = await read_lines(from_gateway, 3)
    finally:
        for file in (reads, writes, from_gateway):
            os.close(file)
    assert sorted(ended) == ["second", "third"]
    assert {line["id"]: line.get("error", {}).get("code") for line in answers} == {
        0: None,
        1: CONNECTION_CLOSED,
        2: CONNECTION_CLOSED,
    }


def test_servers_start_after_the_first_list_if_no_server_is_needed_for_the_list() -> None:
    """To start many servers keeps the event loop busy for seconds."""
    signal = StartSignal(knows_tools=True)
    signal.receive("initialize")
    signal.write()
    signal.receive("notifications/initialized")
    signal.receive("tools/list")
    assert signal.is_greeted.is_set()
    assert not signal.is_over.is_set()
    signal.write()
    assert signal.is_over.is_set()


@pytest.mark.parametrize("method", ["tools/call", "prompts/list", "resources/read"])
def test_servers_start_with_the_first_request_that_needs_servers(method: str) -> None:
    signal = StartSignal(knows_tools=True)
    signal.receive("initialize")
    signal.receive(method)
    assert signal.is_over.is_set()


def test_servers_whose_tools_are_not_known_start_once_the_client_is_greeted() -> None:
    signal = StartSignal(knows_tools=False)
    signal.receive("server/discover")
    assert not signal.is_over.is_set()
    signal.write()
    assert signal.is_over.is_set()
