"""The pytest plugin: the fixture ``dial_recording``, and the option ``--dial-record``.

Every run of pytest in an environment with this package loads this module. It imports nothing of the package until a
test uses the fixture.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

_PASSED: pytest.StashKey[bool] = pytest.StashKey()
_LOOPS = re.compile(r"(?:asyncio|trio)(?:\+uvloop)?")
# Maximum length of a recording's file name in characters, without the extension.
_MAX_NAME = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--dial-record``."""
    parser.getgroup("dial_client").addoption(
        "--dial-record",
        action="store_true",
        help="record the clients of the fixture dial_recording again, with real models and servers",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Store whether a test passed. The recording of a failed, skipped or interrupted test is not kept."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed and not hasattr(report, "wasxfail")
    return report


@pytest.fixture
def dial_recording(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield the `dial_client.testing.DialRecording` of a test: clients that are recorded once, and replayed later.

    The recording is the file ``recordings/MODULE/TEST.jsonl`` in the folder of the test's module.
    """
    from dial_client.testing.recorded_clients import DialRecording

    item = request.node
    path = item.path.parent / "recordings" / item.path.stem / f"{_build_name(item)}.jsonl"
    recording = DialRecording(Path(path), is_recorded=request.config.getoption("--dial-record"))
    yield recording
    try:
        recording.close(is_passed=item.stash.get(_PASSED, False))
    except AssertionError as error:
        pytest.fail(str(error), pytrace=False)


def _build_name(item: Any) -> str:
    """Return the file name of a test's recording: class, test name and parameters, without the event loop."""
    names = item.nodeid.split("::")[1:]
    callspec = item.callspec if hasattr(item, "callspec") else None
    if callspec is not None and "anyio_backend" in callspec.params:
        ids = [part for part in callspec.id.split("-") if not _LOOPS.fullmatch(part)]
        names[-1] = f"{item.originalname}[{'-'.join(ids)}]" if ids else item.originalname
    name = ".".join(names)
    base, _, parameters = name.partition("[")
    readable = f"{base}-{parameters[:-1]}" if parameters else base
    plain = re.sub(r"[^\w.\-]", "_", readable, flags=re.ASCII)[:_MAX_NAME]
    # Two tests must not share a file, even if only replaced characters or upper and lower case tell them apart: many
    # file systems ignore case.
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return plain if plain == readable and parameters == parameters.lower() else f"{plain}-{digest}"
