"""The last lines of what a program says on its standard error."""

from __future__ import annotations

import re
from collections import deque

from dial_client.servers.secret_masking import SecretMask

MAX_LINES = 50
MAX_LINE_BYTES = 1_000


_BEHIND_AN_ERROR = re.compile(
    r"\s*(?:[\s{}()\[\],;^]*|at .+|Node\.js v[\d.]+|Bun v[\d.]+.*|\[?\w+\]?: (?:[\d.-]+|'.*'|\[.*|undefined|null),?)"
)
"""What Node writes behind an error: its stack, its members, and its own version."""
_ERROR = re.compile(r"(?:Uncaught )?(?:[\w.$]*(?:Error|Exception)\b|\[\w+\]: ).*")


def telling_line(lines: tuple[str, ...]) -> str:
    """Return the line of a program's last ones that says what is wrong: the last, or the error it belongs to."""
    if not lines or not _BEHIND_AN_ERROR.fullmatch(lines[-1]):
        return lines[-1] if lines else ""
    errors = (line for line in reversed(lines) if _ERROR.match(line))
    others = (line for line in reversed(lines) if not _BEHIND_AN_ERROR.fullmatch(line))
    return next(errors, next(others, lines[-1])).removesuffix(" {")


class StderrTail:
    """Keeps the last lines, bounded in number and length however much is written, without the server's secrets."""

    def __init__(self, mask: SecretMask | None = None) -> None:
        self._mask = mask or SecretMask()
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)
        self._unfinished = b""

    def feed(self, chunk: bytes) -> None:
        """Take more bytes; a line may come in pieces."""
        # Of more lines than are kept the first are not worth the splitting.
        first, *others = chunk.rsplit(b"\n", MAX_LINES + 1)
        room = MAX_LINE_BYTES - len(self._unfinished)
        self._unfinished += first[: max(0, room)]
        for line in others:
            self._lines.append(self._unfinished)
            self._unfinished = line[:MAX_LINE_BYTES]

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that are not blank, oldest first."""
        texts = (*map(self._shown, self._lines), self._shown(self._unfinished, is_whole=False))
        return tuple(text for text in texts if text)[-MAX_LINES:]

    def _shown(self, line: bytes, *, is_whole: bool = True) -> str:
        text = line.decode("utf-8", "replace").rstrip()
        return self._mask.text(text) if is_whole and len(line) < MAX_LINE_BYTES else self._mask.cut_text(text)

    @property
    def last(self) -> str:
        """The last line that tells something; empty where there is none."""
        return telling_line(self.lines)
