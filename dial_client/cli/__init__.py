"""The command ``dial-chat``. Only this package and `sinks.terminal` read from or print to a terminal.

    commands      the commands, their options, help, and completion in the shell
    chat          conversations and single questions; `chat.slash_commands` lists the commands that begin with ``/``
    servers       adds, tests and lists servers, and logs in to them
    models        finds, lists and tests models
    doctor        checks of an installation
    input         the input line: keys, history, ``@path``, ``!command``
    markdown      Markdown in the terminal
    terminal      the screen

`process_runner` runs a command, `load_settings` reads the configuration, `open_client` opens the client. The modules
`configuration_files` and `changed_config` work on servers.json, `trust_prompt` on its trust; `tty` and `command_screen`
ask questions.
"""

from __future__ import annotations

import gc
import os
import sys

# The environment variable by which the scripts of shells request candidates; its value is the name of the shell.
COMPLETION_VARIABLE = "_DIAL_CHAT_COMPLETE"


def main() -> None:
    """Run ``dial-chat`` with the arguments of the command line, and exit with its code."""
    # Most objects made at start-up belong to modules and are never freed: frequent garbage collections would be wasted.
    gc.set_threshold(100_000, 50, 50)
    if shell := os.environ.pop(COMPLETION_VARIABLE, ""):
        from dial_client.cli.commands import program_commands  # noqa: F401 - it registers the commands
        from dial_client.cli.commands.shell_completion import print_candidates

        sys.exit(print_candidates(shell, sys.argv[1:]))
    from dial_client.cli.commands.program_commands import run

    sys.exit(run(sys.argv[1:]))
