"""Calls of the caller's own tools, with which a stored turn has ended: the caller runs them, and sends the results.

A conversation waits for the results until its next message: a call that has none by then gets a result that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dial_client.conversations.message_tree import MessageTree, StoredMessage, build_tree
from dial_client.messages.errors import ConfigError
from dial_client.messages.limits import StopReason
from dial_client.messages.message import EntryKind, Message, Role, ToolCallRequest, build_interrupted_result
from dial_client.stores.conversation_store import Conversation

# Why a call of the caller's tool has no result.
_NOT_SENT = "its caller sent no result"


@dataclass(frozen=True, slots=True)
class ClientCalls:
    """The calls that wait for their caller."""

    turn: str
    """The id of the turn that has ended with the calls."""
    depth: int
    """The number of rounds of the turn before the calls."""
    calls: tuple[ToolCallRequest, ...]


def find_client_calls(tree: MessageTree) -> ClientCalls | None:
    """Return the calls that the shown version of a conversation waits for; None if there are none.

    The servers' calls of the same reply have results: a result that a caller sends can be that of its own tool only.
    """
    details = tree.turns.get(tree.head, ())
    is_waiting = bool(details) and details[-1].get("stop_reason") == StopReason.CLIENT_TOOL_CALLS
    return _read_calls(tree, tree.find_path()) if is_waiting else None


def find_answered_calls(tree: MessageTree) -> ClientCalls | None:
    """Return the calls with whose results the last turn of the shown version began; None if it began otherwise."""
    path = tree.find_path()
    for index in range(len(path) - 1, 0, -1):
        if path[index].is_question:
            return None
        if path[index].message.role is Role.TOOL and (found := _read_calls(tree, path[:index])) is not None:
            return found
    return None


def _read_calls(tree: MessageTree, path: Sequence[StoredMessage]) -> ClientCalls | None:
    """Return the calls with which a turn ended at the end of a path."""
    details = tree.turns.get(path[-1].position, ()) if path else ()
    if not details or details[-1].get("stop_reason") != StopReason.CLIENT_TOOL_CALLS:
        return None
    answered: set[str | None] = set()
    for stored in reversed(path):
        if stored.message.role is not Role.TOOL:
            calls = tuple(call for call in stored.message.tool_calls if call.id not in answered)
            return ClientCalls(str(details[-1].get("turn")), details[-1].get("depth", 0), calls) if calls else None
        answered.add(stored.message.tool_call_id)
    return None


def _may_wait(stored: Conversation) -> bool:
    """Return whether the shown version may wait for its caller: a look at the end, since each message asks this."""
    for message in reversed(stored.messages):
        if message.entry is None:
            return False
        if message.entry.kind == EntryKind.TURN:
            return bool(message.entry.data.get("stop_reason") == StopReason.CLIENT_TOOL_CALLS)
        if message.entry.kind == EntryKind.BRANCH:
            return True
    return False


def answer_client_calls(stored: Conversation, results: Sequence[Message] = ()) -> tuple[Message, ...]:
    """Return a result for each call that waits; the first of two results of a call counts.

    Raises:
        ConfigError: A result is not that of such a call.
    """
    waiting = find_client_calls(build_tree(stored)) if results or _may_wait(stored) else None
    calls = waiting.calls if waiting is not None else ()
    given = {result.tool_call_id: result for result in reversed(results)}
    if unknown := given.keys() - {call.id for call in calls}:
        raise ConfigError(f"no call {min(map(str, unknown))!r} of the caller's tools waits for a result")
    return tuple(
        Message(Role.TOOL, sent.content, tool_call_id=call.id, name=call.name, is_error=sent.is_error)
        if (sent := given.get(call.id)) is not None
        else Message.tool(call, build_interrupted_result(call.id, _NOT_SENT))
        for call in calls
    )
