"""The conformance suite's tools that answer with tasks (SEP-2663): a task is what its clock and its answers say."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import anyio
import mcp_types as wire
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

EXTENSION = "io.modelcontextprotocol/tasks"
TTL_SECONDS = 600
Context = ServerRequestContext[Any, Any]
CONFIRM = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Go on?",
        "requestedSchema": {"type": "object", "properties": {"confirm": {"type": "boolean"}}},
    },
}
TOOLS: dict[str, tuple[float, tuple[str, ...]]] = {
    "greet": (0.0, ()),
    "slow_compute": (0.0, ()),
    "failing_job": (0.3, ()),
    "protocol_error_job": (0.1, ()),
    "confirm_delete": (0.0, ("confirm",)),
    "multi_input": (0.0, ("first", "second")),
    "test_tool_with_task": (0.1, ()),
}
"""The seconds that each tool takes, and the keys of what it asks."""


class TaskParams(wire.RequestParams):
    """The parameters of all requests about a task."""

    task_id: str
    input_responses: dict[str, Any] | None = None


@dataclass
class FeatureTask:
    """A task: its tool, when it ends, and what it still asks."""

    tool: str
    words: str
    ends_at: float
    questions: list[str]
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    is_cancelled: bool = False

    def describe(self) -> dict[str, Any]:
        """Return the status, with its result, error or questions."""
        if self.is_cancelled:
            return {"status": "cancelled"}
        if self.questions:
            return {"status": "input_required", "inputRequests": dict.fromkeys(self.questions, CONFIRM)}
        if anyio.current_time() < self.ends_at:
            return {"status": "working"}
        if self.tool == "protocol_error_job":
            return {"status": "failed", "error": {"code": wire.INTERNAL_ERROR, "message": "the job broke"}}
        return {"status": "completed", "result": build_result(self.tool, self.words)}


def build_result(tool: str, words: str) -> dict[str, Any]:
    """Return the result of a tool as it is sent."""
    content = [{"type": "text", "text": f"{tool} is done {words}".strip()}]
    return {"content": content} | ({"isError": True} if tool == "failing_job" else {})


class FeatureTasks:
    """The tasks of the server."""

    def __init__(self) -> None:
        self._tasks: dict[str, FeatureTask] = {}

    def serve(self, server: Server[Any]) -> None:
        """Declare the extension, and answer its requests."""
        server.extensions[EXTENSION] = {}
        for method, handler in (("tasks/get", self.get), ("tasks/update", self.update), ("tasks/cancel", self.cancel)):
            server.add_request_handler(method, TaskParams, handler)

    async def call(
        self, context: Context, tool: str, arguments: Mapping[str, Any]
    ) -> wire.CallToolResult | dict[str, Any]:
        """Answer with a task, or with the result if the client has no tasks and the tool can do without."""
        seconds = float(arguments.get("seconds", 0))
        if has_tasks(context) or tool != "slow_compute":
            return self.create(context, tool, seconds=seconds)
        await anyio.sleep(seconds)
        return wire.CallToolResult.model_validate(build_result(tool, ""))

    def create(self, context: Context, tool: str, words: str = "", *, seconds: float = 0.0) -> dict[str, Any]:
        """Return a new task."""
        require_tasks(context)
        own_seconds, questions = TOOLS[tool]
        id_ = secrets.token_hex(8)
        self._tasks[id_] = FeatureTask(tool, words, anyio.current_time() + own_seconds + seconds, list(questions))
        return self._describe(id_) | {"resultType": "task", "status": "working"}

    def _describe(self, id_: str) -> dict[str, Any]:
        task = self._tasks[id_]
        times = {"createdAt": task.created_at, "lastUpdatedAt": task.created_at}
        return {"taskId": id_, "ttlMs": TTL_SECONDS * 1000, "pollIntervalMs": 100} | times

    def _find(self, context: Context, params: TaskParams) -> FeatureTask:
        require_tasks(context)
        if params.task_id not in self._tasks:
            raise MCPError(wire.INVALID_PARAMS, "There is no such task")
        return self._tasks[params.task_id]

    async def get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        return self._find(context, params).describe() | self._describe(params.task_id)

    async def update(self, context: Context, params: TaskParams) -> dict[str, Any]:
        task = self._find(context, params)
        task.questions = [key for key in task.questions if key not in (params.input_responses or {})]
        return {}

    async def cancel(self, context: Context, params: TaskParams) -> dict[str, Any]:
        task = self._find(context, params)
        task.is_cancelled = task.is_cancelled or task.describe()["status"] in ("working", "input_required")
        return {}


def has_tasks(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def require_tasks(context: Context) -> None:
    if not has_tasks(context):
        required: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(wire.MISSING_REQUIRED_CLIENT_CAPABILITY, "tasks are required", required)
