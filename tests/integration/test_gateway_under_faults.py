"""500 calls through the gateway, to servers that are killed, hang, change and flood: each call gets an answer."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ToolListChangedNotification

from benchmarks.soak_server import FLOOD_CHARS
from dial_client import Limits
from tests.support.gateway_clients import text_of
from tests.support.gateways import host, running
from tests.support.program import LONG

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.once,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL"),
]
CALLS = 500
AT_ONCE = 8
WEIGHTS = {"add": 84, "hang": 3, "change": 6, "kill": 5, "flood": 2}
TOOL_TIMEOUT = 1.0
MOST_KILLS = 3
"""For each server; a server that dies five times within a minute is given up."""
SERVERS = ("a", "b", "c")


def list_servers() -> dict[str, Any]:
    """Return servers with the standard library only, which start quickly."""
    program = str(ROOT / "benchmarks" / "soak_server.py")
    return {name: {"command": sys.executable, "args": ["-I", "-S", program, name, "stdio"]} for name in SERVERS}


class Load:
    """The calls, and how they ended."""

    def __init__(self, client: Client) -> None:
        self.client, self.ended, self.wrong = client, Counter[str](), list[str]()
        self.killed: dict[str, set[int]] = {}

    async def run(self, seed: int) -> None:
        """Make the calls of one of the workers."""
        choice = random.Random(seed)
        for number in range(CALLS // AT_ONCE + 1):
            server = choice.choice(SERVERS)
            (action,) = choice.choices([*WEIGHTS], [*WEIGHTS.values()])
            await self.call(server, action, number)

    async def call(self, server: str, action: str, number: int) -> None:
        """Make one call, and check its answer."""
        tool, arguments = (
            ("pid", {}) if action == "kill" else (action, {"a": number, "b": 1} if action == "add" else {})
        )
        try:
            result = await self.client.call_tool(f"{server}__{tool}_{server}", arguments)
        except MCPError as error:
            self.ended["error of the protocol"] += 1
            self.wrong.append(str(error))
            return
        text = text_of(result)
        self.ended[f"{action}: {'failed' if result.is_error else 'answered'}"] += 1
        if action == "flood" and not result.is_error and len(text) != FLOOD_CHARS:
            self.wrong.append(f"{len(text):,} characters of a large result")
        if action == "add" and not result.is_error and text != str(number + 1):
            self.wrong.append(f"{number} + 1 is not {text}")
        pids = self.killed.setdefault(server, set())
        if action == "kill" and not result.is_error and int(text) not in pids and len(pids) < MOST_KILLS:
            pids.add(int(text))
            os.kill(int(text), signal.SIGKILL)


async def test_no_call_is_without_an_answer_while_servers_die_hang_change_and_flood() -> None:
    dial = host(list_servers(), "*", limits=Limits(tool_timeout=TOOL_TIMEOUT))
    announced = 0

    async def on_message(message: Any) -> None:
        nonlocal announced
        announced += isinstance(message, ToolListChangedNotification)

    with anyio.fail_after(LONG):
        async with (
            running(dial) as gateway,
            Client(gateway.server, mode="legacy", message_handler=on_message) as client,
        ):
            await client.list_tools()
            load = Load(client)
            async with anyio.create_task_group() as group:
                for seed in range(AT_ONCE):
                    group.start_soon(load.run, seed)
            settled = [await client.call_tool(f"{name}__add_{name}", {"a": 1, "b": 1}) for name in SERVERS]
            restarts = sum(dial.parts.servers.restarts.values())
    assert load.wrong == []
    assert sum(load.ended.values()) >= CALLS
    assert load.ended["hang: answered"] == 0 and load.ended["hang: failed"] > 0
    assert load.ended["flood: answered"] > 0
    assert load.ended["add: answered"] > load.ended["add: failed"]
    assert [text_of(result) for result in settled] == ["2", "2", "2"]
    assert restarts > 0 and announced > 0
