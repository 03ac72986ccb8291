"""What every test can ask for."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops; a test that needs one of them asks for it."""
    return str(request.param)
