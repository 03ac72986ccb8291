"""The start of a conversation: the banner, and the servers while they start."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from dial_client.cli.bootstrap import say_notes
from dial_client.cli.terminal import banner
from dial_client.cli.terminal.screen import Screen
from dial_client.client.dial_client import DialClient
from dial_client.servers.status import ServerState

StartUp = Callable[[DialClient], Coroutine[Any, Any, None]]
"""Waits for the servers of a client."""

LOOK = 0.1
"""Seconds between two looks at the servers that are starting."""


async def announce_servers(dial: DialClient) -> None:
    """Wait until the servers have started, and print what is wrong with them.

    Raises:
        ServerStartError: a required server did not start.
    """
    await dial.ready()
    say_notes(dial.notes)


async def show_servers(dial: DialClient, screen: Screen, *, quiet: bool) -> None:
    """Show which servers are starting, and what became of them; Enter lets a turn go on without them.

    Raises:
        ServerStartError: a required server did not start.
    """
    begun = time.monotonic()
    screen.on_enter = dial.skip_starting
    while starting := [name for name, status in dial.servers.items() if status.state is ServerState.STARTING]:
        screen.live.starting = dict.fromkeys(starting, begun)
        screen.live.settled = banner.settled_servers(dial.servers)
        await anyio.sleep(LOOK)
    screen.live.starting = {}
    if not quiet:
        screen.print_faint(banner.servers_line(dial.servers, len(dial.tools), screen.columns))
    await announce_servers(dial)
