"""The two Typer applications, and how a command of either is run."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import typer

from dial_client.cli.options import Options

SETTINGS = {"help_option_names": ["-h", "--help"]}

talk = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
"""The chat itself."""
more = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
"""The commands beside the chat."""


@more.callback()
def _more() -> None:
    """The commands beside the chat."""


def run_command(choose: Callable[[], Callable[[], Awaitable[int]]], options: Options) -> None:
    """Run the coroutine that `choose` returns, and exit with its code. `choose` imports what the command needs."""
    from dial_client.cli.process_runner import run_to_exit_code

    code = run_to_exit_code(choose, logs=options.logs)
    sys.stdout.flush()
    raise typer.Exit(code)
