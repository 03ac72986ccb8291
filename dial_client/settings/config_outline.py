"""The entries of a configuration as written, before any of them takes effect.

Variables are not expanded, no other file is read, and values may have a wrong type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dial_client.settings.jsonc import Node

OutlineEntry = Mapping[str, Node]
"""The members of an object: known keys under their canonical names, unknown keys unchanged."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The entries of a configuration, in the order of the file."""

    servers: Mapping[str, OutlineEntry]
    models: Mapping[str, OutlineEntry]
    default_model: Node | None = None
    unknown: OutlineEntry = field(default_factory=dict)
    """The top-level members that are not in the other fields."""


def is_enabled(entry: OutlineEntry) -> bool:
    """Return True if the server of an entry is enabled."""
    on, off = (entry[key].value if key in entry else None for key in ("enabled", "disabled"))
    return on is not False and off is not True
