"""Tools of the caller's own: the model may call them beside the servers', and the turn ends when it does.

The servers' calls of the same reply are carried out before. The open calls are in `Turn.client_tool_calls`; the caller
continues with the turn's messages and the results behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dial_client.events import Emit
from dial_client.limits import StopReason
from dial_client.messages import Message, ToolCallRequest, ToolSpec
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.resolution import Ask, Reply

ClientTools = Callable[[], tuple[ToolSpec, ...]]


class ClientToolCalls:
    """The caller's tools in one turn.

    Args:
        tools: they hide tools of the same name: the caller asked for these very ones.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)
        self._names = frozenset(tool.name for tool in tools)

    def beside(self, offer: ClientTools, note: Callable[[str], None]) -> ClientTools:
        """Give what is on offer with these tools; the very same tuple for as long as `offer` gives the same."""
        if not self._tools:
            return offer
        last: tuple[ToolSpec, ...] = ()
        both = self._tools

        def offered() -> tuple[ToolSpec, ...]:
            nonlocal last, both
            tools = offer()
            if tools is not last:
                last, both = tools, (*(tool for tool in tools if tool.name not in self._names), *self._tools)
                for tool in tools:
                    if tool.name in self._names:
                        note(f"the tool {tool.name!r} is not offered: the caller has one of this name")
            return both

        return offered

    def others(self, calls: Sequence[ToolCallRequest]) -> list[ToolCallRequest]:
        """Give the calls that are carried out here."""
        return [call for call in calls if call.name not in self._names]

    def ending(self, ask: Ask) -> Ask:
        """Give an `Ask` that ends the turn where these tools are called: at once where no others are, else behind them.

        Calls that are handed back alone take no level: the guard against depth has no say in them.
        """
        if not self._tools:
            return ask

        async def ask_until_called(context: ConversationContext, emit: Emit) -> Reply:
            if context.depth and self._has_mine(_asking(context)):
                return Reply(Message.assistant(""), StopReason.CLIENT_TOOL_CALLS)
            reply = await ask(context, emit)
            if reply.stop_reason is None and not self.others(reply.message.tool_calls):
                return Reply(reply.message, StopReason.CLIENT_TOOL_CALLS)
            return reply

        return ask_until_called

    def _has_mine(self, message: Message) -> bool:
        return any(call.name in self._names for call in message.tool_calls)


def _asking(context: ConversationContext) -> Message:
    """Give the message whose calls were carried out last."""
    return next(message for message in reversed(context.messages) if message.tool_calls)
