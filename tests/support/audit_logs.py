"""Helpers for tests of the audit log: entries, their records in files, and a recorder in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.inner import AuditEntry, list_log_files


class Entries(list[AuditEntry]):
    """A recorder that keeps its entries in memory."""

    def record(self, entry: AuditEntry) -> None:
        self.append(entry)

    @property
    def summaries(self) -> list[tuple[str, str, str]]:
        return [(entry.event, entry.decision or entry.outcome, f"{entry.server}/{entry.tool}") for entry in self]


def entry(number: int = 0, **about: Any) -> AuditEntry:
    known = {"event": "call", "id": f"{number:016x}", "server": "clock", "tool": "now", "outcome": "ok"}
    return AuditEntry(**(known | about))


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """Return the records of the audit log in a folder."""
    return [json.loads(line) for path in list_log_files(folder) for line in path.read_bytes().splitlines()]


def calls_of(folder: Path) -> list[dict[str, Any]]:
    """Return the records of the audit log in a folder that are entries."""
    return [line for line in lines_of(folder) if "id" in line]


def user_log(folder: Path) -> Path:
    """Return the folder of the audit log of a dial-chat that `program.dial_chat` ran."""
    [lock] = (folder / "home").rglob("audit.lock")
    return lock.parent
