"""The ids of durable turns, and of the attempts to run them.

A durable turn has the id ``CONVERSATION.NAME``; its workflow has the same id. Each process that runs the turn makes an
attempt with the id ``NAME.RANDOM``, which is stored as `Conversation.turn`. So a process that was only slow is not
confused with the process that has resumed its turn.
"""

from __future__ import annotations

import secrets


def build_turn_id(conversation_id: str, name: str = "") -> str:
    """Return the id of a durable turn with this name; by default a random name."""
    return f"{conversation_id}.{name or secrets.token_hex(16)}"


def extract_conversation_id(turn_id: str) -> str:
    """Return the id of a turn's conversation."""
    return turn_id.partition(".")[0]


def create_attempt_id(turn_id: str) -> str:
    """Return the id of a new attempt to run the turn."""
    return f"{turn_id.partition('.')[2]}.{secrets.token_hex(4)}"


def is_attempt_of(turn_id: str, attempt_id: str) -> bool:
    """Return True if the attempt belongs to the turn."""
    return attempt_id.startswith(f"{turn_id.partition('.')[2]}.")


def find_turn_id(attempt_id: str, conversation_id: str) -> str:
    """Return the id of the durable turn to which the attempt belongs, if it is an attempt of a durable turn."""
    return build_turn_id(conversation_id, attempt_id.partition(".")[0])
