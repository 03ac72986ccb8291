"""Middleware: code of the embedding program around turns, model calls and tool calls.

The first middleware of the list is the outermost one. Each method receives a request, and a `call_next` that continues
with this request or a changed one. Methods that are not overridden are skipped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from dial_client.messages.errors import DialError, MiddlewareError, RequestRefused
from dial_client.messages.limits import Limits, StopReason
from dial_client.messages.message import (
    Failure,
    Message,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
    build_not_run_result,
)
from dial_client.messages.model import FinishReason, ModelInfo, ModelRequest
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import Turn
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")
CallNext = Callable[[RequestT], Awaitable[ResultT]]
"""Passes a request to the next middleware, or after the last middleware to the client, and returns the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A turn that is about to start."""

    messages: tuple[Message, ...]
    """The conversation, including its system messages."""
    limits: Limits
    system: str | None
    """Instructions, used if the conversation does not start with a system message. None for the host's own guidance on
    tools, empty for no instructions."""
    model: str
    """The provider's name."""
    turn_id: str
    """The turn's id, unique among all turns."""
    conversation_id: str = ""
    """The id of the turn's conversation; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The complete reply to one request to a model."""

    message: Message
    """The assistant's message, with its tool calls."""
    finish: FinishReason = FinishReason.STOP
    usage: Usage = field(default_factory=Usage)
    info: ModelInfo | None = None
    """The model that answered; None for a reply that a middleware wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call that is about to be approved and made."""

    request: ToolCallRequest
    """The call as the model requested it."""
    spec: ToolSpec | None
    """The tool; None if no tool of this name is offered."""
    turn_id: str = ""
    """The turn that makes the call; empty for `DialClient.call`."""
    conversation_id: str = ""
    """The conversation of the turn; empty if it has none."""
    owner: str = ""
    """The person whom the call is for, in the words of the program; empty if the program does not name one."""

    @property
    def name(self) -> str:
        """The name under which the tool is offered to the model."""
        return self.request.name

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The call's arguments: a JSON object."""
        return self.request.arguments

    @property
    def server(self) -> str:
        """The server's name in the configuration; ``functions`` for functions, empty for the host's own tools."""
        return self.spec.server if self.spec is not None else ""

    @property
    def tool(self) -> str:
        """The tool's name on its server."""
        return self.spec.tool if self.spec is not None else self.name

    def with_arguments(self, arguments: Mapping[str, Any]) -> ToolCall:
        """Return the call with other arguments."""
        return replace(self, request=replace(self.request, arguments=dict(arguments), unreadable=None))


class Middleware:
    """Code around turns, model calls and tool calls. A subclass overrides the methods it needs.

    Each method returns the result of `call_next` or a result of its own, or calls `refuse`. If a method raises an
    exception, a tool call fails, and the model reads the error; a model call or a turn ends with a `MiddlewareError`
    that names the middleware's class. A `DialError` is raised unchanged.
    """

    async def around_turn(self, request: TurnRequest, call_next: CallNext[TurnRequest, Turn]) -> Turn:
        """Run a turn and return it. `call_next` may be called at most once.

        A changed result does not change the events or the stored messages. If `call_next` is not called, the messages
        of the result become the turn's messages.
        """
        return await call_next(request)

    async def around_model_call(
        self, request: ModelRequest, call_next: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Send a request to the model and return the reply. Text that was already streamed cannot be withdrawn."""
        return await call_next(request)

    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Make a tool call. Validation, approval and the audit log follow within `call_next`, with the call it gets."""
        return await call_next(call)


class _Refusal(Exception):
    """Carries a reason, its only argument, from `refuse` to the chain."""


def refuse(reason: str) -> NoReturn:
    """Refuse the turn, model call or tool call that a middleware method wraps. The method ends here.

    Args:
        reason: A sentence. For a tool call it is the result that the model reads, for a turn it is the answer, for a
            model call it is the text of the `RequestRefused` that ends the turn.
    """
    raise _Refusal(reason)


@dataclass(frozen=True, eq=False, slots=True)
class _Chain(Generic[RequestT, ResultT]):
    """The middleware of one kind of request (turn, model call or tool call), and how such a request is refused."""

    method: str
    """The name of the middleware's method."""
    members: tuple[Middleware, ...]
    """The middleware that overrides the method, the outermost first."""
    request_type: type[RequestT]
    result_type: type[ResultT]
    refuse: Callable[[str, RequestT, ResultT | None], ResultT]
    """Returns the result of a refused request, or raises a `DialError`. The third argument is the result of the last
    `call_next`; None if it has no result."""
    runs_once: bool = False
    """Whether `call_next` may be called only once."""

    async def run(self, request: RequestT, end: CallNext[RequestT, ResultT], index: int = 0) -> ResultT:
        """Return the result of the member at this index, or of `end` after the last member.

        Raises:
            MiddlewareError: A member raised an exception, or returned a value of the wrong type.
        """
        if index == len(self.members):
            return await end(request)
        member, call_next = self.members[index], _CallNext(self, index + 1, end)
        name = type(member).__name__
        try:
            result: object = await getattr(member, self.method)(request, call_next)
        except _Refusal as refusal:
            return self.refuse(refusal.args[0], request, call_next.result)
        except DialError:
            raise
        except Exception as error:
            cause = _unwrap(error)  # a task group in the member wraps the errors of inner members
            if isinstance(cause, _Refusal):
                return self.refuse(cause.args[0], request, call_next.result)
            if cause is call_next.error or isinstance(cause, DialError):
                raise cause from None
            log.failure("middleware_failed", cause, middleware=name)
            raise MiddlewareError(name, f"raised {type(cause).__name__}") from error
        if not isinstance(result, self.result_type):
            problem = f"returned {type(result).__name__}, not a {self.result_type.__name__}"
            raise MiddlewareError(name, problem)
        return result


def _unwrap(error: Exception) -> Exception:
    """Return the error inside nested groups of a single error each."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@dataclass(eq=False, slots=True)
class _CallNext(Generic[RequestT, ResultT]):
    """The `call_next` of one member of a chain."""

    chain: _Chain[RequestT, ResultT]
    index: int
    """The index of the next member."""
    end: CallNext[RequestT, ResultT]
    result: ResultT | None = None
    """The last result; None before the first."""
    error: Exception | None = None
    """The last error raised by the inner members or the client."""
    is_begun: bool = False

    async def __call__(self, request: RequestT) -> ResultT:
        name = self.chain.request_type.__name__
        if not isinstance(request, self.chain.request_type):
            raise TypeError(f"call_next takes a {name}, not {type(request).__name__}")
        if self.is_begun and self.chain.runs_once:
            raise RuntimeError(f"call_next was called twice with a {name}")
        self.is_begun = True
        try:
            self.result = await self.chain.run(request, self.end, self.index)
        except Exception as error:
            self.error = error
            raise
        return self.result


def _refuse_turn(reason: str, _request: TurnRequest, done: Turn | None) -> Turn:
    message = Message.assistant(reason)
    if done is not None:
        return replace(done, message=message, stop_reason=StopReason.REFUSED, output=None)
    return Turn(message, (message,), StopReason.REFUSED, depth=0, usage=Usage())


def _refuse_model_call(reason: str, _request: ModelRequest, _reply: ModelReply | None) -> ModelReply:
    raise RequestRefused(reason)


def _refuse_tool_call(reason: str, call: ToolCall, _result: ToolCallResult | None) -> ToolCallResult:
    return build_not_run_result(call.request.id, reason, Failure.DENIED)


_METHODS = ("around_turn", "around_model_call", "around_tool_call")


class Instruments(Protocol):
    """Measures turns, model calls and tool calls, without changing them."""

    async def around_turn(self, request: TurnRequest, info: ModelInfo, call_next: CallNext[TurnRequest, Turn]) -> Turn:
        """Measure a turn, including its middleware."""

    async def around_model_call(
        self, request: ModelRequest, info: ModelInfo, call_next: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Measure a request to a model, excluding the middleware around it."""

    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Measure a tool call, including its middleware."""

    def record_restart(self, server: str) -> None:
        """Count a restart of a server."""


class MiddlewareChain:
    """The middleware of a client: for each method, the members that override it, the outermost first.

    Args:
        middleware: The middleware objects, the outermost first.
        find_instruments: Returns the current `Instruments`; None if nothing is measured.

    Raises:
        TypeError: An object is not a `Middleware`, or has an ``around_…`` method that `Middleware` does not have.
    """

    def __init__(
        self, middleware: Iterable[Middleware] = (), find_instruments: Callable[[], Instruments | None] = lambda: None
    ) -> None:
        if isinstance(middleware, Middleware):
            raise TypeError(f"middleware takes a list: middleware=[{type(middleware).__name__}(…)]")
        given: Any = middleware  # callers without a type checker may pass any type
        if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
            raise TypeError(f"middleware takes a list of Middleware objects, not {type(given).__name__}")
        members = [_check(member) for member in middleware]

        def select(method: str) -> tuple[Middleware, ...]:
            inherited = getattr(Middleware, method)
            return tuple(member for member in members if getattr(type(member), method) is not inherited)

        turn, model_call, tool_call = _METHODS
        self._turns = _Chain(turn, select(turn), TurnRequest, Turn, _refuse_turn, runs_once=True)
        self._model_calls = _Chain(model_call, select(model_call), ModelRequest, ModelReply, _refuse_model_call)
        self._tool_calls = _Chain(tool_call, select(tool_call), ToolCall, ToolCallResult, _refuse_tool_call)
        self._find_instruments = find_instruments

    @property
    def wraps_turns(self) -> bool:
        """True if turns are wrapped or measured; otherwise `run_turn` need not be called."""
        return bool(self._turns.members) or self._find_instruments() is not None

    @property
    def wraps_model_calls(self) -> bool:
        """True if model calls are wrapped or measured; otherwise `ask_model` need not be called."""
        return bool(self._model_calls.members) or self._find_instruments() is not None

    @property
    def changes_tool_calls(self) -> bool:
        """True if a middleware may change tool calls or their results."""
        return bool(self._tool_calls.members)

    @property
    def wraps_tool_calls(self) -> bool:
        """True if tool calls are wrapped or measured; otherwise `call_tool` need not be called."""
        return self.changes_tool_calls or self._find_instruments() is not None

    async def run_turn(self, request: TurnRequest, info: ModelInfo, end: CallNext[TurnRequest, Turn]) -> Turn:
        """Run a turn through the middleware; `info` describes its model.

        Raises:
            MiddlewareError: A middleware failed.
        """
        run = partial(self._turns.run, end=end)
        instruments = self._find_instruments()
        return await run(request) if instruments is None else await instruments.around_turn(request, info, run)

    async def ask_model(
        self, request: ModelRequest, info: ModelInfo, end: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Send a request to the model through the middleware; `info` describes the model.

        Raises:
            MiddlewareError: A middleware failed.
            ProviderError: The request to the model failed.
            RequestRefused: A middleware refused the request, or the reply.
        """
        if (instruments := self._find_instruments()) is not None:
            end = partial(instruments.around_model_call, info=info, call_next=end)
        return await self._model_calls.run(request, end)

    async def call_tool(self, call: ToolCall, end: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Make a tool call through the middleware. If a middleware fails, the call fails."""

        async def run(call: ToolCall) -> ToolCallResult:
            try:
                return await self._tool_calls.run(call, end)
            except DialError as error:
                problem = str(error).rstrip(".")
                failed = ToolCallResult.failed(call.request.id, Failure.SERVER, f"The call failed: {problem}.")
                return replace(failed, exception=error)

        instruments = self._find_instruments()
        return await run(call) if instruments is None else await instruments.around_tool_call(call, run)


def _check(member: Middleware) -> Middleware:
    candidate: object = member  # callers without a type checker may pass anything
    if isinstance(candidate, type):
        raise TypeError(f"middleware takes objects, not classes: middleware=[{candidate.__name__}(…)]")
    name = type(candidate).__name__
    if not isinstance(candidate, Middleware):
        raise TypeError(f"{name} is not a middleware: make it a subclass of Middleware")
    for attribute in dir(candidate):
        if attribute.startswith("around_") and attribute not in _METHODS:
            from difflib import get_close_matches

            nearest = get_close_matches(attribute, _METHODS, n=1, cutoff=0.0)[0]
            raise TypeError(f"the middleware {name} has a method {attribute!r}: did you mean {nearest!r}?")
    return member
