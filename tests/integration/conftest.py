"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.inner import ConversationStore, sealed_states
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


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the key that seals the states of programs, which is a new one for each test."""
    folder = tmp_path / "state" / "snippets"
    monkeypatch.setattr(sealed_states, "find_key_folder", lambda: folder)
    return folder


@pytest.fixture(params=["ai", "ai-6"])
def package(request: pytest.FixtureRequest) -> str:
    """The AI SDK, in its newest version and in the one before."""
    return str(request.param)
