"""The servers with the tools of the tasks, and the repository that the Git server uses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def server_entries(repository: Path) -> dict[str, Any]:
    """Return the entries of the servers with the tools of the tasks."""
    root = os.fspath(Path(__file__).parent.parent)
    entries = {
        name: {"command": sys.executable, "args": ["-m", f"evals.{name}"], "cwd": root}
        for name in ("desk", "town", "distractors", "broken")
    }
    return entries | {
        "time": {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"]},
        "git": {"command": "mcp-server-git", "args": ["--repository", os.fspath(repository)]},
    }


@contextmanager
def sample_repository() -> Iterator[Path]:
    """Create a small Git repository with fixed content; it is removed on exit."""
    person = {"NAME": "Ada Moss", "EMAIL": "ada@example.test", "DATE": "2026-02-03T10:00:00 +0000"}
    identity = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in person.items()}
    isolation = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        repository = Path(folder, "garden").resolve()
        repository.mkdir()

        def git(*arguments: str) -> None:
            subprocess.run(
                ["git", *arguments],
                cwd=repository,
                env=os.environ | identity | isolation,
                check=True,
                capture_output=True,
            )

        git("init", "--initial-branch", "main")
        for file, message in (("plan.md", "Add the plan"), ("water.md", "Describe the irrigation")):
            (repository / file).write_text(f"{message}\n", encoding="utf-8")
            git("add", file)
            git("commit", "--message", message)
        git("branch", "greenhouse")
        (repository / "seeds.txt").write_text("beans\n", encoding="utf-8")
        yield repository
