"""The data cached about one server from run to run: the protocol to open it with, and its tools."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dial_client.servers.json_cache import JsonCache
from dial_client.settings.config_types import Protocol, ServerSettings

if TYPE_CHECKING:
    from mcp_types import Tool

REPROBE_SECONDS = 7 * 24 * 3600.0
"""Seconds after which a server that spoke the older protocol is probed for the newer one again."""
REWRITE_SECONDS = 24 * 3600.0
"""Seconds after which an unchanged file is rewritten, because the cache removes the files written longest ago."""
_FIELDS = {"name", "title", "description", "input_schema", "output_schema", "annotations", "meta"}


class ServerCache:
    """Data about one server from the last run of the program. Empty without settings or a cache.

    Args:
        server: How the server is reached; None for a server object in this process.
        cache: The folder to store the data in; None for no storage.
        now: Returns the seconds since 1970.
    """

    def __init__(
        self, server: ServerSettings | None, cache: JsonCache | None, now: Callable[[], float] = time.time
    ) -> None:
        self._server = server
        self._cache = cache
        self._now = now
        self._guessed_at: float | None = None

    def is_legacy(self) -> bool:
        """Return True if the server spoke the older protocol the last time, and should be opened with its handshake.

        This avoids the probe for the newer protocol, which takes ten seconds if a server ignores unknown requests.
        """
        return self._is_fresh_legacy(self._read())

    def guess_legacy(self) -> bool:
        """Return `is_legacy`, and if True record it as an unconfirmed guess until `save` is called."""
        self._guessed_at = time.monotonic() if self.is_legacy() else None
        return self._guessed_at is not None

    def reject_guess(self, startup_timeout: float) -> bool:
        """Record that the server did not start, and drop the guess, if there is one.

        Args:
            startup_timeout: The start-up timeout in seconds; after it there is no time for another attempt.

        Returns:
            True if there was a guess, and the server should be started again without it.
        """
        guessed_at, self._guessed_at = self._guessed_at, None
        if guessed_at is None or self._server is None or self._cache is None:
            return False
        self._cache.write(self._server, self._read() | {"legacy": False})
        return time.monotonic() - guessed_at < startup_timeout

    def read_tools(self) -> tuple[Tool, ...] | None:
        """Return the valid tools stored in the last run; None if none were stored."""
        stored = self._read().get("tools")
        if not isinstance(stored, list):
            return None
        from mcp_types import Tool
        from pydantic import ValidationError

        tools: list[Tool] = []
        for tool in stored:
            try:
                tools.append(Tool.model_validate(tool))
            except ValidationError:
                continue
        return tuple(tools)

    def save(self, tools: Sequence[Tool], *, version: str, is_legacy: bool) -> None:
        """Store the data of a server that is ready.

        Args:
            tools: The server's current tools.
            version: The name and version the server reports. If they changed, the next start probes for the newer
                protocol again.
            is_legacy: The server was opened with the handshake of the older protocol.
        """
        self._guessed_at = None
        if self._server is None or self._cache is None:
            return
        before = self._read()
        was_legacy = self._is_fresh_legacy(before)
        is_legacy = is_legacy and self._server.protocol is Protocol.AUTO
        state: Mapping[str, Any] = {
            "legacy": is_legacy and not (was_legacy and before.get("version") != version),
            "version": version,
            "tools": [_to_json(tool) for tool in tools],
        }
        is_recent = self._compute_age(before, "written") < REWRITE_SECONDS
        if is_recent and all(before.get(name) == value for name, value in state.items()):
            return
        times = {"since": before["since"] if was_legacy else self._now(), "written": self._now()}
        if not self._cache.write(self._server, {**times, **state}):
            self._cache.write(self._server, {**times, **state, "tools": None})

    def _read(self) -> dict[str, Any]:
        return {} if self._server is None or self._cache is None else self._cache.read(self._server)

    def _is_fresh_legacy(self, stored: Mapping[str, Any]) -> bool:
        return stored.get("legacy") is True and self._compute_age(stored, "since") < REPROBE_SECONDS

    def _compute_age(self, stored: Mapping[str, Any], key: str) -> float:
        """Return the seconds since a stored time; infinity if the time is unknown or in the future."""
        since = stored.get(key)
        is_known = isinstance(since, int | float) and not isinstance(since, bool) and 0 <= since <= self._now()
        return self._now() - since if is_known and since is not None else float("inf")


def _to_json(tool: Tool) -> dict[str, Any]:
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True, include=_FIELDS)
