"""Standard input and output of the gateway: whole messages, and the start of the servers after the first ones."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from tests.inner import StandardFiles, StartSignal, open_streams

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
