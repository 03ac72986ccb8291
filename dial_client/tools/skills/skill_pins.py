"""The skills of servers that were used, and how they were then: a skill that has changed since is withheld."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from dial_client.servers.connection import Connection
from dial_client.servers.owner_connection import OwnerConnection
from dial_client.servers.server_cache import MAX_TEXT, JsonCache, compute_identity
from dial_client.settings.config_types import ServerSettings
from dial_client.tools.skills.skill_manifest import ServerSkill


class SkillPins:
    """The manifests of the skills that were read, or that the user trusts, stored from run to run.

    Args:
        cache: The folder to store them in; None to keep them in memory only.
        connections: The servers by name. A server object in this process is kept in memory only.
    """

    def __init__(self, cache: JsonCache | None, connections: Mapping[str, Connection]) -> None:
        self._cache, self._connections = cache, connections
        # The pins of this run, by person, server and URI: they hold also if the file cannot be written.
        self._known: dict[tuple[str, str, str], dict[str, str]] = {}
        # The files as they were read last, by name, with their times of modification: a turn looks up many skills.
        self._files: dict[str, tuple[int, dict[str, dict[str, str]]]] = {}

    def find(self, skill: ServerSkill) -> dict[str, str]:
        """Return the pinned ``manifest`` and ``text`` of a skill; empty if it was never read."""
        key = self._find_key(skill.server)
        stored = self._read(key).get(skill.uri) if key else None
        # The file comes first: another program may have been told that a newer manifest is trusted.
        return stored or self._known.get((self._find_owner(skill.server), skill.server, skill.uri)) or {}

    def is_changed(self, skill: ServerSkill) -> bool:
        """Return True if the skill has another manifest than the pinned one."""
        pin = self.find(skill)
        return bool(pin) and pin.get("manifest") != skill.manifest

    def save(self, skill: ServerSkill, text: str) -> None:
        """Pin the manifest of a skill, with the text of its ``SKILL.md`` to show a later change."""
        pin = {"manifest": skill.manifest, "text": text if len(text) <= MAX_TEXT else ""}
        self._known[self._find_owner(skill.server), skill.server, skill.uri] = pin
        key = self._find_key(skill.server)
        if key and self._cache is not None and self._read(key).get(skill.uri) != pin:
            pins = self._read(key) | {skill.uri: pin}
            # Texts are only for showing a change: without them, the manifests still find every change.
            if not self._cache.write(key, {"skills": pins}):
                self._cache.write(key, {"skills": {uri: {**old, "text": ""} for uri, old in pins.items()}})
            self._files.pop(key, None)

    def _read(self, key: str) -> dict[str, dict[str, str]]:
        """Return the stored pins of a server by URI; the file is read again when it has changed."""
        if self._cache is None:
            return {}
        try:
            changed_at = self._cache.find_path(key).stat().st_mtime_ns
        except OSError:
            return {}
        known = self._files.get(key)
        if known is None or known[0] != changed_at:
            found = self._cache.read(key).get("skills")
            pins = found.items() if isinstance(found, dict) else ()
            known = self._files[key] = changed_at, {uri: pin for uri, pin in pins if isinstance(pin, dict)}
        return known[1]

    def _find_key(self, server: str) -> str:
        """Return the name of the server's file; empty for a server object in this process."""
        connection = self._connections.get(server)
        settings = connection.settings if connection is not None else None
        if not isinstance(settings, ServerSettings):
            return ""
        identity = f"skills of {compute_identity(settings)} for {self._find_owner(server)}"
        return hashlib.sha256(identity.encode()).hexdigest()[:32]

    def _find_owner(self, server: str) -> str:
        """Return the person whose session with the server has the skill; empty for a server of all persons."""
        connection = self._connections.get(server)
        return connection.owner if isinstance(connection, OwnerConnection) else ""
