"""Settings and fixtures of all tests, and which of them a Python is to run."""

from __future__ import annotations

import gc
import inspect
from pathlib import Path

import pytest
from hypothesis import settings

UNIT = Path(__file__).parent / "unit"

# Nothing is measured by the clock here, whatever else the machine has to do.
settings.register_profile("untimed", deadline=None)
settings.register_profile("brief", deadline=None, max_examples=25)
settings.load_profile("untimed")


# Ten thousand collected tests live until the end: not worth looking through again and again.
USUAL_THRESHOLD = gc.get_threshold()
gc.set_threshold(100_000, 50, 50)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that divides the tests between two Pythons."""
    parser.addoption(
        "--part",
        choices=("all", "oldest", "newest"),
        default="all",
        help="oldest: every test once, on trio where it is there for both loops; newest: each unit test with its first"
        " case and few examples, and the tests on asyncio, without those marked `once`",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Ask for few examples of properties where every test has its full number on another Python."""
    if config.getoption("--part") == "newest":
        settings.load_profile("brief")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the part that was asked for."""
    part = config.getoption("--part")
    if part == "all":
        return
    kept = [item for item in items if isinstance(item, pytest.Function) and belongs(item, part)]
    if part == "newest":
        # Every case runs on the oldest Python; what a Python may change shows in the first.
        cases = {(item.path, item.originalname): item for item in reversed(kept) if UNIT in item.path.parents}
        first = {*cases.values()}
        kept = [item for item in kept if item in first or UNIT not in item.path.parents]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later search for garbage; what tests leave behind is searched as usual."""
    gc.freeze()
    gc.set_threshold(*USUAL_THRESHOLD)


def belongs(item: pytest.Function, part: str) -> bool:
    """True if the test is of the part: its parameters name its loop where it has a choice."""
    if item.get_closest_marker("once"):
        return part == "oldest"
    parameters = item.callspec.id if hasattr(item, "callspec") else ""
    if "asyncio" in parameters or "trio" in parameters:
        return ("asyncio" in parameters) is (part == "newest")
    is_async = inspect.iscoroutinefunction(item.function) and "virtual-time" not in parameters
    return part == "oldest" or is_async or UNIT in item.path.parents


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops; a test that needs one of them asks for it."""
    return str(request.param)
