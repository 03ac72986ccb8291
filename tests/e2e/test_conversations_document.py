"""What docs/conversations.md shows is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.program import LONG, environment, write_config

DOCUMENT = Path(__file__).parents[2] / "docs" / "conversations.md"


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    example, _ = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    write_config(tmp_path, {}, ["It is noon.", "It is early."])
    ran = subprocess.run(
        [sys.executable, "-W", "error", "example.py"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert (lines[0], lines[1]) == ("It is noon.", "1 RoundStarted")
    assert "# What time is it in Tokyo?" in lines
    assert lines[-1] == "['What time is it in Tokyo?', 'What time is it in Tokyo?']"
