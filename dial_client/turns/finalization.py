"""The last message of a turn: an answer, or the reason why there is no answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import takewhile

from dial_client.messages.errors import MiddlewareError, ProviderError
from dial_client.messages.events import Emit, MessageCompleted, TextDelta
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Message, Role, TextPart, build_not_run_result
from dial_client.runtime.logs import get_logger
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.resolution import Outcome, Reply
from dial_client.turns.turn_recorder import TurnRecorder

log = get_logger(__name__)

_ANSWER_NOW = "Answer now from what you have, and say what is missing."


# Asks the model for an answer without tool calls; raises as `resolution.Ask`.
AskWithoutTools = Callable[[ConversationContext], Awaitable[Reply]]


async def finish_turn(
    outcome: Outcome, ask_without_tools: AskWithoutTools, emit: Emit, recorder: TurnRecorder, *, ask_again: bool = True
) -> StopReason:
    """Emit the last message of a turn, and return why the turn ended.

    An answer is emitted unchanged. Turns that return calls to the caller are already complete. If a limit ended the
    turn, the refused calls get failed results that name the limit, and the model is asked once more, without tools, for
    an answer. If that is impossible or fails, ``[Unable to complete task: <reason>]`` follows the text that the model
    has written so far.

    Args:
        outcome: The outcome of the recursion.
        ask_without_tools: Asks the model for the last answer.
        emit: Receives the events.
        recorder: The recorder of the turn.
        ask_again: Whether the model is asked for an answer at a limit; otherwise the last message names the limit.
    """
    reason = outcome.stop_reason
    if reason in (StopReason.CLIENT_TOOL_CALLS, StopReason.AWAITING_APPROVAL):
        return reason
    context, reply = outcome.context, outcome.reply
    # A first reply, and one with text, was cut off at the end of the whole time; no other limit leaves no time.
    has_time = reason is not StopReason.TIMEOUT or (context.depth > 0 and _is_empty(reply.message))
    is_stopped = reason.is_limit and has_time
    is_asked = is_stopped and ask_again
    if reason is StopReason.MAX_DEPTH:
        refusal = f"{reason.sentence}. {_ANSWER_NOW}"
        results = [Message.tool(call, build_not_run_result(call.id, refusal)) for call in reply.message.tool_calls]
        for refused in results:
            await emit(MessageCompleted(refused))
        context = context.extend(reply.message, *results)
    elif is_stopped:
        context = _with_stop_notice(context, reason)
    elif reason is StopReason.ANSWERED and _is_empty(reply.message):
        context = replace(context, messages=context.messages[:-1])
        is_asked = True
    if is_asked:
        reply = await _ask_softly(context, ask_without_tools, recorder)
    elif is_stopped:
        reply = Reply(Message.assistant(""), reason)
    if reason is StopReason.ANSWERED or reply.stop_reason is StopReason.TIMEOUT:
        reason = reply.stop_reason or reason
    message = reply.message
    is_cut = reply.stop_reason is StopReason.TIMEOUT or (reason.is_limit and reply.stop_reason is StopReason.TRUNCATED)
    if is_cut or _is_empty(message):
        message = await _append_apology(message, context, reason, emit)
        reason = StopReason.REFUSED if reason is StopReason.ANSWERED else reason
    await emit(MessageCompleted(message))
    return reason


def _with_stop_notice(context: ConversationContext, reason: StopReason) -> ConversationContext:
    """Return the context without the empty reply, and with a notice in the last result that asks for an answer.

    The notice is only sent to the model: it is never stored.
    """
    *before, last, _empty = context.messages
    notice = f"[No more tool calls: {reason.sentence}. {_ANSWER_NOW}]"
    content = f"{last.content}\n\n{notice}" if isinstance(last.content, str) else (*last.content, TextPart(notice))
    return replace(context, messages=(*before, replace(last, content=content)))


async def _ask_softly(
    context: ConversationContext, ask_without_tools: AskWithoutTools, recorder: TurnRecorder
) -> Reply:
    """Return the model's last answer; if it cannot be asked, the text that it has written of this answer."""
    try:
        return await ask_without_tools(context)
    except (ProviderError, MiddlewareError) as error:
        log.debug("last_answer_failed", error=type(error).__name__)
        text = recorder.unfinished_text
        if text.strip():
            return Reply(Message.assistant(text), StopReason.TRUNCATED)
        return Reply(Message.assistant(""), StopReason.ANSWERED)


def _is_empty(message: Message) -> bool:
    """Return whether a message contains neither text nor an image nor a file."""
    return isinstance(message.content, str) and not message.text.strip()


async def _append_apology(message: Message, context: ConversationContext, reason: StopReason, emit: Emit) -> Message:
    """Return the message with the reason added to its text, or to the last text of the turn if it has no text."""
    apology = f"[Unable to complete task: {reason.sentence}]"
    has_text = bool(message.text.strip())
    # Without a text, the model's last text in this turn; empty if the model has only called tools.
    in_turn = takewhile(lambda earlier: not earlier.is_question, reversed(context.messages))
    last = (earlier.text for earlier in in_turn if earlier.role is Role.ASSISTANT and earlier.text.strip())
    text = message.text if has_text else next(last, "")
    await emit(TextDelta(f"\n\n{apology}" if has_text else apology))
    content = f"{text.rstrip()}\n\n{apology}" if text else apology
    return replace(message, content=content, echo=None, citations=message.citations if has_text else ())
