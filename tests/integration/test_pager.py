"""The pager process for long results."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from tests.inner import process_runner, user_programs

STUBBORN = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).write_text("ready")
while True:
    time.sleep(1)
"""


@pytest.mark.once
@pytest.mark.anyio
async def test_a_pager_that_ignores_sigterm_is_killed_with_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, ready = tmp_path / "pager.py", tmp_path / "ready"
    program.write_text(STUBBORN)
    monkeypatch.setenv("PAGER", f'"{sys.executable}" "{program}" "{ready}"')

    monkeypatch.setattr(process_runner, "interrupts", process_runner.Interrupts(), raising=False)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(user_programs.page, "a long text")
            while not ready.exists():  # noqa: ASYNC110 - the program cannot set an event
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
