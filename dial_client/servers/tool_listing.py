"""All a server lists, however many pages it fills; its tools again whenever the server says that they changed."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import anyio

from dial_client.logs import get_logger
from dial_client.servers.notifications import Listing, Notifications, changed_list
from dial_client.servers.protocol_versions import is_modern

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool

log = get_logger(__name__)

MAX_PAGES = 100
MAX_ITEMS = 10_000
DEBOUNCE = 0.1
"""Seconds between the news of a change and reading the tools anew; doubled while the news does not stop."""
DEBOUNCE_MAX = 10.0
LIST_SECONDS = 30.0
"""Seconds for reading all pages anew."""
LISTEN_PAUSE = 1.0
"""Seconds before a lost stream of changes is opened again; doubled up to `LISTEN_PAUSE_MAX`."""
LISTEN_PAUSE_MAX = 60.0

Note = Callable[[str], None]
Item = TypeVar("Item")


async def list_tools(client: Client, note: Note) -> tuple[Tool, ...]:
    """Read every page of ``tools/list``; as `all_pages`."""

    async def page(cursor: str | None) -> tuple[Sequence[Tool], str | None]:
        read = await client.list_tools(cursor=cursor)
        return read.tools, read.next_cursor

    return await all_pages("tools", page, lambda tool: tool.name, note)


async def all_pages(
    what: str,
    page: Callable[[str | None], Awaitable[tuple[Sequence[Item], str | None]]],
    key: Callable[[Item], str],
    note: Note,
) -> tuple[Item, ...]:
    """Read every page of a list, in the server's order; none where a server has no such list.

    A cursor that repeats, too many pages or items, and a page that fails end the list, with a note; what was read is
    kept.

    Args:
        what: is listed, in the plural.
        page: reads the page of a cursor, and gives the next cursor with it.
        key: what an item is known by; of those with the same one the first page's count.
        note: hears what is odd.

    Raises:
        mcp.MCPError, pydantic.ValidationError: the first page cannot be read.
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
            more, following = await page(cursor)
        except (MCPError, ValidationError) as error:
            if cursor is not None:
                note(f"not all pages of its {what} can be read")
                return tuple(items)
            if isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND:
                return ()
            raise
        new = [item for item in more if key(item) not in known]
        items += new
        known.update(map(key, new))
        cursor = following or None
        if len(items) > MAX_ITEMS:
            note(f"it has more than {MAX_ITEMS:,} {what}; the rest is left out")
            return tuple(items[:MAX_ITEMS])
        if cursor is None:
            return tuple(items)
    note(f"its list of {what} has no end; {len(cursors)} pages were read")
    return tuple(items)


class ToolWatch:
    """Reads a server's tools anew when there is news of a change, in both eras of the protocol.

    Up to 2025-11-25 the news comes by itself; from 2026-07-28 on it has to be listened for. That of other lists is
    passed on.
    """

    def __init__(self, note: Note, news: Notifications) -> None:
        self._note = note
        self._others = news
        self._was_read = False
        self._news = anyio.Event()
        self._settled = anyio.Event()
        self._settled.set()
        self._news_at = -math.inf

    async def read(self, client: Client) -> tuple[Tool, ...]:
        """Read the tools; raises as `list_tools`."""
        tools = await list_tools(client, self._note)
        self._was_read = True
        return tools

    def news(self) -> None:
        """Take note that the tools changed, or may have."""
        self._news.set()
        if self._settled.is_set():
            self._settled = anyio.Event()
            self._news_at = anyio.current_time()

    def on_message(self, message: object) -> None:
        """Take note of a message, of either era, that may be news of a list."""
        match changed_list(message):
            case Listing.TOOLS:
                self.news()
            case Listing() as other:
                self._others.mark_changed(other)

    async def wait_until_read(self, within: float) -> None:
        """Wait until the tools that are known are those the server last gave news of.

        Ends at the latest `within` seconds behind the news: a server that does not answer must not hold up every round.
        """
        with anyio.CancelScope(deadline=self._news_at + within):
            await self._settled.wait()

    async def refresh(self, client: Client, offer: Callable[[tuple[Tool, ...]], None]) -> None:
        """Read the tools anew whenever there is news, and give them to `offer`. Runs until it is cancelled."""
        pause, last = DEBOUNCE, -math.inf
        while True:
            await self._news.wait()
            calm = anyio.current_time() - last > DEBOUNCE_MAX
            # A server that announces a change whenever it is asked for its tools must not keep us busy.
            pause = DEBOUNCE if calm else min(2 * pause, DEBOUNCE_MAX)
            await anyio.sleep(pause)
            self._news = anyio.Event()
            last = anyio.current_time()
            with anyio.move_on_after(LIST_SECONDS):
                await self._read_anew(client, offer)
            if not self._news.is_set():
                self._settled.set()

    async def _read_anew(self, client: Client, offer: Callable[[tuple[Tool, ...]], None]) -> None:
        from mcp import MCPError

        try:
            offer(await self.read(client))
        except (MCPError, ValueError, RuntimeError) as error:
            log.debug("tools_not_refreshed", error=type(error).__name__)

    async def listen(self, client: Client) -> None:
        """Hold the stream of changes open, where the server has one. Runs until it is cancelled or refused."""
        from mcp import MCPError

        pause = LISTEN_PAUSE
        opened = False
        while True:
            try:
                async with client.listen(
                    tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
                ) as changes:
                    told = changes.honored
                    if not (told.tools_list_changed or told.prompts_list_changed or told.resources_list_changed):
                        return
                    # Nobody tells what changed between the reading and now.
                    self._others.mark_changed(Listing.RESOURCES, Listing.PROMPTS)
                    if self._was_read and told.tools_list_changed:
                        self.news()
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
    """Whether to listen for changes: a server of 2026-07-28 that does not say that it has none to tell."""
    has = client.server_capabilities
    told = any(one is not None and one.list_changed for one in (has.tools, has.resources, has.prompts))
    return is_modern(client.protocol_version) and (has.tools is None or told)
