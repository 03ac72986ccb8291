"""JSON-RPC messages, one a line: from the bytes of a pipe, whatever a server writes there."""

from __future__ import annotations

import json
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

BOM = b"\xef\xbb\xbf"


class LineTooLong(Exception):
    """A line is longer than it may be."""


class LineSplitter:
    """Splits a stream of bytes into lines. Each byte is looked at once, however long the line."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Give the lines that are whole now, without their line feeds.

        Raises:
            LineTooLong: the line that began last is longer than `max_bytes`, whether it is whole or not.
        """
        first, *others = chunk.split(b"\n")
        self._add(first)
        lines: list[bytes] = []
        for following in others:
            lines.append(self.rest())
            self._add(following)
        return lines

    def rest(self) -> bytes:
        """Give what came behind the last line feed: at the end of the stream the last line."""
        line = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return line

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._max:
            raise LineTooLong


def messages_in(line: bytes) -> list[SessionMessage]:
    """Give the messages of a line; none where there is none.

    Besides what the SDK takes: a byte order mark, invalid UTF-8 and lone surrogates (replaced), words before the
    message, a batch, a wrong ``jsonrpc``. An answer that is still no JSON-RPC becomes an error answer, so that whoever
    waits for it hears of it.
    """
    line = line.removeprefix(BOM)
    try:
        return [SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))]
    except ValueError:
        items = _json_in(line.decode("utf-8", "replace"))
    found = (_message(item) for item in items)
    return [SessionMessage(message) for message in found if message is not None]


def _json_in(text: str) -> list[Any]:
    start = len(text) - len(text.lstrip())
    for begin in {start: None, text.find("{", start): None}:
        if begin < 0:
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(text, begin)
            if isinstance(value, dict | list):
                value = _without_lone_surrogates(value)
                return value if isinstance(value, list) else [value]
        except (ValueError, RecursionError):
            continue
    return []


def _without_lone_surrogates(value: Any) -> Any:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    return value


def _message(item: Any) -> Any:
    if not isinstance(item, dict):
        return None
    try:
        return jsonrpc_message_adapter.validate_python(item | {"jsonrpc": "2.0"}, by_name=False)
    except ValueError:
        number = item.get("id")
    if "method" in item or isinstance(number, bool) or not isinstance(number, int | str):
        return None
    said = item.get("error")
    about = said.get("message") if isinstance(said, dict) else said
    problem = f"the answer is not valid JSON-RPC{f': {about}' if isinstance(about, str) else ''}"
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=PARSE_ERROR, message=problem))
