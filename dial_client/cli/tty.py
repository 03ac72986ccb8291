"""Input from the person at the terminal: whether there is one, and the answer to a question."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import anyio

from dial_client.cli import process_runner
from dial_client.cli.cooked_line import moves_cursor, read_line

MAX_TYPED = 4096
"""Bytes of a line that is only waited for; a terminal has no longer ones."""


class Unanswered(Exception):
    """The person gave no answer; the text says how."""


class Asker(Protocol):
    """Asks for a line, where a screen has the terminal."""

    async def __call__(self, question: str, *, hidden: bool = False) -> str:
        """Return the line that is typed behind the question, or raise `Unanswered`."""


_asker: Asker | None = None


@contextmanager
def ask_through(asker: Asker) -> Iterator[None]:
    """Let `typed` ask through a screen for as long as the screen has the terminal."""
    global _asker  # noqa: PLW0603 - there is one terminal
    before, _asker = _asker, asker
    try:
        yield
    finally:
        _asker = before


def is_there() -> bool:
    """Return True if a person can see a question and answer it."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def can_wait_for_enter() -> bool:
    """Return True if Enter can be read beside other work. Behind a pipe a pager may read the same keys."""
    if sys.platform == "win32" or not is_there():
        return False
    return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)


async def wait_for_enter(hint: str) -> None:
    """Print a line that says what Enter does, and wait until the person presses it.

    Keys that were pressed before do not count.
    """
    _forget_what_was_typed()
    print(hint, file=sys.stderr, flush=True)
    keyboard = sys.stdin.fileno()
    await anyio.wait_readable(keyboard)
    os.read(keyboard, MAX_TYPED)


async def typed(question: str, *, hidden: bool = False) -> str:
    """Return the line that is typed behind a question; keys pressed before the question was shown are discarded.

    Args:
        question: to show, on one line.
        hidden: show no letter of the answer.

    Raises:
        Unanswered: Ctrl-D, or Ctrl-C, which has done what it always does.
    """
    if _asker is not None:
        return await _asker(question, hidden=hidden)
    _forget_what_was_typed()
    try:
        return (await _read_answer(question, hidden=hidden)).strip()
    except KeyboardInterrupt:
        process_runner.interrupts.interrupt()
        raise Unanswered("the user interrupted") from None
    except EOFError:
        raise Unanswered("the user did not answer") from None


async def _read_answer(question: str, *, hidden: bool) -> str:
    if not moves_cursor():
        return await read_line(question, sys.stderr, hidden=hidden)
    from prompt_toolkit import PromptSession
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.vt100 import Vt100_Output

    output = create_output(sys.stderr)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # a terminal that does not tell where its cursor is gets no warning about that
    session: PromptSession[str] = PromptSession(output=output)
    clear_typeahead(session.input)
    return await session.prompt_async(question, is_password=hidden, handle_sigint=False)


def _forget_what_was_typed() -> None:
    """Discard keys pressed before the question was shown. The Windows console buffers none in a line."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
