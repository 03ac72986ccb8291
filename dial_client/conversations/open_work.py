"""What a stored conversation has begun and not ended: tasks of servers, and agents of an interrupted turn.

Both are read from entries that only the host writes. Texts of messages can close a task, and never open one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from dial_client.conversations.message_tree import MessageTree, StoredMessage
from dial_client.messages.message import Message, Role
from dial_client.tools.agent_progress import INTERRUPTED, AgentState, hold_agent, read_states
from dial_client.tools.background_calls import TaskRecord, describe_task, find_begun, find_ended


def find_open_tasks(tree: MessageTree) -> tuple[TaskRecord, ...]:
    """Return the tasks of the shown version that are open, in the order of their calls.

    A task is open while the model has no result of its call: the call has none at all, because its program was killed,
    or it has gone to the background. Only entries name tasks: texts of messages can close a task, never open one.
    """
    if not tree.tasks:
        return ()
    path = tree.find_path()
    on_path = {stored.position for stored in path}
    messages = [stored.message for stored in path]
    begun, ended = find_begun(messages), find_ended(messages)
    found: dict[str, TaskRecord] = {}
    for head, data in tree.tasks:
        with suppress(ValueError):
            record = TaskRecord.from_dict(data)
            is_moved = begun.get(record.id) == record.call.id
            if head in on_path and record.id not in ended and (is_moved or not _has_result(path, head, record.call.id)):
                found[record.id] = record
    return tuple(found.values())


def _has_result(path: tuple[StoredMessage, ...], head: int, call_id: str) -> bool:
    """Return whether the call has a result that was stored after the reply with the call, the last one up to `head`."""
    replies = [
        index
        for index, stored in enumerate(path)
        if stored.position <= head and any(call.id == call_id for call in stored.message.tool_calls)
    ]
    return not replies or any(stored.message.tool_call_id == call_id for stored in path[replies[-1] + 1 :])


def add_task(message: Message, records: dict[str, TaskRecord], unknown: str) -> Message:
    """Return the result of a call, which says that the call goes on at its server if it has only the text `unknown`."""
    if message.role is not Role.TOOL or message.text != unknown:
        return message
    record = records.get(message.tool_call_id or "")
    return message if record is None else replace(message, content=describe_task(record).content, is_error=False)


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


def find_waiting_agents(tree: MessageTree) -> dict[str, AgentState]:
    """Return the agents of `find_open_agents` if nothing of them runs before a person answers; else none."""
    agents = find_open_agents(tree)
    return agents if all(state.is_waiting for state in agents.values()) else {}


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
        hold_agent(calls[message.tool_call_id], agents[message.tool_call_id].build_history())
        if message.tool_call_id in calls and message.text == INTERRUPTED
        else message
        for message in messages
    )
