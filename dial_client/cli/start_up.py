"""The start of a conversation: the banner, and the servers while they start."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import anyio

from dial_client.cli import tty
from dial_client.cli.bootstrap import warn_once
from dial_client.cli.terminal import banner
from dial_client.cli.terminal.console import LineConsole
from dial_client.cli.terminal.screen import Screen
from dial_client.client.dial_client import DialClient
from dial_client.errors import DialError
from dial_client.servers.status import ServerState
from dial_client.text.safe_text import one_line

PATIENCE = 1.0
"""Seconds that servers may take to start before a line names them, where no live area does."""

NAMED_AFTER = 5.0
"""Seconds that servers may take to start before a line of standard error names them."""

MAX_LINE = 300

StartUp = Callable[[DialClient], Coroutine[Any, Any, None]]
"""Waits for the servers of a client."""


async def need_no_key(dial: DialClient) -> None:
    """Do nothing beside an answer: Enter is read already."""


async def announce_servers(dial: DialClient, *, are_named: bool = True, say: Callable[[str], None] = warn_once) -> None:
    """Wait until a turn can begin, say which servers are awaited for long, and print what is wrong with them.

    Args:
        dial: the client.
        are_named: False where something else names the servers that are awaited.
        say: prints a line.

    Raises:
        ServerStartError: a required server did not start.
    """
    with anyio.move_on_after(NAMED_AFTER):
        await dial.ready_for_turn()
    if are_named and (awaited := _describe_awaited(dial)):
        say(f"waiting for servers: {awaited}")
    await dial.ready_for_turn()
    for note in dial.notes:
        say(note)


async def announce_servers_in_lines(
    dial: DialClient, console: LineConsole, *, say: Callable[[str], None], say_servers: Callable[[str], None] | None
) -> None:
    """Do as `announce_servers`, and then say how many servers are in each state. Enter lets a turn go on without them.

    Args:
        dial: the client.
        console: where the person types.
        say: prints a warning.
        say_servers: prints the line of the banner; None for none.

    Raises:
        ServerStartError: a required server did not start.
    """
    console.on_enter = dial.skip_starting
    await announce_servers(dial, say=say)
    if say_servers is not None:
        say_servers(banner.servers_line(dial.servers, len(dial.tools), banner.UNCUT))


def _describe_awaited(dial: DialClient) -> str:
    """Return the names of the servers that are awaited, with the downloads that are known."""
    awaited = dial.awaited_servers.items()
    return ", ".join(f"{name} ({download})" if download else name for name, download in awaited)


async def show_servers(dial: DialClient, screen: Screen, *, quiet: bool) -> None:
    """Show which servers are starting, and what became of them; Enter lets a turn go on without them.

    Raises:
        ServerStartError: a required server did not start.
    """
    screen.on_enter = dial.skip_starting
    await _show_starting(dial, screen, lambda: _names_of_starting(dial))
    if not quiet:
        screen.print_faint(banner.servers_line(dial.servers, len(dial.tools), screen.columns))
    await announce_servers(dial)


async def wait_for_servers(dial: DialClient, screen: Screen) -> None:
    """Wait until the servers have started, or until Enter; show which are starting, and what is wrong with them.

    Raises:
        ServerStartError: a required server did not start.
    """
    with anyio.CancelScope() as waiting:

        def go_on() -> None:
            dial.skip_starting()
            waiting.cancel()

        screen.on_enter, screen.live.is_waiting = go_on, True
        await _show_starting(dial, screen, lambda: [*dial.awaited_servers])
        await announce_servers(dial)
    screen.live.starting, screen.live.is_waiting = {}, False


async def wait_for_servers_in_lines(dial: DialClient) -> None:
    """Wait until the servers have started, or until Enter, and print what is wrong with them.

    Raises:
        ServerStartError: a required server did not start.
    """
    if not tty.can_wait_for_enter():
        await announce_servers(dial)
        return
    failures: list[DialError] = []
    async with anyio.create_task_group() as group:
        group.start_soon(_skip_on_enter, dial, group.cancel_scope)
        try:
            await announce_servers(dial, are_named=False)
        except DialError as error:
            failures.append(error)  # carried out of the task group, which would wrap it
        group.cancel_scope.cancel()
    if failures:
        raise failures[0]


async def _skip_on_enter(dial: DialClient, waiting: anyio.CancelScope) -> None:
    await anyio.sleep(PATIENCE)
    if hint := _describe_skipping(dial):
        await tty.wait_for_enter(hint)
        dial.skip_starting()
        waiting.cancel()


async def skip_on_enter_in_lines(dial: DialClient, console: LineConsole, say: Callable[[str], None]) -> None:
    """Let an answer go on without the servers that are starting when the person presses Enter.

    Args:
        dial: the client.
        console: where the person types.
        say: prints a line that says what Enter does.
    """
    if not dial.awaited_servers or not tty.can_wait_for_enter():
        return
    async with anyio.create_task_group() as group:

        async def wait_for_enter() -> None:
            await console.wait_for_enter()
            dial.skip_starting()

        group.start_soon(wait_for_enter)
        with anyio.move_on_after(PATIENCE):
            await dial.ready_for_turn()
        if hint := _describe_skipping(dial):
            say(hint)
        with suppress(DialError):  # the answer ends with it
            await dial.ready_for_turn()
        group.cancel_scope.cancel()


def _describe_skipping(dial: DialClient) -> str:
    """Return the line that says what Enter does; empty where no server is awaited."""
    awaited = _describe_awaited(dial)
    return one_line(f"starting: {awaited} · Enter goes on without", MAX_LINE) if awaited else ""


def _names_of_starting(dial: DialClient) -> list[str]:
    return [name for name, status in dial.servers.items() if status.state is ServerState.STARTING]


async def _show_starting(dial: DialClient, screen: Screen, find_names: Callable[[], list[str]]) -> None:
    begun = time.monotonic()
    while starting := find_names():
        screen.live.starting = dict.fromkeys(starting, begun)
        screen.live.settled = banner.settled_servers(dial.servers)
        screen.refresh()
        await dial.wait_for_server_change()
    screen.live.starting = {}
    screen.refresh()
