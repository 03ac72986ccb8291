"""One snippet from its source to its result: it computes in the sandbox, and its calls are calls like any others.

A snippet has no rights. Each of its calls goes through `ToolExecutor`: names, arguments, middleware, approval, policy,
audit and limits are those of a call that the model makes itself. A call begins when the snippet waits for it, and is
judged by all untrusted content up to then: also by that of earlier calls of the same snippet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import anyio

from dial_client.messages.citations import Citation
from dial_client.messages.events import Emit, Event, ToolCallFinished, ToolCallStarted
from dial_client.messages.message import Failure, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.tools.executor import ToolExecutor
from dial_client.tools.result_content import cut
from dial_client.tools.snippets.call_values import Attachments, build_content, to_arguments, to_call_value
from dial_client.tools.snippets.sandbox import CallValue, SandboxCall, SandboxSession, SnippetError, Suspended

# The most calls of a snippet.
MAX_CALLS = 500
# Characters of the result of an inner call in its event.
MAX_SHOWN = 2_000
# Characters of an error, and calls that the model is told of after it.
_MAX_ERROR, _MAX_LISTED = 6_000, 40


@dataclass(frozen=True, slots=True)
class SnippetTools:
    """The tools that a snippet can call."""

    names: Mapping[str, str] = field(default_factory=dict)
    """The offered name of each tool, by the name of its function."""
    find: Callable[[str], ToolSpec | None] = lambda _: None
    """Returns the tool of an offered name; None if it has gone."""


@dataclass(eq=False)
class SnippetCall:
    """One call of a snippet."""

    request: ToolCallRequest
    line: int
    state: str = "was not made"
    """For the model: what has become of it."""
    value: CallValue | None = None
    """The result for the snippet; None while there is none."""
    result: ToolCallResult | None = None


class SnippetRun:
    """Runs one snippet.

    Args:
        id_: The id of the call of the snippet; those of its calls are ``ID/1``, ``ID/2``, ….
        session: The session of the sandbox, without a snippet.
        tools: The tools.
        executor: Makes the calls.
        emit: Receives the events of the calls.
        deadline: The deadline of the turn.
    """

    def __init__(
        self,
        id_: str,
        session: SandboxSession,
        tools: SnippetTools,
        executor: ToolExecutor,
        emit: Emit,
        deadline: Deadline,
    ) -> None:
        self._id, self._session, self._tools = id_, session, tools
        self._executor, self._emit_outside, self._deadline = executor, emit, deadline
        self._slots = anyio.CapacityLimiter(executor.limits.max_parallel)
        self._calls: dict[int, SnippetCall] = {}
        self._attachments = Attachments()
        self._changed = anyio.Event()
        self._taint = ""
        self._citations: tuple[Citation, ...] = ()

    async def run(self, source: str) -> ToolCallResult:
        """Run the snippet, and return its result without an id."""
        try:
            value = await self._run_to_end(source)
            content = build_content(self._session.printed, value, self._attachments)
            result = ToolCallResult("", success=True, content=content, value=value)
        except SnippetError as error:
            result = self._describe_failure(error)
        return replace(result, taint=self._taint, citations=self._citations)

    async def _run_to_end(self, source: str) -> object:
        step = await self._session.start(source)
        problem: SnippetError | None = None
        async with anyio.create_task_group() as group:
            while isinstance(step, Suspended):
                for call in step.calls:
                    self._calls[call.id] = self._begin(call)
                for id_ in step.pending:
                    if self._calls[id_].state == _NOT_BEGUN:
                        self._calls[id_].state = _RUNNING
                        group.start_soon(self._make, self._calls[id_])
                ready = await self._wait_for_results(step.pending)
                try:
                    step = await self._session.resume(ready)
                except SnippetError as error:
                    problem = error
                    break
            # What the snippet no longer waits for is cancelled at its server, as a call that the user cancels.
            group.cancel_scope.cancel()
        if problem is not None:
            raise problem
        assert not isinstance(step, Suspended)
        return step.value

    def _begin(self, call: SandboxCall) -> SnippetCall:
        """Return a call that the snippet has requested; one with unusable arguments has its result already."""
        number = len(self._calls) + 1
        request = ToolCallRequest(f"{self._id}/{number}", self._tools.names[call.name], {})
        problem = "the arguments of a tool are given by name" if call.positional else ""
        problem = f"a snippet may make {MAX_CALLS} calls" if number > MAX_CALLS else problem
        try:
            request = replace(request, arguments=to_arguments(call.keywords))
        except ValueError as error:
            problem = problem or str(error)
        if problem:
            return SnippetCall(request, call.line, f"failed: {problem}", CallValue(None, "ValueError", problem))
        return SnippetCall(request, call.line, _NOT_BEGUN)

    async def _make(self, call: SnippetCall) -> None:
        async with self._slots:
            result = await self._executor.execute_here(call.request, self._emit, self._deadline)
        self._settle(call, result)

    def _settle(self, call: SnippetCall, result: ToolCallResult) -> None:
        tool = self._tools.find(call.request.name) or ToolSpec(call.request.name, "", {})
        # What a middleware removes from the text of a result may still be in its value.
        has_value = not self._executor.middleware.wraps_tool_calls
        call.value = to_call_value(result, tool, self._attachments, has_value=has_value)
        call.result = result
        call.state = "done" if result.success else f"failed: {to_one_line(result.error or '', 200)}"
        self._taint = self._taint or result.taint
        self._citations = (*self._citations, *result.citations)
        self._changed.set()

    async def _wait_for_results(self, pending: frozenset[int]) -> dict[int, CallValue]:
        """Return the results of pending calls, once there is one."""
        while True:
            ready = {id_: value for id_ in pending if (value := self._calls[id_].value) is not None}
            if ready:
                return ready
            self._changed = anyio.Event()
            await self._changed.wait()

    async def _emit(self, event: Event) -> None:
        """Emit an event of an inner call, below the call of the snippet, and without the whole of a large result."""
        match event:
            case ToolCallStarted():
                event = replace(event, parent=self._id)
            case ToolCallFinished(result):
                event = replace(event, result=replace(result, content=cut(result.content, MAX_SHOWN), value=None))
        await self._emit_outside(event)

    def _describe_failure(self, error: SnippetError) -> ToolCallResult:
        """Return the result of a snippet that has failed, which says what has happened up to then."""
        parts = [error.text[-_MAX_ERROR:]]
        if self._calls:
            calls = list(self._calls.values())
            lines = [f"- line {call.line}, {call.request.name}: {call.state}" for call in calls[:_MAX_LISTED]]
            if len(calls) > _MAX_LISTED:
                lines.append(f"- … {len(calls) - _MAX_LISTED} more calls")
            parts.append("\n".join(["Calls of the snippet:", *lines]))
        else:
            parts.append("The snippet has made no calls.")
        if printed := self._session.printed.rstrip():
            parts.append(f"Printed before:\n{printed}")
        summary = to_one_line(str(error), 400)
        return ToolCallResult(
            "", success=False, content=sanitize("\n\n".join(parts)), error=summary, failure=Failure.TOOL
        )


_NOT_BEGUN, _RUNNING = "was not made", "was cancelled: it may have done its work"
