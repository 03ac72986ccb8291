"""One exchange with the model, in the turn's terms: what is asked, what of the reply is shown, and what it means."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import count

from dial_client import status
from dial_client.context import ConversationContext
from dial_client.deadline import Deadline
from dial_client.events import Emit, MessageCompleted, ReasoningDelta, RoundStarted, StatusChanged, TextDelta
from dial_client.limits import StopReason
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
    ToolFormatHandler,
)
from dial_client.recorder import TurnRecorder
from dial_client.resolution import Reply

log = get_logger(__name__)

_ENDINGS = {
    FinishReason.LENGTH: StopReason.TRUNCATED,
    FinishReason.CUT: StopReason.TRUNCATED,
    FinishReason.REFUSED: StopReason.REFUSED,
}


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks the model in one turn: an `Ask` of `resolution.resolve`."""

    provider: Provider
    format: ToolFormatHandler
    tools: Callable[[], tuple[ToolSpec, ...]]
    """What is on offer at the moment."""
    deadline: Deadline
    recorder: TurnRecorder
    stream: bool

    async def __call__(self, context: ConversationContext, emit: Emit) -> Reply:
        """Ask with all tools on offer; a message with calls belongs to the conversation from then on."""
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
        await emit(StatusChanged(status.PROCESSING if context.depth else status.ANALYZING))
        tools = self.tools()
        request = self._request(context, tools, choice)
        listener = _Listener(self.format.reader(tools), emit, context.depth)
        began = time.monotonic()
        with self.deadline.scope() as scope:
            async with aclosing(self.provider.generate(request)) as deltas:
                async for delta in deltas:
                    await listener.hear(delta)
            await listener.end()
        completion = listener.completion
        self.recorder.add_usage(completion.usage)
        self.recorder.note(*completion.notes)
        log.debug(
            "model_request",
            depth=context.depth,
            messages=len(request.messages),
            tools=len(tools),
            calls=len(listener.calls),
            finish=completion.finish.value,
            seconds=round(time.monotonic() - began, 4),
        )
        return await self._reply(listener, emit, out_of_time=scope.cancelled_caught)

    def _request(self, context: ConversationContext, tools: tuple[ToolSpec, ...], choice: ToolChoice) -> ModelRequest:
        in_text = self.format.format is not ToolFormat.NATIVE
        offered = () if in_text and choice is ToolChoice.NONE else tools
        request = self.format.request(context.messages, offered)
        return replace(request, tool_choice=choice, stream=self.stream)

    async def _reply(self, listener: _Listener, emit: Emit, *, out_of_time: bool) -> Reply:
        completion = listener.completion
        ending = StopReason.TIMEOUT if out_of_time else _ENDINGS.get(completion.finish)
        calls = _distinct(listener.calls) if ending is None else ()
        echo = Echo(self.provider.name, completion.echo) if completion.echo is not None and ending is None else None
        message = Message(Role.ASSISTANT, "".join(listener.text), tool_calls=calls, echo=echo)
        if calls:
            await emit(StatusChanged(status.SELECTING))
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
    completion: Completion = field(default_factory=lambda: Completion(FinishReason.CUT))

    async def hear(self, delta: Delta) -> None:
        match delta:
            case TextChunk(text):
                await self._show(self.reader.feed(text))
            case ReasoningChunk(text):
                await self.emit(ReasoningDelta(text))
            case CallChunk(call):
                self.calls.append(call)
            case Completion():
                self.completion = delta

    async def end(self) -> None:
        rest, found = self.reader.finish()
        await self._show(rest)
        self.calls = self.calls or list(found)

    async def _show(self, text: str) -> None:
        if not text:
            return
        if self.depth and not self.text:
            await self.emit(StatusChanged(status.FORMULATING))
        self.text.append(text)
        await self.emit(TextDelta(text))
