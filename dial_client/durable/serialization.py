"""Serializes the rows of DBOS as JSON, and never reads pickle.

By default DBOS writes pickle, and it reads each row in the format that the row itself names, pickle included. So anyone
with write access to the database could run code in this process. Therefore rows are written as JSON. After the first
call of `build_json_serializer` this process reads no pickle at all, not even from rows of earlier versions of this
package.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dial_client.messages.errors import (
    ConfigError,
    ConversationBusy,
    ConversationError,
    ConversationNotFound,
    DialError,
)
from dial_client.runtime.logs import get_logger

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

        def serialize(self, data: Any) -> str:
            return to_json(data)

        def deserialize(self, serialized_data: str) -> Any:  # DBOS calls it `cls`
            return from_json(serialized_data)

    _serialization.DefaultSerializer.deserialize = _refuse  # type: ignore[method-assign,assignment]
    serializer = JsonSerializer()
    try:
        _serialization.deserialize_value(_PICKLED_NONE, "py_pickle", serializer)
    except RowRefused:
        return serializer
    raise ConfigError("this version of DBOS reads pickle from its database", hint="install the one that was tested")


def to_json(value: Any) -> str:
    """Return a workflow's arguments, a result or an error as JSON in ASCII.

    Raises:
        TypeError: A value has no JSON type.
    """
    if isinstance(value, BaseException):
        conversation = {"conversation": value.conversation_id} if isinstance(value, ConversationError) else {}
        value = {"error": type(value).__name__, "text": str(value), **conversation}
    else:
        value = {"value": value}
    return json.dumps(value, separators=(",", ":"))


def from_json(text: str) -> Any:
    """Read the text that `to_json` returned. An error of an unknown type becomes a `DialError` that names the type.

    Raises:
        RowRefused: The text has another form.
    """
    try:
        found = json.loads(text) if len(text) <= MAX_CHARS else None
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
