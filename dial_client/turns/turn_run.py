"""One turn from its messages to its last message: what it is given, and its steps.

`run_turn` runs a turn. `resolution.resolve` calls `TurnRun.ask` and `TurnRun.run_calls` in turn, one level deeper each
time; `TurnRun.finish` ends the turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Self

from dial_client.hooks.audit.entries import TurnAudit
from dial_client.hooks.call_context import CallContext, TurnScope
from dial_client.hooks.middleware import MiddlewareChain, TurnRequest
from dial_client.messages.errors import ConfigError
from dial_client.messages.events import (
    AgentChanged,
    Event,
    MessageCompleted,
    RoundStarted,
    StatusChanged,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from dial_client.messages.limits import Limits, StopReason
from dial_client.messages.message import MAIN, Message, Role, ToolCallRequest, ToolSpec, find_agent, order_results
from dial_client.messages.model import (
    Instruction,
    InstructionSource,
    ModelSettings,
    Provider,
    ToolChoice,
    ToolFormat,
    separate_instructions,
)
from dial_client.messages.turn_result import Turn
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.logs import get_logger
from dial_client.servers.status import ServerState
from dial_client.tools.approval import ApprovalChecker
from dial_client.tools.executor import CallScope, ToolExecutor, WaitingCalls
from dial_client.tools.result_content import ResultStore
from dial_client.tools.taint import Taint, find_taint
from dial_client.tools.tool_selection import ToolSnapshot, TurnTools
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.finalization import finish_turn
from dial_client.turns.instructions import TurnInstructions
from dial_client.turns.mentions import build_agent_calls, describe_missed_mention
from dial_client.turns.model_call import ChatModel, ModelCaller
from dial_client.turns.output_type import OutputType
from dial_client.turns.resolution import Outcome, Reply, resolve
from dial_client.turns.status_model import StatusModel
from dial_client.turns.status_text import WAITING_FOR_BACKGROUND, describe_tool
from dial_client.turns.turn_handle import TurnHandle
from dial_client.turns.turn_recorder import TurnRecorder, find_limit, find_spent
from dial_client.turns.typed_answer import TypedAnswer, is_answer

log = get_logger(__name__)

# The share of a turn's time that is kept for its answer, and the most seconds of it.
_ANSWER_SHARE = 0.2
_MAX_ANSWER_SECONDS = 20.0
# The states of a server that may go on with a call in a later turn, although its tools are not known yet.
_COMING = frozenset({ServerState.STARTING, ServerState.RESTARTING, ServerState.NEEDS_CREDENTIALS})


# Returns the services of a turn, narrowed to an agent that has the conversation; None if there is no such agent.
FindAgent = Callable[["TurnServices", str], "TurnServices | None"]


def find_no_agent(services: TurnServices, name: str) -> TurnServices | None:  # noqa: ARG001 - a `FindAgent`
    """Return None: there are no agents."""
    return None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TurnServices:
    """The objects, options and settings of a turn that do not depend on its messages."""

    model: ChatModel
    tool_snapshot: Callable[[], ToolSnapshot]
    """Returns the current tools of the servers."""
    result_store: ResultStore
    approvals: ApprovalChecker
    limits: Limits
    await_tool_changes: Callable[[], Awaitable[None]]
    """Waits briefly for tools that a server has just announced as changed."""
    status_provider: Provider | None = None
    """The model that writes the status of running calls; None to use templates only."""
    answers_at_limits: bool = True
    """Whether the model is asked for a last answer when a limit is met."""
    waits_for_background: bool = False
    """Whether an answer that leaves calls in the background running is only followed by the end of these calls."""
    instructions: TurnInstructions = field(default_factory=TurnInstructions)
    """The instructions of requests, without those of the conversation."""
    system: str | None = None
    """Instructions for conversations that do not start with a system message; empty for none, not even the host's."""
    audit: TurnAudit = field(default_factory=TurnAudit)
    """Records decisions and calls."""
    middleware: MiddlewareChain = field(default_factory=MiddlewareChain)
    """Wraps the turn, its model calls and its tool calls."""
    notes: Callable[[], Iterable[str]] = tuple
    """Returns notes for the user on servers and tools; called at the start and at the end of the turn."""
    stream: bool = True
    """Whether the model streams its replies."""
    client_tools: tuple[ToolSpec, ...] = ()
    """The client-side tools, whose calls are returned to the caller."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    """How the model writes its replies in this turn."""
    depth: int = 0
    """Number of rounds of tool calls that a resumed turn has completed before."""
    waiting: WaitingCalls = field(default_factory=dict)
    """The calls of the last of these rounds that have not run, which the turn makes before it asks the model."""
    output: OutputType | None = None
    """The type of the answer; None for text."""
    scope: TurnScope = field(default_factory=TurnScope)
    """What holds for the turns that calls of this turn run, without the budget, which the turn itself knows."""
    agent: str = ""
    """The agent that has the conversation; empty for the conversation's own model."""
    find_agent: FindAgent = find_no_agent
    """Returns what holds while an agent has the conversation."""
    open_sandbox: Callable[[], Any] = lambda: None
    """Returns the `Sandbox` of code mode; called only in turns whose format `runs_code`."""
    outer: CallContext | None = None
    """The call that runs this turn, whose deadlines pause while this turn waits for the user; None if there is none."""

    def without_host(self) -> TurnServices:
        """Return the services without the servers' and the host's own tools, and without the host's instructions."""
        none = ToolSnapshot()
        return replace(
            self,
            tool_snapshot=lambda: none,
            result_store=ResultStore(),
            instructions=TurnInstructions(guidance=""),
            find_agent=find_no_agent,
            system=None,
            notes=tuple,
        )


async def run_turn(
    open_services: Callable[[], Awaitable[TurnServices]], messages: tuple[Message, ...], turn: TurnHandle
) -> StopReason:
    """Run a turn through the middleware and return why it ended; ``turn`` records all other results.

    Args:
        open_services: Waits until the turn can start, and returns its services.
        messages: The conversation, which may have system messages.
        turn: Receives all events.

    Raises:
        ProviderError: The model could not be reached, or refused the request.
        MiddlewareError: A middleware failed.
    """
    services = await open_services()
    del open_services  # as in `TurnHandle.run`
    turn.recorder.note(*services.notes())
    if services.middleware.wraps_turns:
        reason = await _run_in_middleware(services, messages, turn)
    else:
        with TurnRun(services, messages, turn) as run:
            reason = await run.finish(await resolve(await run.begin(), run.ask, run.run_calls))
    turn.recorder.note(*services.notes())
    return reason


async def _run_in_middleware(services: TurnServices, messages: tuple[Message, ...], turn: TurnHandle) -> StopReason:
    """Run a turn through the middleware, whose return value becomes `TurnHandle.replacement` if it is another turn."""
    recorded: Turn | None = None

    async def run_to_end(request: TurnRequest) -> Turn:
        nonlocal recorded
        changed = replace(services, limits=request.limits, system=request.system)
        with TurnRun(changed, request.messages, turn) as run:
            reason = await run.finish(await resolve(await run.begin(), run.ask, run.run_calls))
        recorded = turn.recorder.build_turn(reason)
        return recorded

    info = services.model.provider.info
    request = TurnRequest(
        messages=messages,
        limits=services.limits,
        system=services.system,
        model=info.name,
        turn_id=turn.id,
        conversation_id=turn.conversation_id,
    )
    result = await services.middleware.run_turn(request, info, run_to_end)
    if recorded is None:
        turn.replacement = await _emit_answer(result, turn)
    elif result is not recorded:
        is_recorded_last = recorded.messages[-1:] == (recorded.message,)
        if result.message != recorded.message and result.messages == recorded.messages and is_recorded_last:
            # Only the last message was changed.
            result = replace(result, messages=(*recorded.messages[:-1], result.message))
        turn.replacement = result
    return result.stop_reason


async def _emit_answer(result: Turn, turn: TurnHandle) -> Turn:
    """Emit the messages of a turn that the middleware answered by itself, as one round; return it with its question."""
    question = turn.recorder.question
    messages = result.messages or (result.message,)
    if question and messages[: len(question)] == question:
        messages = messages[len(question) :]
    await turn.emit(RoundStarted(0))
    for message in messages:
        if message.role is Role.ASSISTANT and message.text:
            await turn.emit(TextDelta(message.text))
        await turn.emit(MessageCompleted(message))
    return replace(result, messages=(*question, *messages))


def prepare_instructions(
    services: TurnServices, messages: Sequence[Message]
) -> tuple[TurnInstructions, tuple[Message, ...]]:
    """Return the instructions of a turn, and its conversation without system messages."""
    instructions, conversation = separate_instructions(messages)
    starts_with_system_message = bool(messages) and messages[0].role is Role.SYSTEM
    turn_instructions = services.instructions
    if services.system and not starts_with_system_message:
        instructions = (Instruction(InstructionSource.CONVERSATION, services.system), *instructions)
    elif services.system is not None and turn_instructions.guidance is None:
        turn_instructions = replace(turn_instructions, guidance="")
    return replace(turn_instructions, conversation=instructions), conversation


class TurnRun:
    """The steps of one turn: asks the model, runs the calls of its replies, and ends with a message.

    The model may call client-side tools like servers' tools, but their calls end the turn: `Turn.client_tool_calls` has
    them. Calls of servers' tools in the same reply are run first. To continue, the caller starts a new turn with the
    messages of this turn, followed by the results.

    Args:
        services: The objects and settings of the turn.
        messages: The conversation, which may have system messages.
        turn: Receives all events.
    """

    def __init__(self, services: TurnServices, messages: tuple[Message, ...], turn: TurnHandle) -> None:
        # The services of the conversation's own model, and of who has the conversation now.
        self._main, self._services = services, services
        self._turn, self._messages = turn, messages
        if agent := find_agent(messages):
            self._services = services = self._find_services(agent)
        limits = services.limits
        reserve = min(limits.timeout * _ANSWER_SHARE, _MAX_ANSWER_SECONDS)
        outer = () if services.outer is None else (services.outer.turn, services.outer.call)
        self._deadline = Deadline(limits.timeout - reserve, reserve=reserve, outer=outer)
        self._client_tool_names = tuple(tool.name for tool in services.client_tools)
        self._offers_client_tools_only = False
        # The servers' tools that were offered last, and all tools that were offered with them.
        self._offered: tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]] = ((), services.client_tools)
        self._answer = None if services.output is None else TypedAnswer(services.output, turn.recorder, self.emit)
        self._taint = Taint()
        conversation = self._open_parts()
        for source in self._list_taint():
            self._taint.add(source)
        self.context = ConversationContext(conversation, limits.max_depth, min(services.depth, limits.max_depth))
        """The conversation without its system messages, before the turn."""

    def _list_taint(self) -> Sequence[str]:
        """Return the sources of untrusted content in the conversation, also those that an agent cannot call."""
        catalog = self._executor.catalog()
        if self._services.agent:
            catalog = replace(catalog, routes={**self._main.tool_snapshot().catalog.routes, **catalog.routes})
        servers = self._services.instructions.servers()
        return find_taint(self._messages, catalog, servers, self._client_tool_names).sources

    def _find_services(self, agent: str) -> TurnServices:
        """Return what holds while an agent has the conversation; for an agent that is gone, the model's own services.

        An agent that cannot go on must not keep the user from the conversation.
        """
        try:
            found = self._main.find_agent(self._main, agent)
        except ConfigError as error:
            self._turn.recorder.note(f"the agent {agent!r} does not have the conversation any more: {error}")
            return self._main
        if found is None:
            self._turn.recorder.note(f"the agent {agent!r} does not have the conversation any more: it is gone")
        return found or self._main

    def _open_parts(self) -> tuple[Message, ...]:
        """Open the parts of the turn that depend on who has the conversation; return it without system messages."""
        services, turn, limits = self._services, self._turn, self._services.limits
        messages = self._messages
        if services.agent and services.system is not None and services.system != self._main.system:
            # The instructions of the agent are in place of those of the conversation.
            messages = tuple(message for message in messages if message.role is not Role.SYSTEM)
        instructions, conversation = prepare_instructions(services, messages)
        known = (*messages, *turn.recorder.complete_messages)
        self._tools = TurnTools(
            services.tool_snapshot,
            services.result_store,
            limits,
            known,
            services.model.window.tokens,
            partial(has_endpoint_search, services.model),
            turn.origin.owner,
            turn.background_calls,
        )
        self._code = open_code_offer(services, self._tools, known)
        self._caller = ModelCaller(
            model=services.model,
            tools=self.offer_tools,
            instructions=instructions,
            emit=self.emit,
            recorder=turn.recorder,
            deadline=self._deadline,
            stream=services.stream,
            settings=services.settings,
            answer=self._answer,
            middleware=services.middleware,
        )
        origin = turn.origin
        if services.agent:
            origin = replace(origin, agent=f"{origin.agent or MAIN} > {services.agent}")
        get_catalog = self._tools.get_catalog if self._code is None else self._code.get_catalog
        self._executor = ToolExecutor(
            get_catalog,
            services.approvals,
            limits,
            CallScope(
                self._tools.store_result,
                turn.hold_call,
                turn.release_call,
                turn.recorder.add_usage,
                self._taint,
                turn.recorder.note,
                turn=replace(services.scope, find_spent=partial(_find_spent, turn.recorder, limits, services.outer)),
                background=turn.background_calls,
                agents=turn.agents,
            ),
            replace(services.audit, origin=origin),
            services.middleware,
        )
        if self._code is not None:
            self._code.use_executor(self._executor)
        return conversation

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # The parts of this object hold its methods, and the executor those of the handle. Without this line, the handle
        # of an ended turn would stay, with all its events, until the garbage collector finds the circle.
        del self._turn, self._executor, self._code

    async def begin(self) -> ConversationContext:
        """Return the conversation at the start of the turn, with results of the calls that waited for approval.

        The results of calls in the background follow, also of those whose result is lost, and then the calls of the
        agents that the question names.
        """
        if self._services.agent:
            await self.emit(AgentChanged(self._services.agent))
        context = await self._run_waiting_calls()
        background = self._turn.background_calls
        background.forget_told(context.messages)
        self._executor.poll_open_tasks()
        self._drop_hopeless_tasks()
        lost = background.describe_lost(context.messages)
        context = context.extend(*await self._add_messages((*lost, *self._take_background_results())))
        return await self._call_mentioned_agents(context)

    async def _call_mentioned_agents(self, context: ConversationContext) -> ConversationContext:
        """Return the context after the calls of the agents that the user has named, which are a round of their own."""
        question = self.context.messages[-1] if self.context.messages else None
        # The task of an agent, and the text of a function's turn, were not written by the user.
        if question is None or self._services.outer is not None or self._services.depth or not context.may_descend:
            return context
        routes = self._tools.get_catalog().routes
        if missed := describe_missed_mention(question, routes):
            self._turn.recorder.note(missed)
            await self.emit(StatusChanged(missed))
        calls = self._select_server_calls(build_agent_calls(question, routes))
        if not calls:
            return context
        message = Message.assistant("", calls)
        await self.emit(RoundStarted(context.depth))
        await self.emit(MessageCompleted(message))
        return context.descend(message, await self.run_calls(calls))

    def _drop_hopeless_tasks(self) -> None:
        """Forget the tasks whose servers do not come any more: the model is told that the calls are lost."""
        open_tasks = self._turn.background_calls.open_tasks
        if open_tasks:
            coming = {server.name for server in self._services.instructions.servers() if server.state in _COMING}
            for record in tuple(open_tasks.values()):
                if record.server not in coming:
                    del open_tasks[record.id]

    async def _run_waiting_calls(self) -> ConversationContext:
        messages, waiting = self.context.messages, self._services.waiting
        if not waiting:
            return self.context
        calls = next(message.tool_calls for message in reversed(messages) if message.tool_calls)
        decided = waiting if self._code is None else self._code.take_paused(waiting)
        results = await self.run_calls([call for call in calls if call.id in waiting], decided)
        # Messages that steered the turn before it was interrupted follow the results of all calls.
        steering = tuple(takewhile(lambda message: message.steers, reversed(messages)))[::-1]
        ended = messages[: len(messages) - len(steering)]
        return replace(self.context, messages=(*order_results((*ended, *results)), *steering))

    def offer_tools(self) -> tuple[ToolSpec, ...]:
        """Return the servers' and the client-side tools; the same tuple object while they do not change.

        A client-side tool hides a server's tool of the same name.
        """
        if self._offers_client_tools_only:
            return self._services.client_tools
        tools = self._tools.offer_tools() if self._code is None else self._code.offer_tools()
        if not self._client_tool_names:
            return tools
        if tools is not self._offered[0]:
            hidden = [tool for tool in tools if tool.name in self._client_tool_names]
            self._offered = (tools, (*(tool for tool in tools if tool not in hidden), *self._services.client_tools))
            for tool in hidden:
                self._turn.recorder.note(f"the tool {tool.name!r} is not offered: the caller has a tool of this name")
        return self._offered[1]

    async def ask(self, context: ConversationContext) -> Reply:
        """Ask the model, and return what its reply means for the turn: an `Ask` of `resolve`.

        The model is not asked once client-side tools were called, while a call waits for approval, or if the rounds so
        far have met a limit: the reply is then empty, and its stop reason says so. An answer that is not of the turn's
        type is returned to the model, with its errors, as a further round, which the conversation does not keep.
        """
        if self._turn.recorder.is_waiting:
            return Reply(Message.assistant(""), StopReason.AWAITING_APPROVAL)
        if context.depth and self._client_tool_names and self._waits_for_caller(context):
            return Reply(Message.assistant(""), StopReason.CLIENT_TOOL_CALLS)
        while True:
            if context.depth and (limit := self._find_limit()):
                return Reply(Message.assistant(""), limit)
            reply = await self._caller.exchange(context)
            if context.depth and self._lacks_required_call(reply):
                # The choice applied to the first reply, which called a server's tool: forced again, the model would
                # call it again. The caller still has to get a call of one of its own tools.
                self._offers_client_tools_only = True
                reply = await self._caller.exchange(context, ToolChoice.REQUIRED)
            if reply.stop_reason is None and not self._select_server_calls(reply.message.tool_calls):
                # This reply is not a round, so that it may follow at the maximum depth too.
                return Reply(reply.message, StopReason.CLIENT_TOOL_CALLS)
            reply = await self._wait_for_background(context, reply)
            if self._answer is None or not is_answer(reply):
                return reply
            if (checked := await self._answer.check(reply)) is not None:
                return checked
            corrected = await self._answer.request_correction(context, reply)
            if corrected is None:
                return await self._answer.give_up(reply)
            context = corrected

    async def _wait_for_background(self, context: ConversationContext, reply: Reply) -> Reply:
        """Wait for the calls in the background, if the turn has to, and return the reply.

        An answer is then like a message with calls: the results follow it, count as a round, and the model answers
        again. Calls that still run at the end of the time are stopped, as those of a round are, and the model is told.
        """
        background = self._turn.background_calls
        if not (self._services.waits_for_background and background.calls and context.may_descend and is_answer(reply)):
            return reply
        await self.emit(MessageCompleted(reply.message))
        await self.emit(StatusChanged(WAITING_FOR_BACKGROUND))
        with self._deadline.scope() as scope:
            for call in background.calls:
                await call.wait()
        if scope.cancelled_caught:
            for name in await background.stop_calls():
                self._turn.recorder.note(f"the call of {name!r} was stopped in the background: the time was over")
        return Reply(reply.message, None)

    def _waits_for_caller(self, context: ConversationContext) -> bool:
        """Return whether a call of a client-side tool in the last round has no result.

        In a turn that is resumed it has one, which says that the call was interrupted.
        """
        results: set[str | None] = set()
        for message in reversed(context.messages):
            if message.tool_calls:
                calls = (call for call in message.tool_calls if call.name in self._client_tool_names)
                return any(call.id not in results for call in calls)
            results.add(message.tool_call_id)
        return False

    def _lacks_required_call(self, reply: Reply) -> bool:
        is_required = self._services.settings.tool_choice == ToolChoice.REQUIRED and bool(self._client_tool_names)
        return is_required and self._answer is None and reply.stop_reason is StopReason.ANSWERED

    async def ask_without_tools(self, context: ConversationContext) -> Reply:
        """Ask the model for the last answer at a limit. A typed answer is checked, but not corrected."""
        self._deadline.allow_reserve(allowed=True)
        if self._deadline.is_over:
            return Reply(Message.assistant(""), StopReason.TIMEOUT)
        reply = await self._caller.exchange(context, ToolChoice.NONE)
        if self._answer is None or not is_answer(reply):
            return reply
        return await self._answer.check(reply) or await self._answer.give_up(reply)

    async def run_calls(
        self, calls: Sequence[ToolCallRequest], waiting: WaitingCalls = MappingProxyType({})
    ) -> tuple[Message, ...]:
        """Run the calls of the servers' tools, and return a message for each result: a `CallTools` of `resolve`."""
        refused = () if self._answer is None else self._answer.refuse_beside_calls(calls)
        refused_ids = {message.tool_call_id for message in refused}
        server_calls = [call for call in self._select_server_calls(calls) if call.id not in refused_ids]
        execute = partial(self._executor.execute_all, server_calls, deadline=self._deadline, waiting=waiting)
        provider = self._services.status_provider
        if provider is None:
            results = await execute(self.emit)
        else:
            narrator = StatusModel(provider, self._turn.recorder.add_request, self._services.middleware)
            results = await narrator.narrate(execute, self.emit)
        messages = (*(Message.tool(call, result) for call, result in zip(server_calls, results, strict=True)), *refused)
        for message in messages:
            await self.emit(MessageCompleted(message))
        self._tools.add_calls((call.name, result.success) for call, result in zip(server_calls, results, strict=True))
        # Of several calls that hand the conversation over, the last one counts.
        if agent := next((message.agent for message in reversed(messages) if message.agent), ""):
            await self._change_agent(agent)
        await self._services.await_tool_changes()
        return (*messages, *await self._add_steering(calls))

    async def _change_agent(self, agent: str) -> None:
        """Let an agent, or the conversation's own model, go on from the next request; tokens, time and taint go on."""
        self._services = self._main if agent == MAIN else self._find_services(agent)
        self._open_parts()
        await self.emit(AgentChanged(self._services.agent))

    async def _add_steering(self, calls: Sequence[ToolCallRequest]) -> tuple[Message, ...]:
        """Return the messages that follow the results of a round, unless the turn ends with these results.

        They are the results of calls in the background, and the user's messages.
        """
        has_client_calls = len(self._select_server_calls(calls)) < len(calls)
        if has_client_calls or self._turn.recorder.is_waiting:
            return ()
        ended = self._take_background_results()
        if not (steering := self._turn.unsent) or self._find_limit():
            # The last answer has the results; what the user says now is for the next turn.
            return await self._add_messages(ended)
        self._turn.take_unsent()
        return await self._add_messages((*ended, *steering))

    def _take_background_results(self) -> tuple[Message, ...]:
        return self._turn.background_calls.take_ended(self._executor.shorten)

    async def _add_messages(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        for message in messages:
            self._executor.add_taint(message.taint)
            await self.emit(MessageCompleted(message))
        return messages

    async def finish(self, outcome: Outcome) -> StopReason:
        """Emit the last message of the turn, and return why the turn ended."""
        reason = await finish_turn(
            outcome, self.ask_without_tools, self.emit, self._turn.recorder, ask_again=self._services.answers_at_limits
        )
        log.debug("turn", stop_reason=reason.value, depth=outcome.context.depth)
        return reason

    async def emit(self, event: Event) -> None:
        """Emit an event of the turn, and after the start of a call the status that names its tool.

        An answer gets the sources that functions cited in the turn.
        """
        if isinstance(event, MessageCompleted):
            message = event.message
            if message.role is Role.ASSISTANT and message.agent != self._services.agent:
                message = replace(message, agent=self._services.agent)
                event = MessageCompleted(message)
            is_answer = message.role is Role.ASSISTANT and not message.tool_calls
            if is_answer and (cited := self._turn.recorder.citations):
                sources = tuple(dict.fromkeys((*message.citations, *cited)))
                event = MessageCompleted(replace(message, citations=sources))
        await self._turn.emit(event)
        if isinstance(event, ToolCallFinished) and event.by_endpoint:
            # The endpoint ran the call: no executor has seen its result.
            self._executor.add_taint(event.result.taint)
        if isinstance(event, ToolCallStarted) and not event.by_endpoint:
            route = self._executor.catalog().routes.get(event.call.name)
            await self._turn.emit(StatusChanged(describe_tool(event.call, route.spec if route else None)))

    def _find_limit(self) -> StopReason | None:
        """Return the limit that ends the turn before its next round; None if the turn may continue."""
        if self._deadline.is_over:
            return StopReason.TIMEOUT
        if (outer := self._services.outer) is not None and (spent := outer.scope.find_spent()):
            return spent
        recorder = self._turn.recorder
        return find_limit(recorder.rounds, recorder.usage, self._services.limits, recorder.known_cost_usd)

    def _select_server_calls(self, calls: Iterable[ToolCallRequest]) -> list[ToolCallRequest]:
        return [call for call in calls if call.name not in self._client_tool_names]


def has_endpoint_search(model: ChatModel) -> bool:
    """Return whether the endpoint can search the tools itself; this requires native tool calls of them."""
    return (
        model.provider.info.searches_tools  # first, because it is asked several times a round, and few endpoints do
        and not model.format.runs_code
        and model.format.handler.format is ToolFormat.NATIVE
    )


def open_code_offer(
    services: TurnServices, tools: TurnTools, messages: Sequence[Message], *, prepares: bool = True
) -> Any:
    """Return the `CodeOffer` of a turn in code mode, which prepares the sandbox if asked; None for any other turn."""
    if not services.model.format.runs_code:
        return None
    from dial_client.tools.snippets.run_code import CodeOffer  # loaded only in code mode

    hidden = [tool.name for tool in services.client_tools]
    return CodeOffer(services.open_sandbox(), tools, hidden, messages, prepares=prepares)


def _find_spent(recorder: TurnRecorder, limits: Limits, outer: CallContext | None) -> StopReason | None:
    """Return which limit the tokens or the money of a turn, or of the turn that waits for it, have reached."""
    own = find_spent(recorder.usage, recorder.known_cost_usd, limits)
    return own or (None if outer is None else outer.scope.find_spent())
