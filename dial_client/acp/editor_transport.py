"""The lines between this program and an editor; what is no message of JSON-RPC is answered, and ends nothing.

The package of the protocol prints a traceback for such a line, gives no answer, and stops at a message that is no
object.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from acp.exceptions import RequestError
from acp.task import MessageSender, TaskSupervisor

from dial_client.runtime.safe_text import to_one_line

log = logging.getLogger("acp")

# The most characters of a line or an error on standard error.
_MAX_SHOWN = 200


class EditorTransport:
    """A transport of `acp`: messages as lines of JSON.

    Args:
        reader: What the editor sends. Its limit is that of a message.
        writer: Takes the messages for the editor.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._tasks = TaskSupervisor(source="dial-chat acp")
        self._sender = MessageSender(writer, self._tasks)

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        await self._sender.send(message)

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, after an answer to each line that is none; None once the editor sends no more."""
        while (line := await self._read_line()) is not None:
            message: Any = None
            try:
                if not line.strip():
                    continue
                message = json.loads(line)
                _check(message)
            except (ValueError, RecursionError):  # no JSON, or none in UTF-8
                await self._refuse(line, None, RequestError.parse_error(), "is not JSON")
            except RequestError as error:
                known = message.get("id") if isinstance(message, dict) else None
                id_ = known if isinstance(known, str | int) else None
                await self._refuse(line, id_, error, "is no message of JSON-RPC")
            else:
                return message  # type: ignore[no-any-return]  # `_check` has found an object
        return None

    async def close(self) -> None:
        """Send what is waiting, and no more."""
        await self._sender.close()
        await self._tasks.shutdown()

    async def _refuse(self, line: bytes, id_: str | int | None, error: RequestError, problem: str) -> None:
        shown = to_one_line(line[: 4 * _MAX_SHOWN].decode(errors="replace"), _MAX_SHOWN)
        log.warning("dial-chat: what the editor sent %s: %s", problem, shown)
        await self.send({"jsonrpc": "2.0", "id": id_, "error": error.to_error_obj()})

    async def _read_line(self) -> bytes | None:
        """Return the next line; one that is too long is refused. None at the end."""
        while True:
            try:
                return await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                return end.partial or None
            except asyncio.LimitOverrunError as overrun:
                start = await self._skip_line(overrun.consumed)
                error = RequestError.invalid_request({"problem": "the message is too long"})
                await self._refuse(start, None, error, "is too long")

    async def _skip_line(self, length: int) -> bytes:
        """Read to the end of a line that is longer than the limit, and return its start."""
        start = b""
        while True:
            try:
                part = await self._reader.readexactly(length)
                start = start or part[: 4 * _MAX_SHOWN]
                await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as overrun:
                length = overrun.consumed
            except asyncio.IncompleteReadError:
                return start
            else:
                return start


def _check(message: Any) -> None:
    """Check that a value is a request, a notification or a response, as the package of the protocol expects them.

    Raises:
        RequestError: It is something else.
    """
    if not isinstance(message, dict):
        raise RequestError.invalid_request({"problem": "a message is an object"})
    if not isinstance(message.get("id"), str | int | None):
        raise RequestError.invalid_request({"problem": "the id is a string or a number"})
    if "method" not in message and "id" not in message:
        raise RequestError.invalid_request({"problem": "a message has a method or an id"})
    if not isinstance(message.get("method", ""), str):
        raise RequestError.invalid_request({"problem": "the method is a string"})
    if not isinstance(message.get("params"), dict | list | None):
        raise RequestError.invalid_request({"problem": "the params are an object"})
    if not isinstance(message.get("error"), dict | None):
        # A response all the same: who waits for it must not wait for ever.
        message["error"] = RequestError.internal_error().to_error_obj()


class OneLine(logging.Filter):
    """Prints the errors that the package of the protocol logs in one line each, without their tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record of the root logger, which the package uses."""
        if record.exc_info:
            error = record.exc_info[1]
            text = to_one_line(str(error), _MAX_SHOWN)
            record.msg, record.args = f"dial-chat: {record.getMessage()}: {type(error).__name__}: {text}", ()
            record.exc_info = record.exc_text = None
        return True
