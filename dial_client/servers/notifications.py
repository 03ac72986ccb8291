"""Change notifications of a server's lists and resources, and subscriptions to resources, in every MCP version.

ToolWatch                 reads the tools of one session, and reads them again whenever the server announces a change
Notifications.revisions   numbers that grow with each change of a list; a cached list with an older number is stale
Notifications.follow      sends the subscriptions to the server, in each session
Subscription              yields the changes of one resource

Up to 2025-11-25 the client subscribes with ``resources/subscribe``, and updates arrive as ordinary notifications.
Since 2026-07-28 each subscription has its own stream (``subscriptions/listen``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio

from dial_client.messages.errors import ServerError, ServerGone
from dial_client.runtime.logs import get_logger
from dial_client.servers.restart_policy import is_modern
from dial_client.servers.status import AddNote, Observable

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import SubscriptionFilter, Tool

log = get_logger(__name__)

Item = TypeVar("Item")

# Seconds a server has to confirm a subscription.
SUBSCRIBE_SECONDS = 30.0
UNSUBSCRIBE_SECONDS = 2.0
# Seconds before a lost stream of notifications is opened again; doubled up to `REOPEN_PAUSE_MAX`.
REOPEN_PAUSE = 1.0
REOPEN_PAUSE_MAX = 60.0
# Streams of notifications that end within `SHORT_STREAM` seconds, one after the other, until none is opened any more.
MAX_CUTS = 5
SHORT_STREAM = 60.0
# Seconds for which a list is valid if the server does not announce changes of it and does not say how long it is valid.
CACHE_SECONDS = 60.0
MAX_PAGES = 100
MAX_ITEMS = 10_000
# Seconds between an announced change and reading the tools again; doubled while announcements continue.
DEBOUNCE = 0.1
DEBOUNCE_MAX = 10.0
# Seconds for which the first list waits for the stream of announcements.
OPEN_SECONDS = 0.5
# Timeout in seconds for reading all pages of a list, except for the tools at the start of a session.
LIST_SECONDS = 30.0
# Limit of subscribed resources for one server: since 2026-07-28 each keeps an HTTP connection open.
MAX_SUBSCRIPTIONS = 100
# Unread changes of one subscription; any further change is reported as a change of the subscribed resource.
MAX_PENDING = 1000


class Listing(StrEnum):
    """The kinds of lists of a server."""

    TOOLS = "tools"
    RESOURCES = "resources"
    """Resources and resource templates."""
    PROMPTS = "prompts"


# Type names of the SDK's notifications (up to 2025-11-25) and events (since 2026-07-28).
_LIST_CHANGES = {
    "ToolListChangedNotification": Listing.TOOLS,
    "ResourceListChangedNotification": Listing.RESOURCES,
    "PromptListChangedNotification": Listing.PROMPTS,
    "ToolsListChanged": Listing.TOOLS,
    "ResourcesListChanged": Listing.RESOURCES,
    "PromptsListChanged": Listing.PROMPTS,
}


@dataclass(eq=False)
class Subscription:
    """Changes of one resource: ``async with subscription: async for uri in subscription: …``.

    It yields the URI of the resource, or of a resource below it, once for all changes since the URI was last yielded.
    After a restart of the server, or the loss of its notification stream, it yields the URI of the resource, because
    changes may have been missed. Entering it, and waiting for a change, raise `ServerError` if the server announces no
    changes, and `ServerGone` if the server was stopped or given up.
    """

    server: str
    uri: str
    _notifications: Notifications
    _wait_ready: Callable[[], Awaitable[object]]
    is_confirmed: bool = field(default=False, init=False)
    """True if the server announces changes of the resource."""

    def __post_init__(self) -> None:
        # The URIs of changed resources that were not read yet.
        self._changed: list[str] = []
        # The error that ended the subscription; None while it is active.
        self._error: ServerError | None = None
        # Set after each change of the attributes above.
        self._news = Observable(None)

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
        await self._news.wait_until(lambda _: self.is_confirmed or self._error is not None, SUBSCRIBE_SECONDS)
        if self._error is not None:
            raise self._error
        if not self.is_confirmed:
            raise ServerError(self.server, f"it did not confirm the subscription within {SUBSCRIBE_SECONDS:g} seconds")

    async def __aexit__(self, *failure: object) -> None:
        self._notifications.remove(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Wait for the next change."""
        await self._news.wait_until(lambda _: bool(self._changed) or self._error is not None)
        if not self._changed:
            assert self._error is not None
            raise self._error
        return self._changed.pop(0)

    def confirm(self) -> None:
        """Record that the server confirmed the subscription; a repeated confirmation counts as a change."""
        if self.is_confirmed:
            self.mark_changed(self.uri)
        self.is_confirmed = True
        self._news.set(None)

    def mark_changed(self, uri: str) -> None:
        """Record the change of a resource; ignored unless it is the subscribed resource, or a resource below it."""
        root = self.uri.rstrip("/")
        if uri.rstrip("/") == root:
            uri = self.uri
        elif not uri.startswith(f"{root}/"):
            return
        uri = uri if len(self._changed) < MAX_PENDING else self.uri
        if uri not in self._changed:
            self._changed.append(uri)
            self._news.set(None)

    def end(self, error: ServerError) -> None:
        """End the subscription with an error, which is raised after the pending changes were read."""
        self._error = self._error or error
        self._news.set(None)


class Notifications:
    """The announced changes of one server, across all its sessions.

    Args:
        server: The server's name in the configuration.
        on_change: Is called after each change of `revisions`.
    """

    def __init__(self, server: str, on_change: Callable[[], None] | None = None) -> None:
        self.revisions: Counter[Listing] = Counter()
        """For each list a number that grows when the list has changed, or may have changed."""
        self.is_silent = False
        """True if the server's host cuts the streams of notifications, so that changes of lists do not arrive."""
        self._server = server
        self._on_change = on_change
        self._subscriptions: Observable[tuple[Subscription, ...]] = Observable(())

    def mark_changed(self, *lists: Listing) -> None:
        """Record that lists have changed, or may have changed."""
        self.revisions.update(lists)
        if self._on_change is not None:
            self._on_change()

    def mark_updated(self, uri: str) -> None:
        """Record that a resource has changed."""
        for subscription in self._subscriptions.value:
            subscription.mark_changed(uri)

    def end(self, reason: str) -> None:
        """End all subscriptions: the server was stopped or given up."""
        for subscription in self._subscriptions.value:
            subscription.end(ServerGone(self._server, reason))

    def add(self, subscription: Subscription) -> None:
        """Add a subscription.

        Raises:
            ServerError: The server has `MAX_SUBSCRIPTIONS` already.
        """
        known = self._subscriptions.value
        if len(_find_uris(known) | {subscription.uri}) > MAX_SUBSCRIPTIONS:
            raise ServerError(self._server, f"at most {MAX_SUBSCRIPTIONS} of its resources can be subscribed to")
        if any(active.is_confirmed for active in self._to(subscription.uri)):
            subscription.confirm()
        self._subscriptions.set((*known, subscription))

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription; nothing happens if it was removed before."""
        self._subscriptions.set(tuple(known for known in self._subscriptions.value if known is not subscription))

    def _to(self, uri: str) -> list[Subscription]:
        return [subscription for subscription in self._subscriptions.value if subscription.uri == uri]

    async def follow(self, client: Client) -> None:
        """Keep the server's subscriptions equal to those that were added here. Runs until it is cancelled."""
        scopes: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as group:
            while True:
                await self._subscriptions.wait_until(lambda known: _find_uris(known) != scopes.keys())
                uris = _find_uris(self._subscriptions.value)
                for uri in scopes.keys() - uris:
                    scopes.pop(uri).cancel()
                for uri in uris - scopes.keys():
                    scopes[uri] = anyio.CancelScope()
                    group.start_soon(self._follow_resource, client, uri, scopes[uri])

    async def _follow_resource(self, client: Client, uri: str, scope: anyio.CancelScope) -> None:
        from mcp.shared.subscriptions import ResourceUpdated

        def confirm() -> None:
            for subscription in self._to(uri):
                subscription.confirm()

        def on_open(honored: SubscriptionFilter) -> bool:
            if honored.resource_subscriptions:
                confirm()
            return bool(honored.resource_subscriptions)

        def on_event(event: object) -> None:
            self.mark_updated(event.uri if isinstance(event, ResourceUpdated) else uri)

        with scope:
            problem = "the server does not offer subscriptions to resources"
            try:
                if is_modern(client.protocol_version):
                    await self.listen(client, {"resource_subscriptions": [uri]}, on_open, on_event)
                else:
                    await _subscribe(client, uri, confirm, scope)
            except Exception as error:  # noqa: BLE001 (any error ends this subscription only, not the session)
                log.debug("subscription_refused", server=self._server, error=type(error).__name__)
                problem = str(error)
            for subscription in self._to(uri):
                subscription.end(ServerError(self._server, f"it announces no changes of {uri!r}: {problem}"))

    async def listen(
        self,
        client: Client,
        kinds: Mapping[str, Any],
        on_open: Callable[[SubscriptionFilter], bool],
        on_event: Callable[[object], None],
    ) -> None:
        """Keep a notification stream open, and reopen a lost one. Runs until it is cancelled or refused.

        Hosts for functions cut every stream: after `MAX_CUTS` short ones, none is opened any more.

        Args:
            client: The SDK's client.
            kinds: The arguments of `mcp.Client.listen`: the changes that the server should announce.
            on_open: Is called with the changes that the server will announce; returns False if these are too few.
            on_event: Is called with each event.

        Raises:
            ServerError: The server's host cuts every stream.
            Exception: The server refuses the first stream.
        """
        pause, is_opened, cuts = REOPEN_PAUSE, False, 0
        while True:
            began = anyio.current_time()
            try:
                async with client.listen(**kinds) as changes:
                    if not on_open(changes.honored):
                        return
                    is_opened = True
                    async for event in changes:
                        on_event(event)
            except Exception as error:
                if not is_opened:
                    raise
                log.debug("notifications_lost", server=self._server, error=type(error).__name__)
            if anyio.current_time() - began >= SHORT_STREAM:
                pause, cuts = REOPEN_PAUSE, 0
            else:
                cuts += 1
            if cuts == MAX_CUTS:
                raise ServerError(self._server, "its host cuts its stream of notifications again and again")
            await anyio.sleep(pause)
            pause = min(2 * pause, REOPEN_PAUSE_MAX)


def _find_uris(subscriptions: Iterable[Subscription]) -> set[str]:
    return {subscription.uri for subscription in subscriptions}


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


@dataclass(frozen=True, slots=True)
class Listed:
    """The items of all pages of a list, in the server's order; none if the server has no such list."""

    items: tuple[Any, ...] = ()
    seconds: float | None = None
    """Seconds for which the server calls the list valid (``ttlMs``), the fewest of all pages; None if it states none.
    0 counts as none, because the SDK sends it for servers that state nothing."""


async def read_all_pages(client: Client, items_name: str, key_name: str, note: AddNote) -> Listed:
    """Read all pages of a list.

    Reading stops, with a note, at a repeated cursor, at a page that fails, and after too many pages or items. The items
    read so far are returned.

    Args:
        client: The SDK's client.
        items_name: The attribute of a page that has its items, such as ``resource_templates``.
        key_name: The attribute that identifies an item. Items of later pages with a known key are dropped.
        note: Is called with a note about each irregularity.

    Raises:
        mcp.MCPError, pydantic.ValidationError: The first page cannot be read.
    """
    from mcp import MCPError
    from mcp_types import METHOD_NOT_FOUND
    from pydantic import ValidationError

    kind = items_name.replace("_", " ")
    items: list[Any] = []
    known: set[str] = set()
    cursors: set[str | None] = set()
    cursor: str | None = None
    seconds: float | None = None
    while cursor not in cursors and len(cursors) < MAX_PAGES and len(items) < MAX_ITEMS:
        cursors.add(cursor)
        try:
            page = await getattr(client, f"list_{items_name}")(cursor=cursor)
        except (MCPError, ValidationError) as error:
            if cursor is not None:
                note(f"not all pages of its {kind} can be read")
                return Listed(tuple(items), seconds)
            if isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND:
                return Listed()
            raise
        if page.ttl_ms:
            seconds = min(page.ttl_ms / 1000, math.inf if seconds is None else seconds)
        new_items = [item for item in getattr(page, items_name) if getattr(item, key_name) not in known]
        items += new_items
        known.update(getattr(item, key_name) for item in new_items)
        cursor = page.next_cursor or None
        if len(items) > MAX_ITEMS:
            note(f"it has more than {MAX_ITEMS:,} {kind}; the rest is left out")
            return Listed(tuple(items[:MAX_ITEMS]), seconds)
        if cursor is None:
            return Listed(tuple(items), seconds)
    note(f"its list of {kind} has no end; {len(cursors)} pages were read")
    return Listed(tuple(items), seconds)


class ToolWatch:
    """Reads a server's tools again when it announces a change, in every protocol version.

    Up to 2025-11-25 announcements are ordinary notifications; since 2026-07-28 they arrive on a stream, which the
    client opens. Changes of other lists are recorded in `notifications`.
    """

    def __init__(self, note: AddNote, notifications: Notifications) -> None:
        self._note = note
        self._notifications = notifications
        # The tools as they were read last; None before.
        self._tools: tuple[Tool, ...] | None = None
        # The time when these tools are too old.
        self._valid_until = math.inf
        # The tools whose calls were rejected, and whose definitions were the same when they were read again.
        self._mismatched: set[str] = set()
        # The number of announced changes.
        self._announced = 0
        # The time of the first announcement that the last tool list read does not include; None for no such one.
        self._stale_since: Observable[float | None] = Observable(None)
        # Set once the stream of announcements was opened or refused.
        self._opened = anyio.Event()

    async def wait_until_open(self) -> None:
        """Wait, not for long, until `listen` has opened the stream of announcements, or was refused.

        Tools that are read before would be read again, and the first turn would wait for that.
        """
        with anyio.move_on_after(OPEN_SECONDS):
            await self._opened.wait()

    async def read(self, client: Client) -> tuple[Tool, ...]:
        """Read all pages of ``tools/list``; raises as `read_all_pages` does."""
        listed = await read_all_pages(client, "tools", "name", self._note)
        if listed.items != self._tools:
            self._mismatched.clear()
        self._tools = listed.items
        is_silent, capability = self._notifications.is_silent, find_capabilities(client).get(Listing.TOOLS)
        if capability is not None and capability.list_changed and not is_silent:  # a server that announces is believed
            self._valid_until = math.inf
        else:
            seconds = listed.seconds or (CACHE_SECONDS if is_silent else math.inf)
            self._valid_until = anyio.current_time() + seconds
        return listed.items

    async def read_again(self, name: str) -> None:
        """Read the tools again because a call of a tool was rejected: its headers were not those of its definition.

        It replaces the SDK's own function, which reads for each rejected call; here calls at the same time share one
        reading, whose tools are also offered.

        Raises:
            MCPError: The definition was the same when it was read again after an earlier rejection.
        """
        from mcp import MCPError
        from mcp_types import HEADER_MISMATCH

        if name in self._mismatched:
            raise MCPError(HEADER_MISMATCH, f"the definition of {name!r} has not changed")
        before = self._find(name)
        self.mark_changed()
        await self.wait_until_read(LIST_SECONDS)
        if self._find(name) == before:
            self._mismatched.add(name)

    def _find(self, name: str) -> Tool | None:
        return next((tool for tool in self._tools or () if tool.name == name), None)

    def mark_changed(self) -> None:
        """Record that the tools have changed, or may have changed."""
        self._announced += 1
        if self._stale_since.value is None:
            self._stale_since.set(anyio.current_time())

    def on_message(self, message: object) -> None:
        """Record the list change that a message announces, in any protocol version; ignore other messages."""
        match _LIST_CHANGES.get(type(message).__name__):
            case Listing.TOOLS:
                self.mark_changed()
            case Listing() as listing:
                self._notifications.mark_changed(listing)

    @property
    def _is_too_old(self) -> bool:
        return self._valid_until < math.inf and anyio.current_time() > self._valid_until

    @property
    def is_current(self) -> bool:
        """Whether the tools were read after every announced change, and are not too old."""
        return self._stale_since.value is None and not self._is_too_old

    async def wait_until_read(self, within: float) -> None:
        """Wait until the tools were read again after every announced change, or because they are too old.

        Returns at the latest `within` seconds after the announcement, so that a server that does not answer delays only
        one model call.
        """
        if self._is_too_old:
            self._valid_until = math.inf
            self.mark_changed()
        if (since := self._stale_since.value) is not None:
            await self._stale_since.wait_until(lambda stale: stale is None, since + within - anyio.current_time())

    async def refresh(self, client: Client, set_tools: Callable[[tuple[Tool, ...]], None]) -> None:
        """Read the tools again after each announcement, and pass them to `set_tools`. Runs until it is cancelled."""
        from mcp import MCPError

        pause, last = DEBOUNCE, -math.inf
        while True:
            await self._stale_since.wait_until(lambda since: since is not None)
            is_calm = anyio.current_time() - last > DEBOUNCE_MAX
            # A server that announces a change at each tools/list must not cause an endless loop of requests.
            pause = DEBOUNCE if is_calm else min(2 * pause, DEBOUNCE_MAX)
            await anyio.sleep(pause)
            count = self._announced
            last = anyio.current_time()
            try:
                with anyio.move_on_after(LIST_SECONDS):
                    set_tools(await self.read(client))
            except (MCPError, ValueError, RuntimeError) as error:
                log.debug("tools_not_refreshed", error=type(error).__name__)
            if self._announced == count:
                self._stale_since.set(None)

    async def listen(self, client: Client) -> None:
        """Keep the notification stream open, if the server has one. Runs until it is cancelled or refused."""
        from mcp import MCPError

        def on_open(honored: SubscriptionFilter) -> bool:
            self._opened.set()
            if not (honored.tools_list_changed or honored.prompts_list_changed or honored.resources_list_changed):
                return False
            # Changes between reading a list and opening the stream are not announced.
            self._notifications.mark_changed(Listing.RESOURCES, Listing.PROMPTS)
            if self._tools is not None and honored.tools_list_changed:
                self.mark_changed()
            return True

        kinds = {"tools_list_changed": True, "prompts_list_changed": True, "resources_list_changed": True}
        try:
            await self._notifications.listen(client, kinds, on_open, self.on_message)
        except ServerError as error:
            self._note(f"{error.problem}: its lists are read again after a minute")
            self._notifications.is_silent = True
            self._notifications.mark_changed(Listing.RESOURCES, Listing.PROMPTS)
            self._valid_until = anyio.current_time() + CACHE_SECONDS
        except (MCPError, ValueError, RuntimeError) as error:
            log.debug("notifications_refused", error=type(error).__name__)
        finally:
            self._opened.set()


def find_capabilities(client: Client) -> dict[Listing, Any]:
    """Return the capabilities of the lists that a server has."""
    capabilities = {listing: getattr(client.server_capabilities, listing) for listing in Listing}
    return {listing: capability for listing, capability in capabilities.items() if capability is not None}


def has_list_changes(client: Client) -> bool:
    """Return True if a server of 2026-07-28 or later may announce changes of its lists."""
    capabilities = find_capabilities(client)
    announces = any(capability.list_changed for capability in capabilities.values())
    return is_modern(client.protocol_version) and (Listing.TOOLS not in capabilities or announces)
