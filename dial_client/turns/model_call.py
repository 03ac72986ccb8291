"""One exchange with the model, in the turn's terms: what is asked, what of the reply is shown, and what it means."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import count

from dial_client.deadline import Deadline
from dial_client.errors import ProviderError
from dial_client.events import Emit, MessageCompleted, ReasoningDelta, RoundStarted, StatusChanged, TextDelta
from dial_client.formats.format_selection import ActiveFormat
from dial_client.formats.quoted_calls import uncopied
from dial_client.limits import Limits, StopReason
from dial_client.logs import get_logger
from dial_client.messages import Echo, Message, Role, ToolCallRequest, ToolSpec
from dial_client.model import (
    CallChunk,
    Completion,
    Delta,
    FinishReason,
    ModelRequest,
    Provider,
    ReasoningChunk,
    ReplyReader,
    TextChunk,
    ToolChoice,
    ToolFormat,
)
from dial_client.prices import cost_usd
from dial_client.providers.http.provider_errors import CONTEXT_LENGTH_EXCEEDED, SEARCH_UNSUPPORTED, TOOLS_UNSUPPORTED
from dial_client.text.safe_text import SafeStream
from dial_client.turns import context_window, status_text
from dial_client.turns.context_window import ContextWindow
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.instructions import TurnInstructions
from dial_client.turns.progress_limits import stuck
from dial_client.turns.resolution import Reply
from dial_client.turns.turn_recorder import TurnRecorder

log = get_logger(__name__)

LAST_WORD_TOKENS = 4096
"""Tokens of an answer that is asked for because a limit was met."""

_ENDINGS = {
    FinishReason.LENGTH: StopReason.TRUNCATED,
    FinishReason.CUT: StopReason.TRUNCATED,
    FinishReason.REFUSED: StopReason.REFUSED,
}


@dataclass(frozen=True, slots=True)
class ModelCaller:
    """Asks the model in one turn: an `Ask` of `resolution.resolve`."""

    provider: Provider
    format: ActiveFormat
    window: ContextWindow
    tools: Callable[[], tuple[ToolSpec, ...]]
    """What is on offer at the moment."""
    deadline: Deadline
    recorder: TurnRecorder
    limits: Limits
    stream: bool
    instructions: TurnInstructions = field(default_factory=TurnInstructions)
    max_tokens: int | None = None
    """Of a reply; None for the model's own limit."""

    async def __call__(self, context: ConversationContext, emit: Emit) -> Reply:
        """Ask with all tools on offer; a message with calls belongs to the conversation from then on.

        Where the rounds so far have met a limit, nothing is asked: the reply is empty, and says which.
        """
        if context.depth and (met := stuck(self.recorder.rounds, self.recorder.usage, self.limits)):
            return Reply(Message.assistant(""), met)
        reply = await self._exchange(context, emit, ToolChoice.AUTO)
        if reply.stop_reason is None:
            await emit(MessageCompleted(reply.message))
        return reply

    async def in_words(self, context: ConversationContext, emit: Emit) -> Reply:
        """Ask for an answer without any call; calls the model makes all the same are left out of the reply."""
        reply = await self._exchange(context, emit, ToolChoice.NONE)
        if reply.stop_reason is not None:
            return reply
        return Reply(replace(reply.message, tool_calls=(), echo=None), StopReason.ANSWERED)

    async def _exchange(self, context: ConversationContext, emit: Emit, choice: ToolChoice) -> Reply:
        await emit(RoundStarted(context.depth))
        asked = StatusChanged(status_text.PROCESSING if context.depth else status_text.ANALYZING)
        await emit(asked)

        async def waits(why: str, seconds: float) -> None:
            await emit(StatusChanged(status_text.waiting(why, seconds)) if seconds else asked)

        tried: set[str | None] = set()
        while True:
            tools = self.tools()
            handler = self.format.handler
            instructions = self.instructions.select(has_tools=bool(tools), tool_format=handler.format)
            messages = self.window.fit(context.messages, tools, instructions)
            if messages is not context.messages:
                self.recorder.note(context_window.NOTE)
            listener = _Listener(handler.reader(tools), emit, context.depth)
            request = self._request(messages, tools, choice)
            request = replace(request, instructions=(*instructions, *request.instructions), on_wait=waits)
            try:
                return await self._attempt(request, listener)
            except ProviderError as error:
                if listener.text or error.code in tried:
                    raise
                if error.code == CONTEXT_LENGTH_EXCEEDED:
                    self.window.refused(messages, tools, instructions)
                    if self.window.fit(context.messages, tools, instructions) == messages:
                        raise
                elif not self._remedied(error):
                    raise
                tried.add(error.code)

    def _remedied(self, error: ProviderError) -> bool:
        """Put right what the endpoint refuses, if that can be done; each remedy is tried once an exchange."""
        if error.code == TOOLS_UNSUPPORTED and self.format.fall_back():
            self.recorder.note("the endpoint has no tools of its own: they are offered to the model as text")
            return True
        if error.code == SEARCH_UNSUPPORTED:
            self.recorder.note("the endpoint does not search among tools itself: the model is given a search to call")
            return True
        return False

    async def _attempt(self, request: ModelRequest, listener: _Listener) -> Reply:
        began = time.monotonic()
        with self.deadline.scope() as scope:
            async with aclosing(self.provider.generate(request)) as deltas:
                async for delta in deltas:
                    await listener.hear(delta)
            await listener.end()
        if listener.printed and self.format.handler.format is ToolFormat.NATIVE:
            listener.calls = uncopied(listener.calls, request.messages, request.tools)
        completion = listener.completion
        self.recorder.add_usage(completion.usage, cost_usd(completion.usage, self.provider.info))
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
        return await self._reply(listener, out_of_time=scope.cancelled_caught)

    def _request(self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], choice: ToolChoice) -> ModelRequest:
        handler = self.format.handler
        in_text = handler.format is not ToolFormat.NATIVE
        offered = () if in_text and choice is ToolChoice.NONE else tools
        request = handler.request(messages, offered)
        most = self.max_tokens
        if choice is ToolChoice.NONE:
            most = min(LAST_WORD_TOKENS, most or LAST_WORD_TOKENS)
        return replace(request, tool_choice=choice, stream=self.stream, max_tokens=most)

    async def _reply(self, listener: _Listener, *, out_of_time: bool) -> Reply:
        completion = listener.completion
        ending = StopReason.TIMEOUT if out_of_time else _ENDINGS.get(completion.finish)
        calls = _distinct(listener.calls) if ending is None else ()
        echo = (
            Echo(self.provider.info.name, completion.echo) if completion.echo is not None and ending is None else None
        )
        message = Message(Role.ASSISTANT, "".join(listener.text), tool_calls=calls, echo=echo)
        if calls:
            await listener.emit(StatusChanged(status_text.SELECTING))
            return Reply(message, None)
        return Reply(message, ending or StopReason.ANSWERED)


def _distinct(calls: list[ToolCallRequest]) -> tuple[ToolCallRequest, ...]:
    """Make the ids of one round differ, whatever the endpoint says: results are matched by them."""
    taken = {call.id for call in calls}
    seen = {""}
    distinct = []
    for at, call in enumerate(calls):
        id_ = call.id
        if id_ in seen:
            made_up = (f"{call.id or 'call'}_{number}" for number in count(at))
            id_ = next(name for name in made_up if name not in taken)
            taken.add(id_)
        seen.add(id_)
        distinct.append(call if id_ == call.id else replace(call, id=id_))
    return tuple(distinct)


@dataclass(slots=True)
class _Listener:
    """Hears one reply: shows what is for people as it comes, keeps the rest."""

    reader: ReplyReader
    emit: Emit
    depth: int
    text: list[str] = field(default_factory=list)
    calls: list[ToolCallRequest] = field(default_factory=list)
    clean_text: SafeStream = field(default_factory=SafeStream)
    clean_thoughts: SafeStream = field(default_factory=SafeStream)
    printed: bool = False
    """The calls stood in the text."""
    completion: Completion = field(default_factory=lambda: Completion(FinishReason.CUT))

    async def hear(self, delta: Delta) -> None:
        match delta:
            case TextChunk(text):
                shown = self.reader.feed(text)
                await self._think()
                await self._show(shown)
            case ReasoningChunk(text):
                await self._think(text)
            case CallChunk(call):
                self.calls.append(call)
            case Completion():
                self.completion = delta

    async def end(self) -> None:
        rest, found = self.reader.finish()
        await self._think()
        await self._emit_thought(self.clean_thoughts.finish())
        await self._show(rest)
        await self._emit_text(self.clean_text.finish())
        if not self.calls:
            self.calls, self.printed = list(found), True

    async def _think(self, text: str = "") -> None:
        await self._emit_thought(self.clean_thoughts.feed(text or self.reader.reasoning()))

    async def _emit_thought(self, text: str) -> None:
        if text:
            await self.emit(ReasoningDelta(text))

    async def _show(self, text: str) -> None:
        await self._emit_text(self.clean_text.feed(text))

    async def _emit_text(self, text: str) -> None:
        if not text:
            return
        if not self.text:
            await self.emit(StatusChanged(status_text.FORMULATING))
        self.text.append(text)
        await self.emit(TextDelta(text))
