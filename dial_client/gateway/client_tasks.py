"""Calls that go on while their client does something else: tasks for clients that have them (SEP-2663).

Source: the extension ``io.modelcontextprotocol/tasks`` of MCP 2026-07-28. A call becomes a task if it takes long, or if
its server asks something; the client polls it. It is the gateway's own task, whether the server has tasks or not:
approval, policy, untrusted content and audit are those of any call, and a server that is restarted does not end it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    ErrorData,
    InputRequest,
    InputRequiredResult,
    InputResponses,
)
from pydantic import TypeAdapter, ValidationError

from dial_client.gateway.client_session import ClientSession, ClientSessions
from dial_client.gateway.handlers import Handlers
from dial_client.gateway.suspended_calls import SuspendableRequest
from dial_client.hooks.call_context import OpenQuestion
from dial_client.runtime.background_tasks import BackgroundTasks
from dial_client.servers.tasks import EXTENSION, TaskParams

# Seconds until a call that has no result yet becomes a task.
TASK_SECONDS = 5.0
# Seconds that a task runs at most, and that the result of an ended one is kept.
MAX_SECONDS, KEPT_SECONDS = 3_600.0, 600.0
# Seconds between two polls, as suggested to clients.
POLL_SECONDS = 1.0
# The most tasks at once, of all clients and of one client. Beyond that a call is an ordinary one.
MAX_TASKS, MAX_OF_CLIENT = 200, 32

ResultT = TypeVar("ResultT")
_ANSWERS: TypeAdapter[InputResponses] = TypeAdapter(InputResponses)
_NOT_FOUND = "There is no such task of this client, or its time is over"


class TaskAnswers(TaskParams):
    """The parameters of ``tasks/update``; answers to questions that are not open may have any form."""

    input_responses: dict[str, Any]


class TaskCall(SuspendableRequest[ResultT]):
    """A call of a client, which may become a task."""

    def __init__(self, session: ClientSession, context: ServerRequestContext[Any, Any]) -> None:
        super().__init__(session, context, lambda: True)
        self.patience = anyio.CancelScope()
        """Cancelled when the call is to become a task."""
        self.is_handed_on = False
        """True once the client gets a question of the server as the answer to its request: no task for that."""
        self.created_at = self.updated_at = datetime.now(UTC)
        self.status_message: str | None = None
        """What the server has said last about its progress."""

    @property
    def is_resumable(self) -> bool:
        """True while the client waits for its request; the answers to a task come by ``tasks/update``."""
        return self.is_attached and not self.runs_program

    @property
    def defers_approvals(self) -> bool:
        """As `is_resumable`: a program may have become a task before it has a question."""
        return self.is_resumable

    async def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client about the progress, or keep what the server says for the next poll."""
        self.status_message = message or self.status_message
        self.updated_at = datetime.now(UTC)
        await super().report(progress, total, message)

    def hand_on(self, feature: str, server: str, params: Any) -> OpenQuestion | ErrorData:
        """Return a request of a server for a client that repeats its own; see `hooks.call_context.Caller.hand_on`."""
        found = super().hand_on(feature, server, params)
        if isinstance(found, OpenQuestion):
            self.is_handed_on, self.patience.deadline = True, math.inf
        return found

    def begin_task(self) -> None:
        """Become a task at once: the server says that the result takes some time."""
        self.patience.cancel()

    def detach(self) -> None:
        """Make the call a task: no request waits for the result any more."""
        self.is_attached = False
        self.scope.deadline = anyio.current_time() + MAX_SECONDS

    def describe(self) -> dict[str, Any]:
        """Return the task as ``tasks/get`` has it, without the result type."""
        state: dict[str, Any] = {
            "taskId": self.id,
            "createdAt": self.created_at.isoformat(),
            "lastUpdatedAt": self.updated_at.isoformat(),
            "ttlMs": int((MAX_SECONDS + KEPT_SECONDS) * 1000),
            "pollIntervalMs": int(POLL_SECONDS * 1000),
        }
        if self.status_message is not None:
            state["statusMessage"] = self.status_message
        return state | self._describe_status()

    def _describe_status(self) -> dict[str, Any]:
        if not self.is_over:
            if not self.open_questions:
                return {"status": "working"}
            requests = {key: _dump(request) for key, request in self.open_questions.items()}
            return {"status": "input_required", "inputRequests": requests}
        if isinstance(self.error, MCPError):
            return {"status": "failed", "error": self.error.error.model_dump(mode="json", exclude_none=True)}
        if isinstance(self.result, CallToolResult):
            return {"status": "completed", "result": _dump(self.result)}
        if self.error is None and self.result is None:
            return {"status": "cancelled"}
        return {"status": "failed", "error": {"code": INTERNAL_ERROR, "message": "The call failed: make it again"}}


class ClientTasks:
    """The tasks of all clients, in this process. Answers ``tasks/get``, ``tasks/update`` and ``tasks/cancel``.

    Args:
        sessions: The clients.
        seconds: Seconds until a call that has no result yet becomes a task.
    """

    def __init__(self, sessions: ClientSessions, seconds: float = TASK_SECONDS) -> None:
        self._sessions, self._seconds = sessions, seconds
        self.on_poll: Callable[[TaskCall[Any], ServerRequestContext[Any, Any]], None] = lambda *_: None
        """Called with each task whose state a client reads, and the context of the client's request."""
        self._tasks: dict[str, TaskCall[Any]] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all tasks, and of the calls that may become tasks."""
        return tuple(self._tasks)

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        return {
            "tasks/get": (TaskParams, self.get),
            "tasks/update": (TaskAnswers, self.update),
            "tasks/cancel": (TaskParams, self.cancel),
        }

    async def get(self, context: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        """Return the state of a task, with its result or its questions."""
        task = self._find(context, params)
        self.on_poll(task, context)
        return task.describe()

    async def update(self, context: ServerRequestContext[Any, Any], params: TaskAnswers) -> dict[str, Any]:
        """Pass answers on to the questions of a task. Answers to other questions than the open ones are ignored.

        Raises:
            MCPError: There is no such task, or an answer is not one to its question.
        """
        task = self._find(context, params)
        given = {key: answer for key, answer in params.input_responses.items() if key in task.open_questions}
        try:
            task.pass_on(_ANSWERS.validate_python(given))
        except ValidationError as error:
            raise MCPError(INVALID_PARAMS, "inputResponses: an answer is not valid") from error
        return {}

    async def cancel(self, context: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        """Cancel a task, and its call at the server."""
        self._find(context, params).scope.cancel()
        return {}

    def admits(self, session: ClientSession, context: ServerRequestContext[Any, Any]) -> bool:
        """Return whether a call of a client may become a task."""
        if not has_tasks(context) or len(self._tasks) >= MAX_TASKS:
            return False
        return sum(1 for task in self._tasks.values() if task.session is session) < MAX_OF_CLIENT

    async def answer(
        self, background: BackgroundTasks, call: TaskCall[ResultT], make: Callable[[], Awaitable[ResultT]]
    ) -> ResultT | InputRequiredResult | dict[str, Any]:
        """Answer a call: by its result if that comes soon, otherwise by a task.

        Raises:
            CallLost: The call was cancelled.
            Exception: Raised by `make`.
        """

        async def run() -> None:
            try:
                await call.run(make)
                if not call.is_attached:
                    await anyio.sleep(KEPT_SECONDS)
            finally:
                self._tasks.pop(call.id, None)

        self._tasks[call.id] = call
        background.start_soon(run)
        try:
            if not call.is_handed_on:
                call.patience.deadline = anyio.current_time() + self._seconds
            with call.patience:
                await call.wait()
        except anyio.get_cancelled_exc_class():
            call.scope.cancel()  # the client has cancelled its request, or is gone
            raise
        if call.is_over:  # also if the result came just when the time was over: `run` has forgotten the call then
            result = await call.wait()
            assert not isinstance(result, Mapping)
            return result
        call.detach()
        return {"resultType": "task"} | call.describe()

    def _find(self, context: ServerRequestContext[Any, Any], params: TaskParams) -> TaskCall[Any]:
        if not has_tasks(context):
            data: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", data)
        # What a proxy has routed by has to be the task that is asked for (SEP-2663, "Routing Headers").
        named = None if context.request is None else context.request.headers.get(MCP_NAME_HEADER)
        if named is not None and decode_header_value(named) != params.task_id:
            raise MCPError(HEADER_MISMATCH, f"The header {MCP_NAME_HEADER} does not name the task of the request")
        task = self._tasks.get(params.task_id)
        # Another client must not learn that the task exists.
        if task is None or task.is_attached or task.session is not self._sessions.find(context):
            raise MCPError(INVALID_PARAMS, _NOT_FOUND)
        return task


def has_tasks(context: ServerRequestContext[Any, Any]) -> bool:
    """Return whether the client has declared tasks in a request."""
    capabilities = context.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def _dump(model: CallToolResult | InputRequest) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
