"""The ids of durable turns and of the attempts to carry them out.

A durable turn has the id ``CONVERSATION.NAME``, which is that of its workflow too. Each process that carries it out
makes an attempt of its own, ``NAME.RANDOM``, which the conversation has as `Conversation.turn`: a process that was only
slow must not be taken for its successor.
"""

from __future__ import annotations

import secrets


def new_turn_id(conversation_id: str, name: str = "") -> str:
    """Return the id of a durable turn; without a name, of a new one."""
    return f"{conversation_id}.{name or secrets.token_hex(16)}"


def conversation_of(turn_id: str) -> str:
    """Return the id of a turn's conversation."""
    return turn_id.partition(".")[0]


def new_attempt_id(turn_id: str) -> str:
    """Return the id of a new attempt to carry the turn out."""
    return f"{turn_id.partition('.')[2]}.{secrets.token_hex(4)}"


def is_attempt_of(turn_id: str, attempt_id: str) -> bool:
    """Return True if the attempt belongs to the turn."""
    return attempt_id.startswith(f"{turn_id.partition('.')[2]}.")


def turn_of_attempt(attempt_id: str, conversation_id: str) -> str:
    """Return the id of the turn to which the attempt belongs, if that is a durable one."""
    return new_turn_id(conversation_id, attempt_id.partition(".")[0])
