"""The progress bar of `DialClient.map`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[bool], None]
"""Called at the end of each turn, with True if the turn failed."""


@contextmanager
def show_progress(total: int, *, is_shown: bool) -> Iterator[Advance]:
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
