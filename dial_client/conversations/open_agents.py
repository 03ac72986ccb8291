"""The agents of an interrupted turn: what they had done when its process was killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dial_client.conversations.message_tree import MessageTree
from dial_client.messages.message import Message, Role
from dial_client.tools.agent_progress import INTERRUPTED, AgentState, hold_agent, read_states


def find_open_agents(tree: MessageTree) -> dict[str, AgentState]:
    """Return the agents of the last reply of the shown version whose calls have no result, by the ids of the calls."""
    if not tree.agents:
        return {}
    path = tree.find_path()
    reply = next((stored for stored in reversed(path) if stored.message.role is Role.ASSISTANT), None)
    if reply is None or not reply.message.tool_calls:
        return {}
    on_path = {stored.position for stored in path if stored.position >= reply.position}
    answered = {
        stored.message.tool_call_id
        for stored in path
        if stored.position in on_path and stored.message.role is Role.TOOL and stored.message.pending is None
    }
    called = {call.id for call in reply.message.tool_calls} - answered
    states = read_states(data for head, data in tree.agents if head in on_path)
    return {call_id: state for call_id, state in states.items() if call_id in called and state.messages}


def hold_agents(
    messages: Sequence[Message], stored: Sequence[Message], agents: Mapping[str, AgentState]
) -> tuple[Message, ...]:
    """Return closing messages in which the calls of agents wait, in place of having an unknown result.

    Args:
        messages: The messages that close an interrupted turn.
        stored: The stored messages of the shown version.
        agents: The agents that go on.
    """
    calls = {call.id: call for message in stored for call in message.tool_calls if call.id in agents}
    return tuple(
        hold_agent(calls[message.tool_call_id])
        if message.tool_call_id in calls and message.text == INTERRUPTED
        else message
        for message in messages
    )
