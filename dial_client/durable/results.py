"""The results of durable turns, and the rows of DBOS that hold them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dial_client.durable.serialization import RowRefused
from dial_client.durable.turn_ids import conversation_of
from dial_client.errors import ConfigError, DialError
from dial_client.messages.message import Message, Role
from dial_client.schema.output_type import build_output_type, to_json_schema
from dial_client.stores.conversation_store import Conversation
from dial_client.turn_data.turn_result import Turn


@dataclass(frozen=True, slots=True)
class DurableResult:
    """The result of a turn."""

    text: str
    """The answer."""
    stop_reason: str
    """As `Turn.stop_reason`; empty where the turn ended in an error, or its end is not known."""
    error: str = ""
    """The error, where the turn ended in one: the model could not be reached, or refused."""

    @classmethod
    def from_row(cls, row: Any) -> DurableResult:
        """Read the result that a workflow returned.

        Raises:
            RowRefused: this package has not written it.
        """
        match row:
            case {"text": str(text), "stop_reason": str(stop_reason), **more}:
                return cls(text, stop_reason, error if isinstance(error := more.get("error"), str) else "")
            case _:
                raise RowRefused("the database holds an answer that cannot be read")


def to_row(turn: Turn) -> dict[str, str]:
    """Return the row of a turn that has ended."""
    return {"text": turn.text, "stop_reason": turn.stop_reason.value}


def to_error_row(error: DialError) -> dict[str, str]:
    """Return the row of a turn that ended in an error."""
    return {"text": "", "stop_reason": "", "error": str(error)}


def to_row_of_stored(stored: Conversation, question: Message) -> dict[str, str]:
    """Return the row of a turn that has ended with its process: the stored answer to the latest such question."""
    answer = ""
    for message in reversed(stored.messages):
        if message.role is Role.USER and message.content == question.content:
            break
        answer = message.text if message.role is Role.ASSISTANT and not message.tool_calls and not answer else answer
    return {"text": answer, "stop_reason": ""}


def to_question_row(message: str | Message, output_type: Any) -> str:
    """Return the row of a user's message, and of the type of its answer as a JSON Schema; None for text.

    Raises:
        ConfigError: `output_type` is an invalid JSON Schema.
        TypeError: it is no type that JSON can be read as.
    """
    question = Message.user(message) if isinstance(message, str) else message
    schema = {} if output_type is None else {"output_schema": to_json_schema(output_type)}
    return json.dumps({**question.to_dict(), **schema})


def read_output_type(row: str) -> Any:
    """Return the JSON Schema of the answer in the row of a message; None for text.

    Raises:
        RowRefused: the row is no JSON, or it has no valid schema.
    """
    try:
        schema = json.loads(row).get("output_schema") if row else None
        if schema is not None:
            build_output_type(schema)
    except (TypeError, ValueError, AttributeError, RecursionError, ConfigError) as error:
        raise RowRefused("the database holds a question that cannot be read") from error
    return schema


def to_message(row: Any) -> Message:
    """Return the user's message of a workflow; an empty one where only the conversation has it.

    Raises:
        RowRefused: the row is no JSON of a message, or not of a user's.
    """
    try:
        message = Message.from_dict(json.loads(row)) if row else Message.user("")
    except (TypeError, ValueError, RecursionError) as error:
        raise RowRefused("the database holds a question that cannot be read") from error
    if message != Message(Role.USER, message.content, taint=message.taint):
        raise RowRefused("the database holds a question that is none of a user")
    return message


def check_conversation(turn_id: str, conversation_id: Any) -> str:
    """Return the id of a workflow's conversation.

    Raises:
        RowRefused: the workflow belongs to another conversation.
    """
    if not isinstance(conversation_id, str) or conversation_of(turn_id) != conversation_id:
        raise RowRefused("the database holds a turn of another conversation")
    return conversation_id


def to_dial_error(error: Exception) -> DialError:
    """Return the error for a database of DBOS that failed."""
    return DialError(f"the database for durable turns failed: {type(error).__name__}")
