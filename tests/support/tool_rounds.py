"""A round of calls: an executor, servers that do what they are told to, and what was heard of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_types import CallToolResult

from tests.inner import (
    ApprovalChecker,
    Approver,
    Connection,
    Deadline,
    Limits,
    OnCallProgress,
    PolicyRules,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutor,
    build_catalog,
)
from tests.support.fakes import Behaviour, ReceivedEvents, text_result

STRICT = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "unit": {"type": "string"}},
    "required": ["count"],
}


class Round:
    """An executor with servers, and what was heard of the calls."""

    def __init__(
        self, *servers: Connection, approve: Approver | None = None, rules: PolicyRules | None = None, **limits: Any
    ) -> None:
        catalog = build_catalog(servers)
        checker = ApprovalChecker(rules or PolicyRules(), approve)
        self.executor = ToolExecutor(lambda: catalog, checker, Limits(**limits))
        self.heard = ReceivedEvents()

    async def run(self, *calls: ToolCallRequest, seconds: float = 1000) -> tuple[ToolCallResult, ...]:
        return await self.executor.execute_all(calls, self.heard.emit, Deadline(seconds))


def call(name: str, /, *, id_: str = "1", **arguments: Any) -> ToolCallRequest:
    return ToolCallRequest(id_, name, arguments)


def runs(behaviour: Callable[[], Awaitable[object]], result: str = "done") -> Behaviour:
    """Make a server's behaviour of something that takes neither a name nor arguments."""

    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
        await behaviour()
        return text_result(result)

    return answer


def fails(error: Exception) -> Behaviour:
    async def answer(tool: str, arguments: Mapping[str, Any], on_progress: OnCallProgress) -> CallToolResult:
        raise error

    return answer
