"""Lazy servers: their tools are offered from the cache, and the first call of a tool starts the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from dial_client import Approval, DialClient, Message
from dial_client.testing import ScriptedProvider
from tests.inner import ApprovalContext, ApprovalPolicy, Failure, ServerState, ToolCallRequest, ToolSpec, extract_text
from tests.support.program import LONG, dial_chat, write_config
from tests.support.servers.launch import script
from tests.support.servers.tool_changes import TWICE, ChangingServer, build_changing_server, tool

pytestmark = pytest.mark.anyio


@pytest.fixture
def server(tmp_path: Path) -> ChangingServer:
    return build_changing_server(tmp_path, tools=[tool("echo"), tool("other")])


def client(server: ChangingServer, model: Any = None, **options: Any) -> DialClient:
    return DialClient(model, servers={"it": server.entry(lazy=True)}, cache_dir=server.folder / "memory", **options)


async def fill_cache(server: ChangingServer) -> None:
    """Start the server once, so that its tools are in the cache."""
    with anyio.fail_after(LONG):
        async with client(server):
            pass
    server.asked()


def calls(*replies: Mapping[str, Any]) -> ScriptedProvider:
    asked = [{"tool_calls": [{"name": "echo", "arguments": arguments}]} for arguments in replies]
    return ScriptedProvider([*asked, {"text": "Done."}])


async def test_a_lazy_server_without_cached_tools_is_started(server: ChangingServer) -> None:
    async with client(server) as dial:
        assert dial.servers["it"].state is ServerState.READY
        assert [spec.name for spec in dial.tools] == ["echo", "other"]
    assert server.asked()[0] == "start"


async def test_a_lazy_server_with_cached_tools_sleeps_and_offers_its_tools(server: ChangingServer) -> None:
    async with client(server) as before:
        tools = before.tools
    server.asked()
    async with client(server) as dial:
        assert dial.servers["it"].state is ServerState.SLEEPING
        assert dial.servers["it"].tools == ("echo", "other")
        assert dial.tools == tools
        assert dial.notes == ()
    assert server.asked() == []


async def test_the_first_call_starts_a_lazy_server_once(server: ChangingServer) -> None:
    await fill_cache(server)
    with anyio.fail_after(LONG):
        async with client(server) as dial:
            for n in (1, 2):
                result = await dial.call("echo", {"n": n})
                assert (result.success, json.loads(extract_text(result.content))) == (True, ["echo", {"n": n}])
            assert dial.servers["it"].state is ServerState.READY
            assert dial.servers["it"].restarts == 0
    assert server.asked() == ["start", "initialize", "tools/list", "tools/call", "tools/call"]


async def test_concurrent_calls_start_a_lazy_server_once(server: ChangingServer) -> None:
    await fill_cache(server)
    results: list[bool] = []

    async def call(dial: DialClient, n: int) -> None:
        results.append((await dial.call("echo", {"n": n})).success)

    with anyio.fail_after(LONG):
        async with client(server) as dial, anyio.create_task_group() as group:
            for n in range(5):
                group.start_soon(call, dial, n)
    assert results == [True] * 5
    assert server.asked().count("start") == 1


@pytest.mark.parametrize("name", ["nobody", "echoo"])
async def test_an_invalid_or_denied_call_does_not_start_a_lazy_server(server: ChangingServer, name: str) -> None:
    server.write_config(tools=[tool(schema=TWICE)])
    await fill_cache(server)
    async with client(server, approval=ApprovalPolicy(deny=["echo"])) as dial:
        assert not (await dial.call(name, {})).success
        assert (await dial.call("echo", {})).failure is Failure.BAD_ARGUMENTS
        assert (await dial.call("echo", {"times": 1})).failure is Failure.DENIED
        assert dial.servers["it"].state is ServerState.SLEEPING
    assert server.asked() == []


async def test_arguments_are_checked_against_the_schema_of_the_started_server(server: ChangingServer) -> None:
    await fill_cache(server)
    server.write_config(tools=[tool(schema=TWICE)])
    with anyio.fail_after(LONG):
        async with client(server, calls({}, {"times": 2})) as dial:
            turn = await dial.run([Message.user("Go")])
            assert [spec.original_schema for spec in dial.tools] == [TWICE]
    first, second = turn.tool_calls
    assert (first.result.failure, second.result.success) == (Failure.BAD_ARGUMENTS, True)
    assert "times" in extract_text(first.result.content)
    assert server.asked().count("tools/call") == 1


async def test_a_tool_that_changed_while_its_server_slept_needs_a_new_approval(server: ChangingServer) -> None:
    await fill_cache(server)
    server.write_config(tools=[tool(about="Says it to everybody.")])
    shown: list[ToolSpec] = []
    changes: list[str] = []

    async def approve(call: ToolCallRequest, spec: ToolSpec, context: ApprovalContext) -> Approval:
        shown.append(spec)
        changes.append(context.change)
        return Approval("once" if len(shown) == 1 else "deny")

    with anyio.fail_after(LONG):
        async with client(server, approve=approve) as dial:
            assert (await dial.call("echo", {})).failure is Failure.DENIED
    assert [spec.description for spec in shown] == ["Says it again.", "Says it to everybody."]
    assert "Says it to everybody." in changes[1]
    assert "tools/call" not in server.asked()


async def test_a_call_of_a_tool_removed_while_its_server_slept_is_an_error(server: ChangingServer) -> None:
    await fill_cache(server)
    server.write_config(tools=[tool("new")])
    with anyio.fail_after(LONG):
        async with client(server) as dial:
            result = await dial.call("echo", {})
            assert "no tool 'echo' any more" in extract_text(result.content)
            assert [spec.name for spec in dial.tools] == ["new"]


async def test_a_call_fails_if_its_lazy_server_cannot_be_started(server: ChangingServer) -> None:
    await fill_cache(server)
    server.write_config(dies=True)
    with anyio.fail_after(LONG):
        async with client(server) as dial:
            result = await dial.call("echo", {})
            assert result.failure is Failure.SERVER
            assert "no license" in extract_text(result.content)
            assert dial.servers["it"].state is ServerState.FAILED
            assert dial.tools == ()


async def test_a_sleeping_server_is_not_started_on_closing(server: ChangingServer) -> None:
    await fill_cache(server)
    with anyio.fail_after(LONG):
        async with client(server) as dial:
            pass
    assert dial.servers["it"].state is ServerState.STOPPED
    assert server.asked() == []


async def test_without_a_cache_a_lazy_server_is_started_like_an_eager_server(server: ChangingServer) -> None:
    await fill_cache(server)
    async with DialClient(servers={"it": server.entry(lazy=True)}) as dial:
        assert dial.servers["it"].state is ServerState.READY


async def test_a_recording_starts_all_servers_and_has_their_tools(server: ChangingServer) -> None:
    await fill_cache(server)
    async with client(server, calls({}), record=server.folder / "rec.jsonl") as dial:
        assert dial.servers["it"].state is ServerState.READY


async def test_a_restart_starts_a_sleeping_server(server: ChangingServer) -> None:
    await fill_cache(server)
    with anyio.fail_after(LONG):
        async with client(server) as dial:
            assert (await dial.restart_server("it")).state is ServerState.READY


def test_dial_chat_shows_sleeping_servers_and_their_cached_tools(tmp_path: Path) -> None:
    server = build_changing_server(tmp_path)
    run = script("tool_versions.py", *server.args)
    write_config(tmp_path, {"it": {"command": run.command, "args": list(run.args), "lazy": True}})
    assert "it: ready" in dial_chat(tmp_path, "servers").stdout
    server.asked()
    assert dial_chat(tmp_path, "servers").stdout == "it: sleeping, 1 tool\n"
    assert dial_chat(tmp_path, "tools").stdout == "echo  it: Says it again.\n"
    assert server.asked() == []
    assert json.loads(dial_chat(tmp_path, "call", "echo", '{"a": 1}').stdout) == ["echo", {"a": 1}]
    assert server.asked() == ["start", "initialize", "tools/list", "tools/call"]
