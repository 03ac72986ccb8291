"""What an editor sends that is no message of JSON-RPC is answered, and the messages after it are read."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.inner import EditorTransport, OneLine

pytestmark = pytest.mark.anyio

CALL = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of the protocol's package."""
    return "asyncio"


@asynccontextmanager
async def opened(limit: int = 2**16) -> AsyncIterator[tuple[EditorTransport, asyncio.StreamReader, Any]]:
    """Open a transport, with what the editor writes to and where the answers are read."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit)
    output, given = os.pipe()
    with os.fdopen(output, "rb") as answers, os.fdopen(given, "wb") as pipe:
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
        editor = EditorTransport(reader, asyncio.StreamWriter(transport, protocol, None, loop))
        yield editor, reader, answers
        await editor.close()
        transport.close()


@pytest.mark.parametrize(
    ("line", "id_", "code"),
    [
        (b"rubbish", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b"[" * 20_000, None, -32700),
        (b"3", None, -32600),
        (b"[]", None, -32600),
        (b'{"jsonrpc": "2.0"}', None, -32600),
        (b'{"jsonrpc": "2.0", "id": 5, "method": 7}', 5, -32600),
        (b'{"jsonrpc": "2.0", "id": "a", "method": "x", "params": 7}', "a", -32600),
        (b'{"jsonrpc": "2.0", "id": [1], "result": {}}', None, -32600),
        (b"x" * 200_000, None, -32600),
    ],
)
async def test_a_line_that_is_no_message_is_answered_and_ends_nothing(
    line: bytes, id_: Any, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened() as (editor, reader, answers):
        reader.feed_data(line + b"\n\n" + json.dumps(CALL).encode() + b"\n")
        reader.feed_eof()
        received = [await editor.receive(), await editor.receive()]
        answer = json.loads(answers.readline())
    assert (answer["id"], answer["error"]["code"], received) == (id_, code, [CALL, None])
    (record,) = caplog.records
    assert "what the editor sent" in record.getMessage() and "\n" not in record.getMessage()


async def test_a_response_whose_error_is_no_object_still_answers_its_request() -> None:
    async with opened() as (editor, reader, _):
        reader.feed_data(b'{"jsonrpc": "2.0", "id": 4, "error": "no"}\n')
        received = await editor.receive()
    assert received is not None and (received["id"], received["error"]["code"]) == (4, -32603)


def test_an_error_that_the_package_logs_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    try:
        json.loads("rubbish")
    except ValueError as error:
        record = logging.LogRecord("root", logging.ERROR, "", 0, "Receive %s", ("failed",), (ValueError, error, None))
    assert OneLine().filter(record)
    text = logging.Formatter().format(record)
    assert text == "dial-chat: Receive failed: JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
