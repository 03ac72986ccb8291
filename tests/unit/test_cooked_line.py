"""Lines read from a terminal in canonical ("cooked") mode, and keys pressed as the mode changes: a pseudo-terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator

import anyio
import pytest
from prompt_toolkit.application import Application
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.output import DummyOutput

from tests.inner import process_runner, read_early_lines, read_line, read_sent_line

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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems hand on other characters")
async def test_lines_and_ctrl_d_typed_before_the_mode_of_keys_are_enter_and_ctrl_d_in_it(
    keyboard: int, anyio_backend_name: str
) -> None:
    """Linux turns a Ctrl-D that nobody has read yet into a null character, the code of Ctrl-Space."""
    if anyio_backend_name == "trio":
        pytest.skip("prompt_toolkit runs on asyncio")
    read_from: Input = create_input(sys.stdin)
    application: Application[None] = Application(input=read_from, output=DummyOutput())
    os.write(keyboard, b"one\n" + END_OF_FILE)
    await anyio.wait_readable(sys.stdin)  # the terminal has taken what was typed
    with read_from.raw_mode():
        read_early_lines(application)
    assert [press.data for press in application.key_processor.input_queue] == [*"one\r\x04"]


async def test_ctrl_d_pressed_in_the_mode_of_keys_still_ends_what_is_read_after_it(keyboard: int) -> None:
    with create_input(sys.stdin).raw_mode():
        os.write(keyboard, END_OF_FILE)
        await anyio.wait_readable(sys.stdin)
    with anyio.fail_after(60):
        assert await read_sent_line() is None
        os.write(keyboard, b"one\n")
        assert await read_sent_line() == "one"
