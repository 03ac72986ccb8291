"""The rows of DBOS as JSON, and never as pickle.

DBOS writes pickle by default, and reads a row in the form the row names, pickle included. Whoever can write to the
database could run any program in this process. So rows are written as JSON, and from the first call of
`json_serializer` on this process reads no pickle: also not in rows that an earlier version of this package wrote.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from dial_client.errors import ConfigError, ConversationBusy, ConversationError, ConversationNotFound, DialError
from dial_client.runtime.logs import get_logger

if TYPE_CHECKING:
    from dbos import Serializer

log = get_logger(__name__)

NAME = "dial-client-json-1"
"""The name of the form in the rows."""
MAX_CHARS = 128 * 1024 * 1024
"""Characters of the longest row that is read."""
REFUSED = "the database holds a turn in a form that could run programs (pickle): it is not loaded; say it again"
_ERRORS = {error.__name__: error for error in (DialError, ConfigError)}
_CONVERSATION_ERRORS = {error.__name__: error for error in (ConversationBusy, ConversationNotFound)}


class RowRefused(DialError):
    """A row of the database for durable turns is not what this program writes."""


def json_serializer() -> Serializer:
    """Return the serializer for DBOS, and let this process read no pickle that DBOS finds in a database.

    Raises:
        ConfigError: this version of DBOS reads pickle all the same.
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
        # The pickle of None: the test is whether it is read at all.
        _serialization.deserialize_value(base64.b64encode(b"\x80\x04N.").decode(), "py_pickle", serializer)
    except RowRefused:
        return serializer
    raise ConfigError("this version of DBOS reads pickle from its database", hint="install the one that was tested")


def to_json(value: Any) -> str:
    """Write a workflow's arguments, a result or an error as JSON, in ASCII.

    Raises:
        TypeError: a value is of a type that JSON does not have.
    """
    if isinstance(value, BaseException):
        conversation = {"conversation": value.conversation_id} if isinstance(value, ConversationError) else {}
        value = {"error": type(value).__name__, "text": str(value), **conversation}
    else:
        value = {"value": value}
    return json.dumps(value, separators=(",", ":"))


def from_json(text: str) -> Any:
    """Read the text that `to_json` wrote. An error of an unknown type becomes a `DialError` that names the type.

    Raises:
        RowRefused: the text has another form.
    """
    try:
        found = json.loads(text) if len(text) <= MAX_CHARS else None
    except (TypeError, ValueError, RecursionError):
        found = None
    match found:
        case {"value": value, **more} if not more:
            return value
        case {"error": str(name), "text": str(text), **more} if name in _CONVERSATION_ERRORS:
            return _CONVERSATION_ERRORS[name](str(more.get("conversation", "")), text)
        case {"error": str(name), "text": str(words), **more} if not more:
            kind = _ERRORS.get(name)
            return kind(words) if kind is not None else DialError(f"{name}: {words}")
        case _:
            raise RowRefused("the database holds a turn that cannot be read")


def _refuse(serializer: object, serialized_data: str) -> Any:  # noqa: ARG001 - as DBOS has it
    log.warning("pickle_refused", chars=len(serialized_data))
    raise RowRefused(REFUSED)
