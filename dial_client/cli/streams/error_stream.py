"""Lines of the program on standard error: errors, which look like errors, and what else a user has to know."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from functools import cache

from dial_client.cli.markdown.themes import choose_theme, style, understands_escapes
from dial_client.cli.streams.printed_streams import PrintedStream, discard
from dial_client.cli.streams.word_wrap import break_words
from dial_client.runtime.safe_text import to_one_line

LABEL = "error:"
# The maximum characters of an error, and of any other line.
_MAX_ERROR, _MAX_WARNING = 2_000, 600


def report_error(problem: str) -> None:
    """Print an error on standard error, with word wrap in a terminal.

    A terminal shows ``error: PROBLEM``, with a red label; elsewhere, where lines of several programs meet, the line
    begins with ``dial-chat: error:``.

    Args:
        problem: The error; untrusted text in it is escaped here.
    """
    shown = to_one_line(problem, _MAX_ERROR)
    if isinstance(sys.stderr, PrintedStream):
        sys.stderr.show_error(shown)
    elif not sys.stderr.isatty():
        print_to_stderr(f"dial-chat: {LABEL} {shown}")
    else:
        colour = choose_theme("auto", os.environ).error if understands_escapes(os.environ) else ""
        print_to_stderr(format_error(shown, shutil.get_terminal_size().columns, colour))


def format_error(problem: str, columns: int, colour: str) -> str:
    """Return an error, escaped already, with word wrap and with its label in a colour."""
    return f"{style(LABEL, colour)}{break_words(f'{LABEL} {problem}', columns).removeprefix(LABEL)}"


def print_notes(notes: Iterable[str]) -> None:
    """Print each note as a warning on standard error; a note that was printed before is skipped."""
    for note in notes:
        warn_once(note)


def warn(text: str) -> None:
    """Print one line on standard error."""
    print_to_stderr(f"dial-chat: {to_one_line(text, _MAX_WARNING)}")


@cache
def warn_once(text: str) -> None:
    """Print one line on standard error, but the same line only once in the life of the program."""
    warn(text)


def print_to_stderr(*lines: str) -> None:
    """Print lines on standard error, with word wrap in a terminal; a screen in the terminal wraps lines itself.

    Args:
        lines: The lines, escaped already.
    """
    line = "\n".join(lines)
    is_wrapped = sys.stderr.isatty() and not isinstance(sys.stderr, PrintedStream)
    shown = break_words(line, shutil.get_terminal_size().columns) if is_wrapped else line
    try:
        print(shown, file=sys.stderr, flush=True)
    except OSError:  # a full disk behind ``2>`` must not change the exit code
        discard(sys.stderr)
