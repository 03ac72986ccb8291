"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import WHY_NOT, Browser, browser


@pytest.fixture(scope="session")
def running_chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for the tests of a process."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def chromium(running_chromium: Browser) -> Iterator[Browser]:
    """A browser without tabs; each has storage of its own, and is closed after the test."""
    yield running_chromium
    running_chromium.close_tabs()
