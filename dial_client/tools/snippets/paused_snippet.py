"""A program that waits for a person: sealed, stored with the conversation, and resumed by any process."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dial_client.messages.message import PendingApproval
from dial_client.runtime.json_fields import expect_text
from dial_client.tools.snippets.state_seal import MAX_STATE, NotRestored, SealedKind, open_sealed, seal


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call of a paused program, which has not run."""

    id: int
    """The interpreter's number of the call."""
    line: int
    pending: PendingApproval
    """What is asked about the call."""


@dataclass(frozen=True, slots=True)
class PausedSnippet:
    """A program all of whose calls have ended, or wait for approval."""

    call: str
    """The id of the program's own call."""
    source: str
    printed: str
    state: bytes
    """The state of the interpreter."""
    waiting: tuple[WaitingCall, ...]
    ended: tuple[str, ...]
    """What has become of the other calls, one line each."""
    taint: str
    attachments: int = 0
    """The number of images and documents so far."""
    snippets: int | None = None
    """The number of earlier programs whose names it has; None if it keeps no names."""

    def seal(self, interpreter: str) -> dict[str, Any] | None:
        """Return the program in JSON types, with a seal; None if it is too large to be stored.

        Args:
            interpreter: The version of the interpreter.

        Raises:
            NotRestored: The key cannot be read.
        """
        if len(self.state) > MAX_STATE:
            return None
        content = {
            "call": self.call,
            "source": self.source,
            "printed": self.printed,
            "state": base64.b64encode(self.state).decode(),
            "waiting": [[call.id, call.line, call.pending.to_dict()] for call in self.waiting],
            "ended": list(self.ended),
            "taint": self.taint,
            "attachments": self.attachments,
            "snippets": self.snippets,
        }
        return seal(SealedKind.PAUSED, content, interpreter)


def restore(data: Mapping[str, Any], interpreter: str, call: str) -> PausedSnippet:
    """Return a program as `PausedSnippet.seal` has stored it.

    Args:
        data: The stored program.
        interpreter: The version of the interpreter, which alone can go on with its states.
        call: The id of the program's own call.

    Raises:
        NotRestored: It was changed, sealed by another user, or paused by another version.
    """
    content = open_sealed(SealedKind.PAUSED, data, interpreter)
    if content["call"] != call:
        raise NotRestored("what was stored belongs to another program")
    waiting = tuple(
        WaitingCall(int(id_), int(line), PendingApproval.from_dict(pending))
        for id_, line, pending in content["waiting"]
    )
    return PausedSnippet(
        call,
        expect_text(content["source"]),
        expect_text(content["printed"]),
        base64.b64decode(content["state"]),
        waiting,
        tuple(content["ended"]),
        expect_text(content["taint"]),
        content["attachments"],
        content["snippets"],
    )
