"""One snippet from its source to its result: it computes in the sandbox, and its calls are calls like any others.

A snippet has no rights. Each of its calls goes through `ToolExecutor`: names, arguments, middleware, approval, policy,
audit and limits are those of a call that the model makes itself. A call begins when the snippet waits for it, and is
judged by all untrusted content up to then: also by that of earlier calls of the same snippet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio

from dial_client.hooks.owners import find_owner
from dial_client.messages.citations import Citation
from dial_client.messages.events import Emit, Event, ToolCallFinished, ToolCallStarted
from dial_client.messages.message import (
    Failure,
    PendingApproval,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    build_waiting_result,
)
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.logs import get_logger
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import find_nearest_by_words
from dial_client.tools.approval import Approval
from dial_client.tools.executor import ToolExecutor
from dial_client.tools.result_content import cut, join_parts
from dial_client.tools.snippets.call_values import Attachments, build_content, to_arguments, to_call_value
from dial_client.tools.snippets.sandbox import CallValue, SandboxCall, SandboxSession, SnippetError, Step, Suspended
from dial_client.tools.snippets.sealed_states import MAX_STATE, KeptNames, NotRestored, PausedSnippet, WaitingCall

log = get_logger(__name__)

# The most calls of a snippet.
MAX_CALLS = 500
# Characters of the result of an inner call in its event.
MAX_SHOWN = 2_000
# Characters of an error, and calls that the model is told of after it.
_MAX_ERROR, _MAX_LISTED = 6_000, 40
# Names that an error says are not defined, as the type checker and the interpreter say it, and the most of them for
# which a function is proposed.
_UNKNOWN_NAME, _MAX_PROPOSED = compile_lazily(r"[Nn]ame [`'](\w+)[`'] (?:used when|is) not defined"), 3

# The result of an agent, one of whose calls waits for a later decision: a paused program keeps one call of its own.
_HELD_AGENT = "The agent did not end: one of its calls needs an approval that nobody gives now. Call it by itself."

# Gets the offered name of a tool and the arguments of a call, and returns the arguments with which it is made.
ChangeArguments = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class SnippetTools:
    """The tools that a snippet can call."""

    names: Mapping[str, str] = field(default_factory=dict)
    """The offered name of each tool, by the name of its function."""
    find: Callable[[str], ToolSpec | None] = lambda _: None
    """Returns the tool of an offered name; None if it has gone."""
    restore: ChangeArguments | None = None
    """Changes the arguments of each call before the call is judged; None for none."""


@dataclass(eq=False)
class SnippetCall:
    """One call of a snippet."""

    request: ToolCallRequest
    line: int
    state: str = "was not made"
    """For the model: what has become of it."""
    value: CallValue | None = None
    """The result for the snippet; None while there is none."""
    is_deferred: bool = False
    """Whether the call waits for a later decision."""


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
        self._scope = executor.scope
        scope = replace(executor.scope, hold=self._hold, release=self._release)
        self._executor = replace(executor, scope=scope)
        self._emit_outside, self._deadline = emit, deadline
        self._slots = anyio.Semaphore(executor.limits.max_parallel, fast_acquire=True)
        self._calls: dict[int, SnippetCall] = {}
        self._attachments = Attachments()
        self._changed = anyio.Event()
        # What is asked about calls, by the ids of the calls, until they run or have a result.
        self._asked: dict[str, PendingApproval] = {}
        # The ids of the questions of the stored snippet; empty if it is not stored, or if a call has run since.
        self._stored: frozenset[str] = frozenset()
        # The calls that the snippet waits for.
        self._pending: frozenset[int] = frozenset()
        # Held while the snippet goes on or is stored, and before a call runs about which somebody was asked.
        self._step = anyio.Lock(fast_acquire=True)
        self._taint = ""
        self._citations: tuple[Citation, ...] = ()
        self._source, self._ended = "", tuple[str, ...]()
        # The number of earlier snippets whose names this one has; None if it keeps no names.
        self._snippets: int | None = None
        # The calls of a paused snippet, which are decided when it goes on.
        self._waiting: dict[str, tuple[PendingApproval, Approval | None]] = {}

    async def run(self, source: str) -> ToolCallResult:
        """Run the snippet, and return its result without an id.

        If all calls that it waits for wait for a later decision, it is paused: the result has a `PendingApproval` with
        the whole program.
        """
        self._source = source
        return await self._conclude(partial(self._session.start, source))

    async def run_with(self, kept: KeptNames, source: str, check: Callable[[], Awaitable[None]]) -> ToolCallResult:
        """Run the snippet as `run`, with the names of earlier snippets, and keep its own in the result.

        Args:
            kept: The names.
            source: The source.
            check: Checks the types of the snippet; raises a `SnippetError`.

        Raises:
            NotRestored: The names cannot be loaded; nothing has run.
        """
        self._taint, self._attachments = kept.taint, Attachments(kept.attachments)
        # Also the words of an error may be made of what earlier programs have read.
        self._executor.add_taint(kept.taint)
        self._source = source
        try:
            await check()
        except SnippetError as error:
            return self._complete(self._describe_failure(error))
        try:
            await self._session.load_names(kept.state, kept.snippets)
        except SnippetError as error:
            raise NotRestored("the interpreter cannot load what was stored") from error
        self._snippets = kept.snippets
        return await self._conclude(partial(self._session.start, source))

    async def resume(self, paused: PausedSnippet, asked: PendingApproval, answer: Approval | None) -> ToolCallResult:
        """Go on with a paused snippet. Calls that have ended are not made again.

        Args:
            paused: The snippet.
            asked: The question that `answer` is about; the approver is asked about other calls that wait.
            answer: The answer; None if there is none.
        """
        self._source, self._taint, self._ended = paused.source, paused.taint, paused.ended
        # The message that had this mark is no longer in the history: it is being replaced.
        self._executor.add_taint(paused.taint)
        self._attachments, self._snippets = Attachments(paused.attachments), paused.snippets
        for call in paused.waiting:
            request = call.pending.call
            self._calls[call.id] = SnippetCall(request, call.line, _NOT_BEGUN)
            # The person has seen what is stored beside the sealed program, which must be what the program asks.
            own = replace(asked, snippet=None) == call.pending
            self._waiting[request.id] = (call.pending, answer if own else None)
        load = self._session.load
        return await self._conclude(partial(load, paused.state, paused.source, paused.printed, paused.snippets))

    async def _conclude(self, begin: Callable[[], Awaitable[Step]]) -> ToolCallResult:
        try:
            value = await self._run_to_end(begin)
            if isinstance(value, ToolCallResult):
                return replace(value, taint=self._taint)
            content = build_content(self._session.printed, value, self._attachments)
            result = ToolCallResult("", success=True, content=content, value=value)
            if self._snippets is not None:
                result = await self._keep(result, self._snippets)
        except SnippetError as error:
            result = self._describe_failure(error)
            if self._snippets is not None:
                result = await self._keep(result, self._snippets, _FAILED if error.leaves_names else _STOPPED)
        return self._complete(result)

    def _complete(self, result: ToolCallResult) -> ToolCallResult:
        return replace(result, taint=self._taint, citations=self._citations)

    async def _keep(self, result: ToolCallResult, snippets: int, note: str = "") -> ToolCallResult:
        """Return the result with the names of the snippet, or with a note why they are not kept.

        Args:
            result: The result.
            snippets: The number of earlier snippets whose names are among them.
            note: What the model has to know if they are kept; `_STOPPED` if they are not sound.
        """
        kept: Mapping[str, Any] | None = None
        try:
            if note != _STOPPED:
                kept = await self._seal_names(snippets)
                note = note if kept else _NAMES_TOO_LARGE
        except (SnippetError, NotRestored) as problem:
            note = f"[The names of this program are not kept, because {problem}. Those kept before it stay.]"
        parts = [TextPart(result.content)] if isinstance(result.content, str) else list(result.content)
        return replace(result, content=join_parts([*parts, TextPart(note)]), kept=kept)

    async def _seal_names(self, snippets: int) -> Mapping[str, Any]:
        """Return the names of the snippet, sealed; without any entry if they are too large."""
        state = await self._session.dump_names()
        if not 0 < len(state) <= MAX_STATE:
            return {}
        names = await self._session.list_names()
        # A model that has read untrusted content has written the functions, also if the text is removed later.
        before = self._executor.scope.taint.sources if self._executor.scope.taint is not None else ()
        taint = self._taint or next(iter(before), "")
        kept = KeptNames(state, names, snippets + 1, self._attachments.count, taint)
        return kept.seal(self._session.version, self._id, find_owner()) or {}

    async def _run_to_end(self, begin: Callable[[], Awaitable[Step]]) -> object:
        """Return the value of the snippet, or the result of one that is paused."""
        step = await begin()
        is_paused = False
        problem: SnippetError | None = None
        async with anyio.create_task_group() as group:
            while isinstance(step, Suspended):
                for call in step.calls:
                    self._calls[call.id] = self._begin(call)
                for id_ in step.pending:
                    if self._calls[id_].state == _NOT_BEGUN:
                        self._calls[id_].state = _RUNNING
                        group.start_soon(self._make, self._calls[id_])
                self._pending = step.pending
                ready = await self._wait_for_results()
                if not ready:
                    is_paused = True
                    break
                try:
                    async with self._step:
                        step = await self._session.resume(ready)
                except SnippetError as error:
                    problem = error
                    break
            # What the snippet no longer waits for is cancelled at its server, as a call that the user cancels.
            group.cancel_scope.cancel()
        if problem is not None:
            raise problem
        if is_paused:
            return await self._pause()
        assert not isinstance(step, Suspended)
        return step.value

    def _begin(self, call: SandboxCall) -> SnippetCall:
        """Return a call that the snippet has requested; one with unusable arguments has its result already."""
        number = len(self._ended) + len(self._calls) + 1
        name = self._tools.names[call.name]
        problem = "the arguments of a tool are given by name" if call.positional else ""
        problem = f"a snippet may make {MAX_CALLS} calls" if number > MAX_CALLS else problem
        arguments: Mapping[str, Any] = {}
        try:
            arguments = to_arguments(call.keywords)
            if self._tools.restore is not None:
                arguments = self._tools.restore(name, arguments)
        except ValueError as error:
            problem = problem or str(error)
        request = ToolCallRequest(f"{self._id}/{number}", name, arguments)
        if problem:
            return SnippetCall(request, call.line, f"failed: {problem}", CallValue(None, "ValueError", problem))
        return SnippetCall(request, call.line, _NOT_BEGUN)

    async def _make(self, call: SnippetCall) -> None:
        async with self._slots:
            result = await self._executor.execute_here(call.request, self._emit, self._deadline, self._waiting)
        if result.pending is not None and result.pending.messages:
            result = ToolCallResult.failed(call.request.id, Failure.TOOL, _HELD_AGENT)
        if result.pending is not None:
            self._asked[call.request.id] = result.pending
            call.is_deferred, call.state = True, _NOT_BEGUN
            self._changed.set()
        else:
            self._asked.pop(call.request.id, None)
            self._settle(call, result)

    async def _hold(self, question: PendingApproval) -> None:
        """Let it be stored that a call has not run, and the snippet too if it waits for nothing else."""
        self._asked[question.call.id] = question
        await self._scope.hold(question)
        await self._store()

    async def _release(self, call_id: str) -> None:
        """Let it be stored that a call may have run: what is stored of the snippet would make the call again."""
        if self._asked or self._stored:
            async with self._step:
                self._asked.pop(call_id, None)
                self._stored = frozenset()
                await self._scope.release(self._id)
        await self._scope.release(call_id)

    async def _store(self) -> None:
        """Let the snippet be stored while somebody is asked about each call that it waits for.

        A process that is killed meanwhile leaves it as one that waits for a later decision.
        """
        async with self._step:
            waiting = self._list_waiting()
            questions = frozenset(call.pending.id for call in waiting)
            if len(waiting) < len(self._pending) or questions == self._stored:
                return
            try:
                question = await self._seal(waiting)
            except SnippetError as problem:
                log.debug("snippet_not_stored", problem=str(problem))  # it goes on, but not in another process
            else:
                await self._scope.hold(question)
                self._stored = questions

    def _list_waiting(self) -> tuple[WaitingCall, ...]:
        """Return the calls that the snippet waits for, and about which somebody is asked."""
        calls = ((id_, self._calls[id_]) for id_ in sorted(self._pending))
        return tuple(
            WaitingCall(id_, call.line, self._asked[call.request.id])
            for id_, call in calls
            if call.request.id in self._asked
        )

    async def _pause(self) -> ToolCallResult:
        """Return the result of a snippet all of whose calls have ended or wait for a later decision."""
        return build_waiting_result(await self._seal(self._list_waiting()))

    async def _seal(self, waiting: tuple[WaitingCall, ...]) -> PendingApproval:
        """Return the question about the first of the calls that the snippet waits for, with the whole program.

        Raises:
            SnippetError: The program cannot be stored.
        """
        paused = PausedSnippet(
            self._id,
            self._source,
            self._session.printed,
            await self._session.dump(),
            waiting,
            tuple(self._list_calls(self._pending)),
            self._taint,
            self._attachments.count,
            self._snippets,
        )
        try:
            sealed = paused.seal(self._session.version)
        except NotRestored as problem:
            text = f"The program cannot wait for an approval: {problem}."
            raise SnippetError(text, text) from problem
        if sealed is None:
            raise SnippetError(_TOO_LARGE, _TOO_LARGE)
        # One question at a time: the others are asked when the snippet goes on.
        return replace(waiting[0].pending, snippet=sealed)

    def _list_calls(self, left_out: Container[int] = ()) -> Iterator[str]:
        yield from self._ended
        for id_, call in self._calls.items():
            if id_ not in left_out:
                place = f"line {call.line}" if call.line else "in a function of an earlier program"
                yield f"- {place}, {call.request.name}: {call.state}"

    def _settle(self, call: SnippetCall, result: ToolCallResult) -> None:
        tool = self._tools.find(call.request.name) or ToolSpec(call.request.name, "", {})
        # What a middleware removes from the text of a result may still be in its value.
        has_value = not self._executor.middleware.wraps_tool_calls
        call.value = to_call_value(result, tool, self._attachments, has_value=has_value)
        call.state = "done" if result.success else f"failed: {to_one_line(result.error or '', 200)}"
        self._taint = self._taint or result.taint
        self._citations = (*self._citations, *result.citations)
        self._changed.set()

    async def _wait_for_results(self) -> dict[int, CallValue]:
        """Return the results of pending calls, once there is one; none if all of them wait for a later decision."""
        while True:
            ready = {id_: value for id_ in self._pending if (value := self._calls[id_].value) is not None}
            if ready or all(self._calls[id_].is_deferred for id_ in self._pending):
                return ready
            self._changed = anyio.Event()  # before anything is awaited, so that no change is missed
            if self._asked:
                await self._store()
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
        unknown = dict.fromkeys(_UNKNOWN_NAME.findall(error.text))
        nearest = (find_nearest_by_words(name, self._tools.names) for name in list(unknown)[:_MAX_PROPOSED])
        parts += [f"Did you mean `{name}`?" for name in dict.fromkeys(filter(None, nearest))]
        if calls := list(self._list_calls()):
            more = [f"- … {len(calls) - _MAX_LISTED} more calls"] if len(calls) > _MAX_LISTED else []
            parts.append("\n".join(["Calls of the snippet:", *calls[:_MAX_LISTED], *more]))
        else:
            parts.append("The snippet has made no calls.")
        if printed := self._session.printed.rstrip():
            parts.append(f"Printed before:\n{printed}")
        summary = to_one_line(str(error), 400)
        return ToolCallResult(
            "", success=False, content=sanitize("\n\n".join(parts)), error=summary, failure=Failure.TOOL
        )


_TOO_LARGE = "The program cannot wait for an approval, because its variables are too large to be stored."
_NAMES_TOO_LARGE = (
    "[The names of this program are too large to be kept, and those kept before it are gone too: the next program "
    "begins without names.]"
)
_FAILED = "[The names that the program had then are kept.]"
_STOPPED = "[The names of this program are not kept. Those kept before it stay.]"
_NOT_BEGUN, _RUNNING = "was not made", "was cancelled: it may have done its work"
