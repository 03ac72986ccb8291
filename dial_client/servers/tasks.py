"""Tasks of servers: a server may answer a call with a task in place of a result, and the task is polled until it ends.

Source: the extension ``io.modelcontextprotocol/tasks`` (SEP-2663) of MCP 2026-07-28. The server decides about each
call. A task outlives the connection on which it was created, so a session that was lost does not lose the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NoReturn, TypeVar, cast

import anyio
from mcp import Client, MCPError
from mcp.client import session as sdk_session
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolResult,
    EmptyResult,
    ErrorData,
    InputRequests,
    InputResponses,
    Request,
    RequestParams,
    Result,
    TextContent,
)
from pydantic import TypeAdapter

from dial_client.hooks.call_context import Caller, CallTask, InputRound
from dial_client.servers.input_rounds import answer_requests, dump_answer
from dial_client.servers.sdk_import import defer_builds

EXTENSION = "io.modelcontextprotocol/tasks"
# Seconds between two polls if the server suggests none, and the bounds of what it may suggest: a poll restarts the
# timeout of the call, so polls must not be further apart.
DEFAULT_SECONDS, MIN_SECONDS, MAX_SECONDS = 1.0, 0.1, 30.0
# Seconds a server has to confirm that a task is cancelled.
CANCEL_SECONDS = 5.0
OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
# Makes a call past the SDK: of a tool, with arguments, `_meta` and a function for its progress. None as the result
# means that the SDK goes on.
CallDirectly = Callable[
    [str, Mapping[str, Any], Mapping[str, Any] | None, OnProgress | None], Awaitable[CallToolResult | None]
]
ResultT = TypeVar("ResultT", bound=Result)
_FAILED = "The task failed."
_CANCELLED = "The server has cancelled the task of this call."
_LOST = "The server does not know the task of this call any more ({}). It is not known whether the tool did its work."
# The codes of a server that does not know a task (SEP-2663), or no tasks at all.
_UNKNOWN_TASK = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND})


class CreatedTask(Result):
    """A task that a server has created for a call (``CreateTaskResult``), as far as it is read."""

    result_type: Literal["task"] = "task"
    task_id: str


class TaskState(Result):
    """The answer to ``tasks/get``."""

    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    poll_interval_ms: float | None = None
    input_requests: InputRequests | None = None
    result: dict[str, Any] | None = None
    error: ErrorData | None = None

    @property
    def seconds(self) -> float:
        """The seconds until the next poll."""
        suggestion = DEFAULT_SECONDS if self.poll_interval_ms is None else self.poll_interval_ms / 1000
        return min(max(suggestion, MIN_SECONDS), MAX_SECONDS)


class TaskParams(RequestParams):
    """The parameters of ``tasks/get`` and ``tasks/cancel``."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """The parameters of ``tasks/update``."""

    input_responses: InputResponses


class TaskRequest(Request[TaskParams, str]):
    """A request about a task; over HTTP its header ``Mcp-Name`` is the id of the task."""

    name_param = "taskId"


class TaskUpdate(Request[TaskUpdateParams, str]):
    """The answers to the requests for input of a task."""

    name_param = "taskId"


class TaskCreated(Exception):
    """A call was answered with a task."""

    def __init__(self, task: CreatedTask) -> None:
        super().__init__(task.task_id)
        self.task = task


class TaskExtension(ClientExtension):
    """Declares to servers that calls may be answered with tasks."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the form of a created task."""
        return _CLAIMS


async def _leave(task: CreatedTask, _: ClaimContext) -> NoReturn:
    # The task is followed in whichever session is open, and not by the SDK within the request that has created it.
    raise TaskCreated(task)


_CLAIMS = (ResultClaim(result_type="task", model=CreatedTask, resolve=_leave),)


def _share_adapters() -> None:
    """Let all sessions have one adapter for the answers to calls, which is built when it is first used.

    The SDK (mcp 2.3) builds one for each session with the same claims: half of what ten servers cost at their start.
    Calls over pipes do not use it.
    """
    build = sdk_session._build_call_tool_adapter  # noqa: SLF001 - no option

    @cache
    def build_once(claims: frozenset[tuple[str, ResultClaim[Any]]]) -> TypeAdapter[Any]:
        with defer_builds():
            return build(dict(claims))

    sdk_session._build_call_tool_adapter = lambda active: build_once(frozenset(active.items()))  # noqa: SLF001


_share_adapters()


@dataclass(eq=False, slots=True)
class ToolRequest:
    """One call of a tool, over any number of sessions: its request, and the task with which the server may answer."""

    tool: str
    arguments: dict[str, Any]
    on_progress: OnProgress | None
    """Receives the progress of the call; after each poll of a task the number of polls, no total, and what the server
    says about the task."""
    meta: Any = None
    """The ``_meta`` of the request; None for none."""
    caller: Caller | None = None
    """The client of a gateway that makes the call."""
    given: InputRound | None = None
    """What the client has brought with it for the server; None for nothing."""
    task: CallTask = field(default_factory=CallTask)
    """The task with which the server has answered, or that an earlier process has left."""
    # The number of polls, and the keys of the input requests that were answered: a server repeats a request for input
    # until it has seen the answer.
    _polls: int = 0
    _answered: set[str] = field(default_factory=set)

    async def send(
        self, client: Client, is_serving: Callable[[], bool], call_directly: CallDirectly | None = None
    ) -> CallToolResult:
        """Make the call, or go on with its task, and return the result.

        A task is cancelled at the server if the caller is cancelled. If its session is lost, it goes on.

        Args:
            client: The SDK's client of the session.
            is_serving: Returns False once the session is lost.
            call_directly: As `transports.direct_calls.DirectCalls.call`; None if all calls are the SDK's.

        Raises:
            InputRequired: The client of a gateway has to answer the server first.
            mcp.MCPError: The call failed at the server, or the server does not know the task any more.
        """
        if not self.task.id:
            if call_directly is not None and self.given is None:
                result = await call_directly(self.tool, self.arguments, self.meta, self.on_progress)
                if result is not None:
                    return result
            try:
                return await client.call_tool(
                    self.tool,
                    self.arguments,
                    progress_callback=cast("ProgressFnT | None", self.on_progress),
                    meta=self.meta,
                    **({} if self.given is None else self.given.build_arguments()),
                )
            except TaskCreated as created:
                self.task.id = created.task.task_id
                if self.caller is not None:
                    self.caller.begin_task()
        try:
            return await self._follow(client, self.task.id)
        except anyio.get_cancelled_exc_class():
            if is_serving() and not self.task.is_left():
                await self._cancel(client, self.task.id)
            raise

    async def _follow(self, client: Client, task_id: str) -> CallToolResult:
        """Poll the task until it ends, and answer its requests for input."""
        while True:
            await self.task.keep(task_id)
            state = await self._poll(client, task_id)
            if state.status == "completed":
                return CallToolResult.model_validate(state.result or {"content": []}, by_name=False)
            if state.status == "failed":
                error = state.error or ErrorData(code=INTERNAL_ERROR, message=state.status_message or _FAILED)
                raise MCPError(error.code, error.message, error.data)
            if state.status == "cancelled":
                return CallToolResult(content=[TextContent(text=state.status_message or _CANCELLED)], is_error=True)
            self._polls += 1
            if self.on_progress is not None:
                await self.on_progress(float(self._polls), None, state.status_message)
            requests = state.input_requests or {}
            if new := {key: request for key, request in requests.items() if key not in self._answered}:
                await self._answer(client, task_id, new)
            else:
                await anyio.sleep(state.seconds)

    async def _poll(self, client: Client, task_id: str) -> TaskState:
        try:
            return await _send(client, "tasks/get", task_id, TaskState)
        except MCPError as error:
            if error.code not in _UNKNOWN_TASK:
                raise
            raise MCPError(error.code, _LOST.format(error.message.rstrip(".")), error.data) from error

    async def _answer(self, client: Client, task_id: str, requests: InputRequests) -> None:
        try:
            answers = await answer_requests(client.session, requests, client.session.dispatch_input_request)
        except MCPError:
            # The answers to a task have no form for an error, and the task would wait for ever.
            await self._cancel(client, task_id)
            raise
        self._answered |= answers.keys()
        dumped: dict[str, Any] = {key: dump_answer(answer) for key, answer in answers.items()}
        params = TaskUpdateParams(task_id=task_id, input_responses=dumped)
        await client.session.send_request(TaskUpdate(method="tasks/update", params=params), EmptyResult)

    async def _cancel(self, client: Client, task_id: str) -> None:
        """Tell the server that nobody waits for the task any more; errors are ignored."""
        with anyio.move_on_after(CANCEL_SECONDS, shield=True), suppress(Exception):
            await _send(client, "tasks/cancel", task_id, EmptyResult)


async def _send(client: Client, method: str, task_id: str, result_type: type[ResultT]) -> ResultT:
    request = TaskRequest(method=method, params=TaskParams(task_id=task_id))
    return await client.session.send_request(request, result_type)
