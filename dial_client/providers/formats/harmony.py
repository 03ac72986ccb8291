"""Parses the beginning of a turn: its role, and in harmony, the format of gpt-oss, its channel and recipient.

A harmony message is ``<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>``.
The channel ``analysis`` contains reasoning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dial_client.providers.formats.stream_buffer import Lookahead

_WORDS = (
    "analysis", "commentary", "final",
    "assistant", "user", "system", "developer", "tool", "functions.", "python", "browser",
)  # fmt: skip
_INNER = ("<|message|>", "<|channel|>", "<|constrain|>")
_FILLING = re.compile(r"(?>(?:[^<\n]|<\|(?:channel|constrain)\|>){0,300})")
_HEADER_END = "<|end_header_id|>"
_RECIPIENT = re.compile(r"\bto=([\w.-]{1,128})")


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a harmony message."""

    channel: str
    recipient: str
    """The called tool; empty for a message to the user."""
    is_reply: bool
    """True if the role is the model's own."""


def may_begin(text: str) -> Lookahead:
    """Return True if the text begins with a complete header; None if more text is needed to decide."""
    if not text.startswith(_WORDS):
        return None if any(word.startswith(text) for word in _WORDS) else False
    found = _FILLING.match(text)
    rest = text[found.end() :] if found else ""
    if rest.startswith("<|message|>"):
        return True
    return None if any(token.startswith(rest) for token in _INNER) else False


_ROLES = ("assistant", "model", "user", "system", "tool", "ipython", "developer")


def begins_with_role(text: str) -> Lookahead:
    """Return True if the text begins with a role and the end of its line or header; None if more text is needed."""
    for role in _ROLES:
        if role.startswith(text):
            return None
        if text.startswith(role):
            rest = text[len(role) :]
            return True if rest.startswith(("\n", _HEADER_END)) else (None if _HEADER_END.startswith(rest) else False)
    return False


def is_model(role: str) -> bool:
    """Return True if a role is the model's own."""
    return role.strip() in ("assistant", "model")


def parse_header(text: str) -> Header:
    """Return the header in a text without the tokens around it."""
    words = re.split(r"<\|(?:channel|constrain)\|>|\s", text)
    channel = next((word for word in words if word in _WORDS[:3]), "")
    recipient = _RECIPIENT.search(text)
    is_reply = words[0] in ("assistant", *_WORDS[:3])
    return Header(channel, recipient.group(1) if recipient else "", is_reply)
