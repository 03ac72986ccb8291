"""Repairs and masks the messages of a server before the SDK validates them strictly (mcp 2.3).

Without repair, one malformed tool would make the whole list invalid, and one unknown content block a tool's result.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextvars import Context
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import anyio
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dial_client.servers.secret_masking import SecretMask
from dial_client.servers.status import AddNote
from dial_client.servers.transports.rate_limit import RateLimiter

_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_STRINGS_OF_BLOCK = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
    "resource": (),
}
"""The content block types of the protocol, each with the members that must be strings."""
_MAX_UNKNOWN = 2_000
"""Characters kept of an unknown content block, which is shown as JSON text."""
MAX_BLOCKS = 10_000
"""Maximum number of blocks of a result, contents of a resource, and messages of a prompt.

An empty block takes three bytes on the wire, but a thousand in memory.
"""
_FRAME = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""The members of a page besides its items, valid in every protocol version."""
_LISTED = {
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""The methods of the lists other than tools, with the member that holds the items."""


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
            self._pending[str(message.id)] = (message.method, meta.get(_VERSION_KEY, self._version))
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._pending.pop(str((message.params or {}).get("requestId")), None)

    def repair(self, message: object) -> None:
        """Mask a message, and repair a response, in place."""
        self._mask.mask_message(message)
        if not isinstance(message, JSONRPCResponse):
            return
        method, version = self._pending.pop(str(message.id), ("", ""))
        result = message.result
        if version in MODERN_PROTOCOL_VERSIONS and not isinstance(result.get("resultType"), str):
            result["resultType"] = "complete"
        if method == "initialize" and isinstance(result.get("protocolVersion"), str):
            self._version = result["protocolVersion"]
        elif method == "tools/list":
            repair_tools(result, version, self._note)
        elif method in _LISTED or method == "resources/read":
            repair_page(method, result, version, self._note)
            cut_parts("contents", result)
        elif method == "prompts/get":
            cut_parts("messages", result)
        elif method == "tools/call" and result.get("resultType", "complete") == "complete":
            repair_content(result, version)


def repair_tools(result: dict[str, Any], version: str, note: AddNote) -> None:
    """Make a page of ``tools/list`` valid: repair malformed tools, and leave out unrepairable ones with a note."""
    if version in MODERN_PROTOCOL_VERSIONS:
        result.setdefault("ttlMs", 0)
        result.setdefault("cacheScope", "private")
    if not isinstance(result.get("tools"), list) or _is_valid(result, version):
        return
    kept = []
    for tool in result["tools"]:
        valid = (variant for variant in _build_variants(tool) if _is_valid(_FRAME | {"tools": [variant]}, version))
        repaired = next(valid, None)
        if repaired is None:
            name = tool.get("name") if isinstance(tool, dict) else None
            note(f"a malformed tool is left out: {str(name)[:100] if name else 'it has no name'}")
        else:
            kept.append(repaired)
    cursor = result.get("nextCursor")
    result.clear()  # any other member may be the invalid one
    result.update(_FRAME | {"tools": kept} | ({"nextCursor": cursor} if isinstance(cursor, str) else {}))


def repair_page(method: str, result: dict[str, Any], version: str, note: AddNote) -> None:
    """Make a page of a list other than tools, or a result of ``resources/read``, valid.

    Malformed items of a page are left out, with a note.
    """
    if version in MODERN_PROTOCOL_VERSIONS:
        result.setdefault("ttlMs", 0)
        result.setdefault("cacheScope", "private")
    key = _LISTED.get(method, "")
    items = result.get(key)
    if not isinstance(items, list) or _is_valid(result, version, method):
        return
    kept = [item for item in items if _is_valid(_FRAME | {key: [item]}, version, method)]
    if len(kept) < len(items):
        note(f"malformed {key} are left out")
    cursor = result.get("nextCursor")
    result.clear()
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


def _is_valid(result: dict[str, Any], version: str, method: str = "tools/list") -> bool:
    try:
        methods.validate_server_result(method, version, result)
    except (ValueError, KeyError):
        return False
    return True


def repair_content(result: dict[str, Any], version: str) -> None:
    """Make a result of ``tools/call`` valid: content blocks unknown to the protocol become text."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    if blocks is not content or not all(_is_block(block) for block in blocks):
        result["content"] = [block if _is_block(block) else _as_text(block) for block in blocks[:MAX_BLOCKS]]
    if len(blocks) > MAX_BLOCKS:
        more = f"[{len(blocks) - MAX_BLOCKS:,} more blocks were left out]"
        result["content"] = [*result["content"][:MAX_BLOCKS], _as_text(more)]
    if not isinstance(result.get("_meta", {}), dict):
        del result["_meta"]
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
    return strings is not None and all(isinstance(block.get(name), str) for name in strings)


def _as_text(value: Any) -> dict[str, Any]:
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "[nested too deeply to be shown]"
    cut = f"{text[:_MAX_UNKNOWN]}…" if len(text) > _MAX_UNKNOWN else text
    return {"type": "text", "text": cut}


class RepairingTransport:
    """A transport around another one, which repairs, masks and limits the incoming messages.

    Args:
        inner: The wrapped transport.
        repairer: Repairs and masks the incoming messages.
        limiter: Drops incoming messages above the rate limit.
        on_end: Is called when the incoming stream ends.
        on_error: Is awaited with the error that closes the transport, before closing begins.
    """

    def __init__(
        self,
        inner: Transport,
        repairer: ResponseRepairer,
        limiter: RateLimiter,
        on_end: Callable[[], None],
        on_error: Callable[[BaseException], Awaitable[None]],
    ) -> None:
        self._inner = inner
        self._repairer = repairer
        self._limiter = limiter
        self._on_end = on_end
        self._on_error = on_error

    async def __aenter__(self) -> tuple[_Reader, _Writer]:
        read, write = await self._inner.__aenter__()
        return _Reader(read, self._repairer, self._limiter, self._on_end), _Writer(write, self._repairer)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            if error is not None:
                await self._on_error(error)
        finally:
            handled = await self._inner.__aexit__(kind, error, trace)
        return handled


class _Stream:
    def __init__(self, inner: Any, repairer: ResponseRepairer) -> None:
        self._inner = inner
        self._repairer = repairer

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@runtime_checkable
class _ContextStream(Protocol):
    """A stream of the SDK that has the context in which its last message was sent."""

    last_context: Context | None


class _Reader(_Stream):
    def __init__(
        self, inner: Any, repairer: ResponseRepairer, limiter: RateLimiter, on_end: Callable[[], None]
    ) -> None:
        super().__init__(inner, repairer)
        # Checked once: `isinstance` of a protocol is slow, and the SDK asks for the context of each message.
        self._context_stream = inner if isinstance(inner, _ContextStream) else None
        self._limiter = limiter
        self._on_end = on_end

    @property
    def last_context(self) -> Context | None:
        return self._context_stream.last_context if self._context_stream is not None else None

    async def receive(self) -> SessionMessage | Exception:
        while True:
            try:
                item: SessionMessage | Exception = await self._inner.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._on_end()
                raise
            if not isinstance(item, SessionMessage):
                return item
            if self._limiter.allows(item.message):
                self._repairer.repair(item.message)
                return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Writer(_Stream):
    async def send(self, item: SessionMessage) -> None:
        self._repairer.record_sent(item.message)
        await self._inner.send(item)
