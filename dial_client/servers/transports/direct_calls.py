"""Calls of tools over the pipes of a server, past the SDK's session.

The SDK (mcp 2.3) turns a call into models and back four times, opens a span that nobody records, and hands the result
through two streams: half of what a call costs. A call that is answered with its result, or with an error, needs none of
this. The transport still reads, masks, repairs and limits all messages, in their order, and the SDK gets all others.
Since 2026-07-28 the answer may be a question, or a task: then the SDK goes on, with this answer as its own first one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, cast

import anyio
from mcp import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCResponse,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from dial_client.hooks import call_context
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

METHOD = "tools/call"
# The first id: the SDK counts from 1 in the same session. `response_repair` finds an id of nine digits in broken JSON.
FIRST_ID = 100_000_000
# Seconds that a server has to take the news that a call is cancelled.
_CANCEL_SECONDS = 5.0
# The members of a result that revisions up to 2025-11-25 do not have.
_LATER = ("resultType", "inputRequests", "requestState")

_Progress = tuple[float, float | None, str | None]
_OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]


class _DirectCall:
    """A call that waits for its answer. Its progress is reported by its own task, so that nobody else waits for it."""

    def __init__(self, on_progress: _OnProgress | None, event: type[anyio.Event]) -> None:
        self._on_progress = on_progress
        self._progress: deque[_Progress] = deque()
        self._event, self._changed = event, event()
        self._outcome: dict[str, Any] | ErrorData | None = None

    def resolve(self, outcome: dict[str, Any] | ErrorData) -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._changed.set()

    def report(self, progress: _Progress) -> None:
        if self._on_progress is not None:
            self._progress.append(progress)
            self._changed.set()

    async def wait(self) -> dict[str, Any]:
        """Return the result, after all progress that came before it.

        Raises:
            MCPError: The server answered with an error, or the connection has ended.
        """
        while True:
            await self._changed.wait()
            while self._progress and self._on_progress is not None:
                try:
                    await self._on_progress(*self._progress.popleft())
                except Exception as error:  # noqa: BLE001 - what is told about a call must not end the call
                    log.failure("callback_failed", error, callback="on_progress")
            if self._outcome is None:
                self._changed = self._event()
            elif isinstance(self._outcome, ErrorData):
                raise MCPError(self._outcome.code, self._outcome.message, self._outcome.data)
            else:
                return self._outcome


class DirectCalls:
    """The calls over one connection.

    Args:
        write: Writes one line.
    """

    def __init__(self, write: Callable[[bytes], Awaitable[object]]) -> None:
        self._write = write
        self.on_sent: Callable[[int, str], None] = lambda *_: None
        """Called with the id of each request before it is sent, and the revision of the protocol."""
        self.on_over: Callable[[int], None] = lambda _: None
        """Called with the id of each request that waits no more."""
        self._calls: dict[str, _DirectCall] = {}
        self._last_id = FIRST_ID
        self._is_closed = False
        # The SDK's session; None before it is ready.
        self._session: Any = None
        # The event of the event loop that runs: to find it anew takes ten times as long as to make one.
        self._event = anyio.Event
        # The members of `_meta` that each request has, by the features of the client of a gateway that calls.
        self._stamps: dict[object, Mapping[str, Any]] = {}
        # The answer that is the SDK's to go on with, in the task of the call.
        self._open_answer: ContextVar[dict[str, Any] | None] = ContextVar("open answer", default=None)

    def connect(self, session: Any) -> None:
        """Make the calls of a session of the SDK, which is ready."""
        self._session, dispatcher = session, session._dispatcher  # noqa: SLF001 - no option
        self._event = type(anyio.Event())
        send = dispatcher.send_raw_request

        async def send_raw_request(method: str, params: Any, opts: Any = None, **more: Any) -> dict[str, Any]:
            answer = self._open_answer.get() if method == METHOD else None
            if answer is None:
                return cast("dict[str, Any]", await send(method, params, opts, **more))
            self._open_answer.set(None)
            return answer

        dispatcher.send_raw_request = send_raw_request

    async def call(
        self, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any] | None, on_progress: _OnProgress | None
    ) -> CallToolResult | None:
        """Call a tool, and return its result. Cancelling the call notifies the server.

        None means that the server has answered with something else: the same call of the SDK's client, in this task,
        goes on with this answer.

        Args:
            tool: The server's own name of the tool.
            arguments: The arguments.
            meta: Members of ``_meta``, without those that belong to the connection; None for none.
            on_progress: Receives the progress; None to request none.

        Raises:
            MCPError: The server answered with an error, or the connection has ended.
            pydantic.ValidationError: The result is not one.
        """
        self._last_id += 1
        id_, members = self._last_id, {**self._stamp(), **(meta or {})}
        if on_progress is not None:
            members["progressToken"] = id_
        params = {"name": tool, "arguments": arguments} | ({"_meta": members} if members else {})
        try:
            line = _encode(id=id_, method=METHOD, params=params)
        except ValueError as error:  # lone surrogates in a model's arguments
            raise MCPError(INTERNAL_ERROR, f"the request cannot be written as JSON: {error}") from error
        version: str = self._session.protocol_version
        call = self._calls[str(id_)] = _DirectCall(on_progress, self._event)
        try:
            self.on_sent(id_, version)
            await self._send(line)
            answer = await call.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_CANCEL_SECONDS, shield=True):
                await self._cancel(id_)
            raise
        finally:
            del self._calls[str(id_)]
            self.on_over(id_)
        if version not in MODERN_PROTOCOL_VERSIONS:
            for name in _LATER:
                answer.pop(name, None)
        elif answer.get("resultType") != "complete":
            self._open_answer.set(answer)
            return None
        return _read_result(answer)

    def _stamp(self) -> Mapping[str, Any]:
        """Return the members of ``_meta`` that the SDK's session adds to each request of whoever calls now."""
        context = call_context.find_current()
        caller = None if context is None else context.caller
        key = context is None, None if caller is None else caller.features
        if key not in self._stamps:
            data: dict[str, Any] = {"method": METHOD, "params": {}}
            self._session._stamp(data, {})  # noqa: SLF001 - no option
            self._stamps[key] = data["params"].get("_meta", {})
        return self._stamps[key]

    async def _send(self, line: bytes) -> None:
        try:
            if not self._is_closed:
                await self._write(line)
                return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        raise MCPError(CONNECTION_CLOSED, "Connection closed")

    async def _cancel(self, id_: int) -> None:
        try:
            await self._send(_encode(method="notifications/cancelled", params={"requestId": id_}))
        except MCPError:
            log.debug("not_cancelled", reason="the connection has ended")

    def is_answer(self, message: object) -> bool:
        """Return whether a message is the answer to one of these calls."""
        return isinstance(message, JSONRPCResponse | JSONRPCError) and str(message.id) in self._calls

    def take(self, message: object) -> bool:
        """Take an answer or the progress of one of these calls; return False for any other message."""
        match message:
            case JSONRPCResponse(id=id_, result=result) if (call := self._calls.get(str(id_))) is not None:
                call.resolve(result)
            case JSONRPCError(id=id_, error=error) if (call := self._calls.get(str(id_))) is not None:
                call.resolve(error)
            case JSONRPCNotification(method="notifications/progress", params={"progressToken": token, **rest}) if (
                call := self._calls.get(str(token))
            ) is not None:
                if (progress := _read_progress(rest)) is not None:
                    call.report(progress)
            case _:
                return False
        return True

    def close(self) -> None:
        """Fail the calls that wait; further ones fail at once."""
        self._is_closed = True
        for call in self._calls.values():
            call.resolve(ErrorData(code=CONNECTION_CLOSED, message="Connection closed"))


def _encode(**members: Any) -> bytes:
    return to_json({"jsonrpc": "2.0", **members}, inf_nan_mode="null") + b"\n"


def _read_result(answer: dict[str, Any]) -> CallToolResult:
    """Return a result. Its texts are read before: the model tries each of its five kinds of content for each block."""
    if isinstance(blocks := answer.get("content"), list):
        answer["content"] = [_read_text(block) for block in blocks]
    return CallToolResult.model_validate(answer, by_name=False)


def _read_text(block: Any) -> Any:
    is_text = isinstance(block, dict) and block.get("type") == "text"
    return TextContent.model_validate(block, by_name=False) if is_text else block


def _read_progress(params: Mapping[Any, Any]) -> _Progress | None:
    """Return the progress of a notification; None if it is none."""
    match params:
        case {"progress": int() | float() as progress} if not isinstance(progress, bool):
            total, message = params.get("total"), params.get("message")
            number = float(total) if isinstance(total, int | float) and not isinstance(total, bool) else None
            return float(progress), number, message if isinstance(message, str) else None
        case _:
            return None
