"""`doctor` has no finding for ten configurations of published servers, written as in their documentation."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from benchmarks.together import NPM, real_servers
from tests.inner import ConfigFile, Finding, Group, Limits, ServerOutcome, Subject, format_size_lines, inspect
from tests.support.program import LONG, python_server

PACKAGES = NPM.parent / "@modelcontextprotocol"
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.once,
    pytest.mark.skipif(
        not PACKAGES.exists() or shutil.which("git") is None,
        reason="npm servers are not here: `make test` installs them with Node",
    ),
]
GROUPS = (Group.CONFIG, Group.SERVERS, Group.TOOLS)
SLOW = "DC303"
"""The code of a slow start, which depends on the machine."""


def configurations(
    folder: Path, http: str, sse: str, time: Mapping[str, Any], git: Mapping[str, Any]
) -> Mapping[str, str]:
    """Return ten configuration files by their subjects; each names a different server or way to start a server.

    Args:
        folder: The folder of the files.
        http: The URL of a server over streamable HTTP.
        sse: The URL of a server over SSE.
        time: The entry of mcp-server-time.
        git: The entry of mcp-server-git.
    """
    servers = real_servers(folder)
    memory = {"env": {"MEMORY_FILE_PATH": "${workspaceFolder}/memory.json"}}
    files: dict[str, Any] = {
        "a program beside Python": {"mcpServers": {"time": {"command": "mcp-server-time"}}},
        "a module of Python": {"mcpServers": {"git": {**git, "cwd": "${workspaceFolder}"}}},
        "npx": {
            "mcpServers": {
                "thinking": {
                    "command": "npx",
                    "args": ["-y", "@modelcontextprotocol/server-sequential-thinking"],
                    "cwd": str(NPM.parent.parent),
                }
            }
        },
        "a script of node": {
            "mcpServers": {
                "memory": {"command": "node", "args": [str(PACKAGES / "server-memory/dist/index.js")], **memory}
            }
        },
        "as VS Code writes it": {"servers": {"memory": {"type": "stdio", **servers["memory"], **memory}}, "inputs": []},
        "servers at the top": {"files": servers["filesystem"]},
        "HTTP": {"mcpServers": {"everything": {"url": http}}},
        "SSE": {"mcpServers": {"everything": {"type": "sse", "url": sse}}},
        "several, with rules and a profile": {
            "mcpServers": {"time": time, "git": git, "off": {"command": "no-such-program", "disabled": True}},
            "policy": [{"allow": "time/*"}, {"ask": "git/*"}],
            "profiles": {"clock": {"servers": ["time"]}},
        },
    }
    text = {name: json.dumps(file, indent=2) for name, file in files.items()}
    command = json.dumps(servers["everything"]["command"])
    return {**text, "comments": f'{{ // for trials\n  "mcpServers": {{"everything": {{"command": {command},}},}},\n}}'}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    """Start server-everything twice, behind streamable HTTP and behind SSE, and return the addresses."""
    ports = {"streamableHttp": free_port(), "sse": free_port()}
    processes = [
        subprocess.Popen(
            ["node", script("everything"), kind],
            env={**os.environ, "PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for kind, port in ports.items()
    ]
    try:
        yield f"http://127.0.0.1:{ports['streamableHttp']}/mcp", f"http://127.0.0.1:{ports['sse']}/sse"
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
async def checked(
    tmp_path_factory: pytest.TempPathFactory, addresses: tuple[str, str]
) -> Mapping[str, tuple[list[Finding], ServerOutcome]]:
    """Return the findings and server outcomes of each configuration; all configurations are checked concurrently."""
    folder = tmp_path_factory.mktemp("real")
    await anyio.run_process(["git", "init", "-q", str(folder)])
    results: dict[str, tuple[list[Finding], ServerOutcome]] = {}

    async def check(name: str, text: str) -> None:
        file = ConfigFile(text, str(folder / "servers.json"))
        subject = Subject((file,), server_seconds=LONG)
        results[name] = await inspect(subject, GROUPS), subject.outcome

    with anyio.fail_after(LONG):
        for address in addresses:
            await until_answered(address)
        time, git = python_server("mcp_server_time", "--local-timezone", "UTC"), python_server("mcp_server_git")
        async with anyio.create_task_group() as group:
            for name, text in configurations(folder, *addresses, time, git).items():
                group.start_soon(check, name, text)
    return results


def script(server: str) -> str:
    """Return the path of the main script of an npm server."""
    return str(PACKAGES / f"server-{server}" / "dist" / "index.js")


def free_port() -> int:
    """Return a port of the loopback interface that is not in use."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def until_answered(address: str) -> None:
    """Wait until something listens at an address."""
    while True:
        try:
            async with httpx2.AsyncClient(timeout=60) as client, client.stream("GET", address):
                return
        except httpx2.TransportError:
            await anyio.sleep(0.05)


@pytest.mark.parametrize("name", configurations(Path("/nowhere"), "", "", {}, {}) if PACKAGES.exists() else ())
async def test_a_published_server_has_no_findings(
    name: str, checked: Mapping[str, tuple[list[Finding], ServerOutcome]]
) -> None:
    findings, outcome = checked[name]
    assert [str(finding) for finding in findings if finding.code != SLOW] == []
    assert outcome.tools
    assert sorted(outcome.seconds) == sorted(name for name in outcome.statuses if name != "off")


async def test_the_table_of_tokens_has_each_server_and_the_share_of_the_context_window(
    checked: Mapping[str, tuple[list[Finding], ServerOutcome]],
) -> None:
    _, outcome = checked["several, with rules and a profile"]
    title, *rows = [line.split() for line in format_size_lines(outcome, 100_000, Limits())]
    assert title[:4] == ["Tools", "in", "each", "request,"]
    assert [row[0] for row in rows] == ["git", "time", "all"]
    assert {row[4] for row in rows} == {"bytes"}
    in_bytes, sizes = ([int(row[column].replace(",", "")) for row in rows] for column in (3, 5))
    assert min(sizes) > 100
    assert sizes[2] == sizes[0] + sizes[1]
    assert in_bytes[2] == in_bytes[0] + in_bytes[1] > 2 * sizes[2]
    assert rows[2][6:] == ["of", "100,000", f"({sizes[2] / 100_000:.0%})"]
    assert format_size_lines(outcome, None, Limits())[-1].endswith(f"{sizes[2]:,}")
    assert format_size_lines(ServerOutcome(), 1, Limits()) == []
