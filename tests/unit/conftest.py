"""Holds the unit tests to what they promise: no process, no network, no SDK."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

SDKS = frozenset({"anthropic", "dbos", "mcp", "openai", "sqlalchemy", "xllamacpp"})
FOLDER = Path(__file__).parent


def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Stand in for what starts a process or reaches a network."""
    raise AssertionError("a unit test starts no process and opens no connection: move it to tests/integration")


@pytest.fixture(autouse=True)
def _hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse processes, connections and the import of an SDK while a unit test runs."""
    loaded = SDKS & sys.modules.keys()
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    for name in ("fork", "posix_spawn"):
        monkeypatch.setattr(os, name, refuse, raising=False)
    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)
    yield
    assert (SDKS & sys.modules.keys()) - loaded == set(), "a unit test imports no SDK: move it to tests/integration"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse the import of an SDK by the modules of the unit tests, where nothing else is run."""
    if all(FOLDER in item.path.parents for item in session.items) and (loaded := SDKS & sys.modules.keys()):
        raise pytest.UsageError(f"unit tests import {', '.join(sorted(loaded))}: move them to tests/integration")
