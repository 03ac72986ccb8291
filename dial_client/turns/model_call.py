"""Requests to the model: the exchange of a round, whose reply becomes events, and requests for a text alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

from dial_client.hooks.middleware import MiddlewareChain, ModelReply
from dial_client.messages.citations import place_citations
from dial_client.messages.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    OUTPUT_FORMAT_UNSUPPORTED,
    SEARCH_UNSUPPORTED,
    TOOLS_UNSUPPORTED,
    ProviderError,
)
from dial_client.messages.events import Emit, MessageCompleted, RoundStarted, StatusChanged, TextDelta
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Content, Message, ProviderState, Role, TextPart, ToolCallRequest, ToolSpec
from dial_client.messages.model import (
    Completion,
    FinishReason,
    Instruction,
    ModelRequest,
    ModelSettings,
    OnWait,
    Provider,
    ReplyReader,
    TextChunk,
    ToolChoice,
    ToolFormat,
)
from dial_client.messages.token_usage import Usage
from dial_client.providers.formats import ActiveFormat
from dial_client.providers.formats.stream_parser import drop_quoted_calls
from dial_client.providers.formats.tool_matching import repair_names
from dial_client.runtime.deadline import Deadline
from dial_client.runtime.kept_prefix import KeptPrefix
from dial_client.runtime.logs import get_logger
from dial_client.turns import context_window, status_text
from dial_client.turns.context_window import ContextWindow
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.instructions import TurnInstructions
from dial_client.turns.reply_listener import ReplyListener
from dial_client.turns.resolution import Reply
from dial_client.turns.turn_recorder import TurnRecorder
from dial_client.turns.typed_answer import TypedAnswer

log = get_logger(__name__)

# Maximum tokens of an answer that is requested because a limit was met.
LAST_ANSWER_TOKENS = 4096

_STOP_REASONS = {
    FinishReason.LENGTH: StopReason.TRUNCATED,
    FinishReason.CUT: StopReason.TRUNCATED,
    FinishReason.REFUSED: StopReason.REFUSED,
}


@dataclass(frozen=True, eq=False, slots=True)
class ChatModel:
    """The model of a client, with its tool format and context window, which turns adjust to the endpoint."""

    provider: Provider
    format: ActiveFormat
    window: ContextWindow
    patience: float = 0.0
    """`ModelRequest.patience` of each request."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ModelCaller:
    """Asks the model in one turn."""

    model: ChatModel
    tools: Callable[[], tuple[ToolSpec, ...]]
    """Returns the currently offered tools."""
    instructions: TurnInstructions = field(default_factory=TurnInstructions)
    emit: Emit
    """Receives the events."""
    recorder: TurnRecorder
    deadline: Deadline
    stream: bool
    settings: ModelSettings = field(default_factory=ModelSettings)
    """How the model writes its replies in this turn; its `tool_choice` applies to the first reply."""
    answer: TypedAnswer | None = None
    """The typed answer of the turn; None for text."""
    middleware: MiddlewareChain = field(default_factory=MiddlewareChain)
    """Wraps each request."""
    converted: dict[str, KeptPrefix[Any]] = field(default_factory=dict)
    """`ModelRequest.converted` of each request."""

    async def exchange(self, context: ConversationContext, choice: ToolChoice = ToolChoice.AUTO) -> Reply:
        """Send requests until there is a reply, and return what it means for the turn.

        The request is adapted once to each kind of refusal. A reply with calls is emitted as a completed message.

        Args:
            context: The conversation.
            choice: Whether the model may call tools; calls are dropped from the reply if it may not.

        Raises:
            ProviderError: The model could not be reached, or refused the request.
            MiddlewareError: A middleware failed.
        """
        # The time kept for the answer is for the last reply, for a first one, which leaves no results to answer from if
        # it is cut off, and (in `_receive`) for one with text, which may be the answer.
        self.deadline.allow_reserve(allowed=choice is ToolChoice.NONE or not context.depth)
        # Typed answers may come as calls.
        tools = self.tools()
        may_call = choice is not ToolChoice.NONE and (self.answer is not None or bool(tools))
        await self.emit(RoundStarted(context.depth, may_call))
        status = StatusChanged(status_text.PROCESSING if context.depth else status_text.ANALYZING)
        await self.emit(status)

        adapted_codes: list[str | None] = []
        while True:
            attempt = self._prepare(context, choice, tools, partial(self._report_wait, status))
            try:
                if self.middleware.wraps_model_calls:
                    received = await self._ask_through_middleware(attempt)
                else:
                    received = await self._receive(attempt, attempt.request)
            except ProviderError as error:
                if self.answer is not None:
                    await self.answer.release()
                # Text that was shown cannot be withdrawn, so the request is not repeated.
                has_text = attempt.listener is not None and bool(attempt.listener.text)
                if has_text or error.code in adapted_codes or not self._adapt_to(error, attempt):
                    raise
                adapted_codes.append(error.code)
                tools = self.tools()
            else:
                return await self._conclude(attempt, received, choice, may_call=may_call)

    async def _report_wait(self, status: StatusChanged, why: str, seconds: float) -> None:
        await self.emit(StatusChanged(status_text.describe_wait(why, seconds)) if seconds else status)

    def _prepare(
        self, context: ConversationContext, choice: ToolChoice, tools: tuple[ToolSpec, ...], on_wait: OnWait
    ) -> _Attempt:
        """Build the request from the conversation, the offered tools and the instructions."""
        settings = self.settings
        if choice is ToolChoice.NONE:
            settings = replace(settings, max_tokens=min(LAST_ANSWER_TOKENS, settings.max_tokens or LAST_ANSWER_TOKENS))
        tools, choice, instructions = self._choose_offer(tools, choice)
        handler, window = self.model.format.handler, self.model.window
        # A forced call is forced once: later replies have to be able to answer.
        forced = settings.tool_choice if tools and not context.depth else None
        tool_choice = forced if choice is ToolChoice.AUTO else choice
        if tool_choice != settings.tool_choice:
            settings = replace(settings, tool_choice=tool_choice)
        messages = window.fit(context.messages, tools, instructions)
        if messages is not context.messages:
            self.recorder.note(context_window.NOTE)
        is_in_text = handler.format is not ToolFormat.NATIVE
        # Text that describes tools would invite calls.
        described = () if is_in_text and settings.tool_choice == ToolChoice.NONE else tools
        request = handler.request(messages, described)
        request = replace(
            request,
            instructions=(*instructions, *request.instructions),
            settings=settings,
            stop=(*request.stop, *(settings.stop or ())),
            stream=self.stream,
            on_wait=on_wait,
            patience=self.model.patience,
            converted=self.converted,
        )
        make_reader: Callable[[], ReplyReader] = partial(handler.reader, tools)
        if self.answer is not None:
            request = self.answer.constrain(request, handler, described)
            make_reader = partial(self.answer.build_reader, handler, tools)

        def shrink_window() -> bool:
            window.record_refusal(messages, tools, instructions)
            return window.fit(context.messages, tools, instructions) != messages

        emit = self.emit if self.answer is None else self.answer.receive
        return _Attempt(context.depth, request, emit, make_reader, shrink_window)

    def _choose_offer(
        self, tools: tuple[ToolSpec, ...], choice: ToolChoice
    ) -> tuple[tuple[ToolSpec, ...], ToolChoice, tuple[Instruction, ...]]:
        """Return the tools of the next request, which of them the model may call, and the instructions."""
        tool_format = self.model.format.handler.format
        instructions = self.instructions.select(has_tools=bool(tools), tool_format=tool_format)
        if self.answer is None:
            return tools, choice, instructions
        has_tools = bool(tools) and choice is ToolChoice.AUTO
        self.answer.choose_mode(self.model.provider.info, tool_format, has_tools=has_tools)
        tools, choice = self.answer.offer(tools, choice)
        return tools, choice, (*instructions, *self.answer.build_instructions())

    def _adapt_to(self, error: ProviderError, attempt: _Attempt) -> bool:
        """Adapt later requests to a refusal of the endpoint; return whether that is possible."""
        if error.code == TOOLS_UNSUPPORTED and self.model.format.fall_back():
            self.recorder.note("the endpoint does not support tool calls: tools are offered to the model as text")
            return True
        if error.code == SEARCH_UNSUPPORTED:
            self.recorder.note("the endpoint does not support tool search: the model gets a search tool instead")
            return True
        if error.code == OUTPUT_FORMAT_UNSUPPORTED and self.answer is not None:
            return self.answer.record_refusal()
        return error.code == CONTEXT_LENGTH_EXCEEDED and attempt.shrink_window()

    async def _ask_through_middleware(self, attempt: _Attempt) -> ModelReply:
        """Return the reply of the outermost middleware, within the timeout of the turn."""
        reply = ModelReply(message=Message.assistant(""), finish=FinishReason.CUT)
        with self.deadline.scope() as scope:
            send = partial(self._receive, attempt)
            reply = await self.middleware.ask_model(attempt.request, self.model.provider.info, send)
        listener = attempt.listener
        if scope.cancelled_caught:
            attempt.is_timed_out = True
            return reply if listener is None else replace(reply, message=_build_message(listener))
        if listener is None and reply.message.text:
            await attempt.emit(TextDelta(reply.message.text))
        calls = _with_distinct_ids(reply.message.tool_calls) if reply.finish not in _STOP_REASONS else ()
        message = replace(reply.message, role=Role.ASSISTANT, tool_calls=calls)
        # `echo` belongs to the endpoint's own message: sent with a changed message, it would restore the original.
        is_changed = (message.content, calls) != attempt.sent_by_endpoint
        # A new message of a middleware may still contain untrusted content.
        taint = message.taint or (listener.taint if listener is not None else "")
        return replace(reply, message=replace(message, taint=taint, echo=None if is_changed else message.echo))

    async def _receive(self, attempt: _Attempt, request: ModelRequest) -> ModelReply:
        """Send a request to the model, and return the reply, cut off at the timeout of the turn."""
        info = self.model.provider.info
        receive_arguments = self.answer.begin_arguments() if self.answer is not None else None
        listener = ReplyListener(attempt.make_reader(), attempt.emit, info, receive_arguments)
        attempt.listener = listener
        started_at = time.monotonic()
        try:
            with self.deadline.scope() as scope:
                async with aclosing(self.model.provider.generate(request)) as deltas:
                    async for delta in deltas:
                        await listener.receive(delta)
                        if listener.text or (self.answer is not None and self.answer.latest is not None):
                            self.deadline.allow_reserve(allowed=True)
                await listener.end()
        finally:
            # Endpoints say it at the end of a reply: who stops each answer shortly before would use nothing.
            if listener.completion.usage == Usage() and (reply := "".join(listener.received)):
                self.recorder.unreported.append((request, reply, info))
        attempt.is_timed_out = scope.cancelled_caught
        completion = listener.completion
        info = completion.info or self.model.provider.info
        if listener.are_calls_printed and self.model.format.handler.format is ToolFormat.NATIVE:
            listener.calls = drop_quoted_calls(
                listener.calls, request.messages, request.tools, anywhere=info.fenced_calls
            )
        self.recorder.add_request(completion.usage, info)
        self.recorder.note(*completion.notes)
        if completion.finish is FinishReason.LENGTH and not completion.notes:
            limit = request.settings.max_tokens
            self.recorder.note(f"the reply met the limit of {'its length' if limit is None else f'{limit:,} tokens'}")
        if completion.finish is FinishReason.CUT and not completion.notes and not attempt.is_timed_out:
            self.recorder.note("the reply broke off: the endpoint closed it before its end")
        log.debug(
            "model_request",
            depth=attempt.depth,
            messages=len(request.messages),
            tools=len(request.tools),
            calls=len(listener.calls),
            finish=completion.finish.value,
            seconds=round(time.monotonic() - started_at, 4),
        )
        calls: tuple[ToolCallRequest, ...] = ()
        echo = None
        if completion.finish not in _STOP_REASONS and not attempt.is_timed_out:
            calls = _with_distinct_ids(repair_names(listener.calls, {tool.name for tool in request.tools}))
            echo = ProviderState(info.name, completion.echo) if completion.echo is not None else None
        message = _build_message(listener, calls, echo)
        attempt.sent_by_endpoint = (message.content, message.tool_calls)
        return ModelReply(message=message, finish=completion.finish, usage=completion.usage, info=info)

    async def _conclude(self, attempt: _Attempt, received: ModelReply, choice: ToolChoice, *, may_call: bool) -> Reply:
        """Return what a reply means for the turn. Text that was announced as the answer is the answer."""
        self.deadline.allow_reserve(allowed=False)
        message = received.message
        stop_reason = StopReason.TIMEOUT if attempt.is_timed_out else _STOP_REASONS.get(received.finish)
        if stop_reason is None and message.tool_calls and self.answer is not None:
            message = self.answer.take_answer(message)
        if stop_reason is None and message.tool_calls:
            await self.emit(StatusChanged(status_text.SELECTING))
        else:
            stop_reason = stop_reason or StopReason.ANSWERED
        if self.answer is not None and stop_reason is not StopReason.ANSWERED:
            await self.answer.release()
        is_answer = choice is ToolChoice.NONE or (not may_call and bool(message.text.strip()))
        if stop_reason is None and is_answer:
            return Reply(replace(message, tool_calls=(), echo=None), StopReason.ANSWERED)
        if stop_reason is None:
            await self.emit(MessageCompleted(message))
        return Reply(message, stop_reason)


@dataclass(eq=False, slots=True)
class _Attempt:
    """One request of an exchange; a middleware may send it several times."""

    depth: int
    """Number of rounds of tool calls before this request."""
    request: ModelRequest
    emit: Emit
    """Receives the events of the reply."""
    make_reader: Callable[[], ReplyReader]
    shrink_window: Callable[[], bool]
    """Records that the request was too long; returns whether a shorter request is possible."""
    listener: ReplyListener | None = None
    """The listener of the last time the request was sent; None if it was not sent."""
    is_timed_out: bool = False
    sent_by_endpoint: tuple[Content, tuple[ToolCallRequest, ...]] | None = None
    """Content and calls of the endpoint's last reply."""


def _build_message(
    listener: ReplyListener, calls: tuple[ToolCallRequest, ...] = (), echo: ProviderState | None = None
) -> Message:
    """Return the message of a reply as received so far."""
    text = "".join(listener.text)
    citations = place_citations(listener.completion.citations, "".join(listener.received), text)
    content = (*([TextPart(text)] if text else []), *listener.media) if listener.media else text
    return Message(Role.ASSISTANT, content, calls, echo=echo, citations=citations, taint=listener.taint)


def _with_distinct_ids(calls: Sequence[ToolCallRequest]) -> tuple[ToolCallRequest, ...]:
    """Return the calls with distinct ids, because results are matched to calls by id."""
    taken = {call.id for call in calls}
    seen = {""}
    distinct = []
    for index, call in enumerate(calls):
        call_id = call.id
        if call_id in seen:
            candidates = (f"{call.id or 'call'}_{number}" for number in count(index))
            call_id = next(candidate for candidate in candidates if candidate not in taken)
            taken.add(call_id)
        seen.add(call_id)
        distinct.append(call if call_id == call.id else replace(call, id=call_id))
    return tuple(distinct)


async def generate_text(provider: Provider, request: ModelRequest, middleware: MiddlewareChain) -> ModelReply:
    """Return the reply to a request without tools that is not part of a turn's exchanges, such as a summary.

    Its text is as the endpoint sent it.

    Raises:
        ProviderError: The endpoint could not be reached, refused the request, or broke off.
        MiddlewareError: A middleware failed.
    """

    async def send(request: ModelRequest) -> ModelReply:
        text: list[str] = []
        completion = Completion(FinishReason.CUT)
        async with aclosing(provider.generate(request)) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextChunk):
                    text.append(delta.text)
                elif isinstance(delta, Completion):
                    completion = delta
        message = Message.assistant("".join(text))
        return ModelReply(
            message=message, finish=completion.finish, usage=completion.usage, info=completion.info or provider.info
        )

    return await middleware.ask_model(request, provider.info, send)
