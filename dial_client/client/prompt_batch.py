"""The turns of `DialClient.map`: several at the same time, with a progress bar."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio

from dial_client.messages.message import Message
from dial_client.messages.turn_result import Turn

# Called at the end of each turn, with True if the turn failed.
Advance = Callable[[bool], None]


async def run_each(
    conversations: Sequence[tuple[Message, ...]],
    run: Callable[[tuple[Message, ...]], Awaitable[Turn[Any]]],
    concurrency: int,
    *,
    is_progress_shown: bool,
) -> list[Turn[Any] | Exception]:
    """Run a turn for each conversation, and return the turns in the same order, or their errors.

    Args:
        conversations: The conversations.
        run: Runs one turn.
        concurrency: The most turns that run at the same time.
        is_progress_shown: True to show a progress bar on standard error.
    """
    results: dict[int, Turn[Any] | Exception] = {}
    waiting = iter(enumerate(conversations))

    async def run_next(advance: Advance) -> None:
        for index, conversation in waiting:
            try:
                results[index] = await run(conversation)
            except Exception as error:  # noqa: BLE001 - an error of one turn is the result of that turn
                results[index] = error
            advance(isinstance(results[index], Exception))

    with _show_progress(len(conversations), is_shown=is_progress_shown) as advance:
        async with anyio.create_task_group() as group:
            for _ in range(min(concurrency, len(conversations))):
                group.start_soon(run_next, advance)
    return [results[index] for index in range(len(conversations))]


@contextmanager
def _show_progress(total: int, *, is_shown: bool) -> Iterator[Advance]:
    """Show on standard error how many of `total` turns have ended, and how many of them failed.

    If standard error is not a terminal, only the last state is printed.
    """
    if not is_shown:
        yield lambda failed: None  # noqa: ARG005 - nothing is shown
        return
    from rich import progress
    from rich.console import Console

    failures = 0
    columns = (
        progress.TextColumn("turns"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[failed]}"),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, failed="")

        def advance(failed: bool) -> None:  # noqa: FBT001 - the only argument, of a function of this module alone
            nonlocal failures
            failures += failed
            bar.update(task, advance=1, failed=f"{failures} failed" if failures else "")

        yield advance
