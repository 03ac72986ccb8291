"""The recursion, and nothing else: ask the model, run its calls, ask again one level deeper, until it calls no tool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from dial_client.messages.limits import StopReason
from dial_client.messages.message import Message, ToolCallRequest
from dial_client.turns.conversation_context import ConversationContext


@dataclass(frozen=True, slots=True)
class Reply:
    """The model's reply in one exchange."""

    message: Message
    stop_reason: StopReason | None
    """Why the turn ends here; None while the message has calls to run, or results of earlier calls are to follow it."""


# Asks the model with the messages of a context.
Ask = Callable[[ConversationContext], Awaitable[Reply]]
# Runs the calls of a reply, and returns a message for each result. A tool that fails has a result too.
CallTools = Callable[[Sequence[ToolCallRequest]], Awaitable[Sequence[Message]]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the recursion ended."""

    context: ConversationContext
    """The conversation, without a reply whose calls were refused."""
    reply: Reply
    stop_reason: StopReason


async def resolve(context: ConversationContext, ask: Ask, call_tools: CallTools) -> Outcome:
    """Ask the model, run the calls of its reply, and resolve the next level.

    No event passes through the levels, so an event costs the same at every level. At the maximum depth the calls of the
    reply are not run.
    """
    reply = await ask(context)
    if reply.stop_reason is not None:
        return Outcome(context.extend(reply.message), reply, reply.stop_reason)
    if not context.may_descend:
        return Outcome(context, reply, StopReason.MAX_DEPTH)
    results = await call_tools(reply.message.tool_calls)
    return await resolve(context.descend(reply.message, results), ask, call_tools)
