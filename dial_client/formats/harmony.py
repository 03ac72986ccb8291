"""What stands at the beginning of a turn: who speaks; in harmony, the format of gpt-oss, on which channel, to whom.

A message is ``<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>``; what is
said on the channel ``analysis`` is reasoning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dial_client.formats.stream_buffer import StepResult

_WORDS = (
    "analysis", "commentary", "final",
    "assistant", "user", "system", "developer", "tool", "functions.", "python", "browser",
)  # fmt: skip
_INNER = ("<|message|>", "<|channel|>", "<|constrain|>")
_FILLING = re.compile(r"(?:[^<\n]|<\|(?:channel|constrain)\|>){0,300}+")
_HEADER_END = "<|end_header_id|>"
_RECIPIENT = re.compile(r"\bto=([\w.-]{1,128})")


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before a message."""

    channel: str
    recipient: str
    """The tool that is called; empty where people are spoken to."""
    is_reply: bool
    """The model speaks for itself."""


def may_begin(text: str) -> StepResult:
    """Whether a header stands here, whole; None where more of it must be seen."""
    if not text.startswith(_WORDS):
        return None if any(word.startswith(text) for word in _WORDS) else False
    found = _FILLING.match(text)
    rest = text[found.end() :] if found else ""
    if rest.startswith("<|message|>"):
        return True
    return None if any(token.startswith(rest) for token in _INNER) else False


_ROLES = ("assistant", "model", "user", "system", "tool", "ipython", "developer")


def role_may_begin(text: str) -> StepResult:
    """Whether the name of a role stands here, with a line or a header to itself; None where more must be seen."""
    for role in _ROLES:
        if role.startswith(text):
            return None
        if text.startswith(role):
            rest = text[len(role) :]
            return True if rest.startswith(("\n", _HEADER_END)) else (None if _HEADER_END.startswith(rest) else False)
    return False


def is_model(role: str) -> bool:
    """Whether a role is the model's own."""
    return role.strip() in ("assistant", "model")


def header_of(text: str) -> Header:
    """Read a header, without the tokens around it."""
    words = re.split(r"<\|(?:channel|constrain)\|>|\s", text)
    channel = next((word for word in words if word in _WORDS[:3]), "")
    recipient = _RECIPIENT.search(text)
    is_reply = words[0] in ("assistant", *_WORDS[:3])
    return Header(channel, recipient.group(1) if recipient else "", is_reply)
