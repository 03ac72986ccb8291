"""Clients and event loops: one loop for each client, and clients of programs that have no event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from mcp.server import MCPServer

from dial_client import (
    ConversationManager,
    DialClient,
    Finished,
    MemoryStore,
    ProviderError,
    TextDelta,
    ToolCallFinished,
)
from dial_client.testing import ScriptedProvider
from tests.support.clients import ADD, ASK, calculator
from tests.support.program import LONG, run_example

ANSWERS: list[Any] = [ADD, "It is 42."]


def in_second_loop(client: DialClient, method: str, *arguments: Any) -> BaseException | None:
    """Call a method in the event loop of another thread, and return the error it raises."""

    async def call() -> None:
        with anyio.fail_after(LONG):
            await getattr(client, method)(*arguments)

    try:
        asyncio.run(call())
    except RuntimeError as error:
        return error
    return None


METHODS: list[tuple[str, tuple[Any, ...]]] = [
    ("run", (ASK,)),
    ("response", (ASK,)),
    ("map", (["a"],)),
    ("call", ("add", {"a": 1, "b": 2})),
    ("open", ()),
    ("ready", ()),
    ("aclose", ()),
    ("restart_server", ("calc",)),
    ("remove_server", ("calc",)),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("method", "arguments"), METHODS, ids=[name for name, _ in METHODS])
async def test_a_call_from_a_second_event_loop_is_an_error_at_once_and_the_next_turn_is_unharmed(
    method: str, arguments: tuple[Any, ...]
) -> None:
    async with DialClient(ScriptedProvider(ANSWERS), servers={"calc": calculator()}) as dial:
        error = await to_thread.run_sync(in_second_loop, dial, method, *arguments)
        assert "another event loop" in str(error)
        assert "dial.blocking()" in str(error)
        assert (await dial.run(ASK)).text == "It is 42."


@pytest.mark.anyio
async def test_a_call_right_after_open_waits_for_its_server() -> None:
    dial = DialClient(servers={"calc": calculator()})
    await dial.open()
    try:
        assert dial.tools == ()
        assert (await dial.call("add", {"a": 17, "b": 25})).content == "42"
        assert not (await dial.call("no_such_tool", {})).success
    finally:
        await dial.aclose()


@pytest.mark.anyio
async def test_entering_a_client_twice_is_an_error_that_leaves_it_open() -> None:
    dial = DialClient(ScriptedProvider(ANSWERS * 2), servers={"calc": calculator()})
    async with dial:
        with pytest.raises(RuntimeError, match="entered already"):
            async with dial:
                raise AssertionError
        assert (await dial.run(ASK)).text == "It is 42."
    async with dial:
        assert (await dial.run(ASK)).text == "It is 42."


@pytest.mark.anyio
async def test_an_opened_client_can_be_entered() -> None:
    dial = DialClient(servers={"calc": calculator()})
    await dial.open()
    async with dial:
        assert (await dial.call("add", {"a": 17, "b": 25})).content == "42"


# --- programs without an event loop -----------------------------------------------------------------


class Shop:
    """A server that counts its starts, and a tool that returns the caller's user."""

    def __init__(self) -> None:
        self.starts = 0

        @asynccontextmanager
        async def count(_: MCPServer) -> AsyncIterator[None]:
            self.starts += 1
            yield

        self.server = MCPServer("shop", lifespan=count)

        @self.server.tool()
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b


def test_threads_share_a_client_whose_servers_are_started_once() -> None:
    shop, barrier = Shop(), threading.Barrier(4)

    def meet() -> str:
        """Wait for the other threads: their turns run at the same time."""
        barrier.wait(LONG)
        return "met"

    call: Any = {"tool_calls": [{"name": "meet", "arguments": {}}]}
    model = ScriptedProvider([*[call] * 4, *["Done."] * 4])
    with (
        DialClient(model, servers={"shop": shop.server}, tools=[meet]).blocking() as dial,
        ThreadPoolExecutor(4) as threads,
    ):
        assert [turn.text for turn in threads.map(dial.run, ["go on"] * 4)] == ["Done."] * 4
        assert dial.call("add", {"a": 17, "b": 25}).content == "42"
    assert shop.starts == 1


def test_a_stream_yields_events_and_can_be_left_early() -> None:
    with DialClient(ScriptedProvider([*ANSWERS, "One two three."]), servers={"calc": calculator()}).blocking() as dial:
        events = list(dial.stream(ASK))
        assert [event.result.content for event in events if isinstance(event, ToolCallFinished)] == ["42"]
        assert isinstance(events[-1], Finished)
        stream = dial.stream(ASK)
        assert any(isinstance(event, TextDelta) for event in stream)
        stream.close()


def test_errors_typed_answers_and_other_methods_pass_through() -> None:
    client = DialClient(ScriptedProvider(["41", "42", "Hello."]))
    with client.blocking() as dial:
        assert dial.run("a number", output_type=int).output == 41
        assert dial.run("a number", output_type=int).output == 42
        manager = ConversationManager(client, MemoryStore())
        conversation = dial.wait(manager.create, owner="ann")
        assert dial.wait(manager.chat, conversation.id, "Hi.").text == "Hello."
        with pytest.raises(ProviderError):
            dial.run("no reply is left")
        with pytest.raises(TypeError, match="no keyword temperature"):
            dial.run("go on", temperature=0)  # type: ignore[call-overload]


user: ContextVar[str] = ContextVar("user", default="nobody")


def test_context_variables_of_the_thread_are_those_of_its_turn() -> None:
    def whoami() -> str:
        """Tell who asks."""
        return user.get()

    call: Any = {"tool_calls": [{"name": "whoami", "arguments": {}}]}

    def ask(name: str) -> Any:
        user.set(name)
        return dial.run("go on").tool_calls[0].result.content

    with (
        DialClient(ScriptedProvider([call, "Done."] * 3), tools=[whoami]).blocking() as dial,
        ThreadPoolExecutor(1) as threads,
    ):
        assert list(threads.map(ask, ["ann", "bob"])) == ["ann", "bob"]


def test_a_blocking_client_is_opened_once_and_closed_twice_without_harm() -> None:
    dial = DialClient(ScriptedProvider(["Hello."] * 2)).blocking()
    with pytest.raises(RuntimeError, match="not open"):
        dial.run("go on")
    dial.open()
    with pytest.raises(RuntimeError, match="open already"):
        dial.open()
    assert dial.run("go on").text == "Hello."
    dial.close()
    dial.close()
    with dial:
        assert dial.run("go on").text == "Hello."


@pytest.mark.anyio
async def test_a_blocking_client_refuses_to_wait_in_the_thread_of_an_event_loop() -> None:
    dial = DialClient(ScriptedProvider(["Hello."])).blocking()
    with pytest.raises(RuntimeError, match="event loop runs in this thread"):
        dial.open()
    await to_thread.run_sync(dial.open)
    with pytest.raises(RuntimeError, match="event loop runs in this thread"):
        dial.run("go on")
    await to_thread.run_sync(dial.close)


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_process_is_told_to_open_its_own_client(tmp_path: Path) -> None:
    program = """
import os
from dial_client import DialClient
from dial_client.testing import ScriptedProvider
dial = DialClient(ScriptedProvider(["Hello."])).blocking()
dial.open()
if os.fork() == 0:
    try:
        dial.run("go on")
    except RuntimeError as error:
        print(error, flush=True)
    dial.close()
    os._exit(0)
os.wait()
print(dial.run("go on").text)
"""
    done = run_example(tmp_path, program)
    assert "before this process was forked" in done.stdout
    assert done.stdout.endswith("Hello.\n")


def test_a_program_that_does_not_close_its_client_ends(tmp_path: Path) -> None:
    program = """
from dial_client import DialClient
from dial_client.testing import ScriptedProvider
dial = DialClient(ScriptedProvider(["Hello."])).blocking()
dial.open()
print(dial.run("go on").text)
"""
    done = run_example(tmp_path, program)
    assert (done.stdout, done.returncode) == ("Hello.\n", 0)
