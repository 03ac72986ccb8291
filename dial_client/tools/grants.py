"""Grants that outlive a run: tools a person allowed for always, until they change or the grant is revoked.

A grant is bound to the tool's definition and to how its server is reached: its program with the arguments and the
folder it runs in, or its URL. A server of the same name that is another program has none of them. What is read is
input like any other: another program may have written it, so a file that is not the user's own, or that others may
write, grants nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dial_client.messages.message import ToolSpec
from dial_client.servers.json_cache import JsonCache, identity
from dial_client.servers.tool_pins import MAX_TEXT, definition, difference
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.argument_paths import current_folder

_KEY = re.compile(r"[0-9a-f]{32}")
_UNSEEN = "the definition that was granted was too long to be kept"


@dataclass(frozen=True, slots=True)
class Grant:
    """One tool that runs without asking. Its texts are as they were read: make them safe before they are shown."""

    id: str
    """Eight hexadecimal digits, the same for as long as the tool and its server are."""
    server: str
    """The server's name in the configuration when it was granted."""
    tool: str
    reached: str
    """The server's program, without its arguments, or the origin of its URL."""
    cwd: str
    """The folder the program runs in; empty for a URL."""
    since: str
    """When it was granted: ISO 8601, in UTC."""

    def to_dict(self) -> dict[str, str]:
        """Return the fields by their names."""
        return asdict(self)


class GrantStore:
    """The grants of one user.

    Args:
        folder: where they are kept, a file for each server, readable by the owner only.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._cache = JsonCache(folder)

    def find(self, entry: ServerSettings, tool: ToolSpec) -> Grant | None:
        """Return the grant of a tool as it is now; None where there is none, or the tool has changed since."""
        key = identity(_with_folder(entry))
        kept = self._tools(key).get(tool.tool)
        return (
            _to_grant(key, tool.tool, kept) if kept and kept.get("sha256") == _compute_hash(definition(tool)) else None
        )

    def change(self, entry: ServerSettings, tool: ToolSpec) -> str:
        """Return the difference between a tool and its grant; empty if there is none, or no grant."""
        kept, now = self._tools(identity(_with_folder(entry))).get(tool.tool), definition(tool)
        if not kept or kept.get("sha256") == _compute_hash(now):
            return ""
        text = kept.get("text")
        return difference(text if isinstance(text, str) else _UNSEEN, now)

    def add(self, entry: ServerSettings, tool: ToolSpec) -> bool:
        """Grant a tool as it is now, in place of its earlier grant; return True if the grant could be written."""
        located, now = _with_folder(entry), definition(tool)
        kept: dict[str, Any] = {
            "sha256": _compute_hash(now),
            "server": entry.name,
            "reached": located.command or _find_origin(located.url or ""),
            "cwd": located.cwd or "",
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        tools = self._tools(identity(located))
        if len(now) <= MAX_TEXT and self._cache.write(located, {"tools": {**tools, tool.tool: {**kept, "text": now}}}):
            return True
        return self._cache.write(located, {"tools": {**tools, tool.tool: kept}})

    def drop(self, entry: ServerSettings, tool: str) -> None:
        """Revoke the grant of one tool, if there is one."""
        self._remove(identity(_with_folder(entry)), {tool})

    def all(self) -> tuple[Grant, ...]:
        """Return all grants, by server and tool."""
        found = (_to_grant(key, name, kept) for key in self._keys() for name, kept in self._tools(key).items())
        return tuple(sorted(found, key=lambda grant: (grant.server, grant.tool, grant.id)))

    def revoke(self, ids: set[str]) -> tuple[Grant, ...]:
        """Revoke the grants with these ids, and return those that were there."""
        gone = tuple(grant for grant in self.all() if grant.id in ids)
        for key in tuple(self._keys()):
            names = {name for name in self._tools(key) if _compute_id(key, name) in ids}
            if names:
                self._remove(key, names)
        return gone

    def _remove(self, key: str, names: set[str]) -> None:
        before = self._tools(key)
        after = {name: kept for name, kept in before.items() if name not in names}
        if len(after) < len(before):
            self._cache.rewrite(key, {"tools": after} if after else None)

    def _keys(self) -> Iterator[str]:
        return (key for key in self._cache.keys() if _KEY.fullmatch(key))  # noqa: SIM118 - no mapping

    def _tools(self, key: str) -> dict[str, dict[str, Any]]:
        if not all(_is_ours(path) for path in (self._folder, self._folder / f"{key}.json")):
            return {}
        tools = self._cache.read_key(key).get("tools")
        found = tools.items() if isinstance(tools, dict) else ()
        return {name: kept for name, kept in found if isinstance(kept, dict)}


def _with_folder(entry: ServerSettings) -> ServerSettings:
    """Return an entry with the folder its program runs in: in another folder the program works on other files."""
    return replace(entry, cwd=entry.cwd or current_folder()) if entry.command else entry


def _is_ours(path: Path) -> bool:
    """Return True if a file or folder belongs to this user, and nobody else may write it; on POSIX systems only."""
    if sys.platform == "win32":
        return True
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _to_grant(key: str, tool: str, kept: Mapping[str, Any]) -> Grant:
    texts = {name: str(kept.get(name) or "")[:1000] for name in ("server", "reached", "cwd", "since")}
    return Grant(_compute_id(key, tool), tool=tool, **texts)


def _compute_id(key: str, tool: str) -> str:
    return hashlib.sha256(f"{key}/{tool}".encode(errors="replace")).hexdigest()[:8]


def _find_origin(url: str) -> str:
    """Return scheme and host of a URL: what follows, or a user's name before, may be a secret."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


def _compute_hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
