"""The command ``dial-chat``. Only this package and `sinks.terminal` read from or print to a terminal.

``commands`` and the modules ``*_command`` define the commands and options; `typer_apps`, `command_line` and
`process_runner` choose and run a command. `bootstrap` and `client_start` read the configuration and open the client;
`one_shot` answers a single question, `repl` and `conversation_loop` hold a conversation. The modules
``configuration_*`` work on servers.json, ``trust*`` on its trust, ``model*`` on models; `tty` and `plain_screen` ask
questions. The folders are `chat_commands`, `completion`, `input`, `markdown`, `server_commands` and `terminal`.
"""

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
