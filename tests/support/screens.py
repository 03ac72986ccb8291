"""dial-chat in a terminal whose screen can be read: a pseudo-terminal, and an emulator that draws what is written."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyte
import pytest

from tests.inner import count_cells
from tests.support.program import LONG, environment, start_dial_chat

pty: Any = pytest.importorskip("pty", reason="Windows has no pseudo-terminals of this kind")
termios: Any = pytest.importorskip("termios")

COLOURS = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")
"""A pattern of the escape sequences that set the colour of text or of its background."""


STATUS = re.compile(r"(^| · )mode (ask|read|plan|auto)( · | \(Shift-Tab\)|$)")


class WatchedScreen(pyte.HistoryScreen):
    """A screen that keeps what the terminal broke at its right edge, instead of the program."""

    def __init__(self, columns: int, rows: int, history: int) -> None:
        self.overrun: list[str] = []
        super().__init__(columns, rows, history=history)

    def draw(self, data: str) -> None:
        room = self.columns - self.cursor.x
        if len(data) * 2 > room and count_cells(data) > room and pyte.modes.DECAWM in self.mode:
            self.overrun.append(data)
        super().draw(data)


class ScreenReader:
    """What a person at a terminal sees and does."""

    patience = LONG
    """Seconds that something may take to appear."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes], columns: int, rows: int) -> None:
        self.process = process
        self.raw = b""
        self.recorded: list[tuple[float, bytes]] = []
        self._descriptor = descriptor
        self._screen = WatchedScreen(columns, rows, history=5_000)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def size(self) -> tuple[int, int]:
        """The columns and rows of the terminal."""
        return self._screen.columns, self._screen.lines

    @property
    def overrun(self) -> list[str]:
        """What was written past the right edge, and so broken anywhere by the terminal."""
        return self._screen.overrun

    @property
    def cursor_row(self) -> int:
        """The row of the cursor, from 0."""
        return int(self._screen.cursor.y)

    @property
    def lines(self) -> list[str]:
        """The rows of the screen above the status line, without those at its end that are empty."""
        rows = self._all_lines
        if rows and STATUS.search(rows[-1]):
            rows.pop()
        return _without_empty_end(rows)

    @property
    def status(self) -> str:
        """The status line; empty if there is none."""
        rows = self._all_lines
        return rows[-1] if rows and STATUS.search(rows[-1]) else ""

    @property
    def _all_lines(self) -> list[str]:
        return _without_empty_end([row.rstrip() for row in self._screen.display])

    @property
    def text(self) -> str:
        """Everything that was printed: what has left the screen at its top, and the screen."""
        above = ("".join(row[at].data for at in sorted(row)).rstrip() for row in self._screen.history.top)
        return "\n".join([*above, *self.lines])

    def cells(self) -> tuple[list[dict[int, Any]], int]:
        """The rows with the style of each cell, and the number of columns."""
        return [self._screen.buffer[row] for row in range(len(self._all_lines))], self._screen.columns

    def until(self, text: str, count: int = 1) -> str:
        """Read until a text has appeared so often, and return everything that was printed."""
        end = time.monotonic() + self.patience
        while self.text.count(text) < count:
            if time.monotonic() > end or not self._read():
                raise AssertionError(f"{text!r} did not appear {count} times:\n{self.text}")
        return self.text

    def until_true(self, is_true: Callable[[], bool], about: str) -> None:
        """Read until something is true of the screen."""
        end = time.monotonic() + self.patience
        while not is_true():
            if time.monotonic() > end or not self._read():
                raise AssertionError(f"{about}:\n{self.recent()}")

    def recent(self, rows: int = 300) -> str:
        """The last rows that have left the screen at its top, and the screen."""
        above = list(self._screen.history.top)[-rows:]
        return "\n".join([*("".join(row[at].data for at in sorted(row)).rstrip() for row in above), *self.lines])

    def until_last(self, text: str) -> None:
        """Read until the last row begins with a text."""
        end = time.monotonic() + self.patience
        while not self.lines or not self.lines[-1].startswith(text):
            if time.monotonic() > end or not self._read():
                raise AssertionError(f"{text!r} did not become the last row:\n{self.text}")

    def until_gone(self, text: str) -> str:
        """Read until a text is no longer on the screen."""
        end = time.monotonic() + self.patience
        while any(text in line for line in self.lines):
            if time.monotonic() > end or not self._read():
                raise AssertionError(f"{text!r} did not vanish:\n{self.text}")
        return self.text

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def write(self, keys: str) -> None:
        """Type many keys, and read meanwhile: neither side may wait for the other."""
        left = keys.encode()
        while left:
            if select.select([], [self._descriptor], [], 0.01)[1]:
                left = left[os.write(self._descriptor, left[:1024]) :]
            self._read(0)

    def is_raw(self) -> bool:
        """Whether the terminal passes on each key, and shows none by itself."""
        flags = termios.tcgetattr(self._descriptor)[3]
        return not flags & (termios.ICANON | termios.ECHO)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        termios.tcsetwinsize(self._descriptor, (rows, columns))
        self.process.send_signal(signal.SIGWINCH)

    def is_echoing(self) -> bool:
        """Whether the terminal is as it was: it shows what is typed."""
        return bool(termios.tcgetattr(self._descriptor)[3] & termios.ECHO)

    def leave(self) -> int:
        """Read on until the program has ended, and return its exit code."""
        end = time.monotonic() + self.patience
        while self.process.poll() is None and time.monotonic() < end:
            self._read()
        while self._read(0):
            pass
        return self.process.wait(1)

    def close(self) -> None:
        """Close the terminal, as if its window was closed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, seconds: float = 0.1) -> bool:
        """Read what there is; False at the end, or without waiting where there is nothing."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return bool(seconds)
        with suppress(OSError):
            data = os.read(self._descriptor, 65536)
            self.raw += data
            self.recorded.append((time.monotonic(), data))
            self._stream.feed(data)
            return True
        return False


def _without_empty_end(rows: list[str]) -> list[str]:
    while rows and not rows[-1]:
        rows.pop()
    return rows


def open_terminal(columns: int, rows: int) -> tuple[int, int]:
    """Return both ends of a terminal of this size: the person's, and the program's."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (rows, columns))
    return ours, theirs


@contextmanager
def screen(folder: Path, *words: str, columns: int = 80, rows: int = 30, **env: str) -> Iterator[ScreenReader]:
    ours, theirs = open_terminal(columns, rows)
    variables = environment(folder, TERM="xterm-256color", COLORFGBG="15;0") | env
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        if name not in env:
            variables.pop(name, None)
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = start_dial_chat(folder, *words, env=variables, **streams, start_new_session=True)
    os.close(theirs)
    reader = ScreenReader(ours, process, columns, rows)
    try:
        yield reader
    finally:
        process.kill()
        process.wait()
        reader.close()
