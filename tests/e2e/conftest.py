"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import WHY_NOT, Browser, browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for the tests of a module; each opens a tab with storage of its own."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found
