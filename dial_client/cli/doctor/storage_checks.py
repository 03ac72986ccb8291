"""Checks of this program's storage: the database of conversations, and its folders."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

from anyio import to_thread

from dial_client.cli.doctor.findings import Finding
from dial_client.cli.doctor.subject import Subject
from dial_client.messages.errors import DialError

# Seconds to wait for a locked database.
PATIENCE = 5.0


async def check_database(subject: Subject) -> AsyncIterator[Finding]:
    """Yield why the database of conversations cannot be used, or that the next start migrates it.

    A file that does not exist yet is no problem.
    """
    where = subject.database
    if where is None or (isinstance(where, Path) and not await to_thread.run_sync(where.exists)):
        return
    # The import takes a while, so it must not run in the event loop.
    database = await to_thread.run_sync(import_module, "dial_client.stores.database")
    try:
        found, known = await database.Database(where, patience=PATIENCE).find_versions()
    except DialError as error:
        hint = "" if isinstance(where, Path) else "is the server started, and the address right?"
        yield Finding("DC601", str(error), hint)
        return
    if found > known:
        text = f"the database was made by a newer version of this program (schema {found}; this one knows {known})"
        yield Finding("DC602", text, "pip install --upgrade dial-client")
    elif 0 < found < known:
        text = f"the next start changes the database from schema {found} to {known}"
        yield Finding("DC603", text, "older versions cannot read it afterwards")


async def check_folders(subject: Subject) -> AsyncIterator[Finding]:
    """Yield the folders of this program that cannot be written."""
    for folder in subject.folders:
        if not await to_thread.run_sync(_is_writable, folder):
            yield Finding("DC604", f"{folder} cannot be written", "check its owner, and whether the disk is writable")


def _is_writable(folder: Path) -> bool:
    """Return True if a folder can be written, or created if it does not exist."""
    existing = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
