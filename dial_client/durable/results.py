"""What came of a durable turn, and the ids by which it is known."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from dial_client.durable.serialization import RowRefused
from dial_client.errors import DialError
from dial_client.messages import Message, Role
from dial_client.stores.conversation_store import Conversation
from dial_client.turn_result import Turn


@dataclass(frozen=True, slots=True)
class DurableResult:
    """What came of a turn."""

    text: str
    """The answer."""
    stop_reason: str
    """As `Turn.stop_reason`; empty where the turn came to an error, or its end was not heard of."""
    error: str = ""
    """What went wrong, where something did: the model could not be reached, or refused."""

    @classmethod
    def from_row(cls, result: Any) -> DurableResult:
        """Read what a workflow returned.

        Raises:
            RowRefused: it is none of ours.
        """
        match result:
            case {"text": str(text), "stop_reason": str(stop_reason), **more}:
                return cls(text, stop_reason, error if isinstance(error := more.get("error"), str) else "")
            case _:
                raise RowRefused("the database holds an answer that cannot be read")


def told(turn: Turn) -> dict[str, str]:
    """Give the fields of a turn's answer."""
    return {"text": turn.text, "stop_reason": turn.stop_reason.value}


def broken(error: DialError) -> dict[str, str]:
    """Give those of a turn that came to an error."""
    return {"text": "", "stop_reason": "", "error": str(error)}


def ended(stored: Conversation, said: Message) -> dict[str, str]:
    """Give what a conversation has for the last time this was said: the turn is over, and its program with it."""
    answer = ""
    for message in reversed(stored.messages):
        if message.role is Role.USER and message.content == said.content:
            break
        answer = message.text if message.role is Role.ASSISTANT and not message.tool_calls and not answer else answer
    return {"text": answer, "stop_reason": ""}


def read(said: Any) -> Message:
    """Give what was said, as a workflow holds it: JSON, or nothing where the conversation has it.

    Raises:
        RowRefused: it is something else, or nothing that a user says.
    """
    try:
        message = Message.from_dict(json.loads(said)) if said else Message.user("")
    except (TypeError, ValueError, RecursionError) as error:
        raise RowRefused("the database holds a question that cannot be read") from error
    if message != Message(Role.USER, message.content, taint=message.taint):
        raise RowRefused("the database holds a question that is none of a user")
    return message


def check(turn: str, conversation_id: Any) -> str:
    """Return the id of a workflow's conversation.

    Raises:
        RowRefused: the workflow is of another one.
    """
    if not isinstance(conversation_id, str) or conversation_of(turn) != conversation_id:
        raise RowRefused("the database holds a turn of another conversation")
    return conversation_id


def failed(error: Exception) -> DialError:
    """Make the error that says that what DBOS keeps cannot be had."""
    return DialError(f"the database for durable turns failed: {type(error).__name__}")


def turn_id(conversation_id: str, name: str = "") -> str:
    """Give the id of a turn, which is that of its workflow too."""
    return f"{conversation_id}.{name or uuid.uuid4().hex}"


def conversation_of(turn: str) -> str:
    """Give the id of its conversation."""
    return turn.partition(".")[0]


def attempt_at(turn: str) -> str:
    """Give an id for one try to carry a turn out: a program that was only slow must not be taken for its successor."""
    return f"{turn.partition('.')[2]}.{uuid.uuid4().hex[:8]}"


def is_of(turn: str, attempt: str) -> bool:
    """Whether this was a try at that turn."""
    return attempt.startswith(f"{turn.partition('.')[2]}.")


def tried_by(attempt: str, conversation_id: str) -> str:
    """Give the id of the turn that this was a try at, if that was a durable one."""
    return turn_id(conversation_id, attempt.partition(".")[0])
