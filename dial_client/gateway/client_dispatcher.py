"""The SDK's dispatcher of a client's requests, which begins a call where its line is read.

The SDK (mcp 2.3) receives each message in one task, which hands it to another one. A call that arrives alone and whole
is handed to its task by the event loop itself, without waking the first one: a round of the event loop less.

On asyncio these tasks are in a group of asyncio: a task of anyio has a cancel scope and an event of its own, which take
more instructions than the task, and a request has a scope of the SDK already.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, cast

import anyio
import anyio.lowlevel
from mcp.server import Server
from mcp.server.connection import Connection
from mcp.server.models import InitializationOptions
from mcp.server.runner import serve_connection
from mcp.shared.dispatcher import OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import JSONRPCRequest, RequestId

from dial_client.gateway.standard_streams import StandardInput, StandardOutput

# What the SDK knows of the transport of a message, and would make anew for each.
_PIPE = TransportContext(kind="jsonrpc", can_send_request=True)
# False if another version of the SDK has no such method.
_CAN_BEGIN = hasattr(JSONRPCDispatcher, "_dispatch_request")


class ClientDispatcher(JSONRPCDispatcher[TransportContext]):
    """Reads and answers the messages of one client.

    Args:
        incoming: The messages of the client.
        outgoing: The messages to the client.
        options: As for the SDK's dispatcher.
    """

    def __init__(self, incoming: StandardInput, outgoing: StandardOutput, **options: Any) -> None:
        super().__init__(incoming, outgoing, transport_builder=lambda _: _PIPE, **options)
        self._incoming, self._outgoing = incoming, outgoing
        # The tasks of requests; None before the first request, and on trio.
        self._tasks: asyncio.TaskGroup | None = None

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read messages until the client has closed the connection; as the SDK's dispatcher."""
        if _CAN_BEGIN:
            self._incoming.begin_call = partial(self._begin, on_request)
        await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)

    def _begin(self, on_request: OnRequest, request: JSONRPCRequest) -> None:
        dispatching = self._dispatch_request(request, None, on_request, None)
        try:
            dispatching.send(None)
        except StopIteration:
            return
        raise RuntimeError("the SDK's dispatcher waits before it begins a call")

    def _spawn(self, fn: Callable[..., Awaitable[Any]], *args: object, sender_ctx: contextvars.Context | None) -> None:
        """Start a task for a request. A pipe has no `sender_ctx`."""
        if self._tasks is not None and sender_ctx is None:
            self._tasks.create_task(cast("Coroutine[Any, Any, Any]", fn(*args)))
            return
        super()._spawn(fn, *args, sender_ctx=sender_ctx)
        if isinstance(anyio.lowlevel.current_token().native_token, asyncio.AbstractEventLoop):
            super()._spawn(self._hold_tasks, sender_ctx=None)

    async def _hold_tasks(self) -> None:
        """Hold the group of the tasks until the SDK ends its own one, which this task is in: both end together."""
        if self._tasks is None:
            async with asyncio.TaskGroup() as self._tasks:
                await anyio.sleep_forever()

    async def _write_result(self, request_id: RequestId, result: dict[str, Any]) -> None:
        """Write a result without the models of a message; another version of the SDK may write it in its own way."""
        try:  # noqa: SIM105 - runs for each call, and costs nothing
            await self._outgoing.send_result(request_id, result)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass


async def serve_handshake(
    server: Server[Any],
    incoming: StandardInput,
    outgoing: StandardOutput,
    *,
    lifespan_state: object,
    init_options: InitializationOptions,
) -> None:
    """Serve a client that begins with `initialize`, as the SDK's `serve_loop`."""
    # Inline, so that a request that is sent at once after `initialize` finds the session initialized.
    dispatcher = ClientDispatcher(incoming, outgoing, inline_methods=frozenset(("initialize",)))
    connection = Connection.for_loop(dispatcher)
    await serve_connection(
        server, dispatcher, connection=connection, lifespan_state=lifespan_state, init_options=init_options
    )
