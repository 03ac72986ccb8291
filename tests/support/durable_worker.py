"""A worker process that tests kill: ``python -m tests.support.durable_worker JSON``; it ends with its standard input.

Each turn has three rounds with a tool call each. The model and the tool log what they do in the file ``log``, a line
each: ``asked TURN ROUND``, ``called TURN ROUND``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from mcp.server import MCPServer

from dial_client import DialClient, Limits, SQLStore, ToolCallRequest
from dial_client.durable import DurableTimings, DurableTurns
from dial_client.messages.message import Role
from dial_client.messages.model import CallChunk, Completion, Delta, FinishReason, ModelInfo, ModelRequest, TextChunk

ROUNDS = 3
LEASE = 1.5
"""Seconds after which the conversations of a killed worker are released."""


class Steps:
    """A model that calls ``step`` three times, and then answers."""

    info = ModelInfo("steps")

    def __init__(self, log: Path) -> None:
        self._log = log

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        asked = max(at for at, message in enumerate(request.messages) if message.role is Role.USER)
        turn = request.messages[asked].text
        number = sum(message.role is Role.TOOL for message in request.messages[asked:])
        await anyio.sleep(0.02)
        write(self._log, f"asked {turn} {number}")
        if number < ROUNDS:
            yield CallChunk(ToolCallRequest(f"call_{number}", "step", {"turn": turn, "number": number}))
            yield Completion(FinishReason.TOOL_CALLS)
        else:
            yield TextChunk(f"Done {turn}.")
            yield Completion(FinishReason.STOP)

    async def aclose(self) -> None:
        pass


def write(log: Path, line: str) -> None:
    """Append a line in a single write, because several processes write to the file."""
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def steps(log: Path) -> MCPServer:
    """Return the server with the tool ``step``."""
    server = MCPServer("steps")

    @server.tool()
    async def step(turn: str, number: int) -> str:
        write(log, f"called {turn} {number}")
        await anyio.sleep(0.1)
        return "stepped"

    return server


async def main(job: dict[str, Any]) -> None:
    log, store = Path(job["log"]), SQLStore(job["store"])
    limits = Limits(timeout=600, max_repeats=99)
    async with (
        DialClient(Steps(log), servers={"steps": steps(log)}, limits=limits) as dial,
        DurableTurns(
            dial,
            store,
            job["database"],
            timings=DurableTimings(recovery_interval=0.5, idle_interval=0.5, start_timeout=3.0),
            lease=LEASE,
        ) as turns,
    ):
        async with anyio.create_task_group() as group:
            for number, conversation in enumerate(job["conversations"]):
                group.start_soon(turns.submit, conversation, f"{job['name']}{number}")
        print("started", flush=True)
        await to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
    await store.aclose()


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]))
