"""All the tools of one server, however many pages they fill, and again whenever the server says that they changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from dial_client.logs import get_logger

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool

log = get_logger(__name__)

MAX_PAGES = 100
DEBOUNCE = 0.1
"""Seconds between the news of a change and reading the tools anew; doubled while the news does not stop."""
DEBOUNCE_MAX = 10.0
LIST_SECONDS = 30.0
"""Seconds for reading all pages anew."""
LISTEN_PAUSE = 1.0
"""Seconds before a lost stream of changes is opened again; doubled up to `LISTEN_PAUSE_MAX`."""
LISTEN_PAUSE_MAX = 60.0

Note = Callable[[str], None]


async def list_tools(client: Client, note: Note) -> tuple[Tool, ...]:
    """Read every page of ``tools/list``, in the server's order; none for a server that has no tools.

    A cursor that repeats, too many pages and a page that fails end the list, with a note; what was read is kept.

    Raises:
        mcp.MCPError, pydantic.ValidationError: the first page cannot be read.
    """
    from mcp import MCPError
    from mcp_types import METHOD_NOT_FOUND
    from pydantic import ValidationError

    tools: list[Tool] = []
    cursors: set[str | None] = set()
    cursor: str | None = None
    while cursor not in cursors and len(cursors) < MAX_PAGES:
        cursors.add(cursor)
        try:
            page = await client.list_tools(cursor=cursor)
        except (MCPError, ValidationError) as error:
            if cursor is not None:
                note("not all pages of its tools can be read")
                return tuple(tools)
            if isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND:
                return ()
            raise
        before = {tool.name for tool in tools}
        tools += [tool for tool in page.tools if tool.name not in before]
        cursor = page.next_cursor or None
        if cursor is None:
            return tuple(tools)
    note(f"its list of tools has no end; {len(cursors)} pages were read")
    return tuple(tools)


class ToolWatch:
    """Reads a server's tools anew when there is news of a change, in both eras of the protocol.

    Up to 2025-11-25 the news comes by itself; from 2026-07-28 on it has to be listened for.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._was_read = False
        self._news = anyio.Event()
        self._settled = anyio.Event()
        self._settled.set()

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

    async def settled(self, within: float) -> None:
        """Wait until the tools that are known are those the server last gave news of, at most `within` seconds."""
        with anyio.move_on_after(within):
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
                async with client.listen(tools_list_changed=True) as changes:
                    if not changes.honored.tools_list_changed:
                        return
                    if self._was_read:
                        self.news()  # nobody tells what changed between the reading and now
                    opened = True
                    async for _ in changes:
                        pause = LISTEN_PAUSE
                        self.news()
            except (MCPError, ValueError, RuntimeError):
                if not opened:
                    return
            await anyio.sleep(pause)
            pause = min(2 * pause, LISTEN_PAUSE_MAX)


def has_changes_to_tell(client: Client) -> bool:
    """Whether to listen for changes: a server of 2026-07-28 that does not say that it has none to tell."""
    tools = client.server_capabilities.tools
    return is_modern(client.protocol_version) and (tools is None or bool(tools.list_changed))


def is_modern(version: str | None) -> bool:
    """Whether this protocol version has neither handshake nor sessions (2026-07-28 and later)."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    return version in MODERN_PROTOCOL_VERSIONS
