"""One exchange with the model: the request of a round, the reply as events, and what the reply means for the turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import count
from urllib.parse import urlsplit

from dial_client.citations import place_citations
from dial_client.deadline import Deadline
from dial_client.errors import ProviderError
from dial_client.events import Emit, MessageCompleted, RoundStarted, StatusChanged
from dial_client.formats.format_selection import ActiveFormat
from dial_client.formats.quoted_calls import drop_quoted_calls
from dial_client.limits import Limits, StopReason
from dial_client.logs import get_logger
from dial_client.messages import Echo, Message, Role, TextPart, ToolCallRequest, ToolSpec
from dial_client.model import (
    FinishReason,
    ModelRequest,
    OnWait,
    Provider,
    ReplyReader,
    ToolChoice,
    ToolFormat,
)
from dial_client.providers.error_codes import (
    CONTEXT_LENGTH_EXCEEDED,
    OUTPUT_FORMAT_UNSUPPORTED,
    SEARCH_UNSUPPORTED,
    TOOLS_UNSUPPORTED,
)
from dial_client.turns import context_window, status_text
from dial_client.turns.answer_format import AnswerFormat, AnswerStream
from dial_client.turns.context_window import ContextWindow
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.instructions import TurnInstructions
from dial_client.turns.prices import cost_usd
from dial_client.turns.progress_limits import limit_met
from dial_client.turns.reply_listener import ReplyListener
from dial_client.turns.resolution import Reply
from dial_client.turns.turn_recorder import TurnRecorder

log = get_logger(__name__)

LAST_ANSWER_TOKENS = 4096
"""Tokens of an answer that is asked for because a limit was met."""

_STOP_REASONS = {
    FinishReason.LENGTH: StopReason.TRUNCATED,
    FinishReason.CUT: StopReason.TRUNCATED,
    FinishReason.REFUSED: StopReason.REFUSED,
}


@dataclass(frozen=True, slots=True)
class ChatModel:
    """The model of a client, with what its turns learn about it."""

    provider: Provider
    format: ActiveFormat
    window: ContextWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCaller:
    """Asks the model in one turn: an `Ask` of `resolution.resolve`."""

    model: ChatModel
    tools: Callable[[], tuple[ToolSpec, ...]]
    """Returns the tools on offer at the moment."""
    instructions: TurnInstructions = field(default_factory=TurnInstructions)
    recorder: TurnRecorder
    limits: Limits
    deadline: Deadline
    stream: bool
    max_tokens: int | None = None
    """Tokens of a reply; None for the model's own limit."""
    answer: AnswerFormat | None = None
    """The form of the answer; None for text."""

    async def __call__(self, context: ConversationContext, emit: Emit) -> Reply:
        """Ask with all tools on offer; a reply with calls belongs to the conversation from then on.

        Where the rounds so far have met a limit, the model is not asked: the reply is empty, and names the limit.
        """
        if context.depth and (limit := limit_met(self.recorder.rounds, self.recorder.usage, self.limits)):
            return Reply(Message.assistant(""), limit)
        reply = await self._exchange(context, emit, ToolChoice.AUTO)
        if reply.stop_reason is None:
            await emit(MessageCompleted(reply.message))
        return reply

    async def ask_without_tools(self, context: ConversationContext, emit: Emit) -> Reply:
        """Ask for an answer; calls the model makes all the same are left out of the reply."""
        reply = await self._exchange(context, emit, ToolChoice.NONE)
        if reply.stop_reason is not None:
            return reply
        return Reply(replace(reply.message, tool_calls=(), echo=None), StopReason.ANSWERED)

    async def _exchange(self, context: ConversationContext, emit: Emit, choice: ToolChoice) -> Reply:
        """Ask until there is a reply; each refusal that can be mended is mended once."""
        await emit(RoundStarted(context.depth))
        status = StatusChanged(status_text.PROCESSING if context.depth else status_text.ANALYZING)
        await emit(status)
        on_wait = _report_waiting(emit, status)
        mended: set[str | None] = set()
        while True:
            attempt = self._prepare(context, choice, on_wait)
            stream = AnswerStream(self.answer.output, emit) if self.answer is not None else None
            listener = ReplyListener(
                attempt.reader, emit if stream is None else stream.receive, context.depth, self._endpoint
            )
            try:
                reply = await self._send(attempt.request, listener)
                if stream is not None and reply.stop_reason is not StopReason.ANSWERED:
                    await stream.release()
            except ProviderError as error:
                if stream is not None:
                    await stream.release()
                if listener.text or error.code in mended or not self._mend(error, attempt):
                    raise
                mended.add(error.code)
            else:
                return reply

    def _prepare(self, context: ConversationContext, choice: ToolChoice, on_wait: OnWait) -> _Attempt:
        """Build the request from the conversation, the tools on offer and the instructions."""
        tools, handler = self.tools(), self.model.format.handler
        in_text = handler.format is not ToolFormat.NATIVE
        instructions = self.instructions.select(has_tools=bool(tools), tool_format=handler.format)
        max_tokens = self._reply_tokens(choice)
        if self.answer is not None:
            has_tools = bool(tools) and choice is ToolChoice.AUTO
            self.answer.choose_way(self.model.provider.info, handler.format, has_tools=has_tools)
            tools, choice = self.answer.offer(tools, choice)
            instructions = (*instructions, *self.answer.instructions())
        messages = self.model.window.fit(context.messages, tools, instructions)
        if messages is not context.messages:
            self.recorder.note(context_window.NOTE)
        request = handler.request(messages, () if in_text and choice is ToolChoice.NONE else tools)
        request = replace(
            request,
            instructions=(*instructions, *request.instructions),
            tool_choice=choice,
            stream=self.stream,
            max_tokens=max_tokens,
            on_wait=on_wait,
        )
        reader = handler.reader(tools) if self.answer is None else self.answer.reader(handler, tools)
        if self.answer is not None:
            request = self.answer.constrain(request, handler, tools)

        def shrink_window() -> bool:
            self.model.window.record_refusal(messages, tools, instructions)
            return self.model.window.fit(context.messages, tools, instructions) != messages

        return _Attempt(request, reader, shrink_window)

    @property
    def _endpoint(self) -> str:
        """The name of the model's endpoint for people: its host."""
        info = self.model.provider.info
        return urlsplit(info.url).hostname or info.name

    def _reply_tokens(self, choice: ToolChoice) -> int | None:
        if choice is ToolChoice.NONE:
            return min(LAST_ANSWER_TOKENS, self.max_tokens or LAST_ANSWER_TOKENS)
        return self.max_tokens

    def _mend(self, error: ProviderError, attempt: _Attempt) -> bool:
        """Change what the endpoint refuses; return whether that was possible."""
        if error.code == TOOLS_UNSUPPORTED and self.model.format.fall_back():
            self.recorder.note("the endpoint has no tools of its own: they are offered to the model as text")
            return True
        if error.code == SEARCH_UNSUPPORTED:
            self.recorder.note("the endpoint does not search among tools itself: the model is given a search to call")
            return True
        if error.code == OUTPUT_FORMAT_UNSUPPORTED and self.answer is not None:
            return self.answer.record_refusal()
        return error.code == CONTEXT_LENGTH_EXCEEDED and attempt.shrink_window()

    async def _send(self, request: ModelRequest, listener: ReplyListener) -> Reply:
        began = time.monotonic()
        with self.deadline.scope() as scope:
            async with aclosing(self.model.provider.generate(request)) as deltas:
                async for delta in deltas:
                    await listener.receive(delta)
            await listener.end()
        if listener.are_calls_printed and self.model.format.handler.format is ToolFormat.NATIVE:
            listener.calls = drop_quoted_calls(
                listener.calls, request.messages, request.tools, anywhere=self.model.provider.info.fenced_calls
            )
        completion = listener.completion
        self.recorder.add_usage(completion.usage, cost_usd(completion.usage, self.model.provider.info))
        self.recorder.note(*completion.notes)
        log.debug(
            "model_request",
            depth=listener.depth,
            messages=len(request.messages),
            tools=len(request.tools),
            calls=len(listener.calls),
            finish=completion.finish.value,
            seconds=round(time.monotonic() - began, 4),
        )
        return await self._to_reply(listener, is_timed_out=scope.cancelled_caught)

    async def _to_reply(self, listener: ReplyListener, *, is_timed_out: bool) -> Reply:
        completion = listener.completion
        stop_reason = StopReason.TIMEOUT if is_timed_out else _STOP_REASONS.get(completion.finish)
        is_whole = stop_reason is None
        calls = _with_distinct_ids(listener.calls) if is_whole else ()
        has_echo = is_whole and completion.echo is not None
        echo = Echo(self.model.provider.info.name, completion.echo) if has_echo else None
        text = "".join(listener.text)
        citations = place_citations(completion.citations, "".join(listener.received), text)
        content = (*([TextPart(text)] if text else []), *listener.media) if listener.media else text
        message = Message(
            Role.ASSISTANT, content, tool_calls=calls, echo=echo, citations=citations, taint=listener.taint
        )
        if calls and self.answer is not None:
            message = self.answer.take_answer(message)
        if message.tool_calls:
            await listener.emit(StatusChanged(status_text.SELECTING))
            return Reply(message, None)
        return Reply(message, stop_reason or StopReason.ANSWERED)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One request of an exchange."""

    request: ModelRequest
    reader: ReplyReader
    shrink_window: Callable[[], bool]
    """Records that the request was too long; returns whether a shorter one can be made."""


def _report_waiting(emit: Emit, status: StatusChanged) -> OnWait:
    """Return a callback that shows why the endpoint is asked again and when, and then `status` again."""

    async def report(why: str, seconds: float) -> None:
        await emit(StatusChanged(status_text.describe_wait(why, seconds)) if seconds else status)

    return report


def _with_distinct_ids(calls: list[ToolCallRequest]) -> tuple[ToolCallRequest, ...]:
    """Return the calls with ids that differ, whatever the endpoint sent: results are matched by their ids."""
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
