"""Reads all pages of a server's lists, and reads its tools again whenever it announces a change."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import anyio

from dial_client.runtime.logs import get_logger
from dial_client.servers.notifications import Listing, Notifications, find_changed_list
from dial_client.servers.observable import Observable
from dial_client.servers.protocol_versions import is_modern
from dial_client.servers.status import AddNote

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool

log = get_logger(__name__)

MAX_PAGES = 100
MAX_ITEMS = 10_000
DEBOUNCE = 0.1
"""Seconds between an announced change and reading the tools again; doubled while announcements continue."""
DEBOUNCE_MAX = 10.0
LIST_SECONDS = 30.0
"""Timeout in seconds for reading all pages of a list, except for the tools at the start of a session."""
LISTEN_PAUSE = 1.0
"""Seconds before a lost notification stream is opened again; doubled up to `LISTEN_PAUSE_MAX`."""
LISTEN_PAUSE_MAX = 60.0

Item = TypeVar("Item")


async def list_tools(client: Client, note: AddNote) -> tuple[Tool, ...]:
    """Read all pages of ``tools/list`` with `read_all_pages`."""

    async def request_page(cursor: str | None) -> tuple[Sequence[Tool], str | None]:
        read = await client.list_tools(cursor=cursor)
        return read.tools, read.next_cursor

    return await read_all_pages("tools", request_page, lambda tool: tool.name, note)


async def read_all_pages(
    kind: str,
    read_page: Callable[[str | None], Awaitable[tuple[Sequence[Item], str | None]]],
    key: Callable[[Item], str],
    note: AddNote,
) -> tuple[Item, ...]:
    """Read all pages of a list, in the server's order; return an empty list if the server has no such list.

    Reading stops, with a note, at a repeated cursor, at a page that fails, and after too many pages or items. The items
    read so far are returned.

    Args:
        kind: The kind of the items, in the plural.
        read_page: Returns the page at a cursor, and the next cursor.
        key: Returns the identity of an item. Items of later pages with a known key are dropped.
        note: Is called with a note about each irregularity.

    Raises:
        mcp.MCPError, pydantic.ValidationError: The first page cannot be read.
    """
    from mcp import MCPError
    from mcp_types import METHOD_NOT_FOUND
    from pydantic import ValidationError

    items: list[Item] = []
    known: set[str] = set()
    cursors: set[str | None] = set()
    cursor: str | None = None
    while cursor not in cursors and len(cursors) < MAX_PAGES and len(items) < MAX_ITEMS:
        cursors.add(cursor)
        try:
            page, next_cursor = await read_page(cursor)
        except (MCPError, ValidationError) as error:
            if cursor is not None:
                note(f"not all pages of its {kind} can be read")
                return tuple(items)
            if isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND:
                return ()
            raise
        new_items = [item for item in page if key(item) not in known]
        items += new_items
        known.update(map(key, new_items))
        cursor = next_cursor or None
        if len(items) > MAX_ITEMS:
            note(f"it has more than {MAX_ITEMS:,} {kind}; the rest is left out")
            return tuple(items[:MAX_ITEMS])
        if cursor is None:
            return tuple(items)
    note(f"its list of {kind} has no end; {len(cursors)} pages were read")
    return tuple(items)


class ToolWatch:
    """Reads a server's tools again when it announces a change, in every protocol version.

    Up to 2025-11-25 announcements are ordinary notifications; since 2026-07-28 they arrive on a stream, which the
    client opens. Changes of other lists are recorded in `notifications`.
    """

    def __init__(self, note: AddNote, notifications: Notifications) -> None:
        self._note = note
        self._notifications = notifications
        self._has_read = False
        self._announced = Observable(0)
        """The number of announced changes."""
        self._read = Observable(0)
        """The value of `_announced` that the last tool list read includes."""
        self._announced_at = -math.inf

    async def read(self, client: Client) -> tuple[Tool, ...]:
        """Read the tools; raises as `list_tools` does."""
        tools = await list_tools(client, self._note)
        self._has_read = True
        return tools

    def mark_changed(self) -> None:
        """Record that the tools have changed, or may have changed."""
        if self._read.value == self._announced.value:
            self._announced_at = anyio.current_time()
        self._announced.set(self._announced.value + 1)

    def on_message(self, message: object) -> None:
        """Record the list change that a message announces, in any protocol version; ignore other messages."""
        match find_changed_list(message):
            case Listing.TOOLS:
                self.mark_changed()
            case Listing() as listing:
                self._notifications.mark_changed(listing)

    async def wait_until_read(self, within: float) -> None:
        """Wait until the tools were read again after every announced change.

        Returns at the latest `within` seconds after the announcement, so that a server that does not answer delays only
        one model call.
        """
        seconds = self._announced_at + within - anyio.current_time()
        await self._read.wait_until(lambda count: count == self._announced.value, seconds)

    async def refresh(self, client: Client, set_tools: Callable[[tuple[Tool, ...]], None]) -> None:
        """Read the tools again after each announcement, and pass them to `set_tools`. Runs until it is cancelled."""
        pause, last = DEBOUNCE, -math.inf
        while True:
            await self._announced.wait_until(lambda count: count > self._read.value)
            is_calm = anyio.current_time() - last > DEBOUNCE_MAX
            # A server that announces a change at each tools/list must not cause an endless loop of requests.
            pause = DEBOUNCE if is_calm else min(2 * pause, DEBOUNCE_MAX)
            await anyio.sleep(pause)
            count = self._announced.value
            last = anyio.current_time()
            with anyio.move_on_after(LIST_SECONDS):
                await self._read_again(client, set_tools)
            if self._announced.value == count:
                self._read.set(count)

    async def _read_again(self, client: Client, set_tools: Callable[[tuple[Tool, ...]], None]) -> None:
        from mcp import MCPError

        try:
            set_tools(await self.read(client))
        except (MCPError, ValueError, RuntimeError) as error:
            log.debug("tools_not_refreshed", error=type(error).__name__)

    async def listen(self, client: Client) -> None:
        """Keep the notification stream open, if the server has one. Runs until it is cancelled or refused."""
        from mcp import MCPError

        pause = LISTEN_PAUSE
        opened = False
        while True:
            try:
                async with client.listen(
                    tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
                ) as changes:
                    honored = changes.honored
                    if not (
                        honored.tools_list_changed or honored.prompts_list_changed or honored.resources_list_changed
                    ):
                        return
                    # Changes between reading the list and opening the stream are not announced.
                    self._notifications.mark_changed(Listing.RESOURCES, Listing.PROMPTS)
                    if self._has_read and honored.tools_list_changed:
                        self.mark_changed()
                    opened = True
                    async for event in changes:
                        pause = LISTEN_PAUSE
                        self.on_message(event)
            except (MCPError, ValueError, RuntimeError):
                if not opened:
                    return
            await anyio.sleep(pause)
            pause = min(2 * pause, LISTEN_PAUSE_MAX)


def has_list_changes(client: Client) -> bool:
    """Return True if a server of 2026-07-28 or later may announce changes of its lists."""
    server_capabilities = client.server_capabilities
    lists = (server_capabilities.tools, server_capabilities.resources, server_capabilities.prompts)
    announces = any(capability is not None and capability.list_changed for capability in lists)
    return is_modern(client.protocol_version) and (server_capabilities.tools is None or announces)
