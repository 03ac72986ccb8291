"""The mailbox topics over which processes exchange messages.

Processes of other versions read the same topics and message formats: keep them stable.
"""

from __future__ import annotations


def build_turn_requests_topic(turn: str) -> str:
    """Return the topic of requests to the process that runs a turn."""
    return f"wishes:{turn}"


def build_turn_events_topic(conversation_id: str, turn: str) -> str:
    """Return the topic of a turn's events. Each message is a JSON list of pairs: a position and the encoded event."""
    return f"events:{conversation_id}/{turn}"


def build_pending_requests_topic(kind: str) -> str:
    """Return the topic of the requests of a kind that wait for the user."""
    return f"asked:{kind}"


def build_grant_topic(key: str) -> str:
    """Return the topic of a tool's grant. A message means that the tool is granted."""
    return f"granted:{key}"


LISTED_GRANTS_TOPIC = "grants"
"""The topic of the grants shown to the user: JSON objects with ``key``, ``server``, ``tool`` and ``conversation``."""


def build_handoff_topic(call_id: str) -> str:
    """Return the topic of a turn that returned tool calls, by the id of its first call."""
    return f"thread:{call_id}"
