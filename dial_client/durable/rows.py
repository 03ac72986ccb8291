"""What DBOS stores of durable turns: their ids, and the rows with their questions, results and errors.

A durable turn has the id ``CONVERSATION.NAME``; its workflow has the same id. Each process that runs the turn makes an
attempt with the id ``NAME.RANDOM``, which is stored as `Conversation.turn`. So a process that was only slow is not
confused with the process that has resumed its turn.

By default DBOS writes pickle, and it reads each row in the format that the row itself names, pickle included. So anyone
with write access to the database could run code in this process. Therefore rows are written as JSON. After the first
call of `build_json_serializer` this process reads no pickle at all, not even from rows of earlier versions of this
package.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from dial_client.messages.errors import (
    ConfigError,
    ConversationBusy,
    ConversationError,
    ConversationNotFound,
    DialError,
    StoreUnavailable,
)
from dial_client.messages.message import EntryKind, Message, Role, ToolSpec
from dial_client.runtime.logs import get_logger
from dial_client.stores.conversation_store import Conversation
from dial_client.turns.output_type import build_output_type, to_json_schema

if TYPE_CHECKING:
    from dbos import Serializer

log = get_logger(__name__)

# The name of the format in the rows.
NAME = "dial-client-json-1"
# The most characters of a row that is read.
MAX_CHARS = 128 * 1024 * 1024
REFUSED = (
    "the database contains a turn in a format that can run code (pickle), and it is not read: send the message again"
)
_ERRORS: dict[str, Callable[..., DialError]] = {
    error.__name__: error for error in (DialError, ConfigError, ConversationBusy, ConversationNotFound)
}

# The pickle of None, to test at each start whether DBOS reads pickle.
_PICKLED_NONE = base64.b64encode(b"\x80\x04N.").decode()


class RowRefused(DialError):
    """A row in the database for durable turns does not have the form that this package writes."""


def build_json_serializer() -> Serializer:
    """Return the serializer for DBOS, and make DBOS refuse pickle in this process.

    Raises:
        ConfigError: This version of DBOS still reads pickle.
    """
    from dbos import Serializer, _serialization

    class JsonSerializer(Serializer):
        def name(self) -> str:
            return NAME

        serialize, deserialize = staticmethod(to_json), staticmethod(from_json)

    _serialization.DefaultSerializer.deserialize = _refuse  # type: ignore[method-assign,assignment]
    serializer = JsonSerializer()
    try:
        _serialization.deserialize_value(_PICKLED_NONE, "py_pickle", serializer)
    except RowRefused:
        return serializer
    raise ConfigError("this version of DBOS reads pickle from its database", hint="install the one that was tested")


def to_json(data: Any) -> str:
    """Return a workflow's arguments, a result or an error as JSON in ASCII.

    Raises:
        TypeError: A value has no JSON type.
    """
    if isinstance(data, BaseException):
        conversation = {"conversation": data.conversation_id} if isinstance(data, ConversationError) else {}
        data = {"error": type(data).__name__, "text": str(data), **conversation}
    else:
        data = {"value": data}
    return json.dumps(data, separators=(",", ":"))


def from_json(serialized_data: str) -> Any:
    """Read the text that `to_json` returned. An error of an unknown type becomes a `DialError` that names the type.

    Raises:
        RowRefused: The text has another form.
    """
    try:
        found = json.loads(serialized_data) if len(serialized_data) <= MAX_CHARS else None
    except (TypeError, ValueError, RecursionError):
        found = None
    match found:
        case {"value": value, **more} if not more:
            return value
        case {"error": str(name), "text": str(words), "conversation": str(conversation_id)} if name in _ERRORS:
            return _ERRORS[name](conversation_id, words)
        case {"error": str(name), "text": str(words)}:
            return _ERRORS[name](words) if name in _ERRORS else DialError(f"{name}: {words}")
        case _:
            raise RowRefused("the database contains a turn that cannot be read")


def _refuse(serializer: object, serialized_data: str) -> Any:  # noqa: ARG001 - the signature that DBOS calls
    if serialized_data != _PICKLED_NONE:
        log.warning("pickle_refused", chars=len(serialized_data))
    raise RowRefused(REFUSED)


@dataclass(frozen=True, slots=True)
class DurableResult:
    """The result of a durable turn."""

    text: str
    """The text of the answer."""
    stop_reason: str
    """The `Turn.stop_reason`; empty if the turn ended with an error, or its end is unknown."""
    error: str = ""
    """The error that ended the turn, such as an unreachable model; empty if there is none."""


def find_stored_result(stored: Conversation, question: Message) -> DurableResult:
    """Return the result of a turn that ended in another process: the stored answer to the latest message `question`."""
    for message in reversed(stored.messages):
        if message.role is Role.ASSISTANT and message.text and not message.tool_calls:
            return DurableResult(message.text, "")
        if message.role is Role.USER and message.content == question.content:
            break
    return DurableResult("", "")


# The fields of a caller's own tool that a row has.
_TOOL_FIELDS = ("name", "description", "input_schema", "tool", "original_schema")


def to_question_row(message: str | Message, output_type: Any, client_tools: Sequence[ToolSpec] = ()) -> str:
    """Return the row for a user's message, the JSON Schema of its answer's type, and the caller's own tools.

    Args:
        message: The user's message.
        output_type: The type of the answer; None for text.
        client_tools: The caller's own tools.

    Raises:
        ConfigError: `output_type` is an invalid JSON Schema.
        TypeError: `output_type` is not a type that JSON can be parsed as.
    """
    question = Message.user(message) if isinstance(message, str) else message
    schema = {} if output_type is None else {"output_schema": to_json_schema(output_type)}
    tools = [{name: getattr(tool, name) for name in _TOOL_FIELDS} for tool in client_tools]
    return json.dumps({**question.to_dict(), **schema, **({"client_tools": tools} if tools else {})})


def read_question_row(row: Any) -> tuple[Message, Any, tuple[ToolSpec, ...]]:
    """Return the user's message, the JSON Schema of its answer, which is None for text, and the caller's own tools.

    The message is empty if only the conversation has it.

    Raises:
        RowRefused: The row is not the JSON of a user's message, or the schema or a tool is invalid.
    """
    try:
        data = json.loads(row or '{"role": "user", "content": ""}')
        message, schema = Message.from_dict(data), data.get("output_schema")
        tools = data.get("client_tools", ()) and TypeAdapter(tuple[ToolSpec, ...]).validate_python(data["client_tools"])
        if schema is not None:
            build_output_type(schema)
    except (TypeError, ValueError, AttributeError, RecursionError, ConfigError) as error:
        raise RowRefused("the database contains a question that cannot be read") from error
    if message != Message(Role.USER, message.content, taint=message.taint):
        raise RowRefused("the database contains a question that is not a user's message")
    return message, schema, tools


def to_dial_error(error: Exception) -> DialError:
    """Return the error for a failed access to the database of DBOS."""
    return StoreUnavailable(f"the database for durable turns failed: {type(error).__name__}")


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


def has_begun(turn_id: str, stored: Conversation) -> bool:
    """Return True if an attempt of the turn holds the conversation, or has ended in it."""
    entries = (message.entry for message in stored.messages if message.entry is not None)
    ended = (entry.data.get("turn") for entry in entries if entry.kind == EntryKind.TURN)
    return any(is_attempt_of(turn_id, str(attempt)) for attempt in (stored.turn, *ended))


def find_turn_id(attempt_id: str, conversation_id: str) -> str:
    """Return the id of the durable turn to which the attempt belongs, if it is an attempt of a durable turn."""
    return build_turn_id(conversation_id, attempt_id.partition(".")[0])
