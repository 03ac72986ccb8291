"""People who log in to the tests' servers, and where their tokens are kept."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.inner import LoginFailed, LoginRequest


class Person:
    """Somebody with a browser that shows no pages, only where it is sent to; `asked` has what they were asked."""

    redirect_uri = "http://127.0.0.1:3000/callback"

    def __init__(self, *, is_willing: bool = True) -> None:
        self.asked: list[LoginRequest] = []
        self.is_willing = is_willing

    async def __call__(self, request: LoginRequest) -> str:
        self.asked.append(request)
        if not self.is_willing:
            raise LoginFailed("nobody logged in")
        async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as browser:
            response = await browser.get(request.url)
        return str(response.headers["location"])


def redirect_user_data(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Put the user's data into a folder, and nothing into a keyring; return the folder."""
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA", "HOME", "USERPROFILE"):
        patch.setenv(name, str(folder))
    patch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    return folder


def find_stored_logins(folder: Path) -> list[Path]:
    """Return the files that store logins."""
    return sorted(folder.rglob("logins/*.json"))
