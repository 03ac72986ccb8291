"""What every test can ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from dial_client.stores.conversation_store import ConversationStore
from tests.browser import WHY_NOT, Browser, browser
from tests.stores import KINDS, place, store_at

# Nothing is measured by the clock here, whatever else the machine has to do.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops; a test that needs one of them asks for it."""
    return str(request.param)


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest) -> tuple[str, str]:
    """On which event loop conversations are kept, and where; `anyio_backend` has to be taken from it."""
    return request.param[0], request.param[1]


@pytest.fixture
async def store(kept: tuple[str, str], tmp_path: Path) -> AsyncIterator[ConversationStore]:
    """An empty store of each kind."""
    async with place(kept[1], tmp_path) as where:
        made = store_at(kept[1], where)
        yield made
        await made.aclose()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for the tests of a module; each opens a tab with storage of its own."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found
