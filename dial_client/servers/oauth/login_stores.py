"""Where a client keeps its logins: in memory, in a folder or the system's keyring, or in a store of the program's own.

A store is the identity of a client: clients with the same store act as the same user.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import anyio
from anyio import to_thread

from dial_client.runtime.file_lock import FileLock
from dial_client.runtime.logs import get_logger
from dial_client.runtime.private_files import write_private

log = get_logger(__name__)

# Timeout in seconds for the keyring: a locked keyring may wait for a password.
KEYRING_SECONDS = 10.0
# The most seconds to wait for a lock. Its holder waits for an authorization server, at most about 40 seconds.
LOCK_SECONDS = 60.0
# Seconds between two attempts to lock.
_LOCK_PAUSE = 0.02
# Maximum bytes of a login that is read.
MAX_BYTES = 1024 * 1024
_SERVICE = "dial-client"

T = TypeVar("T")


@runtime_checkable
class LoginStore(Protocol):
    """Stores the logins of one user to servers, each as a text under a key. The texts hold tokens: keep them private.

    A failure to load a login is an error of its server; a login that cannot be saved is used until the client closes.
    An attribute ``login_hint``, if it has one, says what a person who has to log in can do. A method ``find_id_token``,
    if it has one, returns the ID token of the user's login at the company's identity provider; None if there is none.
    """

    async def load(self, key: str) -> str | None:
        """Return the text of a login; None if there is none."""

    async def save(self, key: str, login: str) -> None:
        """Store or replace the text of a login."""

    async def delete(self, key: str) -> bool:
        """Delete a login; return False if there was none."""

    def lock(self, key: str) -> AbstractAsyncContextManager[object]:
        """Return a context in which no other client or process refreshes this login.

        An authorization server may end a login whose refresh token is sent twice. The lock is held for one request.

        Raises:
            TimeoutError: On entering, if another process has held the lock for too long.
        """


@runtime_checkable
class OwnerLogins(Protocol):
    """A `LoginStore` of several persons, which keeps those of each apart itself."""

    def for_owner(self, owner: str) -> LoginStore:
        """Return the logins of one person."""


@dataclass(frozen=True, slots=True)
class _SelectedLogins:
    """The logins of one person in a store that knows no persons."""

    store: LoginStore
    prefix: str

    async def load(self, key: str) -> str | None:
        return await self.store.load(self.prefix + key)

    async def save(self, key: str, login: str) -> None:
        await self.store.save(self.prefix + key, login)

    async def delete(self, key: str) -> bool:
        return await self.store.delete(self.prefix + key)

    def lock(self, key: str) -> AbstractAsyncContextManager[object]:
        return self.store.lock(self.prefix + key)


def select_owner(store: LoginStore, owner: str) -> LoginStore:
    """Return the logins of one person; those of nobody in particular are the store itself."""
    if isinstance(store, OwnerLogins):
        return store.for_owner(owner)
    return _SelectedLogins(store, _hash_owner(owner)) if owner else store


def _hash_owner(owner: str) -> str:
    # A person's name may be an address with any characters.
    return f"{hashlib.sha256(owner.encode(errors='replace')).hexdigest()[:16]}-"


class MemoryLogins:
    """Logins in memory, which end with the program. By default each client has its own."""

    def __init__(self) -> None:
        self._logins: dict[str, str] = {}
        # Clients that share the logins may run in several event loops.
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    async def load(self, key: str) -> str | None:
        """Return the text of a login; None if there is none."""
        return self._logins.get(key)

    async def save(self, key: str, login: str) -> None:
        """Store or replace the text of a login."""
        self._logins[key] = login

    async def delete(self, key: str) -> bool:
        """Delete a login; return False if there was none."""
        return self._logins.pop(key, None) is not None

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncGenerator[None]:
        """Hold the lock of a login; see `LoginStore.lock`."""
        lock = self._locks[key]
        await _wait_for(lambda: lock.acquire(blocking=False))
        try:
            yield
        finally:
            lock.release()


class FolderLogins:
    """Logins in private files of a folder, for all processes and later runs.

    Args:
        folder: The folder; None for the folder of `dial-chat`, or the system's keyring if `keyring` is installed.
        user: The key of the user whose logins these are, any text; empty if the folder has one user.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, user: str = "") -> None:
        import platformdirs

        self._is_of_dial_chat = folder is None and not user
        self._has_keyring = folder is None
        self._folder = Path(folder or platformdirs.user_data_path("dial-client", appauthor=False) / "logins")
        self._prefix = _hash_owner(user) if user else ""

    async def load(self, key: str) -> str | None:
        """Return the text of a login; None if there is none, or it cannot be read."""
        name = self._prefix + key
        text = await self._use_keyring(lambda keyring: keyring.get_password(_SERVICE, name))
        if text is None:
            with suppress(OSError, ValueError), self._find_path(key).open("rb") as file:
                text = file.read(MAX_BYTES + 1).decode()
        return text if isinstance(text, str) else None

    async def save(self, key: str, login: str) -> None:
        """Store or replace the text of a login.

        Raises:
            OSError: The file cannot be written.
        """
        name, path = self._prefix + key, self._find_path(key)

        def store(keyring: Any) -> bool:
            keyring.set_password(_SERVICE, name, login)
            return True

        if await self._use_keyring(store):
            path.unlink(missing_ok=True)
        else:
            if self._folder.is_dir():
                # In a folder that others may write to, another user could replace the file.
                self._folder.chmod(0o700)
            write_private(path, login.encode())

    async def delete(self, key: str) -> bool:
        """Delete a login; return False if there was none."""
        name, path = self._prefix + key, self._find_path(key)

        def remove(keyring: Any) -> bool:
            exists = keyring.get_password(_SERVICE, name) is not None
            if exists:
                keyring.delete_password(_SERVICE, name)
            return exists

        in_keyring = bool(await self._use_keyring(remove))
        in_file = path.exists()
        path.unlink(missing_ok=True)
        return in_keyring or in_file

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncGenerator[None]:
        """Hold the lock of a login; see `LoginStore.lock`. In a folder that cannot be written there is no lock."""
        lock = FileLock(self._find_path(key).with_suffix(".lock"))

        def try_acquire() -> bool:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                return lock.try_acquire()
            except OSError:
                return True

        try:
            await _wait_for(try_acquire)
            yield
        finally:
            lock.close()  # which releases it

    def _find_path(self, key: str) -> Path:
        return self._folder / f"{self._prefix}{key}.json"

    async def _use_keyring(self, use: Callable[[Any], T]) -> T | None:
        return await use_keyring(use) if self._has_keyring else None


async def use_keyring(use: Callable[[Any], T]) -> T | None:
    """Call `use` with the system's keyring, and return its result.

    Returns None if there is no keyring, or if it fails or does not answer within `KEYRING_SECONDS`.
    """
    try:
        keyring: Any = import_module("keyring")
    except ImportError:
        return None

    def run() -> T | None:
        if keyring.get_keyring().priority <= 0:  # the placeholder backend of a system without keyring
            return None
        return use(keyring)

    with anyio.move_on_after(KEYRING_SECONDS):
        try:
            return await to_thread.run_sync(run, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 (each backend has its own errors; a file is used instead)
            log.debug("keyring_failed", error=type(error).__name__)
    return None


def is_of_dial_chat(store: LoginStore) -> bool:
    """Return True if `dial-chat servers login` keeps its logins here: those of the one user of this machine."""
    return isinstance(store, FolderLogins) and store._is_of_dial_chat  # noqa: SLF001 - of this module


async def _wait_for(try_acquire: Callable[[], bool]) -> None:
    with anyio.fail_after(LOCK_SECONDS):
        while not try_acquire():  # noqa: ASYNC110 - another process sets no event
            await anyio.sleep(_LOCK_PAUSE)
