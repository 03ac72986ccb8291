"""Settings and fixtures of all tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Nothing is measured by the clock here, whatever else the machine has to do.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops; a test that needs one of them asks for it."""
    return str(request.param)
