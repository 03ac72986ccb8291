"""JSON-RPC messages, one a line: from the bytes of a pipe, whatever a server writes there."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

BOM = b"\xef\xbb\xbf"
MAX_BATCH = 1_000
"""Messages of a batch; a longer list is none."""
MAX_DEPTH = 200
"""Levels of a message: about what pydantic reads, where nothing has to be mended. Python 3.13 reads ten thousand."""
MAX_ODD = 8 * 1024 * 1024
"""Characters of a line whose lone surrogates are replaced, which takes many times its size in memory."""
_HALF_OF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_ANSWERED = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"id"\s*:\s*(\d{1,9})\s*,\s*"(?:result|error)"')
"""How an answer begins, as all that write JSON in the order of JSON-RPC's examples write it."""


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
    message, a batch, a wrong ``jsonrpc``. An answer that is still no JSON-RPC, or no JSON, becomes an error answer, so
    that whoever waits for it hears of it.
    """
    if b"{" not in line:
        return []
    line = line.removeprefix(BOM)
    try:
        return [SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))]
    except ValueError:
        items = _json_in(line.decode("utf-8", "replace"))
    found = [_message(item) for item in items]
    if not items and (answer := _ANSWERED.match(line)):
        found = [_refused(int(answer[1]), "the answer is not valid JSON")]
    return [SessionMessage(message) for message in found if message is not None]


def answer_in(body: bytes, number: int | str) -> bytes:
    """Give the answer to a request from what came in its place, mended as the messages of a line are.

    Over HTTP there is no doubt whose answer it is, whatever id it has.
    """
    with suppress(ValueError):
        whole = jsonrpc_message_adapter.validate_json(body, by_name=False)
        if isinstance(whole, JSONRPCResponse | JSONRPCError) and whole.id == number:
            return body
    found = (message.message for message in messages_in(body))
    answers = [message for message in found if isinstance(message, JSONRPCResponse | JSONRPCError)]
    other = next(iter(answers), _refused(number, "the answer is not valid JSON-RPC"))
    mine = next((answer for answer in answers if answer.id == number), other)
    return mine.model_copy(update={"id": number}).model_dump_json(by_alias=True, exclude_unset=True).encode()


def _json_in(text: str) -> list[Any]:
    start = len(text) - len(text.lstrip())
    for begin in {start: None, text.find("{", start): None}:
        if begin < 0:
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(text, begin)
            if isinstance(value, dict) or (isinstance(value, list) and len(value) <= MAX_BATCH):
                value = _without_lone_surrogates(_not_too_deep(value), text)
                return value if isinstance(value, list) else [value]
        except (ValueError, RecursionError):
            continue
    return []


def _not_too_deep(value: Any) -> Any:
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = (child for one in level for child in (one.values() if isinstance(one, dict) else one))
        level = [child for child in inner if isinstance(child, dict | list)]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def _without_lone_surrogates(value: Any, text: str) -> Any:
    if not _HALF_OF_PAIR.search(text):
        return value
    if len(text) > MAX_ODD:
        raise ValueError("there is too much to look for what is not Unicode")
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
    return _refused(number, problem)


def _refused(number: int | str, problem: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=PARSE_ERROR, message=problem))
