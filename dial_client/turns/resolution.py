"""The recursion, and nothing else: ask, carry out, ask again one level deeper, until there is nothing to carry out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from dial_client.events import Emit
from dial_client.limits import StopReason
from dial_client.messages import Message, ToolCallRequest
from dial_client.turns.conversation_context import ConversationContext


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model said in one exchange."""

    message: Message
    stop_reason: StopReason | None
    """Why the turn ends here; None while the message has calls to carry out."""


Ask = Callable[[ConversationContext, Emit], Awaitable[Reply]]
CallTools = Callable[[Sequence[ToolCallRequest], Emit], Awaitable[Sequence[Message]]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the recursion ended."""

    context: ConversationContext
    """All that is settled; a reply whose calls were refused is not in it."""
    reply: Reply
    stop_reason: StopReason


async def resolve(context: ConversationContext, ask: Ask, call_tools: CallTools, emit: Emit) -> Outcome:
    """Ask the model, carry out what it calls, and resolve the next level.

    Events are pushed through `emit`, so a level costs nothing per event however deep it lies. `call_tools` raises
    nothing for a tool: failures are results. At the deepest level no call of that reply is carried out.
    """
    reply = await ask(context, emit)
    if reply.stop_reason is not None:
        return Outcome(context.extend(reply.message), reply, reply.stop_reason)
    if not context.may_descend:
        return Outcome(context, reply, StopReason.MAX_DEPTH)
    results = await call_tools(reply.message.tool_calls, emit)
    return await resolve(context.descend(reply.message, results), ask, call_tools, emit)
