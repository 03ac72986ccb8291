"""The startup patience: a turn waits a limited time for starting servers, and offers their tools when they are up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server import MCPServer

from dial_client import DialClient
from tests.inner import (
    STARTUP_PATIENCE,
    CallChunk,
    Completion,
    FinishReason,
    InstructionSource,
    ModelRequest,
    ServerSettings,
    ServerState,
    TextChunk,
    ToolCallRequest,
    announce_servers,
    extract_text,
)
from tests.support.fakes import Model, Step, virtual_time
from tests.support.program import LONG
from tests.support.servers.launch import raw, until

pytestmark = pytest.mark.anyio

CALLS, STOP = Completion(FinishReason.TOOL_CALLS), Completion(FinishReason.STOP)
ANSWER: list[Step] = [TextChunk("Done."), STOP]


def call(name: str, **arguments: Any) -> list[Step]:
    return [CallChunk(ToolCallRequest(f"id_{name}", name, arguments)), CALLS]


def ready_server() -> MCPServer:
    server = MCPServer("ready", log_level="CRITICAL")
    server.add_tool(lambda: "here", name="now", structured_output=False)
    return server


def held_back(folder: Path, **settings: Any) -> ServerSettings:
    """Return a server that becomes ready when the folder has a second file."""
    return raw("WaitsForOthers", "--folder", str(folder), "--count", "2", **settings)


def hanging_server() -> MCPServer:
    @asynccontextmanager
    async def hang(_: MCPServer) -> AsyncIterator[None]:
        await anyio.sleep_forever()
        yield

    return MCPServer("hangs", lifespan=hang, log_level="CRITICAL")


def host_instructions(request: ModelRequest) -> str:
    return "\n".join(text.text for text in request.instructions if text.source is InstructionSource.HOST)


async def test_tools_of_a_slow_server_are_offered_in_the_next_round_of_the_turn(tmp_path: Path) -> None:
    model = Model()
    dial = DialClient(model, servers={"a": ready_server(), "slow": held_back(tmp_path)}, startup_patience=0.2)
    await dial.open()
    try:

        async def release() -> None:
            (tmp_path / "other").touch()
            await dial.ready()

        model.replies = [[release, *call("now")], call("echo", text="hi"), ANSWER]
        await until(lambda: dial.servers["a"].state is ServerState.READY)
        with anyio.fail_after(LONG):
            turn = await dial.run("Go")
    finally:
        await dial.aclose()
    offered = [[tool.name for tool in request.tools] for request in model.requests]
    assert offered == [["now"], ["echo", "now"], ["echo", "now"]]
    assert "Still starting, and not on offer yet: slow." in host_instructions(model.requests[0])
    assert "Still starting" not in host_instructions(model.requests[1])
    assert "server 'slow' is still starting: the turn continues without it" in turn.notes


@virtual_time
async def test_a_hanging_server_delays_only_the_first_answer_by_the_patience() -> None:
    model = Model(ANSWER, ANSWER)
    dial = DialClient(model, servers={"hangs": hanging_server()})
    await dial.open()
    try:
        began = anyio.current_time()
        await dial.run("Go")
        assert anyio.current_time() - began == pytest.approx(STARTUP_PATIENCE)
        await dial.run("Go on")
        assert anyio.current_time() - began == pytest.approx(STARTUP_PATIENCE)
    finally:
        await dial.aclose()


@virtual_time
async def test_a_message_names_the_servers_that_start_slowly(capsys: pytest.CaptureFixture[str]) -> None:
    dial = DialClient(Model(), servers={"hangs": hanging_server(), "a": ready_server()})
    await dial.open()
    try:
        await announce_servers(dial, quiet=False)
    finally:
        await dial.aclose()
    assert capsys.readouterr().err.splitlines() == [
        "dial-chat: waiting for servers: hangs",
        "dial-chat: server 'hangs' is still starting: the turn continues without it",
    ]


async def test_cached_tools_are_offered_during_the_start_and_a_call_waits_for_the_server(tmp_path: Path) -> None:
    folder, cache = tmp_path / "started", tmp_path / "cache"
    folder.mkdir()
    (folder / "other").touch()
    with anyio.fail_after(LONG):
        async with DialClient(servers={"slow": held_back(folder)}, cache_dir=cache):
            pass
    for file in folder.iterdir():
        file.unlink()
    model = Model()
    dial = DialClient(model, servers={"slow": held_back(folder)}, cache_dir=cache, startup_patience=0.2)
    await dial.open()
    try:
        states: list[ServerState] = []

        async def release_during_the_call() -> None:
            states.append(dial.servers["slow"].state)
            (folder / "other").touch()

        model.replies = [[release_during_the_call, *call("echo", text="hi")], ANSWER]
        with anyio.fail_after(LONG):
            turn = await dial.run("Go")
    finally:
        await dial.aclose()
    assert states == [ServerState.STARTING]
    assert [tool.name for tool in model.requests[0].tools] == ["echo"]
    assert "Still starting" not in host_instructions(model.requests[0])
    assert [done.result.success for done in turn.tool_calls] == [True]
    assert "hi" in extract_text(turn.tool_calls[0].result.content)


async def test_a_turn_always_waits_for_a_required_server(tmp_path: Path) -> None:
    model = Model(ANSWER)
    settings = held_back(tmp_path, required=True)
    dial = DialClient(model, servers={"a": ready_server(), "slow": settings}, startup_patience=0.01)
    await dial.open()
    try:
        turn = dial.start("Go")
        await until(lambda: any(tmp_path.iterdir()) and dial.servers["a"].state is ServerState.READY)
        assert dial.awaited_servers == {"slow": ""}
        (tmp_path / "other").touch()
        with anyio.fail_after(LONG):
            await turn.result()
    finally:
        await dial.aclose()
    assert [tool.name for tool in model.requests[0].tools] == ["echo", "now"]


async def test_a_turn_without_tools_waits_for_a_download_and_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "started"
    folder.mkdir()
    program = tmp_path / "uvx"
    settings = held_back(folder)
    program.write_text(
        f'#!/bin/sh\necho "Downloading lxml (4.8MiB)" >&2\nshift\nexec "{settings.command}" "$@"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    model = Model(ANSWER)
    fetched = replace(settings, command=str(program), args=("mcp-server-fetch", *settings.args))
    dial = DialClient(model, servers={"it": fetched}, startup_patience=0.1)
    await dial.open()
    try:
        turn = dial.start("Go")
        await until(lambda: dial.awaited_servers == {"it": "uvx is downloading mcp-server-fetch"})
        await until(lambda: any(folder.iterdir()))
        (folder / "other").touch()
        with anyio.fail_after(LONG):
            await turn.result()
    finally:
        await dial.aclose()
    assert [tool.name for tool in model.requests[0].tools] == ["echo"]
