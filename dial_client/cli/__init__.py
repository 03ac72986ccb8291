"""The command ``dial-chat``. Only it and `sinks.terminal` read from or print to a terminal."""

from __future__ import annotations

import gc
import os
import sys

from dial_client.cli.completion import VARIABLE


def main() -> None:
    """Run ``dial-chat`` with the arguments of the command line, and exit with its code."""
    # Most objects made at start-up belong to modules and are never freed: frequent garbage collections would be wasted.
    gc.set_threshold(100_000, 50, 50)
    if shell := os.environ.pop(VARIABLE, ""):
        from dial_client.cli import commands as registered  # noqa: F401 - it registers the commands
        from dial_client.cli.completion.candidates import print_candidates

        sys.exit(print_candidates(shell, sys.argv[1:]))
    from dial_client.cli.commands import run

    sys.exit(run(sys.argv[1:]))
