"""Closing or cancelling leaves no task, no process and no open connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import DialClient, Message, TextDelta, ToolCallStarted
from tests.support.model_endpoint import Call, Raw, Say, events, model_endpoint
from tests.support.program import entry
from tests.support.servers.launch import is_alive, read_requests, until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)]

ASK = [Message.user("Go on.")]
BEGUN = events({"choices": [{"index": 0, "delta": {"content": "I begin"}}]}, done=False).chunks


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Assert that all tasks that start inside the block have ended."""
    before = asyncio.all_tasks()
    yield
    await until(lambda: not asyncio.all_tasks() - before)


def servers(log: Path, behaviour: str = "ShowsItself") -> dict[str, Any]:
    return {"raw": entry(behaviour, "--log", str(log))}


async def pid_of(dial: DialClient) -> int:
    result = await dial.call("echo", {})
    assert isinstance(result.content, str)
    return int(json.loads(result.content)["pid"])


async def test_breaking_out_of_a_stream_closes_the_models_connection(tmp_path: Path) -> None:
    with model_endpoint([Raw(BEGUN, hang=True)]) as endpoint:
        async with nothing_left():
            async with DialClient("chat:x", servers=servers(tmp_path / "log"), base_url=f"{endpoint.url}/v1") as dial:
                pid = await pid_of(dial)
                async with aclosing(dial.stream(ASK)) as stream:
                    async for event in stream:
                        if isinstance(event, TextDelta):
                            break
                assert endpoint.disconnected.wait(30)
            assert not is_alive(pid)


async def test_a_break_without_aclosing_closes_the_models_connection(tmp_path: Path) -> None:
    with model_endpoint([Raw(BEGUN, hang=True)]) as endpoint:
        async with nothing_left(), DialClient("chat:x", base_url=f"{endpoint.url}/v1") as dial:
            async for event in dial.stream(ASK):
                if isinstance(event, TextDelta):
                    break
            with anyio.fail_after(30):
                await until(endpoint.disconnected.is_set)
                await until(lambda: not dial._turns._turns)


async def test_cancelling_the_task_closes_the_models_connection() -> None:
    with model_endpoint([Raw((), hang=True)]) as endpoint:
        async with nothing_left(), DialClient("chat:x", base_url=f"{endpoint.url}/v1") as dial:
            task = asyncio.create_task(dial.run(ASK))
            await until(endpoint.asked.is_set)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(endpoint.disconnected.is_set)
            # The event loop may still hold the callback of the turn's own task.
            await until(lambda: not dial._turns._turns)


async def test_cancelling_the_task_in_a_call_tells_the_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with model_endpoint([Say(calls=(Call("echo"),))]) as endpoint:
        async with nothing_left():
            client = DialClient("chat:x", servers=servers(log, "NeverAnswers"), base_url=f"{endpoint.url}/v1")
            async with client as dial:
                started = anyio.Event()

                async def talk() -> None:
                    async for event in dial.stream(ASK):
                        if isinstance(event, ToolCallStarted):
                            started.set()

                task = asyncio.create_task(talk())
                await started.wait()
                await until(lambda: "tools/call" in read_requests(log))
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await until(lambda: "notifications/cancelled" in read_requests(log))
