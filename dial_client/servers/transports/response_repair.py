"""Repairs and masks the messages of a server before the SDK validates them strictly (mcp 2.3).

Without repair, one malformed tool would make the whole list invalid, and one unknown content block a tool's result.

LineSplitter, parse_messages   the messages of a pipe, one per line
find_response                  the response in the body of an HTTP answer
ResponseRepairer               repairs the results of requests, and masks all messages
RepairingTransport             applies the repair and the rate limit to another transport
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
    methods,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dial_client.schema.tool_arguments import is_shallow
from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.status import AddNote
from dial_client.servers.transports.direct_calls import METHOD, DirectCalls
from dial_client.servers.transports.rate_limit import RateLimiter

BOM = b"\xef\xbb\xbf"
# Maximum messages of a batch; a longer batch is ignored.
MAX_BATCH = 1_000
# Maximum nesting depth of a repaired message: about the limit of pydantic for other messages.
#
# The JSON parser of Python 3.13 would accept ten thousand levels.
MAX_DEPTH = 200
_TOO_DEEP = f"the answer is nested too deeply (more than {MAX_DEPTH} levels)"
# Maximum characters of a line in which lone surrogates are replaced: that takes many times its size in memory.
MAX_SURROGATE_TEXT = 8 * 1024 * 1024
_HALF_OF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
# The beginning of a response whose keys have the order of JSON-RPC's examples.
_RESPONSE_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"id"\s*:\s*(\d{1,9})\s*,\s*"(?:result|error)"')

# Maximum number of blocks of a result, contents of a resource, and messages of a prompt.
#
# An empty block takes three bytes on the wire, but a thousand in memory.
MAX_BLOCKS = 10_000


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
        if self.is_line(chunk):
            return [chunk[:-1]]  # most messages arrive alone and whole
        first, *following = chunk.split(b"\n")
        self._add(first)
        lines: list[bytes] = []
        for piece in following:
            lines.append(self.take_rest())
            self._add(piece)
        return lines

    def is_line(self, chunk: bytes) -> bool:
        """Return whether a chunk is the rest of no line, and a whole one itself, with its line feed."""
        return not self._pieces and -1 < chunk.find(b"\n") == len(chunk) - 1 <= self._max

    def take_rest(self) -> bytes:
        """Return and clear the bytes after the last line feed: at the end of the stream, the last line."""
        line = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return line

    def _add(self, piece: bytes) -> None:
        # The pieces are joined once, at the end of the line: to append them to one bytes object would copy it each
        # time, which is quadratic (a line of 16 MB took the SDK 8.8 seconds).
        if piece:
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
    # Most lines that are not messages are log output of a server on the wrong stream: do not even try to parse them.
    if line.find(b"{") < 0:  # `in` makes and drops an exception for bytes, and so takes twice as long for a short line
        return []
    line = line.removeprefix(BOM)
    # Nearly all lines are one of these; all kinds together would be tried one after another.
    likely: type[JSONRPCRequest | JSONRPCNotification | JSONRPCResponse] = JSONRPCResponse
    if line.find(b'"method"') >= 0:
        likely = JSONRPCRequest if line.find(b'"id"') >= 0 else JSONRPCNotification
    for parse in (likely.model_validate_json, jsonrpc_message_adapter.validate_json):
        try:
            return [SessionMessage(parse(line, by_name=False))]
        except ValueError:
            continue
    items, problem = _parse_json(line.decode("utf-8", "replace"))
    found = [_to_message(item) for item in items]
    if not items and (start := _RESPONSE_START.match(line)):
        found = [_build_error(int(start[1]), problem)]
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


def _parse_json(text: str) -> tuple[list[Any], str]:
    """Return the messages of a text, and why there are none."""
    problem = "the answer is not valid JSON"
    start = len(text) - len(text.lstrip())
    for position in {start: None, text.find("{", start): None}:
        if position < 0:
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(text, position)
            is_message = isinstance(value, dict) or (isinstance(value, list) and len(value) <= MAX_BATCH)
            if is_message and is_shallow(value, MAX_DEPTH):  # later code that walks it recurses
                value = _replace_surrogates(value, text)
                return value if isinstance(value, list) else [value], ""
            if is_message:
                problem = _TOO_DEEP
        except RecursionError:
            problem = _TOO_DEEP
        except ValueError:
            continue
    return [], problem


def _replace_surrogates(value: Any, text: str) -> Any:
    # JSON may escape half of a surrogate pair ("\\ud83d" alone), which no UTF-8 text can hold: each later encoding, for
    # the model, the terminal or a file, would raise an error.
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


_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
# The content block types of the protocol, each with the members that must be strings.
_STRINGS_OF_BLOCK = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
    "resource": (),
}
# Characters kept of an unknown content block, which is shown as JSON text.
_MAX_UNKNOWN = 2_000
# The members of a page besides its items, valid in every protocol version.
_FRAME = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
# The methods of the lists, with the member that holds the items.
_LISTED = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


class ResponseRepairer:
    """Matches responses to requests, and repairs and masks them.

    Args:
        note: Is called with a note about each item that is left out.
        mask: Masks the server's secrets.
    """

    def __init__(self, note: AddNote, mask: SecretMask | None = None) -> None:
        self._note = note
        self._mask = mask or SecretMask()
        self._pending: dict[str, tuple[str, str]] = {}
        self._version = "2025-11-25"

    def record_sent(self, message: object) -> None:
        """Record a request until its response arrives or it is cancelled."""
        if isinstance(message, JSONRPCRequest):
            meta = (message.params or {}).get("_meta") or {}
            # By its text: some servers answer with the id "1" to the id 1 (JSON-RPC says "the same value").
            self._pending[str(message.id)] = (message.method, meta.get(_VERSION_KEY, self._version))
        # A cancelled request gets no response: without this, each one would be kept for the rest of the session.
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._pending.pop(str((message.params or {}).get("requestId")), None)

    def record_call(self, request_id: int, version: str) -> None:
        """Record a call of a tool that is sent past the SDK."""
        self._pending[str(request_id)] = (METHOD, version)

    def forget_call(self, request_id: int) -> None:
        """Forget a call that was sent past the SDK, and gets no response any more."""
        self._pending.pop(str(request_id), None)

    def repair(self, message: object) -> None:
        """Mask a message, and repair a response, in place."""
        # First of all: whatever comes after this (notes, errors, logs, the model) sees the masked message only.
        self._mask.mask_message(message)
        if not isinstance(message, JSONRPCResponse):
            return
        method, version = self._pending.pop(str(message.id), ("", ""))
        result = message.result
        if version in MODERN_PROTOCOL_VERSIONS:
            # These members are required since 2026-07-28, and many servers of that version do not send them.
            if not isinstance(result.get("resultType"), str):
                result["resultType"] = "complete"
            if method in _LISTED or method == "resources/read":
                result.setdefault("ttlMs", 0)
                result.setdefault("cacheScope", "private")
        if method == "initialize" and isinstance(result.get("protocolVersion"), str):
            self._version = result["protocolVersion"]
        elif method in _LISTED:
            repair_list(method, result, version, self._note)
        elif method == "resources/read":
            cut_parts("contents", result)
        elif method == "prompts/get":
            cut_parts("messages", result)
        elif (answer := _find_tool_result(method, result)) is not None:
            repair_content(answer, version)


def _find_tool_result(method: str, result: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a tool in the response to its call, or to a poll of its task (SEP-2663); None for none."""
    if method == "tasks/get":
        return result["result"] if isinstance(result.get("result"), dict) else None
    return result if method == "tools/call" and result.get("resultType", "complete") == "complete" else None


def repair_list(method: str, result: dict[str, Any], version: str, note: AddNote) -> None:
    """Make a page of a list valid: repair malformed tools, and leave out other malformed items, with a note for each.

    Args:
        method: The method of the list, a key of `_LISTED`.
        result: The page, which is changed.
        version: The version of the protocol by which the page is checked.
        note: Is called with the notes.
    """
    key = _LISTED[method]
    items = result.get(key)
    if not isinstance(items, list) or _is_valid(method, result, version):
        return
    kept = []
    for item in items:
        variants = _build_variants(item) if key == "tools" else (item,)
        valid = (variant for variant in variants if _is_valid(method, _FRAME | {key: [variant]}, version))
        if (repaired := next(valid, None)) is not None:
            kept.append(repaired)
        elif key == "tools":
            name = item.get("name") if isinstance(item, dict) else None
            note(f"a malformed tool is left out: {str(name)[:100] if name else 'it has no name'}")
        else:
            note(f"malformed {key} are left out")
    cursor = result.get("nextCursor")
    result.clear()  # any other member may be the invalid one
    result.update(_FRAME | {key: kept} | ({"nextCursor": cursor} if isinstance(cursor, str) else {}))


def _build_variants(tool: Any) -> list[dict[str, Any]]:
    """Return the forms of a tool to try: unchanged, with an object schema, and reduced to the required members."""
    if not isinstance(tool, dict):
        return []
    schema = tool.get("inputSchema")
    repaired = tool
    if schema is None or isinstance(schema, dict):
        repaired = tool | {"inputSchema": {"type": "object"} | (schema or {})}
    return [tool, repaired, {key: repaired[key] for key in ("name", "description", "inputSchema") if key in repaired}]


def _is_valid(method: str, result: dict[str, Any], version: str) -> bool:
    try:
        methods.validate_server_result(method, version, result)
    except (ValueError, KeyError):
        return False
    return True


def repair_content(result: dict[str, Any], version: str) -> None:
    """Make a result of ``tools/call`` valid: content blocks unknown to the protocol become text."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    if blocks is not content or not all(map(_is_block, blocks)):
        result["content"] = [block if _is_block(block) else _as_text(block) for block in blocks[:MAX_BLOCKS]]
    if len(blocks) > MAX_BLOCKS:
        more = f"[{len(blocks) - MAX_BLOCKS:,} more blocks were left out]"
        result["content"] = [*result["content"][:MAX_BLOCKS], _as_text(more)]
    if not isinstance(result.get("_meta", {}), dict):
        del result["_meta"]
    # Some servers send null for false, or the word: the tool ran, and its result must not be lost.
    if (flag := str(result.get("isError", False)).lower()) in ("none", "true", "false"):
        result["isError"] = flag == "true"
    # Before 2026-07-28 it must be an object. What a server sends in its place is not lost: the model reads it as text.
    structured = result.get("structuredContent")
    if version not in MODERN_PROTOCOL_VERSIONS and structured is not None and not isinstance(structured, dict):
        del result["structuredContent"]
        result["content"] = [*result["content"], _as_text(structured)]


def cut_parts(kind: str, result: dict[str, Any]) -> None:
    """Cut a resource's ``contents`` or a prompt's ``messages`` to `MAX_BLOCKS`, and add a part that says so.

    Args:
        kind: The member to cut: ``contents`` or ``messages``.
        result: The result, which is changed.
    """
    parts = result.get(kind)
    if not isinstance(parts, list) or len(parts) <= MAX_BLOCKS:
        return
    more = f"[{len(parts) - MAX_BLOCKS:,} more {kind} were left out]"
    uri = parts[0].get("uri") if isinstance(parts[0], dict) else None
    content = {"uri": uri if isinstance(uri, str) else "", "text": more}
    last = content if kind == "contents" else {"role": "user", "content": _as_text(more)}
    result[kind] = [*parts[:MAX_BLOCKS], last]


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    strings = _STRINGS_OF_BLOCK.get(str(block.get("type")))
    if strings is None:
        return False
    for name in strings:  # noqa: SIM110 - runs for each block of each result, and `all` takes three times as long
        if not isinstance(block.get(name), str):
            return False
    return True


def _as_text(value: Any) -> dict[str, Any]:
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "[nested too deeply to be shown]"
    cut = f"{text[:_MAX_UNKNOWN]}…" if len(text) > _MAX_UNKNOWN else text
    return {"type": "text", "text": cut}


@dataclass
class RepairingTransport:
    """A transport around another one, which repairs, masks and limits the incoming messages."""

    inner: Transport
    """The wrapped transport."""
    mask: SecretMask
    on_note: AddNote
    """Is called with a note about each irregularity."""
    on_end: Callable[[str], None]
    """Is called when the incoming stream ends."""
    on_error: Callable[[Exception], Awaitable[None]]
    """Is awaited with the error that closes the transport, before closing begins."""
    direct: DirectCalls | None = None
    """The calls that are made past the SDK; None if the transport cannot."""

    async def __aenter__(self) -> tuple[_Reader, _Writer]:
        read, write = await self.inner.__aenter__()
        repairer = ResponseRepairer(self.on_note, self.mask)
        if self.direct is not None:
            self.direct.on_sent, self.direct.on_over = repairer.record_call, repairer.forget_call
            output: Any = read  # a `stdio` transport's, as there are direct calls
            output.take_at_once = partial(_take_answer, repairer, self.direct)
        reader = _Reader(read, repairer, RateLimiter(self.on_note), self.on_end, self.direct)
        return reader, _Writer(write, repairer)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self.direct is not None:
            self.direct.close()
        try:
            # Report the error before the transport is closed: ending a process may take seconds.
            if isinstance(error, Exception):
                await self.on_error(error)
        finally:
            handled = await self.inner.__aexit__(kind, error, trace)
        return handled


def _take_answer(repairer: ResponseRepairer, direct: DirectCalls, message: SessionMessage) -> bool:
    """Take the answer to a direct call, which needs no task; return False for any other message."""
    if not direct.is_answer(message.message):
        return False
    repairer.repair(message.message)  # answers pass the limiter in any case
    return direct.take(message.message)


@dataclass(eq=False)
class _Reader(ObjectReceiveStream[SessionMessage | Exception]):
    inner: Any
    repairer: ResponseRepairer
    limiter: RateLimiter
    on_end: Callable[[str], None]
    direct: DirectCalls | None = None

    def __post_init__(self) -> None:
        self._has_context = hasattr(self.inner, "last_context")  # checked once: the SDK asks for it with each message

    @property
    def last_context(self) -> Context | None:
        """The context in which the last message was sent; the SDK answers requests of the server in it."""
        return self.inner.last_context if self._has_context else None

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def receive(self) -> SessionMessage | Exception:
        while True:
            try:
                item: SessionMessage | Exception = await self.inner.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self.on_end("")
                if self.direct is not None:
                    self.direct.close()
                raise
            if not isinstance(item, SessionMessage):
                return item
            if self.limiter.allows(item.message):
                self.repairer.repair(item.message)
                if self.direct is None or not self.direct.take(item.message):
                    return item


@dataclass(eq=False)
class _Writer(ObjectSendStream[SessionMessage]):
    inner: Any
    repairer: ResponseRepairer

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def send(self, item: SessionMessage) -> None:
        self.repairer.record_sent(item.message)
        await self.inner.send(item)
