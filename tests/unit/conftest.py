"""Fail a unit test that starts a process, opens a connection or imports an SDK."""

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
    """Fail the test; replaces functions that start a process or open a connection."""
    raise AssertionError("a unit test starts no process and opens no connection: move it to tests/integration")


@pytest.fixture(autouse=True)
def _forbid_io_and_sdks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a unit test that starts a process, opens a connection or imports an SDK."""
    loaded = SDKS & sys.modules.keys()
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    for name in ("fork", "posix_spawn"):
        monkeypatch.setattr(os, name, refuse, raising=False)
    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)
    yield
    assert (SDKS & sys.modules.keys()) - loaded == set(), "a unit test imports no SDK: move it to tests/integration"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail if a unit test module imports an SDK; checked when only unit tests were collected."""
    if all(FOLDER in item.path.parents for item in session.items) and (loaded := SDKS & sys.modules.keys()):
        raise pytest.UsageError(f"unit tests import {', '.join(sorted(loaded))}: move them to tests/integration")
