"""A program that waits for a person: its state, sealed, to be stored with the conversation and resumed by any process.

What is stored comes back as data of strangers: a file may be edited, a conversation imported. The interpreter does not
protect itself from a state that is not its own, so that only a state with the seal of this user is loaded.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dial_client import __version__
from dial_client.messages.message import PendingApproval
from dial_client.runtime.json_fields import expect_text
from dial_client.runtime.key_files import read_or_make_key
from dial_client.runtime.logs import get_logger

log = get_logger(__name__)

# The form of a paused program.
FORM = 1
# Bytes of the interpreter's state, and of everything, of a program that can be paused.
MAX_STATE, MAX_ALL = 1_000_000, 3_000_000


class NotRestored(Exception):
    """A paused program that cannot go on; the text says why, for the model."""


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

    def seal(self, interpreter: str) -> dict[str, Any] | None:
        """Return the program in JSON types, with a seal; None if it is too large to be stored.

        Args:
            interpreter: The version of the interpreter.
        """
        content = {
            "call": self.call,
            "form": FORM,
            "host": __version__,
            "interpreter": interpreter,
            "source": self.source,
            "printed": self.printed,
            "state": base64.b64encode(self.state).decode(),
            "waiting": [[call.id, call.line, call.pending.to_dict()] for call in self.waiting],
            "ended": list(self.ended),
            "taint": self.taint,
        }
        text = _write(content)
        if len(self.state) > MAX_STATE or len(text) > MAX_ALL:
            return None
        return {**content, "seal": _compute_seal(text)}


def restore(data: Mapping[str, Any], interpreter: str, call: str) -> PausedSnippet:
    """Return a program as `PausedSnippet.seal` has stored it.

    Args:
        data: The stored program.
        interpreter: The version of the interpreter, which alone can go on with its states.
        call: The id of the program's own call.

    Raises:
        NotRestored: It was changed, sealed by another user, or paused by another version.
    """
    content = {name: value for name, value in data.items() if name != "seal"}
    text = _write(content)
    # Before anything of it is read: only what this user's programs have written is.
    if len(text) > MAX_ALL or not hmac.compare_digest(_compute_seal(text), str(data.get("seal"))):
        raise NotRestored("what was stored of it is not what this program has stored, or was stored for another user")
    if (content["form"], content["host"], content["interpreter"]) != (FORM, __version__, interpreter):
        raise NotRestored("it was paused by another version of this program")
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
    )


def _write(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True)


def _compute_seal(text: str) -> str:
    try:
        key = read_or_make_key(find_key_folder() / "seal.key")
    except OSError as error:
        log.warning("snippet_key_not_stored", error=type(error).__name__)
        raise NotRestored("the key that seals paused programs cannot be read") from error
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def find_key_folder() -> Path:
    """Return the user's folder for the key of paused programs."""
    import platformdirs

    return Path(platformdirs.user_state_dir("dial-client"), "snippets")
