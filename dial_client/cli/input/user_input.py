"""One input of the user, which may have line breaks."""

from __future__ import annotations

from dataclasses import dataclass

from dial_client.messages.message import Part


@dataclass(frozen=True, slots=True)
class UserInput:
    """One input, as it was sent."""

    text: str
    """The whole text, including pasted text."""
    shown: str
    """The text as the input line showed it, with long pasted text folded: ``[pasted 200 lines]``."""
    typed: str
    """The text without pasted text: only typed text can refer to files, resources and commands."""
    attachments: tuple[Part, ...] = ()
    """Parts to attach in addition to those that `typed` refers to, such as the output of a shell command."""
