"""Change notifications of a server's lists and resources, and subscriptions to resources, in every MCP version.

Notifications.revisions   numbers that grow with each change of a list; a cached list with an older number is stale
Notifications.follow      sends the subscriptions to the server, in each session
Subscription              yields the changes of one resource

Up to 2025-11-25 the client subscribes with ``resources/subscribe``, and updates arrive as ordinary notifications.
Since 2026-07-28 each subscription has its own stream (``subscriptions/listen``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from dial_client.messages.errors import ServerError, ServerGone
from dial_client.runtime.logs import get_logger
from dial_client.servers.observable import Observable

if TYPE_CHECKING:
    from mcp import Client

log = get_logger(__name__)

SUBSCRIBE_SECONDS = 30.0
"""Seconds a server has to confirm a subscription."""
UNSUBSCRIBE_SECONDS = 2.0
REOPEN_PAUSE = 1.0
"""Seconds before a lost stream of notifications is opened again; doubled up to `REOPEN_PAUSE_MAX`."""
REOPEN_PAUSE_MAX = 60.0
MAX_SUBSCRIPTIONS = 100
"""Limit of subscribed resources for one server: since 2026-07-28 each keeps an HTTP connection open."""
MAX_PENDING = 1000
"""Unread changes of one subscription; any further change is reported as a change of the subscribed resource."""


class Listing(StrEnum):
    """The kinds of lists of a server."""

    TOOLS = "tools"
    RESOURCES = "resources"
    """Resources and resource templates."""
    PROMPTS = "prompts"


def find_changed_list(message: object) -> Listing | None:
    """Return the list whose change a message announces; None for any other message."""
    return _LIST_CHANGES.get(type(message).__name__)


_LIST_CHANGES = {
    "ToolListChangedNotification": Listing.TOOLS,
    "ResourceListChangedNotification": Listing.RESOURCES,
    "PromptListChangedNotification": Listing.PROMPTS,
    "ToolsListChanged": Listing.TOOLS,
    "ResourcesListChanged": Listing.RESOURCES,
    "PromptsListChanged": Listing.PROMPTS,
}
"""Type names of the SDK's notifications (up to 2025-11-25) and events (since 2026-07-28)."""


@dataclass(frozen=True, slots=True)
class _SubscriptionState:
    is_confirmed: bool = False
    """True if the server announces changes of the resource."""
    changed: tuple[str, ...] = ()
    """The URIs of changed resources that were not read yet."""
    error: ServerError | None = None
    """The error that ended the subscription; None while it is active."""


class Subscription:
    """Changes of one resource: ``async with subscription: async for uri in subscription: …``.

    It yields the URI of the resource, or of a resource below it, once for all changes since the URI was last yielded.
    After a restart of the server, or the loss of its notification stream, it yields the URI of the resource, because
    changes may have been missed. Entering it, and waiting for a change, raise `ServerError` if the server announces no
    changes, and `ServerGone` if the server was stopped or given up.
    """

    def __init__(
        self, server: str, uri: str, notifications: Notifications, wait_ready: Callable[[], Awaitable[object]]
    ) -> None:
        self.server = server
        self.uri = uri
        self._notifications = notifications
        self._wait_ready = wait_ready
        self._state = Observable(_SubscriptionState())

    @property
    def is_confirmed(self) -> bool:
        """True if the server announces changes of the resource."""
        return self._state.value.is_confirmed

    async def __aenter__(self) -> Self:
        """Wait until the server is ready, and then at most `SUBSCRIBE_SECONDS` until it confirms the subscription."""
        await self._wait_ready()
        self._notifications.add(self)
        try:
            await self._wait_confirmed()
        except BaseException:
            self._notifications.remove(self)
            raise
        return self

    async def _wait_confirmed(self) -> None:
        await self._state.wait_until(lambda state: state.is_confirmed or state.error is not None, SUBSCRIBE_SECONDS)
        if self._state.value.error is not None:
            raise self._state.value.error
        if not self.is_confirmed:
            raise ServerError(self.server, f"it did not confirm the subscription within {SUBSCRIBE_SECONDS:g} seconds")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._notifications.remove(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Wait for the next change."""
        state = await self._state.wait_until(lambda state: bool(state.changed) or state.error is not None)
        if not state.changed:
            assert state.error is not None
            raise state.error
        uri, *rest = state.changed
        self._state.set(replace(state, changed=tuple(rest)))
        return uri

    def confirm(self) -> None:
        """Record that the server confirmed the subscription; a repeated confirmation counts as a change."""
        if self.is_confirmed:
            self.mark_changed(self.uri)
        self._state.set(replace(self._state.value, is_confirmed=True))

    def mark_changed(self, uri: str) -> None:
        """Record the change of a resource; ignored unless it is the subscribed resource, or a resource below it."""
        root = self.uri.rstrip("/")
        if uri.rstrip("/") == root:
            uri = self.uri
        elif not uri.startswith(f"{root}/"):
            return
        state = self._state.value
        uri = uri if len(state.changed) < MAX_PENDING else self.uri
        if uri not in state.changed:
            self._state.set(replace(state, changed=(*state.changed, uri)))

    def end(self, error: ServerError) -> None:
        """End the subscription with an error, which is raised after the pending changes were read."""
        state = self._state.value
        self._state.set(replace(state, error=state.error or error))


class Notifications:
    """The announced changes of one server, across all its sessions."""

    def __init__(self, server: str) -> None:
        self.revisions: Counter[Listing] = Counter()
        """For each list a number that grows when the list has changed, or may have changed."""
        self._server = server
        self._subscriptions: list[Subscription] = []
        self._uris: Observable[frozenset[str]] = Observable(frozenset())

    def mark_changed(self, *lists: Listing) -> None:
        """Record that lists have changed, or may have changed."""
        self.revisions.update(lists)

    def mark_updated(self, uri: str) -> None:
        """Record that a resource has changed."""
        for subscription in tuple(self._subscriptions):
            subscription.mark_changed(uri)

    def end(self, reason: str) -> None:
        """End all subscriptions: the server was stopped or given up."""
        for subscription in tuple(self._subscriptions):
            subscription.end(ServerGone(self._server, reason))

    def add(self, subscription: Subscription) -> None:
        """Add a subscription.

        Raises:
            ServerError: The server has `MAX_SUBSCRIPTIONS` already.
        """
        if len(self._uris.value | {subscription.uri}) > MAX_SUBSCRIPTIONS:
            raise ServerError(self._server, f"at most {MAX_SUBSCRIPTIONS} of its resources can be subscribed to")
        is_confirmed = any(known.is_confirmed for known in self._to(subscription.uri))
        self._subscriptions.append(subscription)
        if is_confirmed:
            subscription.confirm()
        self._update_uris()

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription; nothing happens if it was removed before."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            self._update_uris()

    def _update_uris(self) -> None:
        self._uris.set(frozenset(subscription.uri for subscription in self._subscriptions))

    def _to(self, uri: str) -> list[Subscription]:
        return [subscription for subscription in self._subscriptions if subscription.uri == uri]

    async def follow(self, client: Client) -> None:
        """Keep the server's subscriptions equal to those that were added here. Runs until it is cancelled."""
        scopes: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as group:
            while True:
                uris = await self._uris.wait_until(lambda uris: uris != scopes.keys())
                for uri in scopes.keys() - uris:
                    scopes.pop(uri).cancel()
                for uri in uris - scopes.keys():
                    scopes[uri] = anyio.CancelScope()
                    group.start_soon(self._follow_resource, client, uri, scopes[uri])

    async def _follow_resource(self, client: Client, uri: str, scope: anyio.CancelScope) -> None:
        from mcp.client.subscriptions import ListenNotSupportedError

        def confirm() -> None:
            for subscription in self._to(uri):
                subscription.confirm()

        with scope:
            try:
                try:
                    await self._listen(client, uri, confirm)
                except ListenNotSupportedError:
                    await _subscribe(client, uri, confirm, scope)
            except Exception as error:  # noqa: BLE001 (any error ends this subscription only, not the session)
                log.debug("subscription_refused", server=self._server, error=type(error).__name__)
                for subscription in self._to(uri):
                    subscription.end(ServerError(self._server, f"it announces no changes of {uri!r}: {error}"))

    async def _listen(self, client: Client, uri: str, confirm: Callable[[], None]) -> None:
        """Keep a notification stream open, and reopen a lost one; raises only if the server refuses the first one."""
        from mcp.shared.subscriptions import ResourceUpdated

        pause, opened = REOPEN_PAUSE, False
        while True:
            try:
                async with client.listen(resource_subscriptions=[uri]) as changes:
                    if not changes.honored.resource_subscriptions:
                        break
                    opened = True
                    confirm()
                    async for event in changes:
                        pause = REOPEN_PAUSE
                        self.mark_updated(event.uri if isinstance(event, ResourceUpdated) else uri)
            except Exception as error:
                if not opened:
                    raise
                log.debug("subscription_lost", server=self._server, error=type(error).__name__)
            await anyio.sleep(pause)
            pause = min(2 * pause, REOPEN_PAUSE_MAX)
        raise ServerError(self._server, "the server does not offer subscriptions to resources")


async def _subscribe(client: Client, uri: str, confirm: Callable[[], None], scope: anyio.CancelScope) -> None:
    import mcp_types as wire

    # The methods of the SDK's client warn about deprecation in every protocol version.
    send = client.session.send_request
    await send(wire.SubscribeRequest(params=wire.SubscribeRequestParams(uri=uri)), wire.EmptyResult)
    confirm()
    try:
        await anyio.sleep_forever()
    finally:
        if scope.cancel_called:  # otherwise the session has ended, and the server cannot be notified
            with anyio.move_on_after(UNSUBSCRIBE_SECONDS, shield=True), suppress(Exception):
                await send(wire.UnsubscribeRequest(params=wire.UnsubscribeRequestParams(uri=uri)), wire.EmptyResult)
