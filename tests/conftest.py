"""Settings and fixtures for all tests, and the selection of tests for each Python version."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
from collections.abc import Container, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.fork_server import share_server
from tests.support.forked_workers import run_forked

UNIT = Path(__file__).parent / "unit"
LONGEST = ("test_benchmarks.py", "test_durable.py", "test_hostile_servers.py", "test_tutorials.py")
"""The files that take longest. One worker runs a file: the others would wait for it at the end."""

# Hypothesis measures no time: a busy machine must not fail a test.
settings.register_profile("untimed", deadline=None)
settings.register_profile("usual", deadline=None, max_examples=50)
settings.register_profile("brief", deadline=None, max_examples=25)
settings.load_profile("untimed")


# About ten thousand collected tests live until the end: scanning them for garbage repeatedly costs time.
USUAL_THRESHOLD = gc.get_threshold()
gc.set_threshold(100_000, 50, 50)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that divide the tests between two Python versions and between forks of the test runner."""
    parser.addoption(
        "--part",
        choices=("all", "oldest", "newest"),
        default="all",
        help="oldest: every case, on asyncio if the test is written for both loops; newest: each test with its first"
        " case and few examples, on trio if the test is written for both loops, without those marked `once` and without"
        " integration tests that are not asynchronous",
    )
    parser.addoption(
        "--forks", type=int, metavar="NUMBER", help="run the tests in this number of forks of the test runner; on Linux"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Reduce the examples of property tests where both Pythons run: `make test` runs the full number.

    No test asks what listens at the usual ports of local model servers, and none but those of the real weights needs
    the certificates of the system. Test workers share one fork server, which imports most packages of the project once.
    """
    os.environ["DIAL_LOCAL_SERVERS"] = ""
    if sys.platform != "win32":
        # Tests started by ``nohup`` ignore this signal, and so would the programs to which they send it.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not os.environ.get("DIAL_TEST_ANSWERS"):
        # Each HTTP client would read all certificates, which takes longer than most tests; from a folder it reads one
        # only for a connection with TLS.
        os.environ.pop("SSL_CERT_FILE", None)
        os.environ["SSL_CERT_DIR"] = str(UNIT.parent)
    has_workers = bool(config.getoption("numprocesses", None) or config.getoption("--forks"))
    if has_workers and any(UNIT not in (path, *path.parents) for path in map(Path.absolute, map(Path, config.args))):
        share_server()
    profiles = {"all": "untimed", "oldest": "usual", "newest": "brief"}
    settings.load_profile(profiles[config.getoption("--part")])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files that take longest first, and keep only the tests of the part that ``--part`` selects."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
    part = config.getoption("--part")
    if part == "all":
        return
    names = {item.nodeid for item in items}
    kept = [item for item in items if isinstance(item, pytest.Function) and belongs(item, part, names)]
    if part == "newest":
        # Every case runs on the oldest Python; the first case shows a difference between Python versions and loops.
        kept = [*{(item.path, item.originalname): item for item in reversed(kept)}.values()][::-1]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection; objects that tests create are collected as usual."""
    gc.freeze()
    gc.set_threshold(*USUAL_THRESHOLD)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests in forks of this process if ``--forks`` has their number."""
    number = session.config.getoption("--forks")
    if not number or session.testsfailed or session.config.option.collectonly:
        return None
    return run_forked(session, number)


def belongs(item: pytest.Function, part: str, names: Container[str]) -> bool:
    """True if the test belongs to the part; a test for both event loops names its loop in its parameters.

    Args:
        item: The test.
        part: ``oldest`` or ``newest``.
        names: The names of all tests.
    """
    if part == "oldest":
        return "trio" not in item.nodeid or item.nodeid.replace("trio", "asyncio") not in names
    if item.get_closest_marker("once"):
        return False
    parameters = item.callspec.id if hasattr(item, "callspec") else ""
    if "asyncio" in parameters and item.nodeid.replace("asyncio", "trio") in names:
        return False
    is_async = inspect.iscoroutinefunction(item.function) and "virtual-time" not in parameters
    return is_async or UNIT in item.path.parents


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops; a test for one event loop parametrizes this fixture."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _no_structlog_configuration_of_another_test() -> Iterator[None]:
    """Undo the configuration of structlog that a command of the program has made: other tests read the plain log."""
    yield
    logs = sys.modules.get("dial_client.runtime.logs")
    if logs is not None:
        logs.configure_at_first_event(None)
    structlog = sys.modules.get("structlog")
    if structlog is not None and structlog.is_configured():
        structlog.reset_defaults()
