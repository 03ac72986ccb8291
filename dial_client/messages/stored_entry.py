"""Entries of a stored conversation that are no messages: which version is shown, what was removed, what a turn used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EntryKind(StrEnum):
    """The kinds of entries that this release writes."""

    BRANCH = "branch"
    """``{"head"}``: the position of the message that the conversation continues behind; -1 for its beginning."""
    REMOVAL = "removal"
    """``{"positions"}``: the positions of messages that are shown no longer, in any version."""
    TURN = "turn"
    """The details of the turn that ended before the entry (`conversations.turn_details`)."""
    SETTINGS = "settings"
    """The settings of the conversation from here on (`conversations.conversation_settings`)."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of a stored conversation."""

    kind: str
    """One of `EntryKind`, or the kind of a newer release, which has no effect here."""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of JSON types only."""

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"kind", "data"}``."""
        return {"kind": self.kind, "data": dict(self.data)}

    @classmethod
    def from_dict(cls, data: Any) -> StoredEntry | None:
        """Read the form of `to_dict`; None for None.

        Raises:
            TypeError, KeyError: this is no entry.
        """
        if data is None:
            return None
        if not isinstance(data["kind"], str) or not isinstance(data["data"], dict):
            raise TypeError("an entry has a kind and data")
        return cls(data["kind"], data["data"])
