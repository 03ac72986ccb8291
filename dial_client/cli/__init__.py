"""The command ``dial-chat``. Nothing else of the package prints or reads a terminal."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run ``dial-chat`` with the arguments of the command line, and exit with its code."""
    # What is made in the first second is mostly modules, which live for ever: not worth looking through many times.
    gc.set_threshold(100_000, 50, 50)
    from dial_client.cli.commands import run

    sys.exit(run(sys.argv[1:]))
