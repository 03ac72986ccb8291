"""Fakes of a model, of servers, and of the clock."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, settings
from mcp_types import CallToolResult, Tool
from trio.testing import MockClock

from tests.inner import Connection, Delta, Event, ModelInfo, ModelRequest, OnCallProgress, ServerSettings

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For properties: a busy machine is no reason to fail."""

virtual_time = pytest.mark.parametrize(
    "anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})], ids=["virtual-time"]
)
"""Sleeping costs nothing, and takes exactly as long as it says."""

Kind = TypeVar("Kind")

Step = Delta | Exception | Callable[[], Awaitable[object]]


class Model:
    """A provider with scripted replies: for each request a list of deltas, errors to raise, and functions to await."""

    info = ModelInfo("stand-in")

    def __init__(self, *replies: Sequence[Step]) -> None:
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []
        self.open_streams = 0

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        self.open_streams += 1
        try:
            for step in self.replies.pop(0):
                if isinstance(step, Exception):
                    raise step
                elif callable(step):
                    await step()
                else:
                    yield step
        finally:
            self.open_streams -= 1

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


Behaviour = Callable[[str, Mapping[str, Any], OnCallProgress], Awaitable[CallToolResult]]


async def says_its_name(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
    return text_result(f"{tool} ran")


@dataclass(frozen=True)
class Server:
    """The part of a connection that the tool catalog and the executor use."""

    name: str
    tools: tuple[Tool, ...] = ()
    settings: ServerSettings | None = None
    revision: int = 1
    call: Behaviour = says_its_name

    def find_untrusted(self, tool: str, arguments: Mapping[str, Any]) -> str:
        return Connection.find_untrusted(cast("Connection", self), tool, arguments)


def server(
    name: str, *tools: Tool | str, settings: ServerSettings | None = None, call: Behaviour = says_its_name
) -> Connection:
    """Make a server whose tools are given whole, or by their names."""
    made = tuple(tool if isinstance(tool, Tool) else tool_named(tool) for tool in tools)
    return cast("Connection", Server(name, made, settings, call=call))


def tool_named(name: str, /, **about: Any) -> Tool:
    return Tool(**{"name": name, "input_schema": {"type": "object"}, **about})


def text_result(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult.model_validate({"content": [{"type": "text", "text": text}], "isError": is_error})


class ReceivedEvents(list[Event]):
    """Collects events."""

    async def emit(self, event: Event) -> None:
        self.append(event)

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self if isinstance(event, kind)]
