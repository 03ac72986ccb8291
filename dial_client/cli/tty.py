"""Input from the person at the terminal: whether there is one, and the answer to a question."""

from __future__ import annotations

import sys

from dial_client.cli import process_runner


class Unanswered(Exception):
    """The person gave no answer; the text says how."""


def is_there() -> bool:
    """Return True if a person can see a question and answer it."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def typed(question: str, *, hidden: bool = False) -> str:
    """Return the line that is typed behind a question; keys pressed before the question was shown are discarded.

    Args:
        question: to show, on one line.
        hidden: show no letter of the answer.

    Raises:
        Unanswered: Ctrl-D, or Ctrl-C, which has done what it always does.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.output import create_output

    session: PromptSession[str] = PromptSession(output=create_output(sys.stderr))
    _forget_what_was_typed()
    clear_typeahead(session.input)
    try:
        answer = await session.prompt_async(question, is_password=hidden, handle_sigint=False)
    except KeyboardInterrupt:
        process_runner.interrupts.interrupt()
        raise Unanswered("the user interrupted") from None
    except EOFError:
        raise Unanswered("the user did not answer") from None
    return answer.strip()


def _forget_what_was_typed() -> None:
    """Discard keys pressed before the question was shown. The Windows console buffers none in a line."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
