"""Builds one turn from its parts, and runs it to its last message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dial_client.hooks.audit.entries import TurnAudit
from dial_client.hooks.middleware import MiddlewareChain, TurnRequest
from dial_client.messages.events import Emit, Event, MessageCompleted, StatusChanged, ToolCallFinished, ToolCallStarted
from dial_client.messages.limits import Limits, StopReason
from dial_client.messages.message import Message, Role, ToolCallRequest, ToolSpec
from dial_client.messages.model import (
    Instruction,
    InstructionSource,
    ModelInfo,
    Provider,
    ToolFormat,
    separate_instructions,
)
from dial_client.messages.token_usage import Usage
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.logs import get_logger
from dial_client.servers.connection import Connection
from dial_client.tools.approval import ApprovalChecker
from dial_client.tools.catalog import Catalog
from dial_client.tools.executor import CallScope, ToolExecutor
from dial_client.tools.result_store import ResultStore
from dial_client.tools.taint import find_taint
from dial_client.tools.tool_selection import ToolSnapshot, TurnTools
from dial_client.turns.answer_format import AnswerFormat
from dial_client.turns.client_tools import ClientToolCalls, ToolSource
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.finalization import finish_turn
from dial_client.turns.instructions import TurnInstructions
from dial_client.turns.model_call import ChatModel, ModelCaller
from dial_client.turns.output_type import OutputType
from dial_client.turns.prices import compute_cost
from dial_client.turns.resolution import resolve
from dial_client.turns.status_model import StatusModel
from dial_client.turns.status_text import describe_tool
from dial_client.turns.turn_handle import TurnHandle
from dial_client.turns.turn_middleware import run_in_middleware
from dial_client.turns.typed_answer import TypedCaller

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnServices:
    """The objects and settings of a turn that do not depend on its messages."""

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
    guidance: str | None = None
    """Instructions on tool use; None for `GUIDANCE`, in conversations without system messages."""
    server_instructions: Callable[[], str] = str
    """Returns the instructions of the servers."""
    starting_servers: Callable[[], str] = str
    """Returns a text about the servers that are still starting; empty if there are none."""
    system: str | None = None
    """Instructions for conversations that do not start with a system message."""
    servers: Callable[[], Iterable[Connection]] = tuple
    """Returns the current servers, some of which may return untrusted content."""
    audit: TurnAudit = field(default_factory=TurnAudit)
    """Records decisions and calls."""
    middleware: MiddlewareChain = field(default_factory=MiddlewareChain)
    """Wraps the turn, its model calls and its tool calls."""


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """The options of one turn."""

    stream: bool = True
    """Whether the model streams its replies."""
    client_tools: tuple[ToolSpec, ...] = ()
    """The client-side tools, whose calls are returned to the caller."""
    max_tokens: int | None = None
    """Maximum tokens of each reply; None for the model's own limit."""
    depth: int = 0
    """Number of rounds of tool calls that a resumed turn has completed before."""
    output: OutputType[Any] | None = None
    """The type of the answer; None for text."""


async def run_turn(
    services: TurnServices, messages: tuple[Message, ...], turn: TurnHandle, options: TurnOptions
) -> StopReason:
    """Run a turn through the middleware and return why it ended; ``turn`` records all other results.

    Args:
        services: The objects and settings of the turn.
        messages: The conversation, which may have system messages.
        turn: Receives all events.
        options: The options of this turn.

    Raises:
        ProviderError: The model could not be reached, or refused the request.
        MiddlewareError: A middleware failed.
    """
    if not services.middleware.wraps_turns:
        return await _run_exchanges(services, messages, turn, options)

    async def run(request: TurnRequest) -> StopReason:
        changed = replace(services, limits=request.limits, system=request.system)
        return await _run_exchanges(changed, request.messages, turn, options)

    info = services.model.provider.info
    request = TurnRequest(
        messages=messages,
        limits=services.limits,
        system=services.system,
        model=info.name,
        turn_id=turn.id,
        conversation_id=turn.conversation_id,
    )
    return await run_in_middleware(services.middleware, request, info, turn, run)


async def _run_exchanges(
    services: TurnServices, messages: tuple[Message, ...], turn: TurnHandle, options: TurnOptions
) -> StopReason:
    """Ask the model and run its calls, to the last message of the turn."""
    limits = services.limits
    deadline = Deadline(limits.timeout)
    tools = TurnTools(
        services.tool_snapshot,
        services.result_store,
        limits,
        messages,
        services.model.window.tokens,
        lambda: _has_endpoint_search(services.model),
    )
    client_tools = ClientToolCalls(options.client_tools)
    instructions, conversation = _separate(messages, services)
    tools_on_offer = client_tools.add_to(tools.offer_tools, turn.recorder.note)
    answer = AnswerFormat(options.output) if options.output is not None else None
    model_caller = _build_caller(services, tools_on_offer, instructions, turn, deadline, options, answer)
    caller = model_caller if answer is None else TypedCaller(model_caller, answer)
    executor = _build_executor(services, tools, turn, messages, options)
    status_model = _build_status_model(services, turn)
    tool_round = _ToolRound(executor, client_tools, deadline, status_model, services.await_tool_changes)
    emit = _with_tool_status(turn.emit, tools.get_catalog, executor.add_taint)
    context = ConversationContext(conversation, limits.max_depth, min(options.depth, limits.max_depth))
    call_tools = tool_round.run if answer is None else answer.refuse_answers_beside_calls(tool_round.run)
    outcome = await resolve(context, client_tools.end_turn_at_calls(caller), call_tools, emit)
    reason = await finish_turn(outcome, caller, emit, ask_again=services.answers_at_limits)
    log.debug("turn", stop_reason=reason.value, depth=outcome.context.depth)
    return reason


@dataclass(frozen=True, slots=True)
class _ToolRound:
    """Runs the tool calls of one reply: a `CallTools` of `resolution.resolve`."""

    executor: ToolExecutor
    client_tools: ClientToolCalls
    deadline: Deadline
    status_model: StatusModel | None
    await_tool_changes: Callable[[], Awaitable[None]]

    async def run(self, calls: Sequence[ToolCallRequest], emit: Emit) -> tuple[Message, ...]:
        """Run the calls of the servers' tools, and return a message for each result."""
        server_calls = self.client_tools.select_server_calls(calls)
        execute = partial(self.executor.execute_all, server_calls, deadline=self.deadline)
        if self.status_model is None:
            results = await execute(emit)
        else:
            results = await self.status_model.narrate(execute, emit)
        messages = tuple(Message.tool(call, result) for call, result in zip(server_calls, results, strict=True))
        for message in messages:
            await emit(MessageCompleted(message))
        await self.await_tool_changes()
        return messages


def _separate(messages: tuple[Message, ...], services: TurnServices) -> tuple[TurnInstructions, tuple[Message, ...]]:
    """Return the instructions of the turn, and the conversation without them."""
    system_instructions, conversation = separate_instructions(messages)
    starts_with_system_message = bool(messages) and messages[0].role is Role.SYSTEM
    if services.system is not None and not starts_with_system_message:
        system_instructions = (Instruction(InstructionSource.CONVERSATION, services.system), *system_instructions)
    return TurnInstructions(
        system_instructions, services.server_instructions, services.guidance, services.starting_servers
    ), conversation


def _build_caller(
    services: TurnServices,
    tools: ToolSource,
    instructions: TurnInstructions,
    turn: TurnHandle,
    deadline: Deadline,
    options: TurnOptions,
    answer: AnswerFormat | None,
) -> ModelCaller:
    return ModelCaller(
        model=services.model,
        tools=tools,
        instructions=instructions,
        recorder=turn.recorder,
        limits=services.limits,
        deadline=deadline,
        stream=options.stream,
        max_tokens=options.max_tokens,
        answer=answer,
        middleware=services.middleware,
    )


def _build_executor(
    services: TurnServices, tools: TurnTools, turn: TurnHandle, messages: tuple[Message, ...], options: TurnOptions
) -> ToolExecutor:
    recorder = turn.recorder
    client_tool_names = frozenset(tool.name for tool in options.client_tools)
    taint = find_taint(messages, tools.get_catalog(), services.servers(), client_tool_names)
    scope = CallScope(tools.keep, recorder.awaiting_approval, recorder.add_usage, taint)
    audit = services.audit.for_turn(turn.origin)
    return ToolExecutor(tools.get_catalog, services.approvals, services.limits, scope, audit, services.middleware)


def _build_status_model(services: TurnServices, turn: TurnHandle) -> StatusModel | None:
    provider = services.status_provider
    if provider is None:
        return None

    def add_usage(usage: Usage, info: ModelInfo) -> None:
        turn.recorder.add_usage(usage, compute_cost(usage, info))

    return StatusModel(provider, add_usage, services.middleware)


def _has_endpoint_search(model: ChatModel) -> bool:
    """Return whether the endpoint can search the tools itself; this requires native tool calls."""
    return model.format.handler.format is ToolFormat.NATIVE and model.provider.info.searches_tools


def _with_tool_status(emit: Emit, catalog: Callable[[], Catalog], add_taint: Callable[[str], None]) -> Emit:
    """Return an `emit` that follows each `ToolCallStarted` with a `StatusChanged` that names the tool.

    Args:
        emit: Receives all events.
        catalog: Returns the current tools.
        add_taint: Receives the untrusted source of each result of a call that the endpoint ran itself.
    """

    async def emit_with_status(event: Event) -> None:
        await emit(event)
        if isinstance(event, ToolCallFinished) and event.by_endpoint:
            add_taint(event.result.taint)
        if isinstance(event, ToolCallStarted) and not event.by_endpoint:
            route = catalog().routes.get(event.call.name)
            await emit(StatusChanged(describe_tool(event.call, route.spec if route else None)))

    return emit_with_status
