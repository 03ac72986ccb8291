"""The names that a program has left for the next one of its conversation: variables, functions, modules.

They are the interpreter's whole state between two programs, sealed, in the result of the call that has left them. So
they are where this result is: another version of the conversation has its own, and one that is removed takes its names
with it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.messages.message import Message, Role
from dial_client.tools.snippets.state_seal import MAX_STATE, NotRestored, SealedKind, open_sealed, seal

# Bytes of the compressed state: each program of a conversation that keeps names stores its own.
MAX_COMPRESSED = 256_000
# The most names.
MAX_NAMES = 1_000


@dataclass(frozen=True, slots=True)
class KeptNames:
    """The names after a program; without arguments, those before the first."""

    state: bytes = b""
    """The state of the interpreter; empty if there is none."""
    names: tuple[str, ...] = ()
    snippets: int = 0
    """The number of programs that have run in the state."""
    attachments: int = 0
    """The number of images and documents that these programs have had."""
    taint: str = ""
    """An untrusted source of what these programs, or the conversation in which they were written, have read."""

    def seal(self, interpreter: str, call: str, owner: str) -> dict[str, Any] | None:
        """Return the names in JSON types, with a seal; None if they are too large to be stored.

        Args:
            interpreter: The version of the interpreter.
            call: The id of the call of the program.
            owner: The person whom the program acted for.

        Raises:
            NotRestored: The key cannot be read.
        """
        compressed = zlib.compress(self.state, 1) if len(self.state) <= MAX_STATE else b""
        if not 0 < len(compressed) <= MAX_COMPRESSED or len(self.names) > MAX_NAMES:
            return None
        content = {
            "call": call,
            "owner": owner,
            "state": base64.b64encode(compressed).decode(),
            "names": list(self.names),
            "snippets": self.snippets,
            "attachments": self.attachments,
            "taint": self.taint,
        }
        return seal(SealedKind.KEPT, content, interpreter)


def restore_names(data: Mapping[str, Any], interpreter: str, call: str, owner: str) -> KeptNames:
    """Return names as `KeptNames.seal` has stored them, with its arguments; an empty mapping is no names.

    Raises:
        NotRestored: They were changed, sealed by another user or version, or belong to another program or person.
    """
    if not data:
        return KeptNames()
    content = open_sealed(SealedKind.KEPT, data, interpreter)
    if (content["call"], content["owner"]) != (call, owner):
        raise NotRestored("what was stored belongs to another program or person")
    state = zlib.decompress(base64.b64decode(content["state"]))
    return KeptNames(state, tuple(content["names"]), content["snippets"], content["attachments"], content["taint"])


def find_kept(messages: Sequence[Message]) -> tuple[str, Mapping[str, Any]]:
    """Return the id of the last call in a history that has left names, and these, sealed; empty if there are none."""
    for message in reversed(messages):
        if message.role is Role.TOOL and message.kept is not None:
            return message.tool_call_id or "", message.kept
    return "", {}
