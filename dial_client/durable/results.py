"""The ids and results of durable turns, and the rows in which DBOS stores inputs and results.

A durable turn has the id ``CONVERSATION.NAME``; its workflow has the same id. Each process that runs the turn makes an
attempt with the id ``NAME.RANDOM``, which is stored as `Conversation.turn`. So a process that was only slow is not
confused with the process that has resumed its turn.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

from dial_client.durable.serialization import RowRefused
from dial_client.messages.errors import ConfigError, DialError
from dial_client.messages.message import Message, Role
from dial_client.messages.turn_result import Turn
from dial_client.stores.conversation_store import Conversation
from dial_client.turns.output_type import build_output_type, to_json_schema


@dataclass(frozen=True, slots=True)
class DurableResult:
    """The result of a durable turn."""

    text: str
    """The text of the answer."""
    stop_reason: str
    """The `Turn.stop_reason`; empty if the turn ended with an error, or its end is unknown."""
    error: str = ""
    """The error that ended the turn, such as an unreachable model; empty for none."""

    @classmethod
    def from_row(cls, row: Any) -> DurableResult:
        """Read the result that a workflow returned.

        Raises:
            RowRefused: The row does not have the form that this package writes.
        """
        match row:
            case {"text": str(text), "stop_reason": str(stop_reason), **more}:
                return cls(text, stop_reason, error if isinstance(error := more.get("error"), str) else "")
            case _:
                raise RowRefused("the database contains an answer that cannot be read")


def to_row(turn: Turn) -> dict[str, str]:
    """Return the row for the result of a turn that has ended."""
    return {"text": turn.text, "stop_reason": turn.stop_reason.value}


def to_error_row(error: DialError) -> dict[str, str]:
    """Return the row for a turn that ended with an error."""
    return {"text": "", "stop_reason": "", "error": str(error)}


def to_row_of_stored(stored: Conversation, question: Message) -> dict[str, str]:
    """Return the row for a turn that ended in another process: the stored answer to the latest message `question`."""
    answer = ""
    for message in reversed(stored.messages):
        if message.role is Role.USER and message.content == question.content:
            break
        answer = message.text if message.role is Role.ASSISTANT and not message.tool_calls and not answer else answer
    return {"text": answer, "stop_reason": ""}


def to_question_row(message: str | Message, output_type: Any) -> str:
    """Return the row for a user's message and the JSON Schema of its answer's type.

    Args:
        message: The user's message.
        output_type: The type of the answer; None for text.

    Raises:
        ConfigError: `output_type` is an invalid JSON Schema.
        TypeError: `output_type` is not a type that JSON can be parsed as.
    """
    question = Message.user(message) if isinstance(message, str) else message
    schema = {} if output_type is None else {"output_schema": to_json_schema(output_type)}
    return json.dumps({**question.to_dict(), **schema})


def read_output_type(row: str) -> Any:
    """Return the JSON Schema of the answer from the row of a message; None if the answer is text.

    Raises:
        RowRefused: The row is not JSON, or its schema is invalid.
    """
    try:
        schema = json.loads(row).get("output_schema") if row else None
        if schema is not None:
            build_output_type(schema)
    except (TypeError, ValueError, AttributeError, RecursionError, ConfigError) as error:
        raise RowRefused("the database contains a question that cannot be read") from error
    return schema


def to_message(row: Any) -> Message:
    """Return the user's message from the row of a workflow; an empty message if only the conversation has it.

    Raises:
        RowRefused: The row is not the JSON of a user's message.
    """
    try:
        message = Message.from_dict(json.loads(row)) if row else Message.user("")
    except (TypeError, ValueError, RecursionError) as error:
        raise RowRefused("the database contains a question that cannot be read") from error
    if message != Message(Role.USER, message.content, taint=message.taint):
        raise RowRefused("the database contains a question that is not a user's message")
    return message


def check_conversation(turn_id: str, conversation_id: Any) -> str:
    """Check that a workflow's argument is the id of its turn's conversation, and return the id.

    Raises:
        RowRefused: The turn belongs to another conversation.
    """
    if not isinstance(conversation_id, str) or extract_conversation_id(turn_id) != conversation_id:
        raise RowRefused("the database contains a turn of another conversation")
    return conversation_id


def to_dial_error(error: Exception) -> DialError:
    """Return the error for a failed access to the database of DBOS."""
    return DialError(f"the database for durable turns failed: {type(error).__name__}")


def build_turn_id(conversation_id: str, name: str = "") -> str:
    """Return the id of a durable turn with this name; by default a random name."""
    return f"{conversation_id}.{name or secrets.token_hex(16)}"


def extract_conversation_id(turn_id: str) -> str:
    """Return the id of a turn's conversation."""
    return turn_id.rpartition(".")[0]


def create_attempt_id(turn_id: str) -> str:
    """Return the id of a new attempt to run the turn."""
    return f"{turn_id.rpartition('.')[2]}.{secrets.token_hex(4)}"


def is_attempt_of(turn_id: str, attempt_id: str) -> bool:
    """Return True if the attempt belongs to the turn."""
    return attempt_id.startswith(f"{turn_id.rpartition('.')[2]}.")


def find_turn_id(attempt_id: str, conversation_id: str) -> str:
    """Return the id of the durable turn to which the attempt belongs, if it is an attempt of a durable turn."""
    return build_turn_id(conversation_id, attempt_id.partition(".")[0])
