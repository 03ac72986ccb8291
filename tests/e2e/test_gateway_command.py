"""``dial-chat gateway``: a process that other MCP hosts start."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from tests.inner import list_log_files
from tests.support.gateways import MODES, program, wait_for_tools
from tests.support.program import HERE, PIPES, environment, python_server, run_to_end, start_dial_chat, write_config

pytestmark = pytest.mark.anyio
SDK = HERE / "servers" / "sdk.py"


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_calls_the_tools_of_all_servers(tmp_path: Path, mode: str) -> None:
    server = python_server(SDK, "stdio", autoApprove=["*"])
    write_config(tmp_path, {"one": server, "two": server})
    async with program(tmp_path, mode) as client:
        await wait_for_tools(client, "one__echo", "two__echo")
        results = [await client.call_tool(name, {"text": name}) for name in ("one__echo", "two__echo")]
    assert [result.structured_content for result in results] == [{"result": "one__echo"}, {"result": "two__echo"}]
    (log,) = list_log_files(tmp_path / "home" / "xdg_state_home" / "dial-client" / "audit")
    calls = [json.loads(line) for line in log.read_text().splitlines() if '"event":"call"' in line]
    assert [(call["server"], call["tool"], call["outcome"]) for call in calls] == [
        ("one", "echo", "ok"),
        ("two", "echo", "ok"),
    ]
    assert {call["client"] for call in calls} == {"mcp 0.1.0"}
    assert len({call["conversation"] for call in calls}) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_progress_and_cancellation_reach_through_the_gateway(tmp_path: Path, mode: str) -> None:
    write_config(tmp_path, {"one": python_server(SDK, "stdio", autoApprove=["*"])})
    async with program(tmp_path, mode) as client:
        await wait_for_tools(client, "one__slow")
        async with anyio.create_task_group() as group:

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                assert (progress, total, message) == (1, 4, "a quarter")
                group.cancel_scope.cancel()

            await client.call_tool("one__slow", {}, progress_callback=on_progress)
        stopped = await client.call_tool("one__what_was_stopped", {})
    assert stopped.structured_content == {"result": "slow"}


def test_standard_output_carries_nothing_but_the_protocol(tmp_path: Path) -> None:
    write_config(tmp_path, {"broken": {"command": "no-such-program"}})
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
    }
    process = start_dial_chat(tmp_path, "gateway", env=environment(tmp_path), stdin=-1, **PIPES)
    ended = run_to_end(process, json.dumps(initialize) + "\n")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert (ended.returncode, [line["id"] for line in lines]) == (0, [1])
    assert lines[0]["result"]["capabilities"]["tools"] == {"listChanged": True}


def test_a_file_that_is_not_trusted_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"mcpServers": {}}')
    ended = run_to_end(start_dial_chat(tmp_path, "gateway", stdin=-1, **PIPES), "")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "dial-chat trust" in ended.stderr
