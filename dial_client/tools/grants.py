"""Stored grants: tools that the user always allowed, in later runs too, until they change or the grant is revoked.

A grant applies to the tool's definition and to the way its server is reached: its program with the arguments and the
working folder, or its URL. Another program under the same server name has no grants. The files are untrusted input: a
file that belongs to another user, or that others may write, grants nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dial_client.messages.message import ToolSpec
from dial_client.servers.server_cache import (
    MAX_TEXT,
    JsonCache,
    build_definition,
    compute_hash,
    compute_identity,
    describe_change,
)
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.argument_paths import find_current_folder


@dataclass(frozen=True, slots=True)
class Grant:
    """One tool that runs without approval. Its texts are as read from the file: make them safe before display."""

    id: str
    """Eight hexadecimal digits, which depend only on the tool's name and the way its server is reached."""
    server: str
    """The server's name in the configuration when it was granted."""
    tool: str
    reached: str
    """The server's program, without its arguments, or the origin of its URL."""
    cwd: str
    """The folder the program runs in; empty for a URL."""
    since: str
    """The time of the grant in ISO 8601, in UTC."""

    def to_dict(self) -> dict[str, str]:
        """Return the fields by name."""
        return asdict(self)


class GrantStore:
    """The grants of one user.

    Args:
        folder: The folder of the grants: one file for each server, readable by its owner only.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._cache = JsonCache(folder)

    def select_owner(self, owner: str) -> GrantStore:
        """Return the grants of one of several users of a program, in a folder below this one."""
        # An owner's name may have any characters, and would tell who uses the program.
        return GrantStore(self._folder / f"owner-{hashlib.sha256(owner.encode(errors='replace')).hexdigest()[:32]}")

    def find(self, entry: ServerSettings, tool: ToolSpec) -> Grant | None:
        """Return the grant of a tool; None if it has none, or has changed since."""
        key = compute_identity(_with_folder(entry))
        stored = self._read_tools(key).get(tool.tool)
        # The hash decides, not the name: a server that changes a granted tool ("rug pull") is asked about again.
        if not stored or stored.get("sha256") != compute_hash(build_definition(tool)):
            return None
        return _to_grant(key, tool.tool, stored)

    def describe_change(self, entry: ServerSettings, tool: ToolSpec) -> str:
        """Return the difference between a tool's definition and its grant; empty if equal, or not granted."""
        stored = self._read_tools(compute_identity(_with_folder(entry))).get(tool.tool, {})
        return describe_change(stored, build_definition(tool))

    def add(self, entry: ServerSettings, tool: ToolSpec) -> bool:
        """Grant a tool with its current definition, replacing an earlier grant; return whether the file was written."""
        located, text = _with_folder(entry), build_definition(tool)
        stored: dict[str, Any] = {
            "sha256": compute_hash(text),
            "server": entry.name,
            "reached": located.command or _find_origin(located.url or ""),
            "cwd": located.cwd or "",
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        tools = self._read_tools(compute_identity(located))
        with_text = {**tools, tool.tool: {**stored, "text": text}}
        if len(text) <= MAX_TEXT and self._cache.write(located, {"tools": with_text}):
            return True
        # The file would be too long with the text: the hash alone decides, only the diff cannot be shown then.
        return self._cache.write(located, {"tools": {**tools, tool.tool: stored}})

    def drop(self, entry: ServerSettings, tool: str) -> None:
        """Revoke the grant of one tool, if there is one."""
        self._remove(compute_identity(_with_folder(entry)), {tool})

    def list_grants(self) -> tuple[Grant, ...]:
        """Return all grants, sorted by server and tool."""
        grants = (
            _to_grant(key, name, stored)
            for key in self._cache.list_keys()
            for name, stored in self._read_tools(key).items()
        )
        return tuple(sorted(grants, key=lambda grant: (grant.server, grant.tool, grant.id)))

    def revoke(self, ids: set[str]) -> tuple[Grant, ...]:
        """Revoke the grants with these ids, and return the revoked grants."""
        revoked = tuple(grant for grant in self.list_grants() if grant.id in ids)
        for key in self._cache.list_keys():
            self._remove(key, {name for name in self._read_tools(key) if _compute_id(key, name) in ids})
        return revoked

    def _remove(self, key: str, names: set[str]) -> None:
        before = self._read_tools(key)
        after = {name: stored for name, stored in before.items() if name not in names}
        if after and len(after) < len(before):
            self._cache.write(key, {"tools": after})
        elif before and not after:
            self._cache.remove(key)

    def _read_tools(self, key: str) -> dict[str, dict[str, Any]]:
        # Another user of the machine who may write the file or its folder could grant every tool.
        if not all(_is_owned_by_user(path) for path in (self._folder, self._folder / f"{key}.json")):
            return {}
        return self._cache.read_definitions(key)


def _with_folder(entry: ServerSettings) -> ServerSettings:
    """Return an entry with the working folder of its program, which works on other files in another folder."""
    return replace(entry, cwd=entry.cwd or find_current_folder()) if entry.command else entry


def _is_owned_by_user(path: Path) -> bool:
    """Return whether only this user owns and may write a file or folder. On Windows this is not checked."""
    if sys.platform == "win32":
        return True
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _to_grant(key: str, tool: str, stored: Mapping[str, Any]) -> Grant:
    # The file may have been edited: what is shown of it has a bounded length.
    texts = {name: str(stored.get(name) or "")[:1000] for name in ("server", "reached", "cwd", "since")}
    return Grant(_compute_id(key, tool), tool=tool, **texts)


def _compute_id(key: str, tool: str) -> str:
    return hashlib.sha256(f"{key}/{tool}".encode(errors="replace")).hexdigest()[:8]


def _find_origin(url: str) -> str:
    """Return the scheme, host and port of a URL: its user information, path and query may contain secrets."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"
