"""Input from the user at the terminal: checks for a terminal, and reads answers to questions."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TextIO

import anyio

from dial_client.cli.markdown.themes import understands_escapes
from dial_client.cli.streams import process_runner
from dial_client.cli.streams.printed_streams import PrintedStream
from dial_client.cli.streams.word_wrap import break_words, find_terminal_width
from dial_client.messages.message import Part

# The maximum size of a line in bytes, which POSIX terminals enforce.
MAX_BYTES = 4096
# Seconds in which the next line of a pasted text arrives.
PASTE_SECONDS = 0.02
# The most seconds for which lines that are read together may go on.
LINES_SECONDS = 5.0


def can_move_cursor() -> bool:
    """Return False for a terminal that cannot move its cursor, such as one inside an editor."""
    return understands_escapes(os.environ)


async def read_line(prompt: str, output: TextIO, *, hidden: bool = False) -> str:
    """Return the next line, without its line break.

    Args:
        prompt: The text to print before the line.
        output: The stream of the terminal to write to.
        hidden: Do not echo the typed characters.

    Raises:
        EOFError: Ctrl-D in an empty line.
        KeyboardInterrupt: Ctrl-C.
    """
    output.write(prompt)
    output.flush()
    keyboard = sys.stdin.fileno()
    received = b""
    with _without_echo(keyboard, output) if hidden else nullcontext():
        while not received.endswith(b"\n"):
            with process_runner.interrupts.scope() as scope:
                await anyio.wait_readable(keyboard)
            if scope.cancelled_caught:
                output.write("\n")
                raise KeyboardInterrupt
            data = os.read(keyboard, MAX_BYTES)
            if not data:
                output.write("\n")
                if not received:
                    raise EOFError
                break  # Ctrl-D twice after some text, or the terminal was closed
            received += data
    return received.decode(errors="replace").rstrip("\r\n")


async def has_pasted_line() -> bool:
    """Return whether a further line arrives within `PASTE_SECONDS`: nobody types as fast. Ctrl-D is no line."""
    if sys.platform == "win32":
        return False
    import fcntl
    import termios

    with anyio.move_on_after(PASTE_SECONDS):
        await anyio.wait_readable(keyboard := sys.stdin.fileno())
        return any(fcntl.ioctl(keyboard, termios.FIONREAD, bytes(4)))
    return False


async def read_sent_lines() -> list[str | None]:
    """Return the next line as `read_sent_line` does, and the lines that arrive at once with it, as of a pasted text."""
    lines = [await read_sent_line()]
    with anyio.move_on_after(LINES_SECONDS, shield=True):  # a line that was read must not be lost
        while lines[-1] is not None and await has_pasted_line():
            lines.append(await read_sent_line())
    return lines


async def read_sent_line() -> str | None:
    """Return the next line of the terminal, without its line break; None for Ctrl-D. No prompt is printed."""
    keyboard = sys.stdin.fileno()
    await anyio.wait_readable(keyboard)
    while not _is_in_foreground(keyboard):  # the line is for the shell; to read it would stop the program
        await anyio.sleep(1)
        await anyio.wait_readable(keyboard)
    data = os.read(keyboard, MAX_BYTES)
    if data in (b"", b"\x04"):  # the character itself, if Ctrl-D was pressed before the terminal edits lines again
        return None
    return data.decode(errors="replace").rstrip("\r\n")


def _is_in_foreground(keyboard: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        return os.tcgetpgrp(keyboard) == os.getpgrp()
    except OSError:  # not the terminal that controls this program: there is no background
        return True


@contextmanager
def _without_echo(keyboard: int, output: TextIO) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    import termios

    terminal_modes = termios.tcgetattr(keyboard)
    silent = [*terminal_modes]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(keyboard, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, terminal_modes)
        output.write("\n")
        output.flush()


@dataclass(frozen=True, slots=True)
class UserInput:
    """One input, as it was sent."""

    text: str
    """The whole text, including pasted text."""
    shown: str
    """The text as the input line showed it, with long pasted text folded: ``[pasted 200 lines]``."""
    typed: str
    """The text without pasted text: only typed text can refer to files, resources and commands."""
    attachments: tuple[Part, ...] = ()
    """Parts to attach in addition to those that `typed` refers to, such as the output of a shell command."""


class Unanswered(Exception):
    """The user gave no answer; the message tells why."""


class Escaped(Unanswered):
    """The user pressed Esc in a line that answers a question."""


def can_ask_user() -> bool:
    """Return True if a user can see a question and answer it."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def can_wait_for_enter() -> bool:
    """Return True if Enter can be read during other work. If output goes to a pipe, a pager may read the keys."""
    if sys.platform == "win32" or not can_ask_user():
        return False
    return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)


async def wait_for_enter(hint: str) -> None:
    """Print a line that explains Enter, and wait until the user presses it.

    Keys that were pressed before are discarded.
    """
    _discard_typed_keys()
    print(hint, file=sys.stderr, flush=True)
    await read_sent_line()


async def ask_for_line(question: str, *, hidden: bool = False) -> str:
    """Return the line that is typed after a question; keys pressed before the question was shown are discarded.

    Args:
        question: The question, in one line.
        hidden: Do not show the typed characters.

    Raises:
        Unanswered: The user pressed Ctrl-D; or Ctrl-C, which also interrupts as usual.
    """
    if isinstance(sys.stderr, PrintedStream):
        return await sys.stderr.ask(question, hidden=hidden)
    _discard_typed_keys()
    if (columns := find_terminal_width(sys.stderr)) is not None:
        question = break_words(question, columns)
    try:
        return (await _read_answer(question, hidden=hidden)).strip()
    except KeyboardInterrupt:
        process_runner.interrupts.interrupt()
        raise Unanswered("the user interrupted") from None
    except EOFError:
        raise Unanswered("the user did not answer") from None


async def ask_or_skip(question: str) -> str:
    """Return the line that is typed after a question, as `ask_for_line` does; empty if the user gives no answer."""
    try:
        return await ask_for_line(question)
    except Unanswered:
        return ""


async def user_agrees(question: str) -> bool:
    """Return True if the user answers a question with yes."""
    return (await ask_or_skip(f"{question} [y]es, [n]o: ")).lower() in ("y", "yes")


async def _read_answer(question: str, *, hidden: bool) -> str:
    if not can_move_cursor():
        return await read_line(question, sys.stderr, hidden=hidden)
    from prompt_toolkit import PromptSession
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.vt100 import Vt100_Output

    output = create_output(sys.stderr)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # no warning on a terminal that does not report its cursor position
    session: PromptSession[str] = PromptSession(output=output)
    clear_typeahead(session.input)
    return await session.prompt_async(question, is_password=hidden, handle_sigint=False)


def _discard_typed_keys() -> None:
    """Discard keys pressed before the question was shown. The Windows console needs no flush."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
