"""An MCP server whose tools answer with tasks (SEP-2663), as an object or over stdio: ``tasks.py FILE [lives]``.

Its tasks are kept in FILE, where the next process of the server finds them.

``report`` ends at the third poll, ``asks`` after an answer to its question, ``breaks`` with an error of the protocol,
``complains`` with a failed result, ``stops`` by itself; ``goes_on`` ends when `TaskStore.may_end` is set, or FILE.end
is there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import INVALID_PARAMS, CallToolRequestParams, ListToolsResult, RequestParams, Tool

EXTENSION = "io.modelcontextprotocol/tasks"
TOOLS = ("report", "asks", "breaks", "complains", "stops", "goes_on")
MANY = 1_000_000
QUESTION = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which format?",
        "requestedSchema": {"type": "object", "properties": {"format": {"type": "string"}}, "required": ["format"]},
    },
}


class TaskParams(RequestParams):
    """The parameters of all requests about a task."""

    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskStore:
    """The tasks of a server, kept in a file if there is one."""

    def __init__(self, file: Path | None = None, *, dies_at_poll: int = MANY) -> None:
        self.file, self.dies_at_poll = file, dies_at_poll
        self.tasks: dict[str, dict[str, Any]] = (
            json.loads(file.read_text()) if file is not None and file.exists() else {}
        )
        self.watched = anyio.Event()
        """Set at the first poll."""
        self.ended = anyio.Event()
        """Set when a task is cancelled."""
        self.may_end = False

    def create(self, tool: str) -> dict[str, Any]:
        id_ = f"task-{len(self.tasks) + 1}"
        self.tasks[id_] = {"tool": tool, "polls": 0, "answers": {}, "is_cancelled": False}
        self.save()
        return self.describe(id_, "working") | {"resultType": "task"}

    def find(self, id_: str) -> dict[str, Any]:
        if id_ not in self.tasks:
            raise MCPError(INVALID_PARAMS, "Failed to retrieve task: Task not found")
        return self.tasks[id_]

    def save(self) -> None:
        if self.file is not None:
            self.file.write_text(json.dumps(self.tasks))

    def describe(self, id_: str, status: str, **more: Any) -> dict[str, Any]:
        times = dict.fromkeys(("createdAt", "lastUpdatedAt"), "2026-11-28T00:00:00Z")
        return {"taskId": id_, "status": status, "ttlMs": None, "pollIntervalMs": 1} | times | more

    def poll(self, id_: str) -> dict[str, Any]:
        task = self.find(id_)
        task["polls"] += 1
        self.save()
        self.watched.set()
        if task["polls"] == self.dies_at_poll:
            os.kill(os.getpid(), signal.SIGKILL)
        done = {"content": [{"type": "text", "text": f"{task['tool']} done in {task['polls']} polls"}]}
        may_end = self.may_end or (self.file is not None and self.file.with_suffix(".end").exists())
        match task["tool"]:
            case "goes_on" if may_end:
                return self.describe(id_, "completed", result=done)
            case "report" if task["polls"] >= 3:
                return self.describe(id_, "completed", result=done | {"structuredContent": {"polls": task["polls"]}})
            case "asks" if task["answers"]:
                answer = {"content": [{"type": "text", "text": json.dumps(task["answers"])}]}
                return self.describe(id_, "completed", result=answer)
            case "asks":
                return self.describe(id_, "input_required", inputRequests={"format": QUESTION})
            case "breaks":
                return self.describe(id_, "failed", error={"code": -32603, "message": "the disk is full"})
            case "complains":
                return self.describe(id_, "completed", result=done | {"isError": True})
            case "stops":
                return self.describe(id_, "cancelled", statusMessage="The operator has stopped it.")
        return self.describe(id_, "working", statusMessage=f"step {task['polls']}")


def build_server(store: TaskStore) -> Server[Any]:
    """Return the server."""

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        schema = {"type": "object"}
        return ListToolsResult(tools=[Tool(name=name, input_schema=schema) for name in TOOLS])

    async def call(context: Any, params: CallToolRequestParams) -> Any:
        declared = context.session.client_capabilities
        assert declared is not None
        assert EXTENSION in (declared.extensions or {})
        return store.create(params.name)

    async def get(context: Any, params: TaskParams) -> Any:
        return store.poll(params.task_id)

    async def update(context: Any, params: TaskParams) -> Any:
        store.find(params.task_id)["answers"] |= params.input_responses or {}
        store.save()
        return {}

    async def cancel(context: Any, params: TaskParams) -> Any:
        store.find(params.task_id)["is_cancelled"] = True
        store.save()
        store.ended.set()
        return {}

    server: Server[Any] = Server("tasks", on_list_tools=list_tools)
    server.extensions[EXTENSION] = {}
    server.add_request_handler("tools/call", CallToolRequestParams, call)
    for method, handler in (("tasks/get", get), ("tasks/update", update), ("tasks/cancel", cancel)):
        server.add_request_handler(method, TaskParams, handler)
    return server


async def serve(store: TaskStore) -> None:
    """Serve on standard input and output."""
    server = build_server(store)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    # The first process dies at its second poll, unless it is told to live.
    FILE = Path(sys.argv[1])
    anyio.run(serve, TaskStore(FILE, dies_at_poll=MANY if FILE.exists() or "lives" in sys.argv else 2))
