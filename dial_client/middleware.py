"""Middleware: code of the embedding program around turns, model calls and tool calls.

The first middleware of the list is the outermost one. Each method receives a request and `call_next`, which carries on
with that request or a changed one. A method that is not overridden costs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from dial_client.errors import DialError, MiddlewareError, ProviderError
from dial_client.messages.message import Failure, Message, ToolCallRequest, ToolCallResult, ToolSpec
from dial_client.model import FinishReason, ModelInfo, ModelRequest
from dial_client.runtime.logs import get_logger
from dial_client.turn_data.limits import Limits, StopReason
from dial_client.turn_data.token_usage import Usage
from dial_client.turn_data.turn_result import Turn

log = get_logger(__name__)

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")
CallNext = Callable[[RequestT], Awaitable[ResultT]]
"""Carries on with a request, and returns the result: the next middleware, or at the end the client itself."""

REFUSED = "refused_by_middleware"
"""The code of the `ProviderError` of a model call that a middleware refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A turn that is about to begin."""

    messages: tuple[Message, ...]
    """The conversation, with the system messages that it holds."""
    limits: Limits
    system: str | None
    """Instructions for a conversation that does not begin with its own; None for none."""
    model: str
    """The provider's name."""
    turn_id: str
    """Unlike that of any other turn."""
    conversation_id: str = ""
    """Empty for a turn of no conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The complete reply to one request to a model."""

    message: Message
    """The assistant's message, with its tool calls."""
    finish: FinishReason = FinishReason.STOP
    usage: Usage = field(default_factory=Usage)
    info: ModelInfo | None = None
    """The model that answered; None for a reply that no model wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call that is about to be approved and made."""

    request: ToolCallRequest
    """The call as the model asks for it."""
    spec: ToolSpec | None
    """The tool; None where no tool of this name is offered."""
    turn_id: str = ""
    """The turn that makes the call; empty for `DialClient.call`."""
    conversation_id: str = ""
    """The conversation of the turn; empty for none."""

    @property
    def name(self) -> str:
        """The name that the tool is offered by."""
        return self.request.name

    @property
    def arguments(self) -> Mapping[str, Any]:
        """A JSON object."""
        return self.request.arguments

    @property
    def server(self) -> str:
        """The server's name in the configuration; ``functions`` for functions, empty for the host's own tools."""
        return self.spec.server if self.spec is not None else ""

    @property
    def tool(self) -> str:
        """The tool's own name at its server."""
        return self.spec.tool if self.spec is not None else self.name

    def with_arguments(self, arguments: Mapping[str, Any]) -> ToolCall:
        """Return the call with other arguments."""
        return replace(self, request=replace(self.request, arguments=dict(arguments), unreadable=None))


class Middleware:
    """Code around turns, model calls and tool calls. A subclass overrides the methods it needs.

    Each method returns the result of `call_next`, or another one, or refuses with `refuse`. An exception ends only what
    the method is around, and names the class: a tool call fails, and the model reads that; a turn ends in a
    `MiddlewareError`. A `DialError` goes through as it is.
    """

    async def around_turn(self, request: TurnRequest, call_next: CallNext[TurnRequest, Turn]) -> Turn:
        """Run a turn, and return it: `call_next` may be called once.

        Events and stored messages are not changed by the result.
        Where `call_next` is not called, the messages of the result are those of the turn.
        """
        return await call_next(request)

    async def around_model_call(
        self, request: ModelRequest, call_next: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Ask the model, and return the reply. Text that was streamed before it is complete cannot be taken back."""
        return await call_next(request)

    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Make a tool call: checks, approval and the audit log come behind `call_next`, and see the changed call."""
        return await call_next(call)


class _Refusal(Exception):
    """Carries a reason from `refuse` to the chain."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def refuse(reason: str) -> NoReturn:
    """Refuse what the method of a middleware is around; the method ends here.

    Args:
        reason: a sentence. The model reads it in place of a tool's result; it is the answer of a turn, and the text of
            the `ProviderError` of a model call.
    """
    raise _Refusal(reason)


@dataclass(frozen=True, slots=True)
class _Layer(Generic[RequestT, ResultT]):
    """One method of one middleware."""

    name: str
    call: Callable[[RequestT, CallNext[RequestT, ResultT]], Awaitable[ResultT]]


@dataclass(frozen=True, slots=True)
class _Around(Generic[RequestT, ResultT]):
    """What the layers are around."""

    request_type: type[RequestT]
    result_type: type[ResultT]
    refuse: Callable[[str, RequestT, ResultT | None], ResultT]
    """Returns the result of a refused request, or raises a `DialError`; the third argument is the result that the layer
    refuses, None where it has none yet."""
    runs_once: bool = False
    """`call_next` may be called once."""

    async def run(
        self, layers: tuple[_Layer[RequestT, ResultT], ...], request: RequestT, end: CallNext[RequestT, ResultT]
    ) -> ResultT:
        """Return the result of the outermost layer.

        Raises:
            MiddlewareError: a layer raised an exception, or returned a value of the wrong type.
        """
        if not layers:
            return await end(request)
        layer, call_next = layers[0], _Next(self, layers[1:], end)
        try:
            result = await layer.call(request, call_next)
        except _Refusal as refusal:
            return self.refuse(refusal.reason, request, call_next.result)
        except DialError:
            raise
        except Exception as error:
            cause = _unwrap(error)  # a task group of the layer wraps what comes from further inside
            if isinstance(cause, _Refusal):
                return self.refuse(cause.reason, request, call_next.result)
            if cause is call_next.error or isinstance(cause, DialError):
                raise cause from None
            _log_failure(layer.name, error)
            raise MiddlewareError(layer.name, f"raised {type(cause).__name__}") from error
        if not isinstance(result, self.result_type):
            problem = f"returned {type(result).__name__}, not a {self.result_type.__name__}"
            raise MiddlewareError(layer.name, problem)
        return result


def _unwrap(error: Exception) -> Exception:
    """Return the only error in groups of one."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@dataclass(slots=True)
class _Next(Generic[RequestT, ResultT]):
    """The `call_next` of one layer."""

    around: _Around[RequestT, ResultT]
    layers: tuple[_Layer[RequestT, ResultT], ...]
    end: CallNext[RequestT, ResultT]
    result: ResultT | None = None
    """The last result; None for none."""
    error: Exception | None = None
    """The last error that came from further inside."""
    is_begun: bool = False

    async def __call__(self, request: RequestT) -> ResultT:
        name = self.around.request_type.__name__
        if not isinstance(request, self.around.request_type):
            raise TypeError(f"call_next takes a {name}, not {type(request).__name__}")
        if self.is_begun and self.around.runs_once:
            raise RuntimeError(f"call_next was called twice with a {name}")
        self.is_begun = True
        try:
            self.result = await self.around.run(self.layers, request, self.end)
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
    raise ProviderError(reason, code=REFUSED)


def _refuse_tool_call(reason: str, call: ToolCall, _result: ToolCallResult | None) -> ToolCallResult:
    return ToolCallResult.failed(call.request.id, Failure.DENIED, f"Not run: {reason}")


_TURN = _Around(TurnRequest, Turn, _refuse_turn, runs_once=True)
_MODEL_CALL = _Around(ModelRequest, ModelReply, _refuse_model_call)
_TOOL_CALL = _Around(ToolCall, ToolCallResult, _refuse_tool_call)

_METHODS = ("around_turn", "around_model_call", "around_tool_call")


class Instruments(Protocol):
    """Measures turns, model calls and tool calls. It changes nothing."""

    async def around_turn(self, request: TurnRequest, info: ModelInfo, call_next: CallNext[TurnRequest, Turn]) -> Turn:
        """Measure a turn, with its middleware."""
        ...

    async def around_model_call(
        self, request: ModelRequest, info: ModelInfo, call_next: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Measure a request to a model, without the middleware around it."""
        ...

    async def around_tool_call(self, call: ToolCall, call_next: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Measure a tool call, with its middleware."""
        ...

    def record_restart(self, server: str) -> None:
        """Count a restart of a server."""
        ...


def _find_no_instruments() -> None:
    """Measure nothing."""


class MiddlewareChain:
    """The middleware of a client: for each method the layers that override it, the outermost first.

    Args:
        middleware: the outermost first.
        find_instruments: returns what measures turns and calls at the moment; None for nothing.

    Raises:
        TypeError: an object is no `Middleware`, or has a method whose name is nearly one of its names.
    """

    def __init__(
        self,
        middleware: Iterable[Middleware] = (),
        find_instruments: Callable[[], Instruments | None] = _find_no_instruments,
    ) -> None:
        if isinstance(middleware, Middleware):
            raise TypeError(f"middleware takes a list: middleware=[{type(middleware).__name__}(…)]")
        members = [(_check(member), type(member)) for member in middleware]
        self._turns = tuple(
            _Layer(kind.__name__, member.around_turn)
            for member, kind in members
            if kind.around_turn is not Middleware.around_turn
        )
        self._model_calls = tuple(
            _Layer(kind.__name__, member.around_model_call)
            for member, kind in members
            if kind.around_model_call is not Middleware.around_model_call
        )
        self._tool_calls = tuple(
            _Layer(kind.__name__, member.around_tool_call)
            for member, kind in members
            if kind.around_tool_call is not Middleware.around_tool_call
        )
        self._find_instruments = find_instruments

    @property
    def wraps_turns(self) -> bool:
        """True if something is around turns; else `run_turn` need not be called."""
        return bool(self._turns) or self._find_instruments() is not None

    @property
    def wraps_model_calls(self) -> bool:
        """True if something is around model calls; else `ask_model` need not be called."""
        return bool(self._model_calls) or self._find_instruments() is not None

    @property
    def wraps_tool_calls(self) -> bool:
        """True if something is around tool calls; else `call_tool` need not be called."""
        return bool(self._tool_calls) or self._find_instruments() is not None

    async def run_turn(self, request: TurnRequest, info: ModelInfo, end: CallNext[TurnRequest, Turn]) -> Turn:
        """Run a turn through the layers; `info` is of its model.

        Raises:
            MiddlewareError: a layer failed.
        """

        async def run(request: TurnRequest) -> Turn:
            return await _TURN.run(self._turns, request, end)

        instruments = self._find_instruments()
        return await run(request) if instruments is None else await instruments.around_turn(request, info, run)

    async def ask_model(
        self, request: ModelRequest, info: ModelInfo, end: CallNext[ModelRequest, ModelReply]
    ) -> ModelReply:
        """Ask the model through the layers; `info` is of the model.

        Raises:
            MiddlewareError: a layer failed.
            ProviderError: a layer refused the request, or the model could not be asked.
        """
        instruments = self._find_instruments()

        async def ask(request: ModelRequest) -> ModelReply:
            return (
                await end(request) if instruments is None else await instruments.around_model_call(request, info, end)
            )

        return await _MODEL_CALL.run(self._model_calls, request, ask)

    async def call_tool(self, call: ToolCall, end: CallNext[ToolCall, ToolCallResult]) -> ToolCallResult:
        """Make a tool call through the layers; a layer that fails is a failure of the call."""

        async def run(call: ToolCall) -> ToolCallResult:
            try:
                return await _TOOL_CALL.run(self._tool_calls, call, end)
            except DialError as error:
                problem = str(error).rstrip(".")
                return ToolCallResult.failed(call.request.id, Failure.SERVER, f"The call failed: {problem}.")

        instruments = self._find_instruments()
        return await run(call) if instruments is None else await instruments.around_tool_call(call, run)


def _check(member: Middleware) -> Middleware:
    given: object = member  # callers without a type checker may give anything
    if isinstance(given, type):
        raise TypeError(f"middleware takes objects, not classes: middleware=[{given.__name__}(…)]")
    name = type(given).__name__
    if not isinstance(given, Middleware):
        raise TypeError(f"{name} is no middleware: make it a subclass of Middleware")
    for attribute in dir(given):
        if attribute.startswith("around_") and attribute not in _METHODS:
            from difflib import get_close_matches

            nearest = get_close_matches(attribute, _METHODS, n=1, cutoff=0.0)[0]
            raise TypeError(f"the middleware {name} has a method {attribute!r}: did you mean {nearest!r}?")
    return member


def _log_failure(name: str, error: Exception) -> None:
    from traceback import extract_tb

    frame = extract_tb(error.__traceback__)[-1]
    place = f"{frame.filename}:{frame.lineno}"
    log.warning("middleware_failed", middleware=name, error=type(error).__name__, place=place)
