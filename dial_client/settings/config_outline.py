"""The entries of a configuration as they are written, before any of them takes effect.

Nothing is expanded, no other file is read, and no value is believed to be of the right type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dial_client.settings.jsonc import Node

Entry = Mapping[str, Node]
"""What an object holds: known keys under their proper names, unknown ones under their own."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The entries of a configuration, in the order of the file."""

    servers: Mapping[str, Entry]
    models: Mapping[str, Entry]
    default_model: Node | None = None
    unknown: Entry = field(default_factory=dict)
    """All else that stands at the top."""


def is_enabled(entry: Entry) -> bool:
    """Return True if the server of an entry is used."""
    on, off = (entry[key].value if key in entry else None for key in ("enabled", "disabled"))
    return on is not False and off is not True
