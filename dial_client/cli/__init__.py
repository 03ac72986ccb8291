"""dial-chat: wiring only."""

from __future__ import annotations

import sys


def main() -> None:
    """Run ``dial-chat`` with the words of the command line, and exit with its code."""
    from dial_client.cli.commands import run

    sys.exit(run(sys.argv[1:]))
