"""Standard output and standard error while the screen controls the terminal: complete lines go through the screen."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Protocol, TextIO


class Asker(Protocol):
    """Asks for a line while a screen controls the terminal."""

    async def __call__(self, question: str, *, hidden: bool = False) -> str:
        """Return the line that is typed after the question, or raise `tty.Unanswered`."""


class PrintedStream(io.TextIOBase):
    """A text stream that passes complete lines to `show`. Any thread may write to it.

    Args:
        stream: The stream that this one replaces.
        show: Is called with complete lines.
        show_error: Is called with the text of an error of the program, escaped already.
        show_progress: Is called with a line that replaces the last progress line; an empty line removes it.
        ask: Asks for a line.
    """

    def __init__(
        self,
        stream: TextIO,
        show: Callable[[str], None],
        show_error: Callable[[str], None],
        show_progress: Callable[[str], None],
        ask: Asker,
    ) -> None:
        super().__init__()
        self.show_error, self.show_progress, self.ask = show_error, show_progress, ask
        self._stream = stream
        self._show = show
        self._begun = ""
        self._lock = threading.Lock()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the encoding of a stream is never set
        """The encoding of the replaced stream."""
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        """Return True, because the screen is in a terminal."""
        return True

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor of the replaced stream."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Show the lines that `text` completes."""
        with self._lock:
            lines, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            self._show(lines + newline)
        return len(text)

    def flush(self) -> None:
        """Do nothing: a line is shown when it is complete."""

    def finish(self) -> None:
        """Show the incomplete last line, if there is one."""
        if self._begun:
            self.write("\n")


def discard(stream: TextIO) -> None:
    """Discard what is in the buffer of a stream, and all further output: it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_RDWR), stream.fileno())


@contextmanager
def redirect_prints(
    show: Callable[[str], None], show_error: Callable[[str], None], show_progress: Callable[[str], None], ask: Asker
) -> Iterator[None]:
    """Redirect standard output and standard error to a screen, and with them errors, progress and questions."""
    out, err = (PrintedStream(stream, show, show_error, show_progress, ask) for stream in (sys.stdout, sys.stderr))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            yield
    finally:
        out.finish()
        err.finish()
