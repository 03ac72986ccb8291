"""The host's end of the private socket over which a suite's server sets up and judges trials."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from benchmarks.attack.goals import Call

SECONDS = 120.0
"""Timeout in seconds for the server to connect, and for each answer."""


@dataclass(frozen=True, slots=True)
class Task:
    """A user task, with the calls and the output that solve it."""

    prompt: str
    calls: tuple[Call, ...]
    output: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a trial: whether the user's and the attacker's tasks are done, and the executed calls."""

    utility: bool
    security: bool | None
    executed: tuple[Call, ...]


class Control:
    """The connection to one suite's server."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(16)
        self._connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()
        self.address = ""
        """Host, port and token, for the server's environment."""

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator[Control]:
        """Listen on a free port of the loopback interface."""
        control = cls()
        server = await asyncio.start_server(control._accept, "127.0.0.1", 0, limit=2**24)
        host, port = server.sockets[0].getsockname()[:2]
        control.address = f"{host},{port},{control._token}"
        try:
            yield control
        finally:
            server.close()
            if control._connected.done():
                writer = control._connected.result()[1]
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await asyncio.wait_for(reader.readline(), SECONDS)
        if line.strip() == json.dumps(self._token).encode() and not self._connected.done():
            self._connected.set_result((reader, writer))
        else:
            writer.close()

    async def _ask(self, method: str, *arguments: Any) -> Any:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.shield(self._connected)
            writer.write(json.dumps({"do": method, "with": arguments}).encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
        if not line:
            raise RuntimeError(f"the server ended during the request {method!r}")
        return json.loads(line)

    async def tasks(self) -> tuple[list[str], list[str]]:
        """Return the ids of the suite's user tasks, and of its injection tasks."""
        answer = await self._ask("tasks")
        return answer["user_tasks"], answer["injection_tasks"]

    async def begin(self, user_task: str, injection_task: str | None, *, in_skill: bool = False) -> Task:
        """Start a trial in a new environment; `in_skill` plants the injection in a skill of the server."""
        method = "begin_with_skill" if in_skill else "begin"
        answer = await self._ask(method, user_task, injection_task)
        return Task(answer["prompt"], _calls(answer["calls"]), answer["output"])

    async def injected(self) -> tuple[tuple[Call, ...], str]:
        """Return the calls that carry out the injected instruction now, and the text that the model should say."""
        answer = await self._ask("injected")
        return _calls(answer["calls"]), answer["output"]

    async def executed(self) -> tuple[Call, ...]:
        """Return the calls that have reached the server in this trial, in their order."""
        return _calls(await self._ask("executed"))

    async def judge(self, output: str) -> Verdict:
        """Judge the trial by the state of the environment, the executed calls, and the model's answer."""
        answer = await self._ask("judge", output)
        return Verdict(answer["utility"], answer["security"], _calls(answer["executed"]))


def _calls(answer: list[Any]) -> tuple[Call, ...]:
    return tuple((name, arguments) for name, arguments in answer)
