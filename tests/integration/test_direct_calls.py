"""Calls of tools over pipes past the SDK's session: the same answers, progress, cancellation and end as through it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCResponse,
    TextContent,
)
from mcp_types.version import LATEST_MODERN_VERSION

from tests.inner import FIRST_ID, DirectCalls, extract_text
from tests.support.gateways import host
from tests.support.servers.launch import raw, until

pytestmark = pytest.mark.anyio
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}


class Connection:
    """The calls over a connection whose other side is this test, with what they need of the SDK's session."""

    def __init__(self, version: str = "2025-11-25") -> None:
        self.sent: list[dict[str, Any]] = []
        self.is_broken = False
        self.direct = DirectCalls(self._write)
        self.dispatcher = SimpleNamespace(send_raw_request=self._send_raw_request)
        session = SimpleNamespace(protocol_version=version, _stamp=lambda *_: None, _dispatcher=self.dispatcher)
        self.direct.connect(session)

    async def _write(self, line: bytes) -> None:
        if self.is_broken:
            raise anyio.BrokenResourceError
        self.sent.append(json.loads(line))

    async def _send_raw_request(self, method: str, *_: Any) -> dict[str, Any]:
        return {"by": f"the SDK: {method}"}

    async def call(self, receive: Callable[[int], object], **options: Any) -> CallToolResult | None:
        """Make a call, and let the server do something once it has the request."""
        answers: list[CallToolResult | None] = []
        async with anyio.create_task_group() as group:

            async def make() -> None:
                answers.append(await self.direct.call("it", {"a": None}, None, options.get("on_progress")))

            group.start_soon(make)
            await until(lambda: bool(self.sent))
            receive(self.sent[-1]["id"])
        return answers[0]


def response(id_: int | str, result: dict[str, Any]) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=id_, result=dict(result))


def progressed(token: object, **params: Any) -> JSONRPCNotification:
    params = {"progressToken": token, **params}
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params=params)


async def test_progress_is_reported_in_order_before_the_result_and_broken_progress_is_left_out() -> None:
    connection = Connection()
    seen: list[Any] = []

    async def report(*progress: Any) -> None:
        seen.append(progress)
        raise RuntimeError("whoever is told must not end the call")

    def answer(id_: int) -> None:
        sent = connection.sent[0]["params"]
        assert sent == {"name": "it", "arguments": {"a": None}, "_meta": {"progressToken": id_}}
        for params in ({"progress": 1}, {"progress": "x"}, {"progress": 2.5, "total": 3, "message": "half"}):
            assert connection.direct.take(progressed(id_, **params))
        # Some servers answer to the id 1 with the id "1".
        assert connection.direct.take(response(str(id_), DONE | {"resultType": "of a later revision"}))

    result = await connection.call(answer, on_progress=report)
    assert result is not None
    assert result.content == [TextContent(text="done")]
    assert seen == [(1.0, None, None), (2.5, 3.0, "half")]


async def test_the_error_of_a_server_is_raised_with_its_code_and_data() -> None:
    connection = Connection()
    error = ErrorData(code=-32042, message="no", data={"why": 1})
    with pytest.raises(ExceptionGroup) as raised:
        await connection.call(lambda id_: connection.direct.take(JSONRPCError(jsonrpc="2.0", id=id_, error=error)))
    (found,) = raised.value.exceptions
    assert isinstance(found, MCPError)
    assert found.error == error


async def test_messages_of_the_sdk_are_left_to_the_sdk() -> None:
    connection = Connection()
    for message in (response(1, DONE), progressed(1, progress=1), progressed(None, progress=1), object()):
        assert not connection.direct.take(message)


async def test_a_cancelled_call_is_cancelled_at_the_server() -> None:
    connection = Connection()
    async with anyio.create_task_group() as group:
        group.start_soon(connection.direct.call, "it", {}, None, None)
        await until(lambda: bool(connection.sent))
        group.cancel_scope.cancel()
    request, cancelled = connection.sent
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"] == {"requestId": request["id"]}
    assert not connection.direct.take(response(request["id"], DONE)), "nobody waits for it"


@pytest.mark.parametrize("end", ["the connection ends", "it has ended", "the pipe breaks", "no JSON"])
async def test_a_call_without_a_connection_fails(end: str) -> None:
    connection = Connection()
    connection.is_broken = end == "the pipe breaks"
    if end == "it has ended":
        connection.direct.close()
    arguments = {"text": "\ud800"} if end == "no JSON" else {}

    async def close() -> None:
        if end == "the connection ends":
            await until(lambda: bool(connection.sent))
            connection.direct.close()

    async with anyio.create_task_group() as group:
        group.start_soon(close)
        with anyio.fail_after(30), pytest.raises(MCPError) as failed:
            await connection.direct.call("it", arguments, None, None)
    assert failed.value.error.code == (INTERNAL_ERROR if end == "no JSON" else CONNECTION_CLOSED)


async def test_the_sdk_goes_on_with_an_answer_that_is_no_result() -> None:
    """Since 2026-07-28 the answer may be a question or a task."""
    connection = Connection(LATEST_MODERN_VERSION)
    question = {"resultType": "input_required", "requestState": "x"}

    async def work() -> None:
        assert await connection.direct.call("it", {}, None, None) is None
        send = connection.dispatcher.send_raw_request
        assert await send("tools/list", None) == {"by": "the SDK: tools/list"}
        assert await send("tools/call", None) == question
        assert await send("tools/call", None) == {"by": "the SDK: tools/call"}

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await until(lambda: bool(connection.sent))
        connection.direct.take(response(connection.sent[0]["id"], question))


async def test_calls_at_a_server_over_pipes_go_past_the_sdk_and_the_rest_does_not(tmp_path: Path) -> None:
    async with host({"it": raw("Server", "--log", tmp_path / "log", auto_approve=("*",))}) as dial:
        result = await dial.call("echo", {"nothing": None})
    assert extract_text(result.content) == '{"nothing": null}'
    requests = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if '"id"' in line]
    past = {request["method"] for request in requests if request["id"] > FIRST_ID}
    assert past == {"tools/call"} < {request["method"] for request in requests}
