"""Subscriptions of the gateway's clients to resources, and their streams of change notifications.

Up to 2025-11-25 a client subscribes with ``resources/subscribe``; its subscription lasts until it unsubscribes or
leaves. Since 2026-07-28 it lasts as long as the stream of ``subscriptions/listen``, which announces changes of lists
too. In both, an update reaches the clients that subscribed to the resource, and nobody else.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_REQUEST,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from dial_client.gateway.addresses import to_address
from dial_client.gateway.client_session import ClientSession, ClientSessions
from dial_client.gateway.handlers import Handlers
from dial_client.gateway.server_lists import ListKind, ServerLists
from dial_client.gateway.server_resources import ResourceAddresses
from dial_client.gateway.upstream_requests import to_protocol_error
from dial_client.messages.errors import ServerError
from dial_client.runtime.logs import get_logger
from dial_client.servers.notifications import Subscription
from dial_client.servers.server_manager import ServerManager
from dial_client.servers.status import Observable

log = get_logger(__name__)

# The most subscriptions of one client.
MAX_SUBSCRIPTIONS = 100
# The most streams of all clients together.
MAX_STREAMS = 1_000
# Seconds before a subscription is made again that a server has ended; doubled up to `REOPEN_SECONDS_MAX`.
REOPEN_SECONDS = 1.0
REOPEN_SECONDS_MAX = 60.0
# Seconds that a stream waits for the servers of its resources before it begins.
CONFIRM_SECONDS = 2.0

# Receives the address of a changed resource.
OnUpdate = Callable[[str], Awaitable[None]]


@dataclass(eq=False, slots=True)
class _Interest:
    """One client's interest in one resource."""

    server: str
    uri: str
    """The server's own URI."""
    address: str
    """What the client calls the resource."""
    on_update: OnUpdate
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_confirmed: bool = False
    """True once the server has confirmed that it announces changes."""
    error: ServerError | None = None
    """Why the server does not announce changes."""
    news: Observable[None] = field(default_factory=lambda: Observable(None))
    """Set after each change of the attributes above."""

    async def wait(self, seconds: float = math.inf) -> None:
        """Wait at most `seconds` until the server has confirmed or refused."""
        await self.news.wait_until(lambda _: self.is_confirmed or self.error is not None, seconds)


class _StreamBus:
    """The events of one stream: changes of lists for everybody, and updates for this stream alone."""

    def __init__(self, bus: InMemorySubscriptionBus) -> None:
        self._bus = bus
        self._listener: Callable[[ServerEvent], None] | None = None

    async def publish(self, event: ServerEvent) -> None:
        """Deliver an event to the stream."""
        if self._listener is not None:
            self._listener(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register the stream's listener, also for the events for everybody."""
        self._listener = listener
        return self._bus.subscribe(listener)


class ResourceSubscriptions:
    """Answers ``resources/subscribe``, ``resources/unsubscribe`` and ``subscriptions/listen``.

    Args:
        servers: The servers.
        lists: Their lists, which are watched for clients that listen for changes of lists.
        addresses: Finds the server of a resource.
        sessions: The clients.
        bus: Delivers the changes of lists.
    """

    def __init__(
        self,
        servers: ServerManager,
        lists: ServerLists,
        addresses: ResourceAddresses,
        sessions: ClientSessions,
        bus: InMemorySubscriptionBus,
    ) -> None:
        self._servers, self._lists, self._addresses = servers, lists, addresses
        self._sessions, self._bus = sessions, bus
        self._interests: dict[tuple[str, str], _Interest] = {}
        self._streams: set[ListenHandler] = set()
        # Runs the tasks of subscriptions that outlast their request; None before `run`.
        self._group: Observable[TaskGroup | None] = Observable(None)

    def list_handlers(self) -> Handlers:
        """Return the handlers by their methods."""
        return {
            "resources/subscribe": (SubscribeRequestParams, self.subscribe),
            "resources/unsubscribe": (UnsubscribeRequestParams, self.unsubscribe),
            "subscriptions/listen": (SubscriptionsListenRequestParams, self.listen),
        }

    async def run(self) -> None:
        """Follow the subscribed resources until cancelled."""
        async with anyio.create_task_group() as group:
            self._group.set(group)
            try:
                await anyio.sleep_forever()
            finally:
                self._group.set(None)
                self.close_streams()

    def close_streams(self) -> None:
        """End all streams, so that their clients know that no change was lost."""
        for stream in tuple(self._streams):
            stream.close()

    async def subscribe(self, context: ServerRequestContext[Any, Any], params: SubscribeRequestParams) -> EmptyResult:
        """Subscribe a client of the older revision to a resource; a second subscription changes nothing.

        Raises:
            MCPError: There is no such resource, its server announces no changes, or the client has `MAX_SUBSCRIPTIONS`.
        """
        session = self._sessions.find(context)
        connection, uri = await self._addresses.resolve(params.uri, context.protocol_version)
        if (session.id, params.uri) in self._interests:
            return EmptyResult()
        if sum(id_ == session.id for id_, _ in self._interests) >= MAX_SUBSCRIPTIONS:
            raise MCPError(INVALID_REQUEST, f"At most {MAX_SUBSCRIPTIONS} resources can be subscribed to")

        async def on_update(address: str) -> None:
            await session.channel.send_resource_updated(address)

        interest = _Interest(connection.name, uri, params.uri, on_update)
        group = await self._group.wait_until(lambda group: group is not None)
        assert group is not None
        self._interests[session.id, params.uri] = interest
        group.start_soon(self._follow_for_session, session, interest)
        try:
            await interest.wait()
        except BaseException:
            interest.scope.cancel()
            raise
        if interest.error is not None:
            raise to_protocol_error(interest.error) from interest.error
        return EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams
    ) -> EmptyResult:
        """End a subscription; nothing happens if there is none."""
        session = self._sessions.find(context)
        interest = self._interests.pop((session.id, params.uri), None)
        if interest is not None:
            interest.scope.cancel()
        return EmptyResult()

    async def listen(
        self, context: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Send the changes that a client asks for, until it closes the stream.

        The stream begins with what the client will get: without the resources whose servers announce no changes.

        Raises:
            MCPError: There are `MAX_STREAMS` already.
        """
        self._sessions.find(context)
        if len(self._streams) >= MAX_STREAMS:
            raise MCPError(INVALID_REQUEST, f"At most {MAX_STREAMS} streams can be open")
        requested = params.notifications
        if requested.resources_list_changed:
            self._lists.watch(ListKind.RESOURCES)
            self._lists.watch(ListKind.TEMPLATES)
        if requested.prompts_list_changed:
            self._lists.watch(ListKind.PROMPTS)
        bus = _StreamBus(self._bus)
        stream = ListenHandler(bus)
        self._streams.add(stream)
        try:
            async with anyio.create_task_group() as group:
                addresses = await self._follow_for_stream(group, bus, context, requested.resource_subscriptions or [])
                honored = requested.model_copy(update={"resource_subscriptions": addresses or None})
                result = await stream(context, params.model_copy(update={"notifications": honored}))
                group.cancel_scope.cancel()
        finally:
            self._streams.discard(stream)
        return result

    async def _follow_for_stream(
        self, group: TaskGroup, bus: _StreamBus, context: ServerRequestContext[Any, Any], addresses: list[str]
    ) -> list[str]:
        """Follow resources for one stream; return those whose servers announce changes, or have not answered yet."""
        interests: list[_Interest] = []
        for address in dict.fromkeys(addresses[:MAX_SUBSCRIPTIONS]):
            try:
                connection, uri = await self._addresses.resolve(address, context.protocol_version)
            except MCPError:
                continue

            async def on_update(_: str, subscribed: str = address) -> None:
                # The stream has only what was subscribed to, so a change below a resource is one of the resource.
                await bus.publish(ResourceUpdated(uri=subscribed))

            interests.append(_Interest(connection.name, uri, address, on_update))
            group.start_soon(self._follow, interests[-1])
        with anyio.move_on_after(CONFIRM_SECONDS):
            for interest in interests:
                await interest.wait()
        return [interest.address for interest in interests if interest.error is None]

    async def _follow_for_session(self, session: ClientSession, interest: _Interest) -> None:
        key = (session.id, interest.address)
        with session.hold(interest.scope.cancel):
            await self._follow(interest)
        if self._interests.get(key) is interest:
            del self._interests[key]

    async def _follow(self, interest: _Interest) -> None:
        """Report updates of a resource until the scope is cancelled, or the server refuses the first subscription."""
        pause = REOPEN_SECONDS
        with interest.scope:
            while True:
                try:
                    async with self._open(interest) as updates:
                        if interest.is_confirmed:  # the resource may have changed meanwhile
                            await interest.on_update(interest.address)
                        interest.is_confirmed = True
                        interest.news.set(None)
                        async for uri in updates:
                            is_subscribed = uri == interest.uri
                            await interest.on_update(
                                interest.address if is_subscribed else to_address(interest.server, uri)
                            )
                            pause = REOPEN_SECONDS
                except ServerError as error:
                    log.debug("subscription_ended", server=interest.server, error=error.problem)
                    if not interest.is_confirmed:
                        interest.error = error
                        interest.news.set(None)
                        return
                # The server was stopped, removed, or given up: it may be started again under its name.
                await anyio.sleep(pause)
                pause = min(2 * pause, REOPEN_SECONDS_MAX)

    def _open(self, interest: _Interest) -> Subscription:
        connection = self._servers.get(interest.server)
        if connection is None:
            raise ServerError(interest.server, "there is no such server")
        return Subscription(interest.server, interest.uri, connection.notifications, connection.open_session)
