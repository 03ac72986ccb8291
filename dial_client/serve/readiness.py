"""Whether a process can do its work: it accepts turns, its database answers, and its disk can be written."""

from __future__ import annotations

import math
import os
import shutil

import anyio
import anyio.to_thread

from dial_client.messages.errors import DialError
from dial_client.serve.operations import Operations
from dial_client.serve.turns.turn_registry import TurnRegistry
from dial_client.stores.conversation_store import ConversationStore
from dial_client.stores.sql_store import SQLStore

# Seconds to wait for a disk, which may be one of the network.
_DISK_PATIENCE = 5.0


class Readiness:
    """What a process is missing. However often it is asked, database and disk are asked once in an interval.

    Args:
        turns: The turns of this process.
        store: The conversations.
        operations: The interval, the folder of the audit log, and the free space that is needed.
    """

    def __init__(self, turns: TurnRegistry, store: ConversationStore, operations: Operations) -> None:
        self._turns = turns
        self._database = store if isinstance(store, SQLStore) else None
        self._folders = [operations.audit_folder] if operations.audit_folder is not None else []
        if self._database is not None and (file := self._database.file) is not None:
            self._folders.append(file.parent)
        self._operations = operations
        self._lock = anyio.Lock()
        self._checked_at = -math.inf
        self._missing: list[str] = []

    async def find_missing(self) -> list[str]:
        """Return what is missing: ``accepts no more turns``, ``database``, ``disk``; nothing if it is ready."""
        async with self._lock:
            if anyio.current_time() - self._checked_at >= self._operations.check_interval:
                self._missing = await self._check()
                self._checked_at = anyio.current_time()
        return [*(["accepts no more turns"] if self._turns.is_closed else []), *self._missing]

    async def _check(self) -> list[str]:
        missing = []
        if self._database is not None:
            try:
                await self._database.check()
            except DialError:
                missing.append("database")
        is_writable = False
        with anyio.move_on_after(_DISK_PATIENCE):
            is_writable = await anyio.to_thread.run_sync(self._is_disk_writable, abandon_on_cancel=True)
        return missing if is_writable else [*missing, "disk"]

    def _is_disk_writable(self) -> bool:
        try:
            return all(
                os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= self._operations.min_free_bytes
                for folder in self._folders
                if folder.exists()  # a folder that is not there yet is created when it is needed
            )
        except OSError:
            return False
