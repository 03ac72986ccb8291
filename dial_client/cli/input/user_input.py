"""What a person sent: one line of input, which may have line breaks."""

from __future__ import annotations

from dataclasses import dataclass

from dial_client.messages.message import Part


@dataclass(frozen=True, slots=True)
class UserInput:
    """One input, as it was sent."""

    text: str
    """The whole text; a text that was pasted is in it."""
    shown: str
    """The text as it stood in the input line: a long pasted text is folded, ``[pasted 200 lines]``."""
    typed: str
    """The text that the person typed: without pasted text, which refers to no file, resource or command."""
    attachments: tuple[Part, ...] = ()
    """Parts that go with the message beside those that `typed` refers to, such as the output of a shell command."""

    @classmethod
    def line(cls, text: str) -> UserInput:
        """Return an input of which every character was typed."""
        return cls(text, text, text)
