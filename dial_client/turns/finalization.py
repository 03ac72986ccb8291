"""How a turn ends when the recursion has stopped: always in words."""

from __future__ import annotations

from dataclasses import replace

from dial_client.errors import ProviderError
from dial_client.events import Emit, MessageCompleted, TextDelta
from dial_client.limits import StopReason
from dial_client.logs import get_logger
from dial_client.messages import Failure, Message, Role, TextPart, ToolCallResult
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.model_call import ModelCaller
from dial_client.turns.resolution import Outcome, Reply

log = get_logger(__name__)


async def land(outcome: Outcome, asker: ModelCaller, emit: Emit, *, ask_again: bool = True) -> StopReason:
    """Bring the turn to its last message; one that hands calls back has had it.

    An answer is passed on as it is. Where a limit ended the calls, those it refused are answered as not run, and the
    model is asked once more, without tools, for what it has (`ask_again`). Where that is impossible or fails, the last
    message says so: ``[Unable to complete task: <reason>]`` behind whatever was said so far.
    """
    context, reply, reason = outcome.context, outcome.reply, outcome.stop_reason
    if reason is StopReason.CLIENT_TOOL_CALLS:
        return reason
    if reason is StopReason.MAX_DEPTH:
        context = await _refuse(context, reply, reason, emit)
        reply = await _in_words(asker, context, emit) if ask_again else _nothing(reason)
    elif reason.ends_the_calls:
        context = _told(context, reason)
        reply = await _in_words(asker, context, emit) if ask_again else _nothing(reason)
    elif reason is StopReason.ANSWERED and not reply.message.text.strip():
        context = replace(context, messages=context.messages[:-1])
        reply = await _in_words(asker, context, emit)
        reason = reply.stop_reason or reason
    if reply.stop_reason is StopReason.TIMEOUT:
        reason = StopReason.TIMEOUT
    message = reply.message
    cut = reason.ends_the_calls and reply.stop_reason is StopReason.TRUNCATED
    if cut or reason is StopReason.TIMEOUT or not message.text.strip():
        message = await _apologise(message, context, reason, emit)
        reason = StopReason.REFUSED if reason is StopReason.ANSWERED else reason
    await emit(MessageCompleted(message))
    return reason


_ANSWER_NOW = "Answer now from what you have, and say what is missing."


async def _refuse(context: ConversationContext, reply: Reply, reason: StopReason, emit: Emit) -> ConversationContext:
    why = f"Not run: {reason.sentence}. {_ANSWER_NOW}"
    calls = reply.message.tool_calls
    refused = [Message.tool(call, ToolCallResult.failed(call.id, Failure.NOT_RUN, why)) for call in calls]
    for message in refused:
        await emit(MessageCompleted(message))
    return context.extend(reply.message, *refused)


def _told(context: ConversationContext, reason: StopReason) -> ConversationContext:
    """Give the context, without the empty reply, in which the last result tells the model to stop; nobody stores it."""
    *before, last, _ = context.messages
    told = f"[No more tool calls: {reason.sentence}. {_ANSWER_NOW}]"
    content = f"{last.content}\n\n{told}" if isinstance(last.content, str) else (*last.content, TextPart(told))
    return replace(context, messages=(*before, replace(last, content=content)))


async def _in_words(asker: ModelCaller, context: ConversationContext, emit: Emit) -> Reply:
    try:
        return await asker.in_words(context, emit)
    except ProviderError as error:
        log.debug("landing_failed", status=error.status, code=error.code)
        said = asker.recorder.said  # it was shown
        return Reply(Message.assistant(said), StopReason.TRUNCATED) if said.strip() else _nothing(StopReason.ANSWERED)


def _nothing(reason: StopReason) -> Reply:
    return Reply(Message.assistant(""), reason)


async def _apologise(message: Message, context: ConversationContext, reason: StopReason, emit: Emit) -> Message:
    apology = f"[Unable to complete task: {reason.sentence}]"
    shown = bool(message.text.strip())
    said = message.text if shown else _last_words(context)
    await emit(TextDelta(f"\n\n{apology}" if shown else apology))
    return replace(message, content=f"{said.rstrip()}\n\n{apology}" if said else apology, echo=None)


def _last_words(context: ConversationContext) -> str:
    """Give what the model last said in this turn, before its last calls."""
    for message in reversed(context.messages):
        if message.role is Role.USER:
            return ""
        if message.role is Role.ASSISTANT and message.text.strip():
            return message.text
    return ""
