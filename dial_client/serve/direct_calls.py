"""Tool calls outside of turns, by MCP Apps and by the user. Their event streams also announce requests for input."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.types import Receive, Scope, Send

from dial_client.hooks.audit.entries import Origin
from dial_client.messages.errors import DialError
from dial_client.messages.events import Event
from dial_client.serve.http_responses import HttpError, to_http_error
from dial_client.serve.human_input import HumanInputBroker
from dial_client.serve.sse_response import OPENING_COMMENT, SSEResponse, encode_event
from dial_client.sinks.sse_encoder import encode_named

MAX_CALLS = 32
"""Maximum number of calls at a time, including calls that wait for approval."""
_MAX_EVENTS = 64
"""Maximum number of unsent events of one call."""


class DirectCall:
    """A call outside of any turn.

    Args:
        conversation_id: The conversation that the call belongs to; empty for none.
        server: The server of the tool.
        call: Makes the call and returns its result, of JSON types only.
    """

    def __init__(
        self, conversation_id: str, server: str, call: Callable[[Origin], Awaitable[Mapping[str, Any]]]
    ) -> None:
        self.id = secrets.token_hex(16)
        self.conversation_id = conversation_id
        self.server = server
        self.call = call
        self.events: MemoryObjectSendStream[str]
        self.received: MemoryObjectReceiveStream[str]
        self.events, self.received = anyio.create_memory_object_stream[str](_MAX_EVENTS)

    def announce(self, event: Event) -> None:
        """Send an event, unless too many events are unsent or the client has disconnected."""
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.events.send_nowait(encode_event(event, self.id, {}))


class DirectCalls:
    """Runs direct calls and limits their number.

    Args:
        human_input: Asks the user to approve the calls.
    """

    def __init__(self, human_input: HumanInputBroker) -> None:
        self._human_input = human_input
        self._running = 0

    def start(self, call: DirectCall) -> Any:
        """Return a response that runs the call and streams its events.

        Raises:
            HttpError: Too many calls are running.
        """
        if self._running >= MAX_CALLS:
            message = f"{MAX_CALLS} calls are running: try again later"
            raise HttpError(429, message, "too_many_calls", kind="rate_limit_error", headers={"retry-after": "2"})
        return _DirectCallResponse(self, call)

    async def run(self, call: DirectCall) -> None:
        """Run a call and send its events. The last event is ``result``, or ``error`` if the call failed."""
        self._running += 1
        try:
            with call.events, self._human_input.listen(call, call.server):
                try:
                    result = await call.call(Origin(call.conversation_id, call.id))
                    await call.events.send(encode_named("result", result))
                except DialError as error:
                    await call.events.send(encode_named("error", {"message": to_http_error(error).error["message"]}))
        finally:
            self._running -= 1


class _DirectCallResponse:
    """Streams the events of one call. If the client disconnects, the call is cancelled."""

    def __init__(self, calls: DirectCalls, call: DirectCall) -> None:
        self._calls = calls
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._calls.run, self._call)
            await SSEResponse(_read_events(self._call))(scope, receive, send)
            group.cancel_scope.cancel()


async def _read_events(call: DirectCall) -> AsyncGenerator[str, None]:
    yield OPENING_COMMENT
    with call.received:
        async for event in call.received:
            yield event
