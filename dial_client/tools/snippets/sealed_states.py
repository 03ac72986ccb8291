"""States of the interpreter that outlive a program, sealed: a program that waits for a person, and kept names.

What is stored comes back as data of strangers: a file may be edited, a conversation imported. The interpreter does not
protect itself from a state that is not its own, so that only a state with the seal of this user is loaded.

A program that waits is stored with the conversation, and resumed by any process. The names that a program has left for
the next one of its conversation (variables, functions, modules) are the interpreter's whole state between two programs,
in the result of the call that has left them. So they are where this result is: another version of the conversation has
its own, and one that is removed takes its names with it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dial_client import __version__
from dial_client.messages.message import Message, PendingApproval, Role
from dial_client.runtime.json_fields import expect_text
from dial_client.runtime.logs import get_logger
from dial_client.runtime.private_files import read_or_make_key

log = get_logger(__name__)

# The form of what is sealed.
FORM = 2
# Bytes of the interpreter's state, and of everything that is sealed with it.
MAX_STATE, MAX_ALL = 1_000_000, 3_000_000


class SealedKind(StrEnum):
    """What is sealed: one kind is not taken for the other."""

    PAUSED = "paused"
    KEPT = "kept"


class NotRestored(Exception):
    """A state that cannot be used; the text says why, for the model."""


def seal(kind: SealedKind, content: Mapping[str, Any], interpreter: str) -> dict[str, Any] | None:
    """Return content of JSON types with its versions and a seal; None if it is too large to be stored.

    Args:
        kind: What it is.
        content: The content.
        interpreter: The version of the interpreter, which alone can go on with its states.

    Raises:
        NotRestored: The key cannot be read.
    """
    content = {**content, "kind": kind, "form": FORM, "host": __version__, "interpreter": interpreter}
    text = _write(content)
    return None if len(text) > MAX_ALL else {**content, "seal": _compute_seal(text)}


def open_sealed(kind: SealedKind, data: Mapping[str, Any], interpreter: str) -> Mapping[str, Any]:
    """Return the content of stored data; the arguments are those of `seal`.

    Raises:
        NotRestored: It was changed, sealed by another user, or by another version.
    """
    content = {name: value for name, value in data.items() if name != "seal"}
    text = _write(content)
    # Before anything of it is read: only what this user's programs have written is.
    if len(text) > MAX_ALL or not hmac.compare_digest(_compute_seal(text).encode(), str(data.get("seal")).encode()):
        raise NotRestored("what was stored of it is not what this program has stored, or was stored for another user")
    if (content.get("form"), content.get("host"), content.get("interpreter")) != (FORM, __version__, interpreter):
        raise NotRestored("it was stored by another version of this program")
    if content["kind"] != kind:
        raise NotRestored("what was stored is something else")
    return content


def _write(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True)


def _compute_seal(text: str) -> str:
    try:
        key = read_or_make_key(find_key_folder() / "seal.key")
    except OSError as error:
        log.warning("snippet_key_not_stored", error=type(error).__name__)
        raise NotRestored("the key that seals the states of programs cannot be read") from error
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def find_key_folder() -> Path:
    """Return the user's folder for the key of the states of programs."""
    import platformdirs

    return Path(platformdirs.user_state_dir("dial-client"), "snippets")


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
