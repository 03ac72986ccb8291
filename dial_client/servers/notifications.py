"""What a server says of its own accord about its resources and prompts, and who wants to hear it, in both eras of MCP.

News.lists      grows with each change of a list, so that whoever keeps a copy knows when it is old
News.follow     in a life of the server: what is subscribed to is subscribed to there as well
Subscription    tells somebody of the changes of one resource, for as long as it is entered

Up to 2025-11-25 a resource is subscribed to with ``resources/subscribe``, and the news comes among all other messages;
from 2026-07-28 on each has a stream of its own (``subscriptions/listen``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from dial_client.errors import ServerError, ServerGone
from dial_client.logs import get_logger

if TYPE_CHECKING:
    from mcp import Client

log = get_logger(__name__)

SUBSCRIBE_SECONDS = 30.0
"""Seconds for a server to agree to a subscription."""
UNSUBSCRIBE_SECONDS = 2.0
REOPEN_PAUSE = 1.0
"""Seconds before a lost stream of changes is opened again; doubled up to `REOPEN_PAUSE_MAX`."""
REOPEN_PAUSE_MAX = 60.0
MAX_SUBSCRIPTIONS = 100
"""Resources of one server: on 2026-07-28 over HTTP each holds a connection open."""
MAX_PENDING = 1000
"""Changes that wait to be read; what is beyond is told as a change of the resource subscribed to."""


class Listing(StrEnum):
    """What a server lists, and says the changes of."""

    TOOLS = "tools"
    RESOURCES = "resources"
    """Templates included."""
    PROMPTS = "prompts"


def changed_list(message: object) -> Listing | None:
    """Give the list that a message of either era says has changed; None for any other message."""
    return _LISTS.get(type(message).__name__)


_LISTS = {
    "ToolListChangedNotification": Listing.TOOLS,
    "ResourceListChangedNotification": Listing.RESOURCES,
    "PromptListChangedNotification": Listing.PROMPTS,
    "ToolsListChanged": Listing.TOOLS,
    "ResourcesListChanged": Listing.RESOURCES,
    "PromptsListChanged": Listing.PROMPTS,
}
"""The SDK's notifications (up to 2025-11-25) and events (since 2026-07-28)."""


class Subscription:
    """Changes of one resource: ``async with subscription: async for uri in subscription: …``.

    Each URI it gives was changed since it was last given, however often: that of the resource itself, or of one below
    it. After the server was started again, or its stream of changes was lost, the resource itself is given, since
    nobody tells what changed meanwhile. Entering it, and waiting for a change, raise `ServerError` where the server
    does not tell changes, and `ServerGone` where it is gone for good.
    """

    def __init__(self, server: str, uri: str, news: Notifications, up: Callable[[], Awaitable[object]]) -> None:
        self.server = server
        self.uri = uri
        self.is_agreed = False
        """The server tells its changes."""
        self._news = news
        self._up = up
        self._changed: dict[str, None] = {}
        self._over: ServerError | None = None
        self._moved = anyio.Event()

    async def __aenter__(self) -> Self:
        """Wait until the server is up, and has agreed, at most `SUBSCRIBE_SECONDS`."""
        await self._up()
        self._news.add(self)
        try:
            await self._agreement()
        except BaseException:
            self._news.drop(self)
            raise
        return self

    async def _agreement(self) -> None:
        with anyio.move_on_after(SUBSCRIBE_SECONDS):
            while not self.is_agreed and self._over is None:
                await self._moved.wait()
        if self._over is not None:
            raise self._over
        if not self.is_agreed:
            raise ServerError(self.server, f"it did not agree to a subscription within {SUBSCRIBE_SECONDS:g} seconds")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._news.drop(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Wait for the next change."""
        while not self._changed:
            if self._over is not None:
                raise self._over
            await self._moved.wait()
        uri = next(iter(self._changed))
        del self._changed[uri]
        return uri

    def agreed(self) -> None:
        """The server tells changes from now on."""
        if self.is_agreed:
            self.changed(self.uri)
        self.is_agreed = True
        self._move()

    def changed(self, uri: str) -> None:
        """A resource has changed: this one, one below it, or one that is none of its business."""
        own = self.uri.rstrip("/")
        if uri.rstrip("/") == own:
            uri = self.uri
        elif not uri.startswith(f"{own}/"):
            return
        self._changed[uri if len(self._changed) < MAX_PENDING else self.uri] = None
        self._move()

    def end(self, error: ServerError) -> None:
        """There will be no more changes."""
        self._over = self._over or error
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()


class Notifications:
    """What is known of one server's changes, over all its lives."""

    def __init__(self, server: str) -> None:
        self.lists: Counter[Listing] = Counter()
        """For each list a number that grows when it has changed, or may have."""
        self._server = server
        self._subscriptions: list[Subscription] = []
        self._wish = anyio.Event()

    def mark_changed(self, *lists: Listing) -> None:
        """Take note that lists have changed, or may have."""
        self.lists.update(lists)

    def mark_updated(self, uri: str) -> None:
        """Take note that a resource has changed."""
        for subscription in tuple(self._subscriptions):
            subscription.changed(uri)

    def end(self, why: str) -> None:
        """Take note that the server is gone for good."""
        for subscription in tuple(self._subscriptions):
            subscription.end(ServerGone(self._server, why))

    def add(self, subscription: Subscription) -> None:
        """Begin to want the changes of a resource.

        Raises:
            ServerError: too many are wanted already.
        """
        if len(self._uris() | {subscription.uri}) > MAX_SUBSCRIPTIONS:
            raise ServerError(self._server, f"more than {MAX_SUBSCRIPTIONS} of its resources are subscribed to")
        known = next((one for one in self._subscriptions if one.uri == subscription.uri), None)
        self._subscriptions.append(subscription)
        if known is not None and known.is_agreed:
            subscription.agreed()
        self._wish.set()

    def drop(self, subscription: Subscription) -> None:
        """Want them no longer."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            self._wish.set()

    async def follow(self, client: Client) -> None:
        """Have the server tell what is wanted, and nothing else. Runs until it is cancelled."""
        told: dict[str, anyio.CancelScope] = {}
        async with anyio.create_task_group() as group:
            while True:
                self._wish = anyio.Event()
                wanted = self._uris()
                for uri in told.keys() - wanted:
                    told.pop(uri).cancel()
                for uri in wanted - told.keys():
                    told[uri] = anyio.CancelScope()
                    group.start_soon(self._follow_one, client, uri, told[uri])
                await self._wish.wait()

    def _uris(self) -> set[str]:
        return {subscription.uri for subscription in self._subscriptions}

    async def _follow_one(self, client: Client, uri: str, scope: anyio.CancelScope) -> None:
        from mcp.client.subscriptions import ListenNotSupportedError

        def of_it() -> list[Subscription]:
            return [one for one in self._subscriptions if one.uri == uri]

        def agreed() -> None:
            for subscription in of_it():
                subscription.agreed()

        with scope:
            try:
                try:
                    await self._listen(client, uri, agreed)
                except ListenNotSupportedError:
                    await _subscribe(client, uri, agreed, scope)
            except Exception as error:  # noqa: BLE001 (whatever it is, it ends this subscription and no life)
                log.debug("subscription_refused", server=self._server, error=type(error).__name__)
                for subscription in of_it():
                    subscription.end(ServerError(self._server, f"it tells no changes of {uri!r}: {error}"))

    async def _listen(self, client: Client, uri: str, agreed: Callable[[], None]) -> None:
        """Hold a stream of changes open; raises only where the server will have none."""
        pause, opened = REOPEN_PAUSE, False
        while True:
            try:
                async with client.listen(resource_subscriptions=[uri]) as changes:
                    if not changes.honored.resource_subscriptions:
                        break
                    opened = True
                    agreed()
                    async for event in changes:
                        pause = REOPEN_PAUSE
                        self.mark_updated(getattr(event, "uri", uri))
            except Exception as error:
                if not opened:
                    raise
                log.debug("subscription_lost", server=self._server, error=type(error).__name__)
            await anyio.sleep(pause)
            pause = min(2 * pause, REOPEN_PAUSE_MAX)
        raise ServerError(self._server, "the server does not offer that")


async def _subscribe(client: Client, uri: str, agreed: Callable[[], None], scope: anyio.CancelScope) -> None:
    import mcp_types as wire

    # The client's own methods warn that they are deprecated, whatever the era.
    ask = client.session.send_request
    await ask(wire.SubscribeRequest(params=wire.SubscribeRequestParams(uri=uri)), wire.EmptyResult)
    agreed()
    try:
        await anyio.sleep_forever()
    finally:
        if scope.cancel_called:  # else the life is over, and there is nobody to be told
            with anyio.move_on_after(UNSUBSCRIBE_SECONDS, shield=True), suppress(Exception):
                await ask(wire.UnsubscribeRequest(params=wire.UnsubscribeRequestParams(uri=uri)), wire.EmptyResult)
