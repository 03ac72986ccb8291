"""The context of a tool call: the deadlines that pause while the user is asked, and the turn that pays for sampling.

A server's request may arrive in the task of the call or in another task, so the context is a context variable and not
an argument.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from dial_client.hooks.audit.entries import Origin
from dial_client.messages.events import Emit
from dial_client.messages.limits import StopReason
from dial_client.messages.token_usage import Usage
from dial_client.runtime.context_value import ContextValue
from dial_client.runtime.deadline import Deadline

# Receives the tokens that were used, and their price in US dollars; None if the price is unknown.
Spend = Callable[[Usage, float | None], None]

# The features of a client that servers ask for. The two with a dot are parts of the feature before it: forms are
# ``elicitation``, and URLs ``elicitation.url``.
Feature = str
ELICITATION, SAMPLING, ROOTS = "elicitation", "sampling", "roots"
URLS, SAMPLING_TOOLS = "elicitation.url", "sampling.tools"
ALL_FEATURES = frozenset((ELICITATION, URLS, SAMPLING, SAMPLING_TOOLS, ROOTS))


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A request of a server that its client answers by repeating its own request."""

    request: Any
    """The request for the client, a model of ``mcp_types``."""


@dataclass(frozen=True, slots=True)
class InputRound:
    """What a repeated request has with it for the server that has asked (MCP 2026-07-28)."""

    server: str
    """The server's name in the configuration."""
    state: str | None
    """The state that the server wants back; None if it has none."""
    answers: Mapping[str, Any]
    """The answers as they are sent, by the keys of the server's requests."""

    def build_arguments(self) -> dict[str, Any]:
        """Return the arguments of the SDK's client for the repeated request."""
        return {"input_responses": dict(self.answers), "request_state": self.state}


class InputRequired(Exception):
    """A server requires answers of the client of a gateway, which repeats its request with them."""

    def __init__(self, round_: InputRound, questions: Mapping[str, Any]) -> None:
        super().__init__("the server asks something first")
        self.round = round_
        """What goes back to the server, with the answers that this program has given."""
        self.questions = questions
        """The requests that the client has to answer, models of ``mcp_types``, by the server's keys."""


class Caller(Protocol):
    """The client of a gateway that has made a call, and that answers the requests of servers during the call itself."""

    @property
    def is_resumable(self) -> bool:
        """True if the client repeats its request for each answer, so that each question belongs to one request."""

    @property
    def features(self) -> frozenset[Feature]:
        """What the client has: ``elicitation``, ``elicitation.url``, ``sampling``, ``sampling.tools``, ``roots``.

        Also ``apps`` if it shows MCP Apps.
        """

    async def answer(self, feature: Feature, server: str, params: Any) -> Any:
        """Return the client's answer as the client has sent it, a model of ``mcp_types``.

        It is an ``ErrorData`` if the client lacks the feature, refuses, or does not answer in time.

        Args:
            feature: ``elicitation``, ``sampling`` or ``roots``.
            server: The server's name in the configuration.
            params: The parameters of the request, as the server has sent them; None for ``roots``.
        """

    def hand_on(self, feature: Feature, server: str, params: Any) -> OpenQuestion | Any:
        """Return a request for a client that `is_resumable`, in place of waiting for its answer as `answer` does.

        It is an ``ErrorData`` if the client lacks the feature.
        """

    def take_input(self, server: str) -> InputRound | None:
        """Return what the client has brought with it for a server that has asked before, once; None for nothing."""

    def begin_task(self) -> None:
        """Learn that the server has answered the call with a task: the result takes some time."""

    async def complete_elicitation(self, server: str, elicitation_id: str) -> None:
        """Tell the client that its user has completed a URL elicitation of a server."""


class Callers(Protocol):
    """All clients of a gateway."""

    @property
    def features(self) -> frozenset[Feature]:
        """The features that servers may ask for: those that at least one client has, or may have."""

    @property
    def single(self) -> Caller | None:
        """The only client that there can be; None if there may be several, or if it is not known yet."""


@dataclass(frozen=True, slots=True)
class LaterCallers:
    """The clients of a gateway that serves them later, beside a program that makes calls for itself, as ``/mcp`` does.

    Servers are told at their start that every feature exists, because they start before the clients are known.
    """

    features: frozenset[Feature] = ALL_FEATURES
    single: Caller | None = None


@dataclass(eq=False, slots=True)
class CallTask:
    """The task with which a server answers a call (SEP-2663), for whoever goes on with the call after a restart."""

    id: str = ""
    """The id of the task; empty until the server has answered with one."""
    store: Callable[[str], Awaitable[bool]] | None = None
    """Stores the id, and returns whether this has succeeded; None once it is stored."""
    is_left: Callable[[], bool] = lambda: False
    """Whether another process goes on with the task: cancelling the call then does not cancel the task."""

    async def keep(self, id_: str) -> None:
        """Store the id of the task, unless it is stored."""
        self.id = id_
        if self.store is not None and await self.store(id_):
            self.store = None


@dataclass(frozen=True, slots=True, eq=False)
class TurnScope:
    """What holds for the turns that the calls of a turn run, as for the turn itself."""

    find_spent: Callable[[], StopReason | None] = lambda: None
    """Returns which limit the tokens or the money of the turn have reached, or of a turn whose call has run it; None
    for neither."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """The keywords of the turn."""
    hidden_tools: Collection[str] = ()
    """The offered names of tools that the turn leaves out."""


@dataclass(slots=True, eq=False)  # not frozen, as it is made for each call: see `tools.executor.CallScope`
class CallContext:
    """The context of one call, for the requests that its server sends during the call."""

    turn: Deadline
    """The deadline of the whole turn; it identifies the turn."""
    call: Deadline
    """The deadline of this call."""
    spend: Spend | None = None
    origin: Origin = Origin()  # noqa: RUF009 - frozen
    """The turn the call belongs to."""
    meta: Mapping[str, Any] | None = None
    """The ``_meta`` of the request to the server: members that the caller of the gateway has sent; None for none."""
    caller: Caller | None = None
    """The client of a gateway that has made the call; None for the calls of this program."""
    scope: TurnScope = TurnScope()
    taint: tuple[str, ...] = ()
    """The sources of untrusted content that the model had read when it requested the call."""
    task: CallTask | None = None
    """The task of the call, which is stored; None if nobody could go on with it."""
    call_id: str = ""
    """The id of the call in its turn."""
    emit: Emit | None = None
    """Receives the events of a turn, or of calls, that the call runs; None if nobody reads them."""
    agents: Any = None
    """Stores what an agent does that the call runs, an `AgentProgress`; None if nobody could go on with it."""


@contextmanager
def pause_deadlines(contexts: Iterable[CallContext]) -> Iterator[None]:
    """Pause the deadlines of the calls and of their turns within the ``with`` block."""
    with ExitStack() as pauses:
        for deadline in {deadline for context in contexts for deadline in (context.turn, context.call)}:
            pauses.enter_context(deadline.pause())
        yield


_CURRENT: ContextVar[CallContext | None] = ContextVar("call_context", default=None)


def set_current(context: CallContext | None) -> ContextValue[CallContext | None]:
    """Set the current context within the ``with`` block; None for no call."""
    return ContextValue(_CURRENT, context)


def find_current() -> CallContext | None:
    """Return the context of the current call; None outside of a call."""
    return _CURRENT.get()
