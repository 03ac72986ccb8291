"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import WHY_NOT, Browser, browser


@pytest.fixture(scope="session")
def running_chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser of a test process."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def chromium(running_chromium: Browser) -> Iterator[Browser]:
    """The browser without open tabs; each new tab has its own storage, and is closed after the test."""
    yield running_chromium
    running_chromium.close_tabs()
