"""What was approved of a tool: its definition, held against what its server says of it now.

A server may describe a harmless tool until it is trusted, and another one afterwards (a "rug pull"). So what is
approved is not a name but a definition: all that a model reads of the tool, and what it says of its own effects.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dial_client.messages import ToolSpec
from dial_client.servers.json_cache import JsonCache, identity
from dial_client.settings.config_types import ServerSettings

MAX_TEXT = 16_000
"""Characters of a definition that are kept to be shown; of a longer one only the hash is."""
_UNSEEN = "the definition that was approved was too long to be kept"


def definition(tool: ToolSpec) -> str:
    """Give what is approved of a tool, as JSON that is the same whatever the order of its keys."""
    said = {
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
    return json.dumps(said, indent=2, sort_keys=True, default=str, ensure_ascii=False)


def difference(before: str, now: str) -> str:
    """Give the lines that differ between two definitions, as in a unified diff without its head."""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), n=1, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


class ToolPins:
    """The definitions that were approved, kept from one run to the next.

    Args:
        drawer: where they are kept.
        servers: how each server is reached. One that is an object of this process is never pinned.
    """

    def __init__(self, drawer: JsonCache, servers: Mapping[str, Any]) -> None:
        self._drawer = drawer
        self._servers = servers
        self._held: dict[tuple[str, str], str] = {}
        """What holds where nothing can be written, by the server's identity and the tool's own name."""

    def change(self, tool: ToolSpec) -> str:
        """Say how a tool differs from what was approved; empty where it does not, or nothing was."""
        entry, now = self._servers.get(tool.server), definition(tool)
        if not isinstance(entry, ServerSettings):
            return ""
        held = self._held.get((identity(entry), tool.tool))
        if held == now:
            return ""
        pin = self._read(entry).get(tool.tool) or (_pin(held) if held is not None else None)
        if pin is None or pin.get("sha256") == _hash(now):
            return ""
        before = pin.get("text")
        return difference(before if isinstance(before, str) and len(before) <= MAX_TEXT else _UNSEEN, now)

    def pin(self, tool: ToolSpec) -> None:
        """Take a tool for approved as it is now."""
        entry, now = self._servers.get(tool.server), definition(tool)
        if not isinstance(entry, ServerSettings) or self._held.get((identity(entry), tool.tool)) == now:
            return
        self._held[identity(entry), tool.tool] = now
        pins = self._read(entry)
        if pins.get(tool.tool, {}).get("sha256") == _hash(now):
            return
        pins[tool.tool] = _pin(now)
        if not self._drawer.write(entry, {"tools": pins}):
            self._drawer.write(entry, {"tools": {name: {"sha256": one.get("sha256")} for name, one in pins.items()}})

    def _read(self, entry: ServerSettings) -> dict[str, dict[str, Any]]:
        pins = self._drawer.read(entry).get("tools")
        found = pins.items() if isinstance(pins, dict) else ()
        return {name: pin for name, pin in found if isinstance(pin, dict)}


def _pin(text: str) -> dict[str, Any]:
    return {"sha256": _hash(text), **({"text": text} if len(text) <= MAX_TEXT else {})}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
