"""Client-side tools: the model may call them like servers' tools, but their calls end the turn.

Calls of servers' tools in the same reply are run first. `Turn.client_tool_calls` has the open calls. To continue, the
caller starts a new turn with the messages of this turn, followed by the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dial_client.messages.events import Emit
from dial_client.messages.limits import StopReason
from dial_client.messages.message import Message, ToolCallRequest, ToolSpec
from dial_client.turns.conversation_context import ConversationContext
from dial_client.turns.resolution import Ask, Reply

ToolSource = Callable[[], tuple[ToolSpec, ...]]
"""Returns the offered tools; the same tuple object while they do not change."""


class ClientToolCalls:
    """The client-side tools of one turn.

    Args:
        tools: The client-side tools. Servers' tools of the same name are not offered.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)
        self._names = frozenset(tool.name for tool in tools)

    def add_to(self, server_tools: ToolSource, note: Callable[[str], None]) -> ToolSource:
        """Return a source of the servers' and the client-side tools; `note` gets a sentence for each hidden tool."""
        if not self._tools:
            return server_tools
        previous: tuple[ToolSpec, ...] = ()
        combined = self._tools

        def combine_tools() -> tuple[ToolSpec, ...]:
            nonlocal previous, combined
            tools = server_tools()
            if tools is previous:
                return combined
            previous = tools
            combined = (*(tool for tool in tools if tool.name not in self._names), *self._tools)
            for tool in tools:
                if tool.name in self._names:
                    note(f"the tool {tool.name!r} is not offered: the caller has a tool of this name")
            return combined

        return combine_tools

    def select_server_calls(self, calls: Sequence[ToolCallRequest]) -> list[ToolCallRequest]:
        """Return the calls of servers' tools."""
        return [call for call in calls if call.name not in self._names]

    def end_turn_at_calls(self, ask: Ask) -> Ask:
        """Return an `Ask` that ends the turn when the model calls a client-side tool.

        A reply that calls only client-side tools ends the turn at once. It does not count as a round, so `max_depth`
        does not apply. If the reply also calls servers' tools, the turn ends when these calls have their results.
        """
        if not self._tools:
            return ask

        async def ask_until_called(context: ConversationContext, emit: Emit) -> Reply:
            if context.depth and self._is_called_in(_find_last_message_with_calls(context)):
                return Reply(Message.assistant(""), StopReason.CLIENT_TOOL_CALLS)
            reply = await ask(context, emit)
            if reply.stop_reason is None and not self.select_server_calls(reply.message.tool_calls):
                return Reply(reply.message, StopReason.CLIENT_TOOL_CALLS)
            return reply

        return ask_until_called

    def _is_called_in(self, message: Message) -> bool:
        return any(call.name in self._names for call in message.tool_calls)


def _find_last_message_with_calls(context: ConversationContext) -> Message:
    return next(message for message in reversed(context.messages) if message.tool_calls)
