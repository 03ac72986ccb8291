"""The progress of a download in words: on the line of a screen, on one line of a terminal, or in tenths without one."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable

from dial_client.cli.streams.error_stream import print_to_stderr
from dial_client.cli.streams.printed_streams import PrintedStream
from dial_client.cli.streams.tty import can_move_cursor
from dial_client.cli.streams.word_wrap import fit
from dial_client.messages.model import DOWNLOADING
from dial_client.runtime.safe_text import to_one_line

# Seconds over which the speed is measured: long enough for a steady figure, short enough to follow a change.
SPEED_SECONDS = 10.0
# Seconds of measurement before a speed is shown.
_MIN_SECONDS = 1.0


class DownloadProgress:
    """Shows the progress of downloads: an `OnDownload`.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()
        self._what, self._printed_tenth = "", -1

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show the bytes so far, the bytes in total, and the name of the current step."""
        line = self.describe(done, total, what)
        is_over = total > 0 and done >= total
        if isinstance(sys.stderr, PrintedStream):
            sys.stderr.show_progress("" if is_over else line)
        elif sys.stderr.isatty() and can_move_cursor():
            columns = shutil.get_terminal_size().columns
            sys.stderr.write("\r\x1b[K" + ("" if is_over else fit(line, columns - 1)))
            sys.stderr.flush()
        elif total and (tenth := done * 10 // total) != self._printed_tenth:
            self._printed_tenth = tenth
            print_to_stderr(f"dial-chat: {line}")

    def describe(self, done: int, total: int, what: str) -> str:
        """Return the progress in one line; of a download with its speed and the time that is left."""
        now = self._clock()
        if what != self._what:
            self._what, self._printed_tenth = what, -1
            self._samples.clear()
        self._samples.append((now, done))
        while now - self._samples[0][0] > SPEED_SECONDS and len(self._samples) > 2:
            self._samples.popleft()
        amount = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if total else f"{done / 1e6:,.0f} MB"
        begun, bytes_then = self._samples[0]
        parts = [f"{to_one_line(what, 100)}: {amount}"]
        if what == DOWNLOADING and now - begun >= _MIN_SECONDS:
            speed = (done - bytes_then) / (now - begun)
            parts.append(f"{speed / 1e6:.1f} MB/s")
            if speed and total:
                parts.append(f"{describe_seconds((total - done) / speed)} left")
        return " · ".join(parts)


def describe_seconds(seconds: float) -> str:
    """Return a duration in words, to two digits: ``40 s``, ``3 min``, ``2 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"
