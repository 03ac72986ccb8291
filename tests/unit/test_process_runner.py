"""The last line of a command that fails, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.inner import ExitCode, run_to_exit_code

pytestmark = pytest.mark.once


async def find_current_folder() -> int:
    return len(str(Path.cwd()))


async def find_home() -> int:
    return len(str(Path("~nobody-of-this-name").expanduser()))  # noqa: ASYNC240 - no other code runs


async def open_missing_file() -> int:
    return len(Path("missing").read_bytes())  # noqa: ASYNC240 - no other code runs


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not remove the current folder")
@pytest.mark.parametrize(
    ("command", "code", "line"),
    [
        (find_current_folder, ExitCode.USAGE, "the current folder does not exist any more (change to another folder)"),
        (find_home, ExitCode.USAGE, "this user has no home folder (set HOME to a folder)"),
        (open_missing_file, ExitCode.UNEXPECTED, "unexpected error: FileNotFoundError: [Errno 2] No such file"),
    ],
)
def test_the_error_for_a_missing_folder_is_one_line(
    command: Callable[[], Awaitable[int]],
    code: ExitCode,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run_to_exit_code(command, logs="none") is code
    assert capsys.readouterr().err.startswith(f"dial-chat: error: {line}")
