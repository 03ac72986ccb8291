"""Standard output as the gateway's server writes to it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from tests.inner import StandardFiles, open_streams

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
    begun: list[None] = []
    try:
        with anyio.fail_after(30):
            async with open_streams(StandardFiles(reads, writes), lambda: begun.append(None)) as (_, output):
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
    assert len(begun) == 3
