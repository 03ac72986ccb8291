"""The seal of what the interpreter is in the middle of, which is stored outside of this program and comes back.

What is stored comes back as data of strangers: a file may be edited, a conversation imported. The interpreter does not
protect itself from a state that is not its own, so that only a state with the seal of this user is loaded.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from dial_client import __version__
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
