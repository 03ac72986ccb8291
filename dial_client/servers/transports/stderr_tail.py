"""The last lines of a program's standard error."""

from __future__ import annotations

from collections import deque

from dial_client.servers.secret_masking import SecretMask

MAX_LINES = 50
MAX_LINE_BYTES = 1_000


class StderrTail:
    """Keeps the last `MAX_LINES` lines, each cut to `MAX_LINE_BYTES`, with the server's secrets masked."""

    def __init__(self, mask: SecretMask | None = None) -> None:
        self._mask = mask or SecretMask()
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)
        self._unfinished = b""

    def feed(self, chunk: bytes) -> None:
        """Add bytes; a line may be spread over several calls."""
        # Lines before the last `MAX_LINES` of the chunk are not split, because they would be dropped anyway.
        first, *lines = chunk.rsplit(b"\n", MAX_LINES + 1)
        room = MAX_LINE_BYTES - len(self._unfinished)
        self._unfinished += first[: max(0, room)]
        for line in lines:
            self._lines.append(self._unfinished)
            self._unfinished = line[:MAX_LINE_BYTES]

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that are not blank, oldest first."""
        texts = (*map(self._to_text, self._lines), self._to_text(self._unfinished, is_whole=False))
        return tuple(text for text in texts if text)[-MAX_LINES:]

    def _to_text(self, line: bytes, *, is_whole: bool = True) -> str:
        text = line.decode("utf-8", "replace").rstrip()
        return self._mask.mask_text(text) if is_whole and len(line) < MAX_LINE_BYTES else self._mask.cut_text(text)

    @property
    def last(self) -> str:
        """The last line that names an error (`find_error_line`), otherwise the last line; empty for no output."""
        from dial_client.runtime.error_lines import find_error_line

        return find_error_line(self.lines)
