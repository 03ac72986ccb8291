"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.inner import ConversationStore
from tests.support.temporary_stores import KINDS, place, store_at


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The event loop and the kind of store of a test; a test module's `anyio_backend` returns the event loop of it."""
    return request.param[0], request.param[1]


@pytest.fixture
async def store(kept: tuple[str, str], tmp_path: Path) -> AsyncIterator[ConversationStore]:
    """An empty store of each kind."""
    async with place(kept[1], tmp_path) as where:
        made = store_at(kept[1], where)
        yield made
        await made.aclose()
