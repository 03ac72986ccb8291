"""Reports on the start of the servers: waits for the servers, reports on them, and prints their line of the banner."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import anyio

from dial_client.cli.markdown.themes import style
from dial_client.cli.streams import tty
from dial_client.cli.streams.error_stream import print_notes, warn_once
from dial_client.cli.terminal import banner
from dial_client.cli.terminal.console import LineConsole
from dial_client.cli.terminal.screen import Screen
from dial_client.client.dial_client import DialClient
from dial_client.messages.errors import DialError
from dial_client.runtime.safe_text import to_one_line
from dial_client.servers.server_notes import describe_failure
from dial_client.servers.status import ServerState

# Seconds before a line names the servers that are still starting, if there is no live area.
PATIENCE = 1.0

# Seconds before a line on standard error names the servers that are still starting.
NAMED_AFTER = 5.0

MAX_LINE = 300

# Waits for the servers of a client, and reports on them.
WaitForServers = Callable[[DialClient], Coroutine[Any, Any, None]]


def select_notes(dial: DialClient, notes: Sequence[str], *, quiet: bool) -> Sequence[str]:
    """Return the notes to print: a quiet program prints none of those on tools, which are no errors."""
    return [note for note in notes if note not in dial.tool_notes] if quiet else notes


async def announce_servers(
    dial: DialClient, *, quiet: bool, are_named: bool = True, print_line: Callable[[str], None] = warn_once
) -> None:
    """Wait until a turn can begin, name servers that take long to start, and print problems of servers.

    That a server has failed is printed at once, the other problems at the end.

    Args:
        dial: The client.
        quiet: Do not print that tools are left out or changed.
        are_named: Name the servers that take long; False if the screen names them.
        print_line: Prints a line, but the same line only once.

    Raises:
        ServerStartError: A required server did not start.
    """
    async with anyio.create_task_group() as group:
        group.start_soon(_follow_failures, dial, print_line)
        with suppress(DialError):  # raised again below, outside of the task group, which would wrap it
            with anyio.move_on_after(NAMED_AFTER):
                await dial.ready_for_turn()
            if are_named and (awaited := _describe_awaited(dial)):
                print_line(f"waiting for servers: {awaited}")
            await dial.ready_for_turn()
        group.cancel_scope.cancel()
    await dial.ready_for_turn()
    for note in select_notes(dial, dial.notes, quiet=quiet):
        print_line(note)


async def _follow_failures(dial: DialClient, print_line: Callable[[str], None]) -> None:
    while True:
        _print_failures(dial, print_line)
        await dial.wait_for_server_change()


def _print_failures(dial: DialClient, print_line: Callable[[str], None]) -> None:
    for status in dial.servers.values():
        if status.state is ServerState.FAILED:
            print_line(describe_failure(status))


def _describe_awaited(dial: DialClient) -> str:
    """Return the names of the servers that a turn waits for, with their downloads if known."""
    awaited = dial.awaited_servers.items()
    return ", ".join(f"{name} ({download})" if download else name for name, download in awaited)


async def show_servers(dial: DialClient, screen: Screen, *, quiet: bool) -> None:
    """Show the servers that are starting and their problems, then their states; Enter lets a turn begin without them.

    Raises:
        ServerStartError: A required server did not start.
    """
    screen.on_enter = dial.skip_starting

    def list_starting() -> list[str]:
        return [name for name, status in dial.servers.items() if status.state is ServerState.STARTING]

    await _show_starting(dial, screen, list_starting)
    print_notes(select_notes(dial, dial.notes, quiet=quiet))
    if not quiet:
        line = banner.format_servers_line(dial.servers, len(dial.tools), screen.columns)
        screen.print_prose(style(line, screen.theme.faint))
    await dial.ready_for_turn()


async def wait_for_servers(dial: DialClient, screen: Screen, *, quiet: bool) -> None:
    """Wait until the servers have started, or until Enter; show the servers that are starting, and their problems.

    Raises:
        ServerStartError: A required server did not start.
    """
    with anyio.CancelScope() as waiting:

        def stop_waiting() -> None:
            dial.skip_starting()
            waiting.cancel()

        screen.on_enter, screen.live.is_waiting = stop_waiting, True
        await _show_starting(dial, screen, lambda: [*dial.awaited_servers])
        await announce_servers(dial, quiet=quiet)
    screen.live.starting, screen.live.is_waiting = (), False


async def wait_for_servers_in_lines(dial: DialClient, *, quiet: bool) -> None:
    """Wait until the servers have started, or until Enter, and print problems of servers.

    Raises:
        ServerStartError: A required server did not start.
    """
    if not tty.can_wait_for_enter():
        await announce_servers(dial, quiet=quiet)
        return
    async with anyio.create_task_group() as group:
        group.start_soon(_skip_on_enter, dial, group.cancel_scope)
        with suppress(DialError):  # raised again below, outside of the task group, which would wrap it
            await announce_servers(dial, quiet=quiet, are_named=False)
        group.cancel_scope.cancel()
    await dial.ready_for_turn()


async def _skip_on_enter(dial: DialClient, waiting: anyio.CancelScope) -> None:
    await anyio.sleep(PATIENCE)
    if hint := _describe_skipping(dial):
        await tty.wait_for_enter(hint)
        dial.skip_starting()
        waiting.cancel()


async def follow_lines(dial: DialClient, console: LineConsole, print_line: Callable[[str], None]) -> None:
    """During an answer, read lines: Enter ends the wait for servers that are starting, and ``/now`` steers the turn.

    Args:
        dial: The client.
        console: The console that reads the lines.
        print_line: Prints a line that explains Enter.
    """
    if not tty.can_wait_for_enter():
        return
    async with anyio.create_task_group() as group:
        group.start_soon(console.follow_lines)
        with suppress(DialError), anyio.move_on_after(PATIENCE):  # the answer fails with the same error
            await dial.ready_for_turn()
        if hint := _describe_skipping(dial):
            print_line(hint)


def _describe_skipping(dial: DialClient) -> str:
    """Return the line that explains Enter; empty if the turn waits for no server."""
    awaited = _describe_awaited(dial)
    return to_one_line(f"starting: {awaited} · press Enter to continue without them", MAX_LINE) if awaited else ""


async def _show_starting(dial: DialClient, screen: Screen, find_names: Callable[[], list[str]]) -> None:
    screen.live.starting_since = time.monotonic()
    while starting := find_names():
        screen.live.starting = starting
        screen.live.settled = banner.format_settled_servers(dial.servers)
        screen.refresh()
        _print_failures(dial, warn_once)
        await dial.wait_for_server_change()
    screen.live.starting = ()
    screen.refresh()
