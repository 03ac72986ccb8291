"""Lines read from a terminal in canonical ("cooked") mode, here a pseudo-terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator

import anyio
import pytest

from tests.inner import process_runner, read_line

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.once,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind"),
]
END_OF_FILE = b"\x04"


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield the file descriptor that receives typed input."""
    typed, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield typed
    os.close(typed)


async def test_text_before_the_end_of_file_is_a_line_without_a_line_break(
    keyboard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_runner, "interrupts", process_runner.Interrupts(), raising=False)
    os.write(keyboard, b"one\ntwo" + END_OF_FILE + END_OF_FILE + END_OF_FILE)
    output = io.StringIO()
    with anyio.fail_after(60):
        assert [await read_line("> ", output), await read_line("> ", output)] == ["one", "two"]
        with pytest.raises(EOFError):
            await read_line("> ", output)
    assert output.getvalue() == "> > \n> \n"
