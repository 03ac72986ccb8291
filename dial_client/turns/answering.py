"""One turn, put together: what is on offer, who is asked, what carries out the calls, and how it lands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from dial_client.catalog import Catalog
from dial_client.context import ConversationContext
from dial_client.deadline import Deadline
from dial_client.events import Emit, Event, MessageCompleted, StatusChanged, ToolCallStarted
from dial_client.executor import ToolExecutor
from dial_client.formats.choice import ChosenFormat
from dial_client.limits import Limits, StopReason
from dial_client.logs import get_logger
from dial_client.messages import Message, Role, ToolCallRequest, ToolSpec, Usage
from dial_client.model import Provider, ToolFormat
from dial_client.prices import cost_at
from dial_client.resolution import resolve
from dial_client.servers.connection import Connection
from dial_client.tools.approvals import Approvals
from dial_client.tools.offering import Menu, Offering
from dial_client.tools.shelf import Shelf
from dial_client.tools.taint import in_history
from dial_client.turns.asking import Asker
from dial_client.turns.fitting import Window
from dial_client.turns.handing_back import HandedBack
from dial_client.turns.landing import land
from dial_client.turns.narrating import Narrator
from dial_client.turns.running import RunningTurn
from dial_client.turns.status import using

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Host:
    """What all turns of a client share."""

    provider: Provider
    format: ChosenFormat
    window: Window
    menu: Callable[[], Menu]
    """Gives the servers' tools of the moment."""
    shelf: Shelf
    approvals: Approvals
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of one turn."""

    stream: bool = True
    """Ask the model for its replies in pieces."""
    handed_back: tuple[ToolSpec, ...] = ()
    """The caller's own tools."""
    max_tokens: int | None = None
    """Of each reply; None for the model's own limit."""
    depth: int = 0
    """Rounds that lie behind already: of a turn that is gone on with."""


async def answer(host: Host, messages: tuple[Message, ...], turn: RunningTurn, wanted: Wanted) -> StopReason:
    """Carry a turn out, and say why it ended; everything else about it is in what `turn` has recorded.

    Args:
        host: what the turn has to work with.
        messages: the conversation.
        turn: hears everything that happens.
        wanted: what the caller has to say about it.

    Raises:
        ProviderError: the model could not be reached or refused the request.
    """
    messages = _instructed(messages, host.system)
    deadline, recorder = Deadline(host.limits.timeout), turn.recorder
    offering = Offering(host.menu, host.shelf, host.limits, messages, host.window.tokens, lambda: _searches(host))
    handed_back = HandedBack(wanted.handed_back)
    asker = Asker(
        host.provider,
        host.format,
        host.window,
        handed_back.beside(offering.tools, recorder.note),
        deadline,
        recorder,
        host.limits,
        wanted.stream,
        host.guidance,
        wanted.max_tokens,
        host.words,
    )
    own = frozenset(tool.name for tool in wanted.handed_back)
    executor = ToolExecutor(
        offering.catalog,
        host.approvals,
        host.limits,
        offering.keep,
        recorder.unallowed,
        recorder.add_usage,
        in_history(messages, offering.catalog(), host.servers(), own),
    )

    def narrated(usage: Usage) -> None:
        recorder.add_usage(usage, cost_at(host.narrator, usage))

    narrator = None if host.narrator is None else Narrator(host.narrator, narrated)

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
    context = ConversationContext(messages, host.limits.max_depth, min(wanted.depth, host.limits.max_depth))
    outcome = await resolve(context, handed_back.ending(asker), call_tools, emit)
    reason = await land(outcome, asker, emit, ask_again=host.lands_softly)
    log.debug("turn", stop_reason=reason.value, depth=outcome.context.depth)
    return reason


def _instructed(messages: tuple[Message, ...], system: str | None) -> tuple[Message, ...]:
    if system is None or (messages and messages[0].role is Role.SYSTEM):
        return messages
    return (Message.system(system), *messages)


def _searches(host: Host) -> bool:
    """Whether the endpoint searches among tools itself: those of its wire, not those that ride as text."""
    return host.format.handler.format is ToolFormat.NATIVE and bool(getattr(host.provider, "searches_tools", False))


def _with_status(emit: Emit, catalog: Callable[[], Catalog]) -> Emit:
    """Give an `emit` that says in words which tool is used."""

    async def with_status(event: Event) -> None:
        await emit(event)
        if isinstance(event, ToolCallStarted):
            route = catalog().routes.get(event.call.name)
            await emit(StatusChanged(using(event.call, route.spec if route else None)))

    return with_status
