"""The inputs of a turn in a conversation: a message, an edited one, a regeneration, a continuation, or results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dial_client.conversations.client_calls import answer_client_calls
from dial_client.conversations.history import apply_edits, build_branch, find_last_exchange
from dial_client.conversations.message_tree import build_tree
from dial_client.messages.errors import ConfigError
from dial_client.messages.message import Message, Role, TextPart
from dial_client.stores.conversation_store import Conversation

# The message that asks the model to go on, with its answer or with the work that a limit stopped; it is not stored.
CONTINUE = (
    "Your last message ended before you were done. If it was cut off, continue it exactly where it ends: begin with the"
    " next character. If your tool calls were stopped, you may call tools again. Repeat and explain nothing."
)


@dataclass(frozen=True, slots=True)
class EditedMessage:
    """A new version of an earlier message of the user; what followed the earlier version stays stored."""

    position: int
    """The position of the earlier message (`ConversationView.positions`)."""
    message: str | Message
    """The new text or message."""


@dataclass(frozen=True, slots=True)
class Regeneration:
    """A new answer to a question; the earlier answers stay stored."""

    position: int | None = None
    """The position of the question, or of a message of its answer; None for the last question."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """A request to go on: for the rest of the last answer, which was cut off, or with work that a limit stopped."""


@dataclass(frozen=True, slots=True)
class ClientResults:
    """The results of the calls of the caller's own tools (`Turn.client_tool_calls`) with which the last turn ended."""

    results: tuple[Message, ...]
    """For each call a message with ``Role.TOOL`` and the id of the call; a call without one counts as interrupted."""
    message: Message | None = None
    """The user's next message, which follows the results; None for none."""


ConversationInput = str | Message | EditedMessage | Regeneration | Continuation | ClientResults


def check_turn_input(turn_input: Any) -> None:
    """Check the type of a turn's input.

    Raises:
        TypeError: The input is not a `ConversationInput`.
    """
    message = turn_input.message if isinstance(turn_input, EditedMessage) else turn_input
    if isinstance(message, str | Message) or (
        message is turn_input and isinstance(turn_input, Regeneration | Continuation | ClientResults)
    ):
        return
    hint = ": use Message.from_dict(data)" if isinstance(message, Mapping) else ""
    raise TypeError(f"a conversation continues with a text or a Message, not {type(message).__name__}{hint}")


def build_question(turn_input: ConversationInput | None) -> Message | None:
    """Return the user's message that a turn with this input adds to its conversation; None if there is none."""
    message = turn_input.message if isinstance(turn_input, EditedMessage | ClientResults) else turn_input
    if isinstance(message, str):
        return Message.user(message)
    return message if isinstance(message, Message) else None


def find_typed_text(question: Message) -> str:
    """Return the text of a question without its attachments, which follow as further parts of it."""
    parts = () if isinstance(question.content, str) else question.content
    return next((part.text for part in parts if isinstance(part, TextPart)), question.text)


def build_first_messages(stored: Conversation, turn_input: ConversationInput) -> tuple[Message, ...]:
    """Return the messages that a turn with this input stores before the model is asked.

    Raises:
        ConfigError: The message to edit or to answer again does not exist, there is no answer to continue, or no call
            waits for a result.
    """
    question = build_question(turn_input)
    added: tuple[Message, ...] = (question,) if question is not None else ()
    match turn_input:
        case EditedMessage(position):
            tree = build_tree(stored)
            edited = tree.find(position)
            if not edited.is_question:
                raise ConfigError(f"message {position} cannot be edited: it is not a message of the user")
            # The new version may still contain untrusted text of the earlier one.
            kept = edited.message.taint
            added = tuple(replace(message, taint=message.taint or kept) for message in added)
            return (*build_branch(stored, tree, edited.parent), *added)
        case Regeneration(position):
            tree = build_tree(stored)
            if position is None:
                found = next(iter(find_last_exchange(stored)), None)
            else:
                found = tree.find_question(tree.find(position).position)
            if found is None or found.position in tree.removed:
                raise ConfigError("there is no question to answer again")
            return build_branch(stored, tree, found.position)
        case Continuation():
            shown = apply_edits(stored).messages
            if not shown or shown[-1].role is not Role.ASSISTANT or shown[-1].tool_calls:
                raise ConfigError("the conversation does not end with an answer that can be continued")
            return ()
        case ClientResults(results):
            return (*answer_client_calls(stored, results), *added)
        case _:
            return (*answer_client_calls(stored), *added)
