"""What is remembered of a server from one run to the next: the era to open it with, and its tools."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dial_client.servers.json_cache import JsonCache
from dial_client.settings.config_types import Protocol, ServerSettings

if TYPE_CHECKING:
    from mcp_types import Tool

REPROBE_SECONDS = 7 * 24 * 3600.0
"""A server that was opened as legacy is asked for the newer era again after this long."""
REWRITE_SECONDS = 24 * 3600.0
"""What is still right is written again after this long: the drawer throws away what is oldest."""
_FIELDS = {"name", "title", "description", "input_schema", "output_schema", "annotations"}


class ServerCache:
    """What one server was like the last time. It knows nothing, and keeps nothing, without settings or a drawer.

    Args:
        server: how it is reached; None for a server object of this process.
        drawer: where it is kept; None for nowhere.
        now: gives the seconds since 1970.
    """

    def __init__(
        self, server: ServerSettings | None, drawer: JsonCache | None, now: Callable[[], float] = time.time
    ) -> None:
        self._server = server
        self._drawer = drawer
        self._now = now
        self._guessed_at: float | None = None

    def is_legacy(self) -> bool:
        """Whether to open it with the handshake: asking for the newer era first came to nothing the last time.

        A server that ignores what it does not know costs ten seconds when it is asked.
        """
        said = self._read()
        return said.get("legacy") is True and self._age(said, "since") < REPROBE_SECONDS

    def guess(self) -> bool:
        """Open it as `is_legacy` says; that is a guess until it is `save`d."""
        self._guessed_at = time.monotonic() if self.is_legacy() else None
        return self._guessed_at is not None

    def was_wrong(self, within: float) -> bool:
        """Take note that it did not start, and forget the guess, if there was one.

        Args:
            within: seconds a start may take; where they are over there is no time to try again.

        Returns:
            Whether to try again, without a guess.
        """
        guessed_at, self._guessed_at = self._guessed_at, None
        if guessed_at is None or self._server is None or self._drawer is None:
            return False
        self._drawer.write(self._server, self._read() | {"legacy": False})
        return time.monotonic() - guessed_at < within

    def tools(self) -> tuple[Tool, ...] | None:
        """Give the tools it had the last time, those that can be read; None where they are not known."""
        said = self._read().get("tools")
        if not isinstance(said, list):
            return None
        from mcp_types import Tool
        from pydantic import ValidationError

        known: list[Tool] = []
        for tool in said:
            try:
                known.append(Tool.model_validate(tool))
            except ValidationError:
                continue
        return tuple(known)

    def save(self, tools: Sequence[Tool], *, version: str, is_legacy: bool) -> None:
        """Remember it: it is ready.

        Args:
            tools: what it offers now.
            version: what it calls itself, and its version. A server that was upgraded may speak another era: it is
                asked the next time.
            is_legacy: it was opened with the handshake.
        """
        self._guessed_at = None
        if self._server is None or self._drawer is None:
            return
        before = self._read()
        was_legacy = before.get("legacy") is True and self._age(before, "since") < REPROBE_SECONDS
        is_legacy = is_legacy and self._server.protocol is Protocol.AUTO
        known: Mapping[str, Any] = {
            "legacy": is_legacy and not (was_legacy and before.get("version") != version),
            "version": version,
            "tools": [_on_the_wire(tool) for tool in tools],
        }
        is_recent = self._age(before, "written") < REWRITE_SECONDS
        if is_recent and all(before.get(name) == value for name, value in known.items()):
            return
        times = {"since": before["since"] if was_legacy else self._now(), "written": self._now()}
        if not self._drawer.write(self._server, {**times, **known}):
            self._drawer.write(self._server, {**times, **known, "tools": None})

    def _read(self) -> dict[str, Any]:
        return {} if self._server is None or self._drawer is None else self._drawer.read(self._server)

    def _age(self, said: Mapping[str, Any], what: str) -> float:
        """Give the seconds since something was found out; without end where that is not known, or still to come."""
        since = said.get(what)
        is_known = isinstance(since, int | float) and not isinstance(since, bool) and 0 <= since <= self._now()
        return self._now() - since if is_known and since is not None else float("inf")


def _on_the_wire(tool: Tool) -> dict[str, Any]:
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True, include=_FIELDS)
