"""The last lines of a server's standard error."""

from __future__ import annotations

from tests.inner import MAX_LINE_BYTES, MAX_LINES, StderrTail


def test_the_tail_keeps_the_last_lines_and_cuts_long_lines() -> None:
    tail = StderrTail()
    for chunk in (b"one\ntw", b"o\n\n", b"x" * 3_000, b"y\n", *(b"%d\n" % number for number in range(48)), b"un"):
        tail.feed(chunk)
    assert tail.lines[0] == "x" * MAX_LINE_BYTES
    assert tail.lines[-2:] == ("47", "un")
    assert len(tail.lines) == MAX_LINES
