"""A small soak test; `make soak` runs the full test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import LONG


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what a program holds is counted in /proc")
def test_servers_that_exit_hang_and_change_leave_no_resources() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--calls", "200"]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=LONG, check=False)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    assert '"killed"' in ran.stdout
