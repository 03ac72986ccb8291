"""Two clients of one gateway at once: no call gets what belongs to a call of the other client."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import ElicitResult, LoggingMessageNotificationParams

from tests.inner import DECISION
from tests.support.gateway_clients import Person, asking, decide, text_of
from tests.support.gateways import MODES
from tests.support.program import LONG, python_server
from tests.support.servers.launch import HERE

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:The logging capability is deprecated"),
]
CALLS = 100
"""Calls of each client."""
AT_ONCE = 8
KINDS = ("work", "elicit", "work", "sample", "wait", "send", "roots", "wait", "elicit", "work")
"""The tools, which the calls use in turn."""


@dataclass
class Caller:
    """One client: what its calls got."""

    name: str
    level: str
    person: Person
    results: dict[str, str] = field(default_factory=dict)
    progress: dict[str, set[str | None]] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    logged: list[tuple[str, Any]] = field(default_factory=list)

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        self.logged.append((params.level, params.data))

    async def call_all(self, client: Client) -> None:
        """Make all calls, several at once."""
        numbers = iter(range(CALLS))

        async def call_next() -> None:
            for number in numbers:
                await self.call(client, KINDS[number % len(KINDS)], f"{self.name}-{number}")

        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE):
                group.start_soon(call_next)

    async def call(self, client: Client, tool: str, word: str) -> None:
        """Make one call; cancel it after its first progress if it waits."""
        seen = self.progress.setdefault(word, set())
        with anyio.CancelScope() as scope:

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                seen.add(message)
                if tool == "wait":
                    self.cancelled.append(word)
                    scope.cancel()

            result = await client.call_tool(f"both__{tool}", {"word": word}, progress_callback=on_progress)
            self.results[word] = text_of(result)


def is_approval(params: Any) -> bool:
    return DECISION in params.requested_schema["properties"]


def build_caller(name: str, level: str) -> Caller:
    def answer(params: Any) -> ElicitResult:
        return decide("once") if is_approval(params) else ElicitResult(action="accept", content={"name": name})

    return Caller(name, level, Person(answer, name=name, roots=[name]))


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("mode", MODES)
async def test_two_hundred_calls_of_two_clients_never_cross(tmp_path: Path, mode: str, era: str) -> None:
    first, second = build_caller("first", "info"), build_caller("second", "error")
    servers = {"both": python_server(HERE / "interleaved.py", protocol=era, trusted=True, untrusted=["read"])}
    with anyio.fail_after(LONG):
        async with asking(servers, "*", folder=tmp_path) as gateway, AsyncExitStack() as stack:
            clients = {}
            for caller in (first, second):
                options = {**caller.person.options(), "logging_callback": caller.log, "mode": mode}
                clients[caller.name] = await stack.enter_async_context(Client(gateway.server, **options))
                await clients[caller.name].list_tools()
                if mode == "legacy":
                    await clients[caller.name].set_logging_level(caller.level)  # type: ignore[arg-type]
            await clients["first"].call_tool("both__read", {"word": "first-read"})  # text of a stranger
            async with anyio.create_task_group() as group:
                for caller in (first, second):
                    group.start_soon(caller.call_all, clients[caller.name])
            cancelled = sorted(first.cancelled + second.cancelled)
            stopped: list[str] = []

            async def read_stopped() -> None:
                result = await clients["first"].call_tool("both__list_stopped")
                stopped[:] = (result.structured_content or {})["result"]

            while stopped != cancelled:
                await read_stopped()
    for caller in (first, second):
        name = caller.name
        assert len(caller.results) + len(caller.cancelled) == CALLS
        endings = {"work": "", "send": "", "elicit": f" {name}", "sample": f" a word of {name}", "roots": f" {name}"}
        expected = {
            f"{name}-{number}": f"{name}-{number}{endings[KINDS[number % len(KINDS)]]}"
            for number in range(CALLS)
            if KINDS[number % len(KINDS)] != "wait"
        }
        assert caller.results == expected
        assert all(messages <= {word} for word, messages in caller.progress.items())
        assert [
            str(question.message) for question in caller.person.asked if f"{name}-" not in str(question.message)
        ] == []
        assert all(
            getattr(message.content, "text", "").startswith(f"{name}-")
            for request in caller.person.sampled
            for message in request.messages
        )
        assert all(str(data).startswith(f"{name}-") for _, data in caller.logged)
    assert {level for level, _ in second.logged} <= {"error"}
    approvals = [sum(map(is_approval, caller.person.asked)) for caller in (first, second)]
    assert approvals == [CALLS // len(KINDS), 0], "only the client that has read untrusted text is asked"
