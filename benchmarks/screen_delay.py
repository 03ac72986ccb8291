"""The delay from the endpoint's write of a chunk to the terminal's screen, with rendered Markdown and with ``--plain``.

The whole program runs in a pseudo-terminal, whose output an emulator draws. A chunk has arrived once its text is on the
screen, in the answer or in the live area.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory

from benchmarks.cases import Sample, Sides, dial_chat_command, write_config
from benchmarks.endpoint import Endpoint
from benchmarks.server_entries import QUESTION

COLUMNS, ROWS = 100, 40
_STAMP = re.compile(r"(?<!\d)1\d{15}(?!\d)")
_LEFT_OUT = ("NO_COLOR", "COLUMNS", "LINES", "TMUX")


@dataclass(frozen=True, slots=True)
class ShownOnScreen:
    """An answer of the whole program on a screen; the floor is the program with ``--plain``."""

    about: str
    chunks: int
    pace_ms: int

    @asynccontextmanager
    async def prepared(self, endpoint: Endpoint) -> AsyncIterator[Sides]:
        """Write an empty configuration."""
        url = endpoint.stamped_url(self.chunks, self.pace_ms)
        with TemporaryDirectory() as folder:
            options = ["-c", write_config(folder, {}), "-m", "chat:x", "--base-url", url, "--no-save"]
            command = [*dial_chat_command(), *options]
            environment = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
            environment |= {"TERM": "xterm-256color", "HOME": folder, "XDG_STATE_HOME": folder}
            yield {
                "floor": partial(self._sample, [*command, "--plain", QUESTION], environment),
                "dial": partial(self._sample, [*command, QUESTION], environment),
            }

    async def _sample(self, command: Sequence[str], environment: Mapping[str, str]) -> Sample:
        if sys.platform == "win32":
            return {}  # Windows has no POSIX pseudo-terminals
        delays = await asyncio.to_thread(_find_delays, command, environment)
        if len(delays) != self.chunks:
            raise RuntimeError(f"{self.about}: {len(delays)} chunks were seen")
        ordered = sorted(delays)
        return {
            "median ms": statistics.median(ordered),
            "95th percentile ms": ordered[int(0.95 * len(ordered))],
            "longest ms": ordered[-1],
        }


def _find_delays(command: Sequence[str], environment: Mapping[str, str]) -> list[float]:
    """Return the milliseconds until each chunk was on the screen."""
    import pty
    import termios

    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (ROWS, COLUMNS))
    process = subprocess.Popen(
        command, env=dict(environment), start_new_session=True, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    written: list[tuple[float, bytes]] = []
    try:
        while data := _read(master):
            written.append((time.monotonic(), data))
        if process.wait(10):
            raise RuntimeError(f"{command[0]} ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return _replay(written)


def _replay(written: Iterable[tuple[float, bytes]]) -> list[float]:
    """Return the milliseconds until each chunk was on the screen.

    The screen is drawn afterwards: the emulator is slower than a terminal, and would delay the next reads.
    """
    import pyte

    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    delays: dict[str, float] = {}
    for at, data in written:
        stream.feed(data)
        # Lines are joined without line breaks, because a terminal wraps plain text within words.
        for stamp in _STAMP.findall("".join(screen.display)):
            delays.setdefault(stamp, (at - (int(stamp) - 10**15) / 1e6) * 1000)
    return list(delays.values())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux reports the end of the output as an error
        return b""
