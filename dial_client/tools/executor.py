"""Runs the calls of one round. Each call is validated, approved, made, checked for untrusted content, and shortened.

The order matters: only arguments that fit the tool's schema are shown to the approver, and nothing changes them after
the approval. A failed call has a result too.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from dial_client.hooks import call_context
from dial_client.hooks.audit.entries import CallAudit, Origin, TurnAudit
from dial_client.hooks.call_context import CallContext, Caller, CallTask, InputRequired, Spend, TurnScope
from dial_client.hooks.middleware import MiddlewareChain, ToolCall
from dial_client.messages.errors import ServerError
from dial_client.messages.events import AppOpened, Emit, Event, ToolCallFinished, ToolCallProgress, ToolCallStarted
from dial_client.messages.limits import Limits
from dial_client.messages.mcp_apps import App
from dial_client.messages.message import (
    NO_OUTPUT,
    NOT_ALLOWED,
    Failure,
    PendingApproval,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    build_not_run_result,
    build_waiting_result,
    extract_text,
)
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import sanitize
from dial_client.runtime.text import find_nearest_by_words
from dial_client.schema import tool_arguments
from dial_client.servers.connection import Connection
from dial_client.servers.server_cache import build_definition, compare_definitions
from dial_client.servers.session import OnCallProgress, to_tool_error
from dial_client.tools import result_content
from dial_client.tools.agent_progress import AgentProgress
from dial_client.tools.approval import Approval, ApprovalChecker, Decision, FailedApproval
from dial_client.tools.background_calls import CALL_IN_BACKGROUND, BackgroundCall, BackgroundCalls
from dial_client.tools.catalog import Catalog, Route
from dial_client.tools.result_content import StoreResult, add_change_note, shorten
from dial_client.tools.taint import Taint, find_taint_source

if TYPE_CHECKING:
    from mcp_types import CallToolResult

log = get_logger(__name__)

# Maximum characters of the one-line text of a failure; the model reads a longer text.
MAX_ERROR_CHARS = 500

# Maximum number of times a call is validated and approved if its tool keeps changing.
_MAX_CHANGES = 3
# Maximum number of parameters that an error names.
_MAX_NAMED = 20
# Maximum number of tools that an error names.
_MAX_TOOLS = 30
# Maximum characters of the arguments changed by the user that the model reads.
_MAX_CHANGED_CHARS = 4_000
_NO_REASON = "The tool failed without saying why."
_CANCELLED_TASK = "The call failed: a task that it waited for was cancelled."
_TIME_IS_OVER = "Stopped: the time for this turn is over."
# Who has decided about a call that an earlier process has made, in the audit log.
_EARLIER_RUN = "earlier run"


async def _ignore(_: Any) -> None:
    pass


def _ignore_note(_: str) -> None:
    pass


# Receives a result as the server sent it.
ReceiveToolResult = Callable[["CallToolResult"], None]


# Calls that waited for approval when their turn ended, by id: what was asked, and the answer if there is one.
WaitingCalls = Mapping[str, tuple[PendingApproval, Approval | None]]


# Nothing changes the objects below. They are made for each call, and frozen ones would take five times as long to make.
@dataclass(eq=False, slots=True)
class CallScope:
    """The objects that calls share with their turn."""

    store_result: StoreResult | None = None
    """Stores the full text of results that are too long for the model; None if the model cannot read stored results."""
    hold: Callable[[PendingApproval], Awaitable[None]] = _ignore
    """Called before the approver is asked about a call; returns when it is stored that the call has not run."""
    release: Callable[[str], Awaitable[None]] = _ignore
    """Called with the id of a call before it runs; returns when it is stored that a held call may have run."""
    spend: Spend | None = None
    """Receives the tokens of sampling requests that servers send during a call."""
    taint: Taint | None = None
    """The taint of the conversation, to which the results of calls add. None for calls that the user makes."""
    note: Callable[[str], None] = _ignore_note
    """Receives notes for the user of the turn."""
    receive: ReceiveToolResult | None = None
    """Receives each result as the server sent it, for a caller that passes it on. Its `ToolCallResult` then has no
    content, unless a middleware reads it: content for a model is not made for nobody. None for calls of models."""
    explain_denial: Callable[[ToolSpec, Approval], str] | None = None
    """Returns the text of a call that was denied; None for the usual text, which is for a model."""
    meta: Mapping[str, Any] | None = None
    """The ``_meta`` of the request to the server; None for none."""
    caller: Caller | None = None
    """The client of a gateway that makes the calls, and that answers the requests of servers during them."""
    turn: TurnScope = TurnScope()  # noqa: RUF009 - frozen
    background: BackgroundCalls | None = None
    """Keeps the calls that go to the background; None to wait for every call."""
    agents: AgentProgress | None = None
    """Stores what agents do that the calls run; None for calls outside of a turn."""


@dataclass(eq=False, slots=True)
class ToolExecutor:
    """Runs calls of the tools in the current catalog."""

    catalog: Callable[[], Catalog]
    """Returns the current catalog."""
    approvals: ApprovalChecker
    """Approves or denies each call before it runs."""
    limits: Limits
    """The limits of the turn."""
    scope: CallScope = field(default_factory=CallScope)
    audit: TurnAudit = field(default_factory=TurnAudit)
    """Records each decision and each call."""
    middleware: MiddlewareChain = field(default_factory=MiddlewareChain)
    """Wraps each call within the limit of calls per round."""

    def derive(self, catalog: Callable[[], Catalog], scope: CallScope, origin: Origin) -> ToolExecutor:
        """Return an executor for other tools and another origin, with the same approvals, limits and middleware."""
        audit = TurnAudit(self.audit.recorder, origin)
        return ToolExecutor(catalog, self.approvals, self.limits, scope, audit, self.middleware)

    def add_taint(self, source: str) -> None:
        """Add a source of untrusted content that is not a call of this executor; an empty text is ignored."""
        if self.scope.taint is not None:
            self.scope.taint.add(source)

    async def execute_all(
        self,
        calls: Sequence[ToolCallRequest],
        emit: Emit,
        deadline: Deadline,
        waiting: WaitingCalls = MappingProxyType({}),
    ) -> tuple[ToolCallResult, ...]:
        """Run the calls of a round concurrently, at most `Limits.max_parallel` at once.

        Returns one result for each call, in the order of the calls. Does not raise if a tool fails. At the timeout of
        the turn, running calls are cancelled at their servers, and their results say so. The calls in `waiting` are
        decided again, with the answers that were given meanwhile.
        """
        round_ = self._begin_round(emit, deadline, waiting)
        if len(calls) == 1:
            return (await self._execute(calls[0], round_, is_over_limit=False, is_alone=True),)
        results: dict[int, ToolCallResult] = {}
        slots = anyio.Semaphore(self.limits.max_parallel, fast_acquire=True)

        async def run(index: int, call: ToolCallRequest) -> None:
            async with slots:
                is_over_limit = index >= self.limits.max_calls_per_round
                results[index] = await self._execute(call, round_, is_over_limit=is_over_limit)

        async with anyio.create_task_group() as group:
            for index, call in enumerate(calls):
                group.start_soon(run, index, call)
        return tuple(results[index] for index in range(len(calls)))

    async def execute(self, call: ToolCallRequest, emit: Emit, deadline: Deadline) -> ToolCallResult:
        """Run one call."""
        return (await self.execute_all([call], emit, deadline))[0]

    async def execute_here(
        self,
        call: ToolCallRequest,
        emit: Emit,
        deadline: Deadline,
        waiting: WaitingCalls = MappingProxyType({}),
        *,
        tells_ends: bool = True,
    ) -> ToolCallResult:
        """Run one call in the task of the caller, which is for this call alone. Arguments as for `execute_all`.

        Without `tells_ends`, no event is emitted for the beginning and the end of the call.
        """
        round_ = self._begin_round(emit, deadline, waiting, tells_ends=tells_ends)
        return await self._execute(call, round_, is_over_limit=False)

    def _begin_round(self, emit: Emit, deadline: Deadline, waiting: WaitingCalls, *, tells_ends: bool = True) -> _Round:
        # The model requested all calls of a round before it read any of their results, so no result of this round can
        # have misled it.
        taint = self.scope.taint.sources if self.scope.taint is not None else ()
        is_wrapped = self.middleware.wraps_tool_calls
        return _Round(emit, deadline, deadline, taint, dict(waiting), is_wrapped, tells_ends=tells_ends)

    async def _execute(
        self, call: ToolCallRequest, round_: _Round, *, is_over_limit: bool, is_alone: bool = False
    ) -> ToolCallResult:
        """Run one call between its two events.

        Args:
            call: The call.
            round_: Its round.
            is_over_limit: Whether the round has too many calls.
            is_alone: Whether the task of the caller is not for this call alone.
        """
        route = self.catalog().routes.get(call.name)
        call, fits = _normalize_arguments(call, route) if route else (call, False)
        is_at_once = call.name == CALL_IN_BACKGROUND
        while call.name == CALL_IN_BACKGROUND and fits:
            # From here on it is the other call, in every rule, question, event and record.
            call = replace(call, name=call.arguments["tool"], arguments=call.arguments["arguments"])
            route = self.catalog().routes.get(call.name)
            call, fits = _normalize_arguments(call, route) if route else (call, False)
        server, tool = (route.spec.server, route.spec.tool) if route else ("", "")
        if round_.tells_ends:
            await round_.emit(ToolCallStarted(call, server, tool))
        started_at = time.monotonic()
        make = self._attempt_in_middleware if round_.is_wrapped else partial(self._attempt, fits=fits)
        try:
            if is_over_limit:
                limit = self.limits.max_calls_per_round
                why = f"one reply may make {limit} calls. Ask again for what is still needed."
                attempt = _Attempt(build_not_run_result(call.id, why), started_at)
                with self.audit.call(call, route.spec if route else None) as audit:
                    audit.record_result(attempt.result)
            elif (
                route is not None
                and (seconds := self._find_background_after(route, round_, is_at_once=is_at_once)) is not None
            ):
                attempt = await self._attempt_beside(partial(make, call, route), call, route, round_, seconds)
            elif is_alone:
                attempt = await _run_apart(partial(make, call, route, round_))
            else:
                attempt = await make(call, route, round_)
        except anyio.get_cancelled_exc_class():
            # An approver or a middleware may await a cancelled task; the turn continues unless it is cancelled itself.
            await anyio.lowlevel.checkpoint_if_cancelled()
            attempt = _Attempt(ToolCallResult.failed(call.id, Failure.TOOL, _CANCELLED_TASK), started_at)
        result = self.shorten(attempt.result)
        self.add_taint(result.taint)
        duration = time.monotonic() - attempt.started_at
        log.debug("tool_call", tool=call.name, server=server, ok=result.success, duration=round(duration, 4))
        if round_.tells_ends:
            await round_.emit(_build_end(result, duration, call, (server, tool), attempt))
        return result

    def _find_background_after(self, route: Route, round_: _Round, *, is_at_once: bool) -> float | None:
        """Return the seconds after which a call goes to the background; None if it cannot."""
        background, spec = self.scope.background, route.spec
        # The host's own tools end soon, and an app shows the result of its own call.
        if background is None or background.tasks is None or not spec.server or spec.app_uri:
            return None
        settings = route.connection.settings
        own = None if settings is None else settings.find_background_after(spec.tool)
        if own == math.inf:  # also if the model asks for it: the rights of an agent are those of a turn that runs
            return None
        seconds = 0.0 if is_at_once else self.limits.background_after if own is None else own
        is_full = sum(call.result is None for call in background.calls) >= self.limits.max_parallel
        return None if is_full or seconds >= round_.deadline.seconds_left else seconds

    async def _attempt_beside(
        self,
        make: Callable[[_Round], Awaitable[_Attempt]],
        call: ToolCallRequest,
        route: Route,
        round_: _Round,
        seconds: float,
    ) -> _Attempt:
        """Make a call in a task of the client, and wait for its end, but no longer than `seconds`."""
        background = self.scope.background
        assert background is not None and background.tasks is not None
        moving: BackgroundCall[_Attempt] = BackgroundCall(call, route.spec.server, self.audit.origin.turn)

        async def emit(event: Event) -> None:
            # The turn, and the display of the call, may have ended since.
            if not moving.is_moved:
                await round_.emit(event)

        waiting, is_wrapped = round_.waiting, round_.is_wrapped
        own = _Round(emit, round_.deadline, moving.limit, round_.taint, waiting, is_wrapped, moving)
        background.tasks.start_soon(moving.run, partial(make, own), attrgetter("result"))
        await moving.wait_in_round(round_.deadline, seconds)
        if moving.is_moved:
            return _Attempt(background.keep(moving), moving.started_at)
        if moving.error is not None:
            raise moving.error
        return moving.attempt or _Attempt(
            ToolCallResult.failed(call.id, Failure.TOOL, _CANCELLED_TASK), moving.started_at
        )

    def poll_open_tasks(self) -> None:
        """Go on with the calls of earlier processes whose tasks are open, as calls in the background.

        The calls are not made and not approved again, and their results are audited, changed by middleware, and
        untrusted, as any other. A task stays open if its tool is not known, such as while its server starts.
        """
        background = self.scope.background
        if background is None or background.tasks is None or not background.open_tasks:
            return
        routes = self.catalog().by_key
        for record in tuple(background.open_tasks.values()):
            if (route := routes.get((record.server, record.tool))) is None:
                continue
            del background.open_tasks[record.id]
            task = CallTask(record.task, is_left=lambda: background.is_left)
            moving: BackgroundCall[_Attempt] = BackgroundCall(
                record.call, record.server, record.turn, id=record.id, is_moved=True, is_resumed=True, task=task
            )
            round_ = self._begin_round(_ignore, moving.limit, {})
            round_ = replace(round_, moving=moving, task=task)
            make = self._attempt_in_middleware if round_.is_wrapped else self._attempt
            background.tasks.start_soon(moving.run, partial(make, record.call, route, round_), attrgetter("result"))
            background.keep(moving)

    async def _attempt_in_middleware(self, call: ToolCallRequest, route: Route | None, round_: _Round) -> _Attempt:
        """Let the middleware change, make or answer a call within the timeout of the turn; the call's id stays."""
        attempts: list[_Attempt] = []
        is_begun = False

        async def attempt(changed: ToolCall) -> ToolCallResult:
            nonlocal is_begun
            is_begun = True
            request, changed_route, fits = replace(changed.request, id=call.id), route, False
            if round_.task is not None:
                request = call  # it was made, and nothing can change it any more
            elif (changed_route := self.catalog().routes.get(request.name)) is not None:
                request, fits = _normalize_arguments(request, changed_route)
            attempts.append(await self._attempt(request, changed_route, round_, fits=fits))
            return attempts[-1].result

        started_at = time.monotonic()
        result = ToolCallResult.failed(call.id, Failure.TIMEOUT, _TIME_IS_OVER)
        origin = self.audit.origin
        spec = route.spec if route else None
        with round_.limit.scope():
            tool_call = ToolCall(
                request=call, spec=spec, turn_id=origin.turn, conversation_id=origin.conversation, owner=origin.owner
            )
            result = await self.middleware.call_tool(tool_call, attempt)
        if not is_begun:
            # No call was made: the middleware has answered or refused it.
            with self.audit.call(call, spec) as audit:
                is_allowed = result.failure is not Failure.DENIED
                audit.record_decision(is_allowed=is_allowed, decided_by=result.decided_by or "middleware")
                audit.record_result(result)
        # A middleware may answer with an earlier result of the tool, or change an untrusted text.
        sources = [attempt.result.taint for attempt in attempts] or [find_taint_source(call, result, route)]
        source = result.taint or next(filter(None, sources), "")
        last = attempts[-1] if attempts else _Attempt(result, started_at)
        return replace(last, result=replace(result, tool_call_id=call.id, taint=source))

    async def _attempt(
        self, call: ToolCallRequest, route: Route | None, round_: _Round, *, fits: bool = False
    ) -> _Attempt:
        """Validate, approve, make and audit one call within the timeout of the turn.

        Args:
            call: The call.
            route: The route to its tool; None for an unknown tool.
            round_: Its round.
            fits: Whether the arguments are known to fit the schema of the route.
        """
        cleared: _Cleared | None = None
        started_at = time.monotonic()
        with self.audit.call(call, route.spec if route else None) as audit:
            with round_.limit.scope() as scope:
                if round_.task is not None and route is not None:
                    decision: _Cleared | ToolCallResult = _Cleared(route, call)
                    audit.record_decision(is_allowed=True, decided_by=_EARLIER_RUN)
                else:
                    decision = await self._clear(call, route if fits else None, round_, audit)
                started_at = time.monotonic()
                if isinstance(decision, ToolCallResult):
                    result = decision
                else:
                    cleared = decision
                    # The host's own tools wait for nobody; a program that goes on has run only once a call of it runs.
                    if round_.task is None and cleared.route.spec.server:
                        await self.scope.release(call.id)
                    answer = await self._call(cleared.call, cleared.route, round_, audit)
                    result = _add_note_of_changes(answer, call, cleared.call)
            if scope.cancelled_caught:
                result = ToolCallResult.failed(call.id, Failure.TIMEOUT, _TIME_IS_OVER)
            audit.record_result(result)
        # Of an agent, only the result itself says what the agent has read.
        source = find_taint_source(call, result, cleared.route if cleared is not None else None) or result.taint
        if source != result.taint:
            result = replace(result, taint=source)
        return _Attempt(result, started_at, cleared)

    async def _clear(
        self, call: ToolCallRequest, route: Route | None, round_: _Round, audit: CallAudit
    ) -> _Cleared | ToolCallResult:
        """Return the call that may run, whose arguments the approver may have changed, or the result with a refusal.

        While the user decides, or a lazy server starts, the tool may change. The call is then checked again. Its
        `route` is None if the arguments are not known to fit.
        """
        change = ""
        for _ in range(_MAX_CHANGES):
            if route is None:
                catalog = self.catalog()
                route = catalog.routes.get(call.name)
                if (problem := _find_problem(call, route, catalog)) is not None:
                    return problem
                assert route is not None
            approval = await self._approve(call, route, round_, change, audit)
            if isinstance(approval, ToolCallResult):
                return approval
            if approval.arguments is not None:
                # The user may have made a mistake too: the changed arguments are validated like the model's.
                call = replace(call, arguments=approval.arguments)
                if (problem := _find_problem(call, route, self.catalog())) is not None:
                    return problem
            if isinstance(route.connection, Connection):
                # A lazy server starts only after the approval, and may list another definition than the cached one.
                await route.connection.wake()
            current = self.catalog().routes.get(call.name)
            if current is None:
                return _Cleared(route, call)  # the call itself then fails, because the server or tool is gone
            # The user has approved the definition that was shown. If the tool is another one now, this is asked again.
            same = current is route
            change = "" if same else compare_definitions(build_definition(route.spec), build_definition(current.spec))
            if not change:
                return _Cleared(current, call)
            route = None
        return ToolCallResult.failed(call.id, Failure.SERVER, "The call failed: the tool definition keeps changing.")

    def _deny(self, call: ToolCallRequest, spec: ToolSpec, approval: Approval) -> ToolCallResult:
        """Return the result of a call that was not allowed."""
        if self.scope.explain_denial is not None:
            text = self.scope.explain_denial(spec, approval)
        else:
            text = f"{NOT_ALLOWED}: {approval.reason}." if approval.reason else f"{NOT_ALLOWED}."
        denied = ToolCallResult.failed(call.id, Failure.DENIED, text)
        if not isinstance(approval, FailedApproval):
            return denied
        self.scope.note(f"the call of {call.name!r} was denied: {approval.problem}")
        return replace(denied, exception=approval.exception)

    async def _approve(
        self, call: ToolCallRequest, route: Route, round_: _Round, change: str, audit: CallAudit
    ) -> Approval | ToolCallResult:
        """Return the approval of a call, by a rule or by the approver, or the result of a call that may not run."""
        spec, taint = route.spec, round_.taint
        # A decision counts once: a middleware may make the call again, which is another call for the approver.
        earlier, answer = round_.waiting.pop(call.id, (None, None))
        is_attended, origin = None if earlier is None else True, self.audit.origin
        approval = self.approvals.decide(spec, call.arguments, taint, change, origin, is_attended=is_attended)
        if approval is None or (answer is not None and approval.allowed):
            question = self.approvals.describe(call, spec, taint, change, earlier, origin)
            if earlier is not None and question.id != earlier.id:
                change = question.change
                answer = None if answer is None or answer.allowed else answer
            await self.scope.hold(question)
            audit.record_question()
            # The user's time to decide does not count towards the timeout of the turn.
            with round_.deadline.pause():
                approval = await self.approvals.ask(call, spec, taint, change, self.audit.origin, question, answer)
            if approval.decision is Decision.DEFER:
                audit.record_decision(is_allowed=None, decided_by=approval.decided_by)
                return build_waiting_result(question)
        if approval.arguments is not None:
            # Corrected in the same way as the model's arguments, before the deny rules see the values that are sent.
            changed, _ = _normalize_arguments(replace(call, arguments=dict(approval.arguments)), route)
            approval = self.approvals.decide_changed(spec, replace(approval, arguments=changed.arguments), taint)
        audit.record_decision(is_allowed=approval.allowed, decided_by=approval.decided_by, arguments=approval.arguments)
        return approval if approval.allowed else self._deny(call, spec, approval)

    async def _call(self, call: ToolCallRequest, route: Route, round_: _Round, audit: CallAudit) -> ToolCallResult:
        """Make a call within its own timeout, which each progress notification of the server restarts."""
        await round_.limit.checkpoint()  # no call starts after the timeout of the turn
        settings = route.connection.settings
        own_timeout = settings.tool_timeout if settings is not None else None
        timeout = self.limits.tool_timeout if own_timeout is None else own_timeout
        call_deadline = Deadline(timeout, max(timeout, self.limits.tool_timeout_max))
        moving, shared = round_.moving, self.scope
        task = round_.task
        if task is None and shared.background is not None:
            task = shared.background.watch_task(route.spec, call, self.audit.origin.turn, moving)
        context = CallContext(
            round_.deadline,
            call_deadline,
            shared.spend,
            self.audit.origin,
            shared.meta,
            shared.caller,
            shared.turn,
            round_.taint,
            task,
            call_id=call.id,
            emit=round_.emit,
            agents=shared.agents,
        )
        if moving is not None:
            moving.begin(call_deadline)
        with call_deadline.scope() as scope, call_context.set_current(context):
            is_over = False

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                if moving is not None and moving.is_moved:
                    moving.note_progress(f"{progress:g} of {total:g}" if total else f"{progress:g}")
                elif not is_over:
                    call_deadline.restart(timeout)
                    text = message and sanitize(message)
                    progressed = ToolCallProgress(call.id, _to_finite(progress) or 0.0, _to_finite(total), text)
                    await round_.emit(progressed)

            spec = route.spec
            app = App(call.id, spec.server, spec.tool, spec.app_uri, call.arguments) if spec.app_uri else None
            if app is not None:
                await round_.emit(AppOpened(app))
            try:
                receive = self.scope.receive
                if receive is not None and not round_.is_wrapped:
                    result = await _pass_on(call, route, on_progress, receive, audit)
                else:
                    result = await _make_call(call, route, on_progress, app, receive)
            finally:
                is_over = True
        if scope.cancelled_caught:
            seconds = timeout if moving is None or not moving.is_moved else max(timeout, self.limits.tool_timeout_max)
            error = f"The tool gave no result within {seconds:g} seconds."
            return ToolCallResult.failed(call.id, Failure.TIMEOUT, error)
        return result

    def shorten(self, result: ToolCallResult) -> ToolCallResult:
        """Shorten a result to the limits for the model and for a log line."""
        error = result.error
        if error is not None and (len(error) > MAX_ERROR_CHARS or "\n" in error):
            error = " ".join(error[:MAX_ERROR_CHARS].split())
        content = shorten(result.content, self.limits.max_result_chars, self.scope.store_result)
        is_same = content is result.content and error is result.error
        return result if is_same else replace(result, content=content, error=error)


@dataclass(eq=False, slots=True)
class _Round:
    """What the calls of one round share."""

    emit: Emit
    deadline: Deadline
    """The deadline of the turn."""
    limit: Deadline
    """The deadline at which calls end: that of the turn, unless a call may go to the background."""
    taint: tuple[str, ...]
    """The untrusted sources that the model had read when it requested the calls."""
    waiting: dict[str, tuple[PendingApproval, Approval | None]]
    """As `WaitingCalls`, without the calls that were decided in this round."""
    is_wrapped: bool
    """True if middleware wraps the calls, or measures them."""
    moving: BackgroundCall[_Attempt] | None = None
    """The only call of this round, if it may go to the background."""
    task: CallTask | None = None
    """The task of the only call of this round, which an earlier process has made; None for calls that are made."""
    tells_ends: bool = True
    """True if events tell the beginning and the end of each call."""


@dataclass(eq=False, slots=True)
class _Cleared:
    """A call that may run, with the route to its tool."""

    route: Route
    call: ToolCallRequest


@dataclass(eq=False, slots=True)
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


async def _run_apart(make: Callable[[], Awaitable[_Attempt]]) -> _Attempt:
    """Make a call in a task of its own: what a tool sets in its context must not reach later calls."""
    attempts: list[_Attempt] = []

    async def run() -> None:
        attempts.append(await make())

    async with anyio.create_task_group() as group:
        group.start_soon(run)
    if not attempts:  # the call has awaited a cancelled task, which a task group does not report
        raise anyio.get_cancelled_exc_class()
    return attempts[0]


def _to_finite(number: float | None) -> float | None:
    """Return a finite number; None for infinity and NaN, which servers may send but JSON does not allow."""
    return number if number is not None and math.isfinite(number) else None


def _normalize_arguments(call: ToolCallRequest, route: Route) -> tuple[ToolCallRequest, bool]:
    """Return the call with invalid JSON of its arguments repaired, and harmless type mismatches corrected.

    The second value is whether it fits now. A call that does not is unchanged; `_find_problem` reports it.
    """
    if call.unreadable is not None:
        parsed = tool_arguments.parse_arguments(call.unreadable)
        if parsed is None:
            # The last object is the most complete; an empty one says nothing if another one fits.
            objects = tool_arguments.parse_object_sequence(call.unreadable)
            candidates = (*filter(None, reversed(objects)), *objects)
            parsed = next((value for value in candidates if _fit(value, route) is not None), None)
        if parsed is None:
            return call, False
        call = replace(call, arguments=parsed, unreadable=None)
    arguments = _fit(call.arguments, route)
    if arguments is None or arguments is call.arguments:
        return call, arguments is not None
    return replace(call, arguments=arguments), True


def _fit(arguments: Mapping[str, Any], route: Route) -> Mapping[str, Any] | None:
    """Return the arguments, with harmless mismatches corrected, if they fit the schema; None if they do not fit."""
    if not route.check.find_problems(arguments):
        return arguments
    # Only harmless mismatches are corrected ("5" for 5), and only if the result fits: guesses would run unasked calls.
    coerced = tool_arguments.coerce(arguments, route.spec.original_schema or route.spec.input_schema)
    return None if route.check.find_problems(coerced) else coerced


def _find_problem(call: ToolCallRequest, route: Route | None, catalog: Catalog) -> ToolCallResult | None:
    """Return the failure of an invalid call; None for a valid call."""
    if route is None:
        return ToolCallResult.failed(call.id, Failure.UNKNOWN_TOOL, _describe_unknown_tool(call.name, catalog))
    if call.unreadable is not None:
        problem = "The arguments are not a JSON object"
    elif problems := route.check.find_problems(call.arguments):
        problem = f"The arguments do not fit: {'; '.join(problems)}"
    else:
        return None
    return ToolCallResult.failed(call.id, Failure.BAD_ARGUMENTS, f"{problem}. {_describe_arguments(route)}")


def _describe_arguments(route: Route) -> str:
    properties = route.spec.input_schema.get("properties", {})
    required = route.spec.input_schema.get("required", [])
    names = [f"{name}{'' if name in required else ' (optional)'}" for name in list(properties)[:_MAX_NAMED]]
    return f"Expected a JSON object with: {', '.join(names)}." if names else "Expected an empty JSON object."


def _describe_unknown_tool(name: str, catalog: Catalog) -> str:
    if not catalog.routes:
        return f"There is no tool {name!r}; no tools are available."
    if nearest := find_nearest_by_words(name, catalog.routes):
        return f"There is no tool {name!r}. Did you mean {nearest!r}?"
    return f"There is no tool {name!r}. Available are: {', '.join(list(catalog.routes)[:_MAX_TOOLS])}."


def _build_failure(call: ToolCallRequest, error: Exception) -> ToolCallResult:
    """Return the result of a call that raised: of a server's error its text, of any other one only the type."""
    if isinstance(error, InputRequired):
        return replace(build_not_run_result(call.id, "the server asks something first."), exception=error)
    if isinstance(error, ServerError):
        return ToolCallResult.failed(call.id, Failure.SERVER, to_tool_error(error))
    log.failure("tool_call_broke", error, tool=call.name)
    failed = ToolCallResult.failed(call.id, Failure.SERVER, f"The call failed: {type(error).__name__}.")
    return replace(failed, exception=error)


async def _pass_on(
    call: ToolCallRequest, route: Route, on_progress: OnCallProgress, receive: ReceiveToolResult, audit: CallAudit
) -> ToolCallResult:
    """Make a call, and hand its result on as it is; return whether it succeeded, without any content.

    The error of a server is the `exception` of the result.
    """
    try:
        answer = await route.connection.call(route.spec.tool, call.arguments, on_progress)
    except Exception as error:  # noqa: BLE001 - an unexpected error in one call must not end the others
        return replace(_build_failure(call, error), exception=error)
    if isinstance(answer, ToolCallResult):
        return replace(answer, tool_call_id=call.id)
    receive(answer)
    audit.record_size(result_content.measure_answer(answer))
    if answer.is_error:
        return ToolCallResult(call.id, success=False, content="", error=_NO_REASON, failure=Failure.TOOL)
    return ToolCallResult(call.id, success=True, content="")


async def _make_call(
    call: ToolCallRequest,
    route: Route,
    on_progress: OnCallProgress,
    app: App | None,
    receive: ReceiveToolResult | None = None,
) -> ToolCallResult:
    """Return the result of a call; an error of the server or of its connection becomes a failed result."""
    try:
        answer = await route.connection.call(route.spec.tool, call.arguments, on_progress)
        if isinstance(answer, ToolCallResult):
            return replace(answer, tool_call_id=call.id)
        if receive is not None:
            receive(answer)
        structured, remark = answer.structured_content, ""
        is_checked = structured is not None and not answer.is_error and bool(route.spec.output_schema)
        # A structured result that does not fit the tool's output schema is used anyway, with a note.
        if is_checked and (problems := route.output_check.find_problems(structured)):
            remark = f"[The structured result does not fit what the tool promises: {'; '.join(problems)}]"
        content = result_content.to_content(answer, remark)
        app = app and app.with_result(answer.model_dump(mode="json", by_alias=True, exclude_none=True))
    except Exception as error:  # noqa: BLE001 - an unexpected error in one call must not end the others
        return _build_failure(call, error)
    if not answer.is_error:
        return ToolCallResult(call.id, success=True, content=content, app=app, value=structured)
    if content == NO_OUTPUT:
        return replace(ToolCallResult.failed(call.id, Failure.TOOL, _NO_REASON), app=app, value=structured)
    from dial_client.runtime.error_lines import summarize_error

    summary = summarize_error(extract_text(content)) or _NO_REASON
    failed = ToolCallResult(call.id, success=False, content=content, error=summary, failure=Failure.TOOL, app=app)
    return replace(failed, value=structured)


def _add_note_of_changes(result: ToolCallResult, requested: ToolCallRequest, ran: ToolCallRequest) -> ToolCallResult:
    """Return the result of a call, after a note if the call ran with other arguments than the model requested.

    Args:
        result: The result of the call.
        requested: The call as the model requested it.
        ran: The call as it was made.
    """
    before, after = requested.arguments, ran.arguments
    if before == after:
        return result
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    text = json.dumps(changed, ensure_ascii=False, default=str)
    removed = [name for name in before if name not in after]
    omitted = f" … ({len(text) - _MAX_CHANGED_CHARS:,} more characters)" if len(text) > _MAX_CHANGED_CHARS else ""
    without = f", without {', '.join(removed)}" if removed else ""
    unchanged = ", and the other arguments unchanged" if len(changed) < len(after) else ""
    changes = f"{text[:_MAX_CHANGED_CHARS]}{omitted}{without}{unchanged}"
    return replace(result, content=add_change_note(result.content, changes))
