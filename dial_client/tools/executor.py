"""Carries out the calls of one round: find, check, ask permission, call, cut to size. A failure is a result too."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from dial_client import call_context
from dial_client.audit.call_audit import CallAudit, TurnAudit
from dial_client.call_context import CallContext, Spend
from dial_client.deadline import Deadline
from dial_client.errors import ServerError
from dial_client.events import Emit, ToolCallFinished, ToolCallProgress, ToolCallStarted
from dial_client.limits import Limits
from dial_client.logs import get_logger
from dial_client.messages import NO_OUTPUT, NOT_ALLOWED, Failure, ToolCallRequest, ToolCallResult, text_of
from dial_client.schema import tool_arguments
from dial_client.servers.connection import Connection
from dial_client.servers.session_calls import OnProgress
from dial_client.servers.session_errors import to_tool_error
from dial_client.servers.tool_pins import definition, difference
from dial_client.text.safe_text import safe
from dial_client.tools import result_content
from dial_client.tools.approval import ApprovalChecker
from dial_client.tools.catalog import Catalog, Route
from dial_client.tools.taint import Taint, source_of
from dial_client.tools.tool_selection import Keep, shortened

if TYPE_CHECKING:
    from mcp_types import CallToolResult

log = get_logger(__name__)

MAX_ERROR_CHARS = 500
"""Characters of a failure's one line; the model reads more of it."""

_MAX_CHANGES = 3
"""How often a call is looked at anew because its tool has become another one."""
_SILENT = "The tool failed without saying why."


@dataclass(frozen=True, slots=True)
class CallScope:
    """What calls share with the turn they are for."""

    keep: Keep | None = None
    """Where results go whole that are too long for the model; None where nobody could read them."""
    unallowed: set[str] = field(default_factory=set)
    """The ids of calls that wait for permission, also when they are cancelled there."""
    spend: Spend | None = None
    """Is told what servers make a model read and write for a call."""
    taint: Taint | None = None
    """Of the conversation; grows with the results of calls. None for calls a person makes."""


class ToolExecutor:
    """Runs calls against the catalogue of the moment.

    Args:
        catalog: gives it.
        approvals: what every call passes before it runs.
        limits: of the turn.
        scope: the turn the calls are for.
        audit: records each decision and each call.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        approvals: ApprovalChecker,
        limits: Limits,
        scope: CallScope | None = None,
        audit: TurnAudit | None = None,
    ) -> None:
        self._catalog = catalog
        self._approvals = approvals
        self._limits = limits
        self._scope = scope or CallScope()
        self.audit = audit or TurnAudit()

    async def execute_all(
        self, calls: Sequence[ToolCallRequest], emit: Emit, deadline: Deadline
    ) -> tuple[ToolCallResult, ...]:
        """Run the calls of a round side by side, at most `Limits.max_parallel` at once.

        Gives one result for each call, in their order. Raises nothing for a tool; when the turn's time is over, the
        calls that still run are cancelled at their servers and say so in their results.
        """
        done: dict[int, ToolCallResult] = {}
        # The model asked for all calls of a round before it had read any of their results.
        taint = self._scope.taint.sources if self._scope.taint is not None else ()
        places = anyio.CapacityLimiter(self._limits.max_parallel)

        async def one(index: int, call: ToolCallRequest) -> None:
            async with places:
                too_many = index >= self._limits.max_calls_per_round
                done[index] = await self._run(call, emit, deadline, taint, too_many=too_many)

        async with anyio.create_task_group() as group:
            for index, call in enumerate(calls):
                group.start_soon(one, index, call)
        return tuple(done[index] for index in range(len(calls)))

    async def execute(self, call: ToolCallRequest, emit: Emit, deadline: Deadline) -> ToolCallResult:
        """Run one call."""
        return (await self.execute_all([call], emit, deadline))[0]

    async def _run(
        self, call: ToolCallRequest, emit: Emit, deadline: Deadline, taint: tuple[str, ...], *, too_many: bool = False
    ) -> ToolCallResult:
        route = self._catalog().routes.get(call.name)
        call = _as_meant(call, route) if route else call
        server = route.spec.server if route else ""
        await emit(ToolCallStarted(call, server, route.spec.tool if route else ""))
        result: ToolCallResult | None = None
        began = time.monotonic()
        with self.audit.call(call, route.spec if route else None) as audit:
            with deadline.scope():
                if too_many:
                    route, result = None, self._beyond(call)
                else:
                    route, result = await self._cleared(call, deadline, taint, audit)
                began = time.monotonic()
                if result is None and route is not None:
                    result = await self._call(call, route, emit, deadline)
            if result is None:
                result = ToolCallResult.failed(call.id, Failure.TIMEOUT, "Stopped: the time for this turn is over.")
            audit.finished(result)
        result = replace(self._cut(result), taint=source_of(call, result, route))
        if self._scope.taint is not None:
            self._scope.taint.add(result.taint)
        duration = time.monotonic() - began
        log.debug("tool_call", tool=call.name, server=server, ok=result.success, seconds=round(duration, 4))
        await emit(ToolCallFinished(result, server, duration))
        return result

    def _beyond(self, call: ToolCallRequest) -> ToolCallResult:
        why = (
            f"Not run: one reply may make {self._limits.max_calls_per_round} calls. Ask again for what is still needed."
        )
        return ToolCallResult.failed(call.id, Failure.NOT_RUN, why)

    async def _cleared(
        self, call: ToolCallRequest, deadline: Deadline, taint: tuple[str, ...], audit: CallAudit
    ) -> tuple[Route, None] | tuple[None, ToolCallResult]:
        """Find, check and ask until the tool that is there is the one that was asked about, and its server runs.

        While a person thinks, or a server that slept is started, a tool may become another one.
        """
        change = ""
        for _ in range(_MAX_CHANGES):
            catalog = self._catalog()
            route = catalog.routes.get(call.name)
            if route is not None and change:
                route = Route(route.connection, replace(route.spec, change=change))
            refusal = self._problem(call, route, catalog)
            if refusal is None and route is not None:
                refusal = await self._denial(call, route, deadline, taint, audit)
            if refusal is not None:
                return None, refusal
            assert route is not None
            if isinstance(route.connection, Connection):
                await route.connection.wake()
            now = self._catalog().routes.get(call.name)
            change = difference(definition(route.spec), definition(now.spec)) if now and now is not route else ""
            if not change:
                return now or route, None  # a server or a tool that is gone says so itself
        return None, ToolCallResult.failed(call.id, Failure.SERVER, "The call failed: the tool does not stop changing.")

    def _problem(self, call: ToolCallRequest, route: Route | None, catalog: Catalog) -> ToolCallResult | None:
        """Return what is wrong with the call itself; None where nothing is."""
        if route is None:
            return ToolCallResult.failed(call.id, Failure.UNKNOWN_TOOL, _unknown(call.name, catalog))
        if problem := _argument_problem(call, route):
            return ToolCallResult.failed(call.id, Failure.BAD_ARGUMENTS, problem)
        return None

    async def _denial(
        self, call: ToolCallRequest, route: Route, deadline: Deadline, taint: tuple[str, ...], audit: CallAudit
    ) -> ToolCallResult | None:
        """Ask permission; None where the call is allowed."""
        approval = self._approvals.decided(route.spec, call.arguments, taint)
        if approval is None:
            self._scope.unallowed.add(call.id)
            audit.asking()
            with deadline.waiting_for_a_person():
                approval = await self._approvals.ask(call, route.spec, taint)
            self._scope.unallowed.discard(call.id)
        audit.decided(is_allowed=approval.allowed, decided_by=approval.decided_by)
        if not approval.allowed:
            why = f": {approval.reason}" if approval.reason else ""
            return ToolCallResult.failed(call.id, Failure.DENIED, f"{NOT_ALLOWED}{why}.")
        return None

    async def _call(self, call: ToolCallRequest, route: Route, emit: Emit, deadline: Deadline) -> ToolCallResult:
        await anyio.lowlevel.checkpoint_if_cancelled()  # nothing is begun when the time is over
        seconds = self._seconds(route)
        own = Deadline(seconds, max(seconds, self._limits.tool_timeout_max))
        with own.scope() as scope, call_context.on(CallContext(deadline, own, self._scope.spend, self.audit.origin)):
            over = False

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                if not over:
                    own.restart(seconds)
                    await emit(
                        ToolCallProgress(call.id, _finite(progress) or 0.0, _finite(total), message and safe(message))
                    )

            try:
                result = await _answer(call, route, on_progress)
            finally:
                over = True
        if scope.cancelled_caught:
            late = f"The tool gave no result within {seconds:g} seconds."
            return ToolCallResult.failed(call.id, Failure.TIMEOUT, late)
        return result

    def _cut(self, result: ToolCallResult) -> ToolCallResult:
        error = result.error
        if error is not None and (len(error) > MAX_ERROR_CHARS or "\n" in error):
            error = " ".join(error[:MAX_ERROR_CHARS].split())
        content = shortened(result.content, self._limits.max_result_chars, self._scope.keep)
        return replace(result, content=content, error=error)

    def _seconds(self, route: Route) -> float:
        settings = route.connection.settings
        own = settings.tool_timeout if settings is not None else None
        return self._limits.tool_timeout if own is None else own


async def _answer(call: ToolCallRequest, route: Route, on_progress: OnProgress) -> ToolCallResult:
    try:
        answer = await route.connection.call(route.spec.tool, call.arguments, on_progress)
        content = result_content.content_of(answer, _broken_promise(answer, route))
    except ServerError as error:
        return ToolCallResult.failed(call.id, Failure.SERVER, to_tool_error(error))
    except Exception as error:  # noqa: BLE001 - a mistake in one call must not take the others with it
        log.warning("tool_call_broke", tool=call.name, error=type(error).__name__)
        return ToolCallResult.failed(call.id, Failure.SERVER, f"The call failed: {type(error).__name__}.")
    if not answer.is_error:
        return ToolCallResult(call.id, success=True, content=content)
    if content == NO_OUTPUT:
        return ToolCallResult.failed(call.id, Failure.TOOL, _SILENT)
    said = text_of(content).strip() or _SILENT
    return ToolCallResult(call.id, success=False, content=content, error=said.splitlines()[0], failure=Failure.TOOL)


def _broken_promise(answer: CallToolResult, route: Route) -> str:
    """Say what a structured result breaks of the tool's own promise; the tool has run, and its text counts."""
    structured = answer.structured_content
    if answer.is_error or structured is None or not route.spec.output_schema:
        return ""
    problems = route.promise.problems(structured)
    return f"[The structured result does not fit what the tool promises: {'; '.join(problems)}]" if problems else ""


def _finite(number: float | None) -> float | None:
    """Give a number JSON has: what servers send may be none."""
    return number if number is not None and math.isfinite(number) else None


def _as_meant(call: ToolCallRequest, route: Route) -> ToolCallRequest:
    """Read arguments that are no JSON, and put harmless mismatches right; the check that follows is the judge."""
    if call.unreadable is not None:
        said = tool_arguments.read(call.unreadable)
        if said is None:
            return call
        call = replace(call, arguments=said, unreadable=None)
    if not route.check.problems(call.arguments):
        return call
    said = tool_arguments.coerced(call.arguments, route.spec.original_schema or route.spec.input_schema)
    return call if route.check.problems(said) else replace(call, arguments=said)


def _argument_problem(call: ToolCallRequest, route: Route) -> str | None:
    if call.unreadable is not None:
        return f"The arguments are not a JSON object. {_expected(route)}"
    if problems := route.check.problems(call.arguments):
        return f"The arguments do not fit: {'; '.join(problems)}. {_expected(route)}"
    return None


def _expected(route: Route) -> str:
    properties = route.spec.input_schema.get("properties", {})
    required = route.spec.input_schema.get("required", [])
    named = [f"{name}{'' if name in required else ' (optional)'}" for name in list(properties)[:20]]
    return f"Expected a JSON object with: {', '.join(named)}." if named else "Expected an empty JSON object."


def _unknown(name: str, catalog: Catalog) -> str:
    if not catalog.routes:
        return f"There is no tool {name!r}; no tools are on offer."
    near = difflib.get_close_matches(name, catalog.routes, n=1, cutoff=0.5)
    if near:
        return f"There is no tool {name!r}. Did you mean {near[0]!r}?"
    return f"There is no tool {name!r}. On offer are: {', '.join(list(catalog.routes)[:30])}."
