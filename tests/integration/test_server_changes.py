"""Adding, removing and restarting servers of an open client, also during turns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.server import MCPServer

from dial_client import Approval, DialClient, Limits, Message
from tests.inner import (
    ApprovalContext,
    ApprovalPolicy,
    CallChunk,
    Completion,
    ConfigError,
    Failure,
    FinishReason,
    ServerChanged,
    ServerState,
    TextChunk,
    ToolCallRequest,
    ToolSpec,
    Turn,
    extract_text,
)
from tests.support.fakes import Model, Step
from tests.support.program import LONG
from tests.support.servers.launch import is_alive, raw, until
from tests.support.servers.tool_changes import build_changing_server, tool

pytestmark = pytest.mark.anyio

CALLS, STOP = Completion(FinishReason.TOOL_CALLS), Completion(FinishReason.STOP)
ANSWER: list[Step] = [TextChunk("Done."), STOP]


def says(word: str, *names: str) -> MCPServer:
    """Return an in-process server whose tools answer with a word."""
    server = MCPServer(word, log_level="CRITICAL")
    for name in names or ("now",):
        server.add_tool(lambda: word, name=name, structured_output=False)
    return server


def call(name: str, **arguments: Any) -> list[Step]:
    return [CallChunk(ToolCallRequest(f"id_{name}", name, arguments)), CALLS]


def meanwhile(does: Callable[[], Awaitable[object]], reply: list[Step]) -> list[Step]:
    """Return a reply during which a function runs, after the tools were sent to the model."""
    return [does, *reply]


async def run(dial: DialClient) -> Turn:
    with anyio.fail_after(LONG):
        return await dial.run([Message.user("Go")])


def read_results(turn: Turn) -> list[str]:
    return [extract_text(done.result.content) for done in turn.tool_calls]


# --- adding -----------------------------------------------------------------------------------------


async def test_an_added_server_is_ready_and_its_tools_are_offered() -> None:
    async with DialClient(servers={"a": says("a")}) as dial:
        status = await dial.add_server("b", says("b", "later"))
        assert (status.state, status.tools) == (ServerState.READY, ("later",))
        assert list(dial.servers) == ["a", "b"]
        assert [spec.name for spec in dial.tools] == ["later", "now"]
        assert dial.tool_name_client_map["later"].name == "b"
        assert extract_text((await dial.call("later", {})).content) == "b"


async def test_tools_of_a_server_added_during_a_turn_are_offered_in_the_next_round() -> None:
    model = Model()
    async with DialClient(model, servers={"a": says("a")}) as dial:
        added = meanwhile(lambda: dial.add_server("b", says("b", "later")), call("now"))
        model.replies = [added, call("later"), ANSWER]
        turn = await run(dial)
    offered = [[spec.name for spec in request.tools] for request in model.requests]
    assert offered == [["now"], ["later", "now"], ["later", "now"]]
    assert read_results(turn) == ["a", "b"]


async def test_a_turn_starts_without_starting_servers_and_offers_their_tools_later(tmp_path: Path) -> None:
    slow = raw("WaitsForOthers", "--folder", str(tmp_path), "--count", "2")
    model = Model()
    dial = DialClient(model, servers={"a": says("a"), "slow": slow})
    await dial.open()
    try:

        async def become_ready() -> None:
            (tmp_path / "other").touch()
            await dial.ready()

        model.replies = [meanwhile(become_ready, call("now")), call("echo", text="hi"), ANSWER]
        turn = dial.start("Go")
        await until(lambda: any(tmp_path.iterdir()) and dial.servers["a"].state is ServerState.READY)
        assert model.requests == []
        assert dial.skip_starting() == ("slow",)
        with anyio.fail_after(LONG):
            result = await turn.result()
    finally:
        await dial.aclose()
    assert [[spec.name for spec in request.tools] for request in model.requests] == [
        ["now"],
        ["echo", "now"],
        ["echo", "now"],
    ]
    assert read_results(result)[0] == "a"
    assert "server 'slow' is still starting: the turn continues without it" in result.notes


async def test_a_search_finds_the_tools_of_a_server_that_was_added_in_the_same_turn() -> None:
    search = call("search_tools", query="later")
    model = Model()
    async with DialClient(model, servers={"a": says("a", "now", "then")}, limits=Limits(max_tools=1)) as dial:
        added = meanwhile(lambda: dial.add_server("b", says("b", "later")), search)
        model.replies = [search, added, call("later"), ANSWER]
        turn = await run(dial)
    results = read_results(turn)
    assert results[0].startswith("No tool was found")
    assert "- later" in results[1]
    assert results[2] == "b"


async def test_a_search_names_a_server_that_still_starts(tmp_path: Path) -> None:
    slow = raw("WaitsForOthers", "--folder", str(tmp_path), "--count", "2")
    model = Model()
    servers = {"a": says("a", "now", "then"), "slow": slow}
    dial = DialClient(model, servers=servers, limits=Limits(max_tools=1))
    await dial.open()
    try:
        model.replies = [call("search_tools", query="now"), ANSWER]
        turn = dial.start("Go")
        await until(lambda: any(tmp_path.iterdir()) and dial.servers["a"].state is ServerState.READY)
        assert dial.skip_starting() == ("slow",)
        with anyio.fail_after(LONG):
            result = await turn.result()
    finally:
        await dial.aclose()
    assert "- now" in read_results(result)[0]
    assert "These servers are not available: 'slow' (" in read_results(result)[0]


async def test_tools_that_a_person_called_are_found_first_in_the_next_conversation_of_that_person() -> None:
    search = call("search_tools", query="water plants")
    model = Model()
    async with DialClient(model, servers={"a": says("a", "a_plants", "b_plants")}, limits=Limits(max_tools=1)) as dial:
        model.replies = [search, call("b_plants"), ANSWER, search, ANSWER, search, ANSWER]
        first, again, bob = [await dial.run("Go", owner=owner) for owner in ("ada", "ada", "bob")]
    lines = [read_results(turn)[0].splitlines()[1] for turn in (first, again, bob)]
    assert [line.split(":")[0] for line in lines] == ["- a_plants", "- b_plants", "- a_plants"]


async def test_an_added_server_that_does_not_start_has_an_error_and_can_be_restarted(tmp_path: Path) -> None:
    server = build_changing_server(tmp_path, dies=True)
    with anyio.fail_after(LONG):
        async with DialClient() as dial:
            status = await dial.add_server("it", server.entry())
            assert status.state is ServerState.FAILED
            assert "no license" in (status.error or "")
            assert "no license" in dial.notes[0]
            server.write_config(tools=[tool("echo")])
            assert (await dial.restart_server("it")).state is ServerState.READY
            assert [spec.name for spec in dial.tools] == ["echo"]
            assert dial.notes == ()


async def test_a_server_is_listed_while_it_is_replaced() -> None:
    listed: set[tuple[str, ...]] = set()

    async def watch() -> None:
        while True:
            listed.add(tuple(dial.servers))
            await anyio.lowlevel.checkpoint()

    async with DialClient(servers={"a": says("a"), "b": says("b")}) as dial, anyio.create_task_group() as group:
        group.start_soon(watch)
        status = await dial.replace_server("a", says("c", "later"))
        group.cancel_scope.cancel()
        assert (status.state, status.tools) == (ServerState.READY, ("later",))
    assert listed == {("a", "b")}


async def test_invalid_changes_of_servers_are_errors() -> None:
    async with DialClient(servers={"a": says("a")}) as dial:
        for attempt, words in (
            (dial.add_server("a", says("b")), "already"),
            (dial.add_server("b", {"comand": "x"}), "command"),
            (dial.remove_server("b"), "no server 'b'"),
            (dial.restart_server("b"), "no server 'b'"),
            (dial.replace_server("b", says("b")), "no server 'b'"),
        ):
            with pytest.raises(ConfigError, match=words):
                await attempt
        assert list(dial.servers) == ["a"]
        assert extract_text((await dial.call("now", {})).content) == "a"


async def test_cancelling_add_server_removes_the_server() -> None:
    async with DialClient() as dial:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(dial.add_server, "slow", raw("Hangs"))
                await until(lambda: "slow" in dial.servers)
                scope.cancel()
        assert dict(dial.servers) == {}


async def test_the_client_can_be_closed_while_a_server_is_being_added() -> None:
    dial = DialClient()
    await dial.open()
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as group:
            group.start_soon(dial.add_server, "slow", raw("Hangs"))
            await until(lambda: "slow" in dial.servers)
            await dial.aclose()
    assert dial.servers["slow"].state is ServerState.STOPPED


# --- removing ---------------------------------------------------------------------------------------


async def test_running_calls_of_a_removed_server_return_failed_results(tmp_path: Path) -> None:
    results: list[str] = []
    with anyio.fail_after(LONG):
        async with DialClient(servers={"it": raw("NeverAnswers", "--log", tmp_path / "log")}) as dial:

            async def calls() -> None:
                result = await dial.call("echo", {})
                assert result.failure is Failure.SERVER
                results.append(extract_text(result.content))

            async with anyio.create_task_group() as group:
                group.start_soon(calls)
                await until(lambda: (tmp_path / "log").exists() and "tools/call" in (tmp_path / "log").read_text())
                await dial.remove_server("it")
            assert "'it' is not available" in results[0]
            assert (dict(dial.servers), dial.tools, dict(dial.tool_name_client_map)) == ({}, (), {})


async def test_the_process_of_a_removed_server_ends() -> None:
    with anyio.fail_after(LONG):
        async with DialClient(servers={"it": raw("ShowsItself")}) as dial:
            pid = json.loads(extract_text((await dial.call("echo", {})).content))["pid"]
            assert is_alive(pid)
            await dial.remove_server("it")
            assert not is_alive(pid)


async def test_a_turn_continues_without_a_removed_server_with_a_note() -> None:
    model = Model()
    async with DialClient(model, servers={"a": says("a"), "b": says("b", "later")}) as dial:
        model.replies = [meanwhile(lambda: dial.remove_server("b"), call("later")), call("now"), ANSWER]
        turn = await run(dial)
    assert [done.result.failure for done in turn.tool_calls] == [Failure.UNKNOWN_TOOL, None]
    assert [spec.name for spec in model.requests[1].tools] == ["now"]


async def test_observers_are_notified_of_added_and_removed_servers() -> None:
    model = Model()
    with anyio.fail_after(LONG):
        async with DialClient(model) as dial:

            async def come_and_go() -> None:
                await dial.add_server("b", says("b"))
                await dial.remove_server("b")

            model.replies = [meanwhile(come_and_go, ANSWER)]
            events = [event async for event in dial.stream([Message.user("Go")])]
    changes = [(event.name, event.status) for event in events if isinstance(event, ServerChanged)]
    assert changes == [("b", "ready"), ("b", "stopped")]


# --- names ------------------------------------------------------------------------------------------


async def test_a_tool_name_that_changes_during_a_turn_still_calls_the_same_tool() -> None:
    model = Model()
    async with DialClient(model, servers={"a": says("a")}) as dial:
        model.replies = [meanwhile(lambda: dial.add_server("b", says("b")), call("now")), call("b__now"), call("now")]
        model.replies.append(ANSWER)
        turn = await run(dial)
    assert [spec.name for spec in model.requests[1].tools] == ["a__now", "b__now"]
    assert read_results(turn) == ["a", "b", "a"], "the old name goes on working, for a model that remembers it"


async def test_a_tool_name_that_moves_to_another_server_during_a_turn_is_not_called() -> None:
    model = Model()
    async with DialClient(model, servers={"a": says("a")}) as dial:

        async def swap() -> None:
            await dial.remove_server("a")
            await dial.add_server("b", says("b"))

        model.replies = [meanwhile(swap, call("now")), call("now"), ANSWER]
        turn = await run(dial)
    assert [done.result.failure for done in turn.tool_calls] == [Failure.UNKNOWN_TOOL, None]
    assert read_results(turn)[1] == "b", "once the model was told that the name is another tool's"


# --- approval ---------------------------------------------------------------------------------------


async def refuse(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
    return Approval("deny")


async def test_approvals_of_an_added_servers_entry_apply_until_it_is_removed(tmp_path: Path) -> None:
    server = build_changing_server(tmp_path)
    with anyio.fail_after(LONG):
        async with DialClient(approve=refuse) as dial:
            await dial.add_server("it", server.entry(auto_approve=("echo",)))
            assert (await dial.call("echo", {})).success
            await dial.remove_server("it")
            await dial.add_server("it", server.entry())
            assert (await dial.call("echo", {})).failure is Failure.DENIED


async def test_a_session_grant_ends_when_its_server_is_removed() -> None:
    asked: list[str] = []

    async def approve(call: ToolCallRequest, tool: ToolSpec, context: ApprovalContext) -> Approval:
        asked.append(context.server)
        return Approval("session")

    async with DialClient(servers={"a": says("a")}, approve=approve, approval=ApprovalPolicy(single_user=True)) as dial:
        for _ in range(2):
            await dial.call("now", {})
        await dial.restart_server("a")
        await dial.call("now", {})
        assert asked == ["a"], "the same server, started anew"
        await dial.remove_server("a")
        await dial.add_server("a", says("other"))
        await dial.call("now", {})
    assert asked == ["a", "a"]


async def test_the_secrets_of_an_added_server_are_not_recorded(tmp_path: Path) -> None:
    entry = replace(raw("ShowsItself"), env={"API_TOKEN": "very-secret-token"})
    model = Model()
    async with DialClient(model, record=tmp_path / "rec.jsonl") as dial:
        model.replies = [meanwhile(lambda: dial.add_server("it", entry), call("nothing")), call("echo"), ANSWER]
        turn = await run(dial)
    assert '"API_TOKEN": "[secret of it]"' in read_results(turn)[1]
    assert "very-secret-token" not in (tmp_path / "rec.jsonl").read_text()


# --- restarting -------------------------------------------------------------------------------------


async def test_a_restart_starts_a_new_process_and_offers_its_current_tools(tmp_path: Path) -> None:
    server = build_changing_server(tmp_path)
    with anyio.fail_after(LONG):
        async with DialClient(servers={"it": server.entry(), "a": says("a")}) as dial:
            server.write_config(tools=[tool("new")])
            status = await dial.restart_server("it")
            assert (status.state, status.tools, status.restarts) == (ServerState.READY, ("new",), 0)
            assert list(dial.servers) == ["it", "a"]
            assert [spec.name for spec in dial.tools] == ["new", "now"]
    assert server.asked().count("start") == 2


async def test_a_server_may_be_removed_while_it_is_restarted(tmp_path: Path) -> None:
    with anyio.fail_after(LONG):
        async with DialClient(servers={"it": raw("Stubborn")}) as dial, anyio.create_task_group() as group:
            group.start_soon(dial.restart_server, "it")
            await anyio.wait_all_tasks_blocked()
            await dial.remove_server("it")
            await dial.ready()
            assert dict(dial.servers) == {}
