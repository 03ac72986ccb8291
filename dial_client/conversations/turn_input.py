"""What a turn of a conversation answers: a message, a new version of an earlier message, or the same question again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dial_client.conversations.branches import build_branch
from dial_client.conversations.history_edits import apply_edits, find_last_exchange
from dial_client.conversations.message_tree import StoredMessage, build_tree
from dial_client.errors import ConfigError
from dial_client.messages.message import Message, Role
from dial_client.stores.conversation_store import Conversation

CONTINUE = (
    "Your last message was cut off. Continue it exactly where it ends: begin with the next character, and repeat"
    " and explain nothing."
)
"""The request for the rest of an answer; it is sent, and not stored."""


@dataclass(frozen=True, slots=True)
class EditedMessage:
    """A new version of an earlier message of the user; what followed the earlier version stays stored."""

    position: int
    """The position of the earlier message, as `ConversationManager.view` gives it."""
    message: str | Message


@dataclass(frozen=True, slots=True)
class Regeneration:
    """A new answer to a question; the earlier answers stay stored."""

    position: int | None = None
    """The position of the question, or of a message of its answer; None for the last question."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """The rest of the last answer, which was cut off."""


TurnInput = str | Message | EditedMessage | Regeneration | Continuation


def check_turn_input(given: Any) -> None:
    """Check that a turn can answer what it is given.

    Raises:
        TypeError: it is none of the types of `TurnInput`.
    """
    message = given.message if isinstance(given, EditedMessage) else given
    if isinstance(message, str | Message) or (message is given and isinstance(given, Regeneration | Continuation)):
        return
    hint = ": use Message.from_dict(data)" if isinstance(message, Mapping) else ""
    raise TypeError(f"a conversation goes on with a text or a Message, not {type(message).__name__}{hint}")


def find_question(turn_input: TurnInput | None) -> Message | None:
    """Return the message of the user that a turn adds to its conversation; None for none."""
    match turn_input:
        case str(text) | EditedMessage(message=str(text)):
            return Message.user(text)
        case Message() as message:
            return message
        case EditedMessage(message=Message() as message):
            return message
        case _:
            return None


def build_first_messages(stored: Conversation, turn_input: TurnInput) -> tuple[Message, ...]:
    """Return the messages to store before the model is asked.

    Raises:
        ConfigError: there is no such message, or no answer to continue.
    """
    question = find_question(turn_input)
    added: tuple[Message, ...] = (question,) if question is not None else ()
    match turn_input:
        case EditedMessage(position):
            tree = build_tree(stored)
            edited = tree.find(position)
            if not edited.is_question:
                raise ConfigError(f"the message {position} is none of the user: only those can be edited")
            # The new version may still have what an untrusted server wrote.
            kept = edited.message.taint
            added = tuple(replace(message, taint=message.taint or kept) for message in added)
            return (*build_branch(stored, tree, edited.parent), *added)
        case Regeneration(position):
            tree = build_tree(stored)
            found = (
                _find_last_question(stored) if position is None else tree.find_question(tree.find(position).position)
            )
            if found is None or found.position in tree.removed:
                raise ConfigError("there is no question to answer again")
            return build_branch(stored, tree, found.position)
        case Continuation():
            shown = apply_edits(stored).messages
            if not shown or shown[-1].role is not Role.ASSISTANT or shown[-1].tool_calls:
                raise ConfigError("the conversation does not end with an answer that could be continued")
            return ()
        case _:
            return added


def _find_last_question(stored: Conversation) -> StoredMessage | None:
    return next(iter(find_last_exchange(stored)), None)
