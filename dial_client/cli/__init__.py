"""The command ``dial-chat``. Only this package and `sinks.terminal` read from or print to a terminal.

    commands      the commands, their options, help, and completion in the shell
    chat          conversations and single questions; `chat.slash_commands` lists the commands that begin with ``/``
    servers       adds, tests and lists servers, and logs in to them
    models        finds, lists and tests models
    doctor        checks of an installation
    input         the input line: keys, history, ``@path``, ``!command``
    markdown      Markdown in the terminal
    terminal      the screen

`process_runner` runs a command (`process_one` as the first process of a container), `load_settings` reads the
configuration, `open_client` opens the client. The modules `configuration_files` and `changed_config` work on
servers.json, `trust_review`, `trust_summary` and `trust_prompt` on its trust; `tty` and `command_screen` ask questions;
`error_stream` prints errors and warnings.
"""

from __future__ import annotations

import gc
import os
import sys

# The environment variable by which the scripts of shells request candidates; its value is the name of the shell.
COMPLETION_VARIABLE = "_DIAL_CHAT_COMPLETE"


def main() -> None:
    """Run ``dial-chat`` with the arguments of the command line, and exit with its code."""
    if os.getpid() == 1:
        from dial_client.cli.process_one import run_in_child

        run_in_child()
    _replace_closed_streams()
    # Most objects made at start-up belong to modules and are never freed: frequent garbage collections would be wasted.
    gc.set_threshold(100_000, 50, 50)
    if shell := os.environ.pop(COMPLETION_VARIABLE, ""):
        from dial_client.cli.commands import program_commands  # noqa: F401 - it registers the commands
        from dial_client.cli.commands.shell_completion import print_candidates

        sys.exit(print_candidates(shell, sys.argv[1:]))
    try:
        from dial_client.cli.commands.program_commands import run

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:  # while modules are loaded: from then on the command handles the signal
        from dial_client.cli.options import ExitCode

        code = ExitCode.INTERRUPTED
    except RuntimeError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        from dial_client.cli.options import ExitCode

        code = ExitCode.INTERRUPTED  # Python 3.11 wraps what is raised while a class is made
    except OSError as error:  # such as a full disk behind ``>``
        from dial_client.cli.streams.process_runner import complain_about_output

        code = complain_about_output(error)
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Open the standard streams that are closed (``>&-``), which are None: reading ends at once, and writing fails.

    Without this, the next file that is opened would have the number of the stream, and get its text.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # Writing to a file that is open for reading fails, as it does in other programs.
            opened = os.open(os.devnull, os.O_RDONLY if name != "stderr" else os.O_WRONLY)
            if opened != number:
                os.dup2(opened, number)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115, PTH123
