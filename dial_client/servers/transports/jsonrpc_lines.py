"""Tolerant parsing of JSON-RPC messages, one per line, from the bytes of a pipe."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

BOM = b"\xef\xbb\xbf"
MAX_BATCH = 1_000
"""Maximum messages of a batch; a longer batch is ignored."""
MAX_DEPTH = 200
"""Maximum nesting depth of a repaired message: about the limit of pydantic for other messages.

The JSON parser of Python 3.13 would accept ten thousand levels.
"""
MAX_SURROGATE_TEXT = 8 * 1024 * 1024
"""Maximum characters of a line in which lone surrogates are replaced: that takes many times its size in memory."""
_HALF_OF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_RESPONSE_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"id"\s*:\s*(\d{1,9})\s*,\s*"(?:result|error)"')
"""The beginning of a response whose keys have the order of JSON-RPC's examples."""


class LineTooLong(Exception):
    """A line is longer than allowed."""


class LineSplitter:
    """Splits a stream of bytes into lines, in linear time even for long lines."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes, and return the lines that are complete now, without their line feeds.

        Raises:
            LineTooLong: A line, complete or not, is longer than `max_bytes`.
        """
        first, *following = chunk.split(b"\n")
        self._add(first)
        lines: list[bytes] = []
        for piece in following:
            lines.append(self.take_rest())
            self._add(piece)
        return lines

    def take_rest(self) -> bytes:
        """Return and clear the bytes after the last line feed: at the end of the stream, the last line."""
        line = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return line

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._max:
            raise LineTooLong


def parse_messages(line: bytes) -> list[SessionMessage]:
    """Return the messages of a line; empty if it has none.

    In contrast to the SDK it also accepts a byte order mark, invalid UTF-8 and lone surrogates (replaced), text before
    the message, a batch, and a wrong ``jsonrpc``. A response that is still not valid JSON-RPC or JSON becomes an error
    response, so that the request does not wait forever.
    """
    if b"{" not in line:
        return []
    line = line.removeprefix(BOM)
    try:
        return [SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))]
    except ValueError:
        items = _parse_json(line.decode("utf-8", "replace"))
    found = [_to_message(item) for item in items]
    if not items and (start := _RESPONSE_START.match(line)):
        found = [_build_error(int(start[1]), "the answer is not valid JSON")]
    return [SessionMessage(message) for message in found if message is not None]


def find_response(body: bytes, request_id: int | str) -> bytes:
    """Return the response to a request from an HTTP body, repaired like the messages of a line.

    Over HTTP a body belongs to its request, so a response with a wrong id gets the id of the request.
    """
    with suppress(ValueError):
        response = jsonrpc_message_adapter.validate_json(body, by_name=False)
        if isinstance(response, JSONRPCResponse | JSONRPCError) and response.id == request_id:
            return body
    found = (message.message for message in parse_messages(body))
    responses = [message for message in found if isinstance(message, JSONRPCResponse | JSONRPCError)]
    first = next(iter(responses), _build_error(request_id, "the answer is not valid JSON-RPC"))
    match = next((response for response in responses if response.id == request_id), first)
    return match.model_copy(update={"id": request_id}).model_dump_json(by_alias=True, exclude_unset=True).encode()


def _parse_json(text: str) -> list[Any]:
    start = len(text) - len(text.lstrip())
    for position in {start: None, text.find("{", start): None}:
        if position < 0:
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(text, position)
            if isinstance(value, dict) or (isinstance(value, list) and len(value) <= MAX_BATCH):
                value = _replace_surrogates(_check_depth(value), text)
                return value if isinstance(value, list) else [value]
        except (ValueError, RecursionError):
            continue
    return []


def _check_depth(value: Any) -> Any:
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = (child for node in level for child in (node.values() if isinstance(node, dict) else node))
        level = [child for child in inner if isinstance(child, dict | list)]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def _replace_surrogates(value: Any, text: str) -> Any:
    if not _HALF_OF_PAIR.search(text):
        return value
    if len(text) > MAX_SURROGATE_TEXT:
        raise ValueError("too long to search for lone surrogates")
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    return value


def _to_message(item: Any) -> Any:
    if not isinstance(item, dict):
        return None
    try:
        return jsonrpc_message_adapter.validate_python(item | {"jsonrpc": "2.0"}, by_name=False)
    except ValueError:
        request_id = item.get("id")
    if "method" in item or isinstance(request_id, bool) or not isinstance(request_id, int | str):
        return None
    error = item.get("error")
    reason = error.get("message") if isinstance(error, dict) else error
    problem = f"the answer is not valid JSON-RPC{f': {reason}' if isinstance(reason, str) else ''}"
    return _build_error(request_id, problem)


def _build_error(request_id: int | str, problem: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message=problem))
