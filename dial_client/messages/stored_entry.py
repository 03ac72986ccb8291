"""Records in a stored conversation: the shown version, removed messages, settings, and details of turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EntryKind(StrEnum):
    """The kinds of entries that this release writes."""

    BRANCH = "branch"
    """``{"head"}``: the position of the message that the next message follows; -1 for the beginning."""
    REMOVAL = "removal"
    """``{"positions"}``: the positions of messages that no version shows any more."""
    TURN = "turn"
    """The details of the turn that ended before the entry (`conversations.turn_details`)."""
    SETTINGS = "settings"
    """The settings of the conversation from here on (`conversations.conversation_settings`)."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of a stored conversation, which is not a message."""

    kind: str
    """A value of `EntryKind`, or a kind that only a newer release knows, which is ignored."""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The data of the entry, of JSON types only."""

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"kind", "data"}``."""
        return {"kind": self.kind, "data": dict(self.data)}

    @classmethod
    def from_dict(cls, data: Any) -> StoredEntry | None:
        """Read the form of `to_dict`; None if `data` is None.

        Raises:
            TypeError, KeyError: `data` is not an entry.
        """
        if data is None:
            return None
        if not isinstance(data["kind"], str) or not isinstance(data["data"], dict):
            raise TypeError("an entry has a kind and data")
        return cls(data["kind"], data["data"])
