"""The test runner with ``--forks``: each test runs once, and a test that ends its worker is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fork_server import CAN_FORK
from tests.support.program import PIPES, environment, run_to_end, start_python

pytestmark = [pytest.mark.once, pytest.mark.skipif(not CAN_FORK, reason="only Linux forks after imports without harm")]
FILES = {
    "test_first.py": "def test_passes(): pass\ndef test_fails(): print('seen'); assert 1 == 2\ndef test_next(): pass\n",
    "test_second.py": "import os\ndef test_ends(): os._exit(0)\n",
    "test_third.py": "def test_passes(): pass\n",
}


def test_each_test_runs_once_and_a_test_that_ends_its_worker_is_a_failure(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    options = ["-c", "/dev/null", "--rootdir", str(tmp_path), "--confcutdir", str(tmp_path), "-p", "tests.conftest"]
    command = ["-m", "pytest", *options, "-p", "no:asyncio", "--forks", "2", *FILES]
    variables = environment(tmp_path, DIAL_TEST_FRESH="1")  # without a fork server of its own
    ran = run_to_end(start_python(tmp_path, command, env=variables, **PIPES))
    assert (ran.returncode, "2 failed, " in ran.stdout) == (1, True), ran.stdout
    for part in (
        "seen",
        "assert 1 == 2",
        "test_second.py::test_ends",
        "the test ended its worker",
        "a worker ended before",
    ):
        assert part in ran.stdout
