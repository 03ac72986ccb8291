"""dial-chat in a pseudo-terminal, as a user sees and uses it."""

from __future__ import annotations

import codecs
import os
import re
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.program import LONG, environment, start_dial_chat
from tests.support.screens import open_terminal

READY = ">"
"""The prompt of the chat."""
ASKED = "q stop"
"""The end of the prompt for an approval."""
WITHOUT_COLOURS = {"TERM": "xterm", "COLUMNS": "200", "LINES": "50", "NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"}
"""The environment of a terminal without colours."""


class Terminal:
    """A pseudo-terminal with the program."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.raw = ""
        """All output so far, with its control sequences."""
        self._descriptor = descriptor
        # What is read at once may end within a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._read_from = 0

    def until(self, *texts: str) -> str:
        """Read until the texts have appeared in order since the last call, and return the output."""
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            shown = plain(self.raw[self._read_from :])
            if re.search(".*".join(map(re.escape, texts)), shown, re.DOTALL):
                self._read_from = len(self.raw)
                return shown
            if not self.read(0.1):
                break
        raise AssertionError(f"{texts} did not appear: {plain(self.raw)!r}")

    def type(self, keys: str) -> None:
        """Write keys as a user types them."""
        os.write(self._descriptor, keys.encode())

    def read(self, seconds: float) -> bool:
        """Wait up to some seconds for output and read it; return False if the output has ended."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return True
        with suppress(OSError):  # Linux, after the end of the last process that has the terminal
            if data := os.read(self._descriptor, 65536):
                self.raw += self._decoder.decode(data)
                return True
        return False

    def leave(self) -> int:
        """Read until the program has ended and all its output is read, and return its exit code."""
        end = time.monotonic() + LONG
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        before = -1
        while len(self.raw) > before:
            before = len(self.raw)
            self.read(0)
        return self.process.wait(1)


def plain(raw: str) -> str:
    """Return output without control sequences and carriage returns."""
    return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|[()][0-9A-Za-z]|[=>])", "", raw).replace("\r", "")


@contextmanager
def terminal(folder: Path, *words: str, typed_before: str = "", **env: str) -> Iterator[Terminal]:
    """Run dial-chat in a terminal that shows lines without colours, as the user whose folders lie in `folder`.

    Args:
        folder: The working folder, which also has the user's folders.
        words: The command line.
        typed_before: Lines that the terminal has received before the program starts.
        env: Further environment variables.
    """
    variables = environment(folder, **(WITHOUT_COLOURS | env))
    with run_in_terminal(folder, words, variables, typed_before) as opened:
        yield opened


@contextmanager
def run_in_terminal(
    folder: Path, words: Sequence[str], variables: Mapping[str, str], typed_before: str = ""
) -> Iterator[Terminal]:
    """Run dial-chat in a terminal with these environment variables, and kill it at the end."""
    ours, theirs = open_terminal(200, 50)
    if typed_before:
        os.write(ours, typed_before.encode())
        select.select([theirs], [], [], LONG)
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = start_dial_chat(folder, *words, env=variables, **streams, start_new_session=True)
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
