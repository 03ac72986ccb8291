"""Pinned tools: the tool definitions that were approved, for comparison with the current definitions.

A server may describe a harmless tool until the user has approved it, and change the tool afterwards (a "rug pull").
Therefore an approval is valid for one definition, not for a name. The definition consists of everything the model reads
about the tool, and the annotations about its effects.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.servers.json_cache import JsonCache, compute_identity
from dial_client.settings.config_types import ServerSettings

MAX_TEXT = 16_000
"""Maximum characters of a definition that is stored as text; for a longer definition only the hash is stored."""
_NOT_STORED = "the definition that was approved was too long to be kept"


def build_definition(tool: ToolSpec) -> str:
    """Return the definition of a tool, as JSON that does not depend on the order of keys."""
    fields = {
        "tool": tool.tool,
        "title": tool.title,
        "description": tool.description.splitlines(),
        "input_schema": tool.original_schema or tool.input_schema,
        "output_schema": tool.output_schema,
        "read_only": tool.read_only,
        "idempotent": tool.idempotent,
        "destructive": tool.destructive,
        "open_world": tool.open_world,
    }
    return json.dumps(fields, indent=2, sort_keys=True, default=str, ensure_ascii=False)


def compare_definitions(before: str, now: str) -> str:
    """Return the difference between two definitions as a unified diff without headers."""
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(), now.splitlines(), n=1, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


class ToolPins:
    """The approved tool definitions, stored from run to run.

    Args:
        cache: The folder to store the definitions in.
        servers: How each server is reached, by name. The tools of a server object in this process are never pinned.
    """

    def __init__(self, cache: JsonCache, servers: Mapping[str, Any]) -> None:
        self._cache = cache
        self._servers = servers
        self._approved: dict[tuple[str, str], str] = {}
        """The definitions approved in this run, by server identity and the server's name for the tool."""

    def change(self, tool: ToolSpec) -> str:
        """Return the diff between a tool's approved and current definitions; empty if equal, or none was approved."""
        entry, now = self._servers.get(tool.server), build_definition(tool)
        if not isinstance(entry, ServerSettings):
            return ""
        approved = self._approved.get((compute_identity(entry), tool.tool))
        if approved == now:
            return ""
        pin = self._read(entry).get(tool.tool) or (_pin(approved) if approved is not None else None)
        if pin is None or pin.get("sha256") == compute_hash(now):
            return ""
        before = pin.get("text")
        return compare_definitions(before if isinstance(before, str) and len(before) <= MAX_TEXT else _NOT_STORED, now)

    def pin(self, tool: ToolSpec) -> None:
        """Store the current definition of a tool as approved."""
        entry, now = self._servers.get(tool.server), build_definition(tool)
        if not isinstance(entry, ServerSettings) or self._approved.get((compute_identity(entry), tool.tool)) == now:
            return
        self._approved[compute_identity(entry), tool.tool] = now
        pins = self._read(entry)
        if pins.get(tool.tool, {}).get("sha256") == compute_hash(now):
            return
        pins[tool.tool] = _pin(now)
        if not self._cache.write(entry, {"tools": pins}):
            self._cache.write(entry, {"tools": {name: {"sha256": pin.get("sha256")} for name, pin in pins.items()}})

    def _read(self, entry: ServerSettings) -> dict[str, dict[str, Any]]:
        pins = self._cache.read(entry).get("tools")
        found = pins.items() if isinstance(pins, dict) else ()
        return {name: pin for name, pin in found if isinstance(pin, dict)}


def _pin(text: str) -> dict[str, Any]:
    return {"sha256": compute_hash(text), **({"text": text} if len(text) <= MAX_TEXT else {})}


def compute_hash(text: str) -> str:
    """Return the SHA-256 of a definition, in hexadecimal digits."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
