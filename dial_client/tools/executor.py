"""Runs the calls of one round: validates, approves and makes each call, and shortens its result.

A failed call has a result too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio
import anyio.lowlevel

from dial_client.hooks import call_context
from dial_client.hooks.audit.entries import CallAudit, Origin, TurnAudit
from dial_client.hooks.call_context import CallContext, Spend
from dial_client.hooks.middleware import MiddlewareChain, ToolCall
from dial_client.messages.events import AppOpened, Emit, ToolCallFinished, ToolCallProgress, ToolCallStarted
from dial_client.messages.limits import Limits
from dial_client.messages.message import (
    NOT_ALLOWED,
    Failure,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    build_not_run_result,
)
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import sanitize
from dial_client.servers.connection import Connection
from dial_client.servers.server_cache import build_definition, compare_definitions
from dial_client.tools.approval import Approval, ApprovalChecker
from dial_client.tools.call_validation import find_problem, normalize_arguments
from dial_client.tools.catalog import Catalog, Route
from dial_client.tools.changed_arguments import add_note_of_changes
from dial_client.tools.server_calls import find_app, make_call
from dial_client.tools.taint import Taint, find_taint_source
from dial_client.tools.tool_selection import Keep, shorten

log = get_logger(__name__)

MAX_ERROR_CHARS = 500
"""Maximum characters of the one-line text of a failure; the model reads a longer text."""

_MAX_CHANGES = 3
"""Maximum number of times a call is validated and approved if its tool keeps changing."""
_CANCELLED_TASK = "The call failed: a task that it waited for was cancelled."
_TIME_IS_OVER = "Stopped: the time for this turn is over."


@dataclass(frozen=True, slots=True)
class CallScope:
    """The objects that calls share with their turn."""

    keep: Keep | None = None
    """Stores the full text of results that are too long for the model; None if the model cannot read stored results."""
    awaiting_approval: set[str] = field(default_factory=set)
    """The ids of calls that wait for approval, or were cancelled during this wait."""
    spend: Spend | None = None
    """Receives the tokens of sampling requests that servers send during a call."""
    taint: Taint | None = None
    """The taint of the conversation, to which the results of calls add. None for calls that the user makes."""


class ToolExecutor:
    """Runs calls of the tools in the current catalog.

    Args:
        catalog: Returns the current catalog.
        approvals: Approves or denies each call before it runs.
        limits: The limits of the turn.
        scope: The objects that the calls share with their turn.
        audit: Records each decision and each call.
        middleware: Wraps each call within the limit of calls per round.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        approvals: ApprovalChecker,
        limits: Limits,
        scope: CallScope | None = None,
        audit: TurnAudit | None = None,
        middleware: MiddlewareChain | None = None,
    ) -> None:
        self._catalog = catalog
        self._approvals = approvals
        self._limits = limits
        self._scope = scope or CallScope()
        self.audit = audit or TurnAudit()
        self._middleware = middleware or MiddlewareChain()

    def derive(self, catalog: Callable[[], Catalog], scope: CallScope, origin: Origin) -> ToolExecutor:
        """Return an executor for other tools and another origin, with the same approvals, limits and middleware."""
        audit = self.audit.for_turn(origin)
        return ToolExecutor(catalog, self._approvals, self._limits, scope, audit, self._middleware)

    def add_taint(self, source: str) -> None:
        """Add a source of untrusted content that is not a call of this executor; an empty text is ignored."""
        if self._scope.taint is not None:
            self._scope.taint.add(source)

    async def execute_all(
        self, calls: Sequence[ToolCallRequest], emit: Emit, deadline: Deadline
    ) -> tuple[ToolCallResult, ...]:
        """Run the calls of a round concurrently, at most `Limits.max_parallel` at once.

        Returns one result for each call, in the order of the calls. Does not raise if a tool fails. At the timeout of
        the turn, running calls are cancelled at their servers, and their results say so.
        """
        results: dict[int, ToolCallResult] = {}
        # The model requested all calls of a round before it read any of their results.
        taint = self._scope.taint.sources if self._scope.taint is not None else ()
        slots = anyio.CapacityLimiter(self._limits.max_parallel)

        async def run(index: int, call: ToolCallRequest) -> None:
            async with slots:
                is_over_limit = index >= self._limits.max_calls_per_round
                results[index] = await self._execute(call, emit, deadline, taint, is_over_limit=is_over_limit)

        # A single call has a task of its own too: what a tool sets in its context must not reach later calls.
        async with anyio.create_task_group() as group:
            for index, call in enumerate(calls):
                group.start_soon(run, index, call)
        return tuple(results[index] for index in range(len(calls)))

    async def execute(self, call: ToolCallRequest, emit: Emit, deadline: Deadline) -> ToolCallResult:
        """Run one call."""
        return (await self.execute_all([call], emit, deadline))[0]

    async def _execute(
        self,
        call: ToolCallRequest,
        emit: Emit,
        deadline: Deadline,
        taint: tuple[str, ...],
        *,
        is_over_limit: bool = False,
    ) -> ToolCallResult:
        """Run one call between its two events."""
        route = self._catalog().routes.get(call.name)
        call = normalize_arguments(call, route) if route else call
        server, tool = (route.spec.server, route.spec.tool) if route else ("", "")
        await emit(ToolCallStarted(call, server, tool))
        make_attempt = self._attempt_in_middleware if self._middleware.wraps_tool_calls else self._attempt
        started_at = time.monotonic()
        try:
            attempt = (
                self._refuse_over_limit(call, route)
                if is_over_limit
                else await make_attempt(call, route, emit, deadline, taint)
            )
        except anyio.get_cancelled_exc_class():
            # An approver or a middleware may await a cancelled task; the turn continues unless it is cancelled itself.
            await anyio.lowlevel.checkpoint_if_cancelled()
            attempt = _Attempt(ToolCallResult.failed(call.id, Failure.TOOL, _CANCELLED_TASK), started_at)
        result = self._shorten(attempt.result)
        self.add_taint(result.taint)
        duration = time.monotonic() - attempt.started_at
        log.debug("tool_call", tool=call.name, server=server, ok=result.success, duration=round(duration, 4))
        await emit(_build_end(result, duration, call, (server, tool), attempt))
        return result

    async def _attempt_in_middleware(
        self, call: ToolCallRequest, route: Route | None, emit: Emit, deadline: Deadline, taint: tuple[str, ...]
    ) -> _Attempt:
        """Let the middleware change, make or answer a call within the timeout of the turn; the call's id stays."""
        attempts: list[_Attempt] = []
        is_begun = False

        async def attempt(changed: ToolCall) -> ToolCallResult:
            nonlocal is_begun
            is_begun = True
            request = replace(changed.request, id=call.id)
            changed_route = self._catalog().routes.get(request.name)
            if changed_route is not None:
                request = normalize_arguments(request, changed_route)
            attempts.append(await self._attempt(request, changed_route, emit, deadline, taint))
            return attempts[-1].result

        started_at = time.monotonic()
        result = ToolCallResult.failed(call.id, Failure.TIMEOUT, _TIME_IS_OVER)
        origin = self.audit.origin
        spec = route.spec if route else None
        with deadline.scope():
            tool_call = ToolCall(request=call, spec=spec, turn_id=origin.turn, conversation_id=origin.conversation)
            result = await self._middleware.call_tool(tool_call, attempt)
        if not is_begun:
            self._audit_answer(call, spec, result)
        # A middleware may answer with an earlier result of the tool, or change an untrusted text.
        sources = [attempt.result.taint for attempt in attempts] or [find_taint_source(call, result, route)]
        source = result.taint or next(filter(None, sources), "")
        last = attempts[-1] if attempts else _Attempt(result, started_at)
        return replace(last, result=replace(result, tool_call_id=call.id, taint=source))

    def _audit_answer(self, call: ToolCallRequest, spec: ToolSpec | None, result: ToolCallResult) -> None:
        """Record a call that was not made because a middleware answered or refused it."""
        with self.audit.call(call, spec) as audit:
            audit.record_decision(is_allowed=result.failure is not Failure.DENIED, decided_by="middleware")
            audit.record_result(result)

    async def _attempt(
        self, call: ToolCallRequest, route: Route | None, emit: Emit, deadline: Deadline, taint: tuple[str, ...]
    ) -> _Attempt:
        """Validate, approve, make and audit one call within the timeout of the turn."""
        cleared: _Cleared | None = None
        result = ToolCallResult.failed(call.id, Failure.TIMEOUT, _TIME_IS_OVER)
        started_at = time.monotonic()
        with self.audit.call(call, route.spec if route else None) as audit:
            with deadline.scope():
                cleared, refusal = await self._clear(call, deadline, taint, audit)
                started_at = time.monotonic()
                result = refusal or result
                if cleared is not None:
                    answer = await self._call(cleared.call, cleared.route, emit, deadline)
                    result = add_note_of_changes(answer, call, cleared.call)
            audit.record_result(result)
        source = find_taint_source(call, result, cleared.route if cleared is not None else None)
        return _Attempt(replace(result, taint=source), started_at, cleared)

    async def _clear(
        self, call: ToolCallRequest, deadline: Deadline, taint: tuple[str, ...], audit: CallAudit
    ) -> tuple[_Cleared, None] | tuple[None, ToolCallResult]:
        """Return the route of a call that may run, and the call, whose arguments the approver may have changed.

        If the call may not run, return the result with the reason instead.

        While the user decides, or a lazy server starts, the tool may change. The call is then checked again.
        """
        change = ""
        for _ in range(_MAX_CHANGES):
            catalog = self._catalog()
            route = catalog.routes.get(call.name)
            if (problem := find_problem(call, route, catalog)) is not None:
                return None, problem
            assert route is not None
            approval = await self._approve(call, route, deadline, taint, change, audit)
            if not approval.allowed:
                reason = f": {approval.reason}" if approval.reason else ""
                return None, ToolCallResult.failed(call.id, Failure.DENIED, f"{NOT_ALLOWED}{reason}.")
            if approval.arguments is not None:
                call = replace(call, arguments=approval.arguments)
                if (problem := find_problem(call, route, catalog)) is not None:
                    return None, problem
            if isinstance(route.connection, Connection):
                await route.connection.wake()
            current = self._catalog().routes.get(call.name)
            if current is None:
                return _Cleared(route, call), None  # the call itself then fails, because the server or tool is gone
            change = (
                compare_definitions(build_definition(route.spec), build_definition(current.spec))
                if current is not route
                else ""
            )
            if not change:
                return _Cleared(current, call), None
        return None, ToolCallResult.failed(call.id, Failure.SERVER, "The call failed: the tool does not stop changing.")

    async def _approve(
        self,
        call: ToolCallRequest,
        route: Route,
        deadline: Deadline,
        taint: tuple[str, ...],
        change: str,
        audit: CallAudit,
    ) -> Approval:
        """Return the decision about a call, by a rule or by the approver."""
        spec = route.spec
        approval = self._approvals.decide(spec, call.arguments, taint, change)
        if approval is None:
            self._scope.awaiting_approval.add(call.id)
            audit.record_question()
            with deadline.pause():
                approval = await self._approvals.ask(call, spec, taint, change, self.audit.origin)
            self._scope.awaiting_approval.discard(call.id)
        if approval.arguments is not None:
            changed = normalize_arguments(replace(call, arguments=dict(approval.arguments)), route)
            approval = self._approvals.decide_changed(spec, replace(approval, arguments=changed.arguments), taint)
        audit.record_decision(is_allowed=approval.allowed, decided_by=approval.decided_by, arguments=approval.arguments)
        return approval

    async def _call(self, call: ToolCallRequest, route: Route, emit: Emit, deadline: Deadline) -> ToolCallResult:
        """Make a call within its own timeout, which each progress notification of the server restarts."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # no call starts after the timeout of the turn
        timeout = self._find_timeout(route)
        call_deadline = Deadline(timeout, max(timeout, self._limits.tool_timeout_max))
        context = CallContext(deadline, call_deadline, self._scope.spend, self.audit.origin)
        with call_deadline.scope() as scope, call_context.set_current(context):
            is_over = False

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                if not is_over:
                    call_deadline.restart(timeout)
                    text = message and sanitize(message)
                    await emit(ToolCallProgress(call.id, _to_finite(progress) or 0.0, _to_finite(total), text))

            app = find_app(call, route)
            if app is not None:
                await emit(AppOpened(app))
            try:
                result = await make_call(call, route, on_progress, app)
            finally:
                is_over = True
        if scope.cancelled_caught:
            error = f"The tool gave no result within {timeout:g} seconds."
            return ToolCallResult.failed(call.id, Failure.TIMEOUT, error)
        return result

    def _refuse_over_limit(self, call: ToolCallRequest, route: Route | None) -> _Attempt:
        most = self._limits.max_calls_per_round
        result = build_not_run_result(call.id, f"one reply may make {most} calls. Ask again for what is still needed.")
        with self.audit.call(call, route.spec if route else None) as audit:
            audit.record_result(result)
        return _Attempt(result, time.monotonic())

    def _shorten(self, result: ToolCallResult) -> ToolCallResult:
        """Shorten a result to the limits for the model and for a log line."""
        error = result.error
        if error is not None and (len(error) > MAX_ERROR_CHARS or "\n" in error):
            error = " ".join(error[:MAX_ERROR_CHARS].split())
        content = shorten(result.content, self._limits.max_result_chars, self._scope.keep)
        return replace(result, content=content, error=error)

    def _find_timeout(self, route: Route) -> float:
        settings = route.connection.settings
        if settings is None or settings.tool_timeout is None:
            return self._limits.tool_timeout
        return settings.tool_timeout


@dataclass(frozen=True, slots=True)
class _Cleared:
    """A call that may run, with the route to its tool."""

    route: Route
    call: ToolCallRequest


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One call, with its result."""

    result: ToolCallResult
    started_at: float
    """The time, by `time.monotonic`, when the wait for approval ended."""
    ran: _Cleared | None = None
    """The call as it was made; None if it did not run."""


def _build_end(
    result: ToolCallResult, duration: float, call: ToolCallRequest, target: tuple[str, str], attempt: _Attempt
) -> ToolCallFinished:
    """Return the event at the end of a call; it names the changes if a middleware or an approver changed the call.

    Args:
        result: The result of the call.
        duration: The duration of the call in seconds.
        call: The call as in its `ToolCallStarted`.
        target: The server and the tool of `call`.
        attempt: The call as it was made.
    """
    server, tool = target
    if (ran := attempt.ran) is None:
        return ToolCallFinished(result, server, duration)
    changed = dict(ran.call.arguments) if ran.call.arguments != call.arguments else None
    spec = ran.route.spec
    changed_tool = spec.tool if (spec.server, spec.tool) != (server, tool) else None
    return ToolCallFinished(result, spec.server, duration, changed_arguments=changed, changed_tool=changed_tool)


def _to_finite(number: float | None) -> float | None:
    """Return a finite number; None for infinity and NaN, which servers may send but JSON does not allow."""
    return number if number is not None and math.isfinite(number) else None
