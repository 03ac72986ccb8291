"""Published servers, all at once: every tool of server-everything, and killed servers."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from benchmarks.together import real_servers
from dial_client import DialClient, ServerState, ToolCallResult
from dial_client.extend import Elicitation, ElicitationAnswer, SamplingRequest
from tests.inner import Callbacks, ImagePart, extract_text
from tests.support.program import LONG
from tests.support.servers.launch import until

SERVERS = real_servers(Path("/nowhere"))
EVERYTHING = "everything"
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        EVERYTHING not in SERVERS, reason="npm servers are not here: `make test` installs them with Node"
    ),
]
URL = {"url": "https://example.com/ask", "message": "Look there"}
TOOL_RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "echo": ({"message": "hi"}, "Echo: hi"),
    "get-annotated-message": ({"messageType": "error", "includeImage": True}, "Error: Operation failed"),
    "get-env": ({}, '"PATH"'),
    "get-resource-links": ({"count": 2}, "demo://resource/dynamic/text/2"),
    "get-resource-reference": ({"resourceId": 3}, "This is a plaintext resource"),
    "get-roots-list": ({}, "file:///"),
    "get-structured-content": ({"location": "Chicago"}, '"temperature"'),
    "get-sum": ({"a": 1, "b": 2}, "The sum of 1 and 2 is 3."),
    "get-tiny-image": ({}, "image you requested"),
    "gzip-file-as-resource": ({"name": "a.gz", "data": "data:text/plain,hello"}, "application/gzip"),
    "simulate-research-query": ({"topic": "hosts"}, "requires task augmentation"),
    "toggle-simulated-logging": ({}, "Started simulated"),
    "toggle-subscriber-updates": ({}, "Started simulated"),
    "trigger-elicitation-request": ({}, "- Name: Ada"),
    "trigger-long-running-operation": ({"duration": 0.1, "steps": 2}, "operation completed"),
    "trigger-sampling-request": ({"prompt": "weather?"}, "It is raining."),
    "trigger-url-elicitation": (URL, "accept"),
}
"""The arguments of each tool of server-everything, and a part of its result."""
FAIL = {"simulate-research-query"}
"""Tools that fail: they require a task, which the SDK does not support."""


async def test_every_tool_of_server_everything_returns_its_expected_result(tmp_path: Path) -> None:
    addresses: list[str | None] = []

    async def elicit(question: Elicitation) -> ElicitationAnswer:
        addresses.append(question.url)
        return ElicitationAnswer("accept", {} if question.url else {"name": "Ada"})

    async def sample(request: SamplingRequest) -> str:
        return "It is raining."

    entry = {EVERYTHING: SERVERS[EVERYTHING]}
    results: dict[str, ToolCallResult] = {}
    with anyio.fail_after(LONG):
        async with DialClient(
            servers=entry, callbacks=Callbacks(elicit=elicit, sample=sample, roots=[str(tmp_path)])
        ) as dial:
            await until(lambda: "get-roots-list" in dial.tool_name_client_map)
            assert sorted(tool.name for tool in dial.tools) == sorted(TOOL_RESULTS)
            for name, (given, _) in TOOL_RESULTS.items():
                results[name] = await dial.call(name, given)
    for name, (_, part) in TOOL_RESULTS.items():
        result = results[name]
        assert result.success is (name not in FAIL), result
        assert part in extract_text(result.content), name
    for name in ("get-annotated-message", "get-tiny-image"):
        assert any(isinstance(block, ImagePart) for block in results[name].content), name
    assert addresses == [None, URL["url"]]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # seven restarts of seven servers
@pytest.mark.skipif(sys.platform == "win32", reason="there is neither SIGSTOP nor SIGKILL")
@pytest.mark.skipif(shutil.which("git") is None, reason="its server needs git")
async def test_a_killed_server_fails_only_its_running_call(tmp_path: Path) -> None:
    await anyio.run_process(["git", "init", "-q", str(tmp_path)])
    (tmp_path / "hello.txt").write_text("Hello.")
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "time": ("get_current_time", {"timezone": "Asia/Tokyo"}),
        "git": ("git_status", {"repo_path": str(tmp_path)}),
        "fetch": ("fetch", {"url": "http://127.0.0.1:9/"}),
        "everything": ("echo", {"message": "hi"}),
        "filesystem": ("read_text_file", {"path": str(tmp_path / "hello.txt")}),
        "memory": ("read_graph", {}),
        "sequential-thinking": (
            "sequentialthinking",
            {"thought": "So.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        ),
    }
    servers = real_servers(tmp_path)
    with anyio.fail_after(LONG + LONG):
        async with DialClient(servers=servers) as dial:
            assert {status.state for status in dial.servers.values()} == {ServerState.READY}, dial.notes
            for killed in servers:
                results = await all_called(dial, {name: calls[name] for name in servers}, killed)
                lost = [name for name, result in results.items() if "the call was lost" in (result.error or "")]
                assert lost == [killed]
            again = await all_called(dial, {name: calls[name] for name in servers})
            assert [name for name, result in again.items() if not result.success] == ["fetch"] * ("fetch" in servers)
            assert {status.restarts for status in dial.servers.values()} == {1}


async def all_called(
    dial: DialClient, calls: dict[str, tuple[str, dict[str, Any]]], killed: str | None = None
) -> dict[str, ToolCallResult]:
    """Call a tool of each server concurrently, and kill one of the servers during its call."""
    results: dict[str, ToolCallResult] = {}

    async def call(server: str) -> None:
        tool, given = calls[server]
        results[server] = await dial.call(tool, given)

    def signal_to(number: signal.Signals) -> None:
        if killed is not None:
            os.kill(pid_of(dial, calls[killed][0]), number)

    signal_to(signal.SIGSTOP)  # the stopped server receives the call and does not process it
    async with anyio.create_task_group() as group:
        for server in calls:
            group.start_soon(call, server)
        await until(lambda: len(results) >= len(calls) - (killed is not None))
        if killed is not None:
            signal_to(signal.SIGKILL)
    return results


def pid_of(dial: DialClient, tool: str) -> int:
    session = dial.tool_name_client_map[tool]._session
    assert session is not None
    pid: int = session._transport._process.pid  # type: ignore[union-attr]
    return pid
