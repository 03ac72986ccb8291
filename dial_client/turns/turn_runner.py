"""One turn, put together: what is on offer, who is asked, what carries out the calls, and how it lands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from dial_client.audit.call_audit import TurnAudit
from dial_client.deadline import Deadline
from dial_client.events import Emit, Event, MessageCompleted, StatusChanged, ToolCallStarted
from dial_client.formats.format_selection import ActiveFormat
from dial_client.limits import Limits, StopReason
from dial_client.logs import get_logger
from dial_client.messages import Message, Role, ToolCallRequest, ToolSpec
from dial_client.model import Instruction, InstructionSource, Provider, ToolFormat, separate_instructions
from dial_client.prices import cost_usd
from dial_client.servers.connection import Connection
from dial_client.tools.approval import ApprovalChecker
from dial_client.tools.catalog import Catalog
from dial_client.tools.executor import CallScope, ToolExecutor
from dial_client.tools.result_store import ResultStore
from dial_client.tools.taint import in_history
from dial_client.tools.tool_selection import ToolSnapshot, TurnTools
from dial_client.turns.client_tools import ClientToolCalls
from dial_client.turns.context_window import ContextWindow
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.finalization import land
from dial_client.turns.instructions import TurnInstructions
from dial_client.turns.model_call import ModelCaller
from dial_client.turns.resolution import resolve
from dial_client.turns.status_model import StatusModel
from dial_client.turns.status_text import using
from dial_client.turns.turn_handle import TurnHandle
from dial_client.turns.turn_recorder import TurnRecorder

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TurnServices:
    """What all turns of a client share."""

    provider: Provider
    format: ActiveFormat
    window: ContextWindow
    menu: Callable[[], ToolSnapshot]
    """Gives the servers' tools of the moment."""
    shelf: ResultStore
    approvals: ApprovalChecker
    limits: Limits
    fresh: Callable[[], Awaitable[None]]
    """Waits, briefly, for tools that a server has just said have changed."""
    narrator: Provider | None = None
    """Words the status of running calls; None for the templates alone."""
    lands_softly: bool = True
    """The model is asked for a last word when a limit is met."""
    guidance: str | None = None
    """How the model is to go about tools; None for our own words, where nobody else's are."""
    words: str = ""
    """What the servers say of themselves."""
    system: str | None = None
    """Instructions for conversations that do not begin with their own."""
    servers: Callable[[], Iterable[Connection]] = tuple
    """Gives the servers of the moment: which of them bring in untrusted content."""
    audit: TurnAudit = field(default_factory=TurnAudit)
    """Records what is decided and called."""


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """What is wanted of one turn."""

    stream: bool = True
    """Ask the model for its replies in pieces."""
    client_tools: tuple[ToolSpec, ...] = ()
    """The caller's own tools."""
    max_tokens: int | None = None
    """Of each reply; None for the model's own limit."""
    depth: int = 0
    """Rounds that lie behind already: of a turn that is gone on with."""


async def answer(
    host: TurnServices, messages: tuple[Message, ...], turn: TurnHandle, wanted: TurnOptions
) -> StopReason:
    """Carry a turn out, and say why it ended; everything else about it is in what `turn` has recorded.

    Args:
        host: what the turn has to work with.
        messages: the conversation.
        turn: hears everything that happens.
        wanted: what the caller has to say about it.

    Raises:
        ProviderError: the model could not be reached or refused the request.
    """
    instructions, conversation = separate_instructions(messages)
    if host.system is not None and not (messages and messages[0].role is Role.SYSTEM):
        instructions = (Instruction(InstructionSource.CONVERSATION, host.system), *instructions)
    deadline, recorder = Deadline(host.limits.timeout), turn.recorder
    offering = TurnTools(host.menu, host.shelf, host.limits, messages, host.window.tokens, lambda: _searches(host))
    handed_back = ClientToolCalls(wanted.client_tools)
    asker = ModelCaller(
        host.provider,
        host.format,
        host.window,
        handed_back.beside(offering.tools, recorder.note),
        deadline,
        recorder,
        host.limits,
        wanted.stream,
        TurnInstructions(instructions, host.words, host.guidance),
        wanted.max_tokens,
    )
    own = frozenset(tool.name for tool in wanted.client_tools)
    taint = in_history(messages, offering.catalog(), host.servers(), own)
    scope = CallScope(offering.keep, recorder.unallowed, recorder.add_usage, taint)
    audit = host.audit.for_turn(turn.origin)
    executor = ToolExecutor(offering.catalog, host.approvals, host.limits, scope, audit)

    narrator = None if host.narrator is None else _status_model(host.narrator, recorder)

    async def call_tools(calls: Sequence[ToolCallRequest], emit: Emit) -> tuple[Message, ...]:
        calls = handed_back.others(calls)
        work = partial(executor.execute_all, calls, deadline=deadline)
        done = await (work(emit) if narrator is None else narrator.beside(work, emit))
        results = tuple(Message.tool(call, result) for call, result in zip(calls, done, strict=True))
        for message in results:
            await emit(MessageCompleted(message))
        await host.fresh()
        return results

    emit = _with_status(turn.emit, offering.catalog)
    context = ConversationContext(conversation, host.limits.max_depth, min(wanted.depth, host.limits.max_depth))
    outcome = await resolve(context, handed_back.ending(asker), call_tools, emit)
    reason = await land(outcome, asker, emit, ask_again=host.lands_softly)
    log.debug("turn", stop_reason=reason.value, depth=outcome.context.depth)
    return reason


def _searches(host: TurnServices) -> bool:
    """Whether the endpoint searches among tools itself: those of its wire, not those that ride as text."""
    return host.format.handler.format is ToolFormat.NATIVE and host.provider.info.searches_tools


def _status_model(provider: Provider, recorder: TurnRecorder) -> StatusModel:
    """Return the writer of status lines; what it spends counts as the turn's."""
    return StatusModel(provider, lambda usage: recorder.add_usage(usage, cost_usd(usage, provider.info)))


def _with_status(emit: Emit, catalog: Callable[[], Catalog]) -> Emit:
    """Give an `emit` that says in words which tool is used."""

    async def with_status(event: Event) -> None:
        await emit(event)
        if isinstance(event, ToolCallStarted):
            route = catalog().routes.get(event.call.name)
            await emit(StatusChanged(using(event.call, route.spec if route else None)))

    return with_status
