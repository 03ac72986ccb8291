"""The conversation as every wire wants it: valid, whatever happened to it.

The rules are those of the endpoints together, and the strictest wins: instructions in one place; every call answered
exactly once, in the order of the calls, right behind the message that asks; no result without its call; no empty text;
ids, names and arguments an endpoint takes back; a question at the end. What has been sent once is sent the same way
again when more has been said: prompt caches, and signatures over what came before, depend on it.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dial_client.messages import Content, ImagePart, Message, Part, Role, TextPart, ToolCallRequest
from dial_client.providers.calls import clean, scrub

NO_RESULT = "[no result: the call was interrupted]"
NO_OUTPUT = "(no output)"
NO_TEXT = "(no text)"
GO_ON = "Continue."

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MAX_IMAGE = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """A person's message; never empty."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave; never empty."""

    parts: tuple[Part, ...]
    is_error: bool

    @property
    def text(self) -> str:
        """The text of it, without its images, marked as an error where it is one and does not say so."""
        text = "\n".join(part.text for part in self.parts if isinstance(part, TextPart)) or NO_OUTPUT
        return f"ERROR: {text}" if self.is_error and not text.lower().startswith("error") else text

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The images of it."""
        return tuple(part for part in self.parts if isinstance(part, ImagePart))


@dataclass(frozen=True, slots=True)
class Said:
    """A model's message, with the result of each of its calls."""

    text: str
    calls: tuple[ToolCallRequest, ...]
    """Under ids and names this wire takes."""
    results: tuple[Result, ...]
    """One for each call, in their order."""
    echo: Any
    """What this very provider wants back; None for another's."""
    asked_as: tuple[str, ...]
    """The ids of the calls as the model gave them: an echo has these."""


Step = Asked | Said


@dataclass(slots=True)
class _Draft:
    message: Message
    answers: list[Message | None] = field(default_factory=list)


def tidy(messages: Iterable[Message], provider_name: str, id_pattern: str) -> tuple[str, list[Step]]:
    """Give the instructions, and the conversation in steps, the last of which asks something of the model.

    Args:
        messages: any messages, in any order.
        provider_name: whose echoes are understood.
        id_pattern: what a call's id must match as a whole; nine letters and digits must match it.
    """
    instructions, drafts = _sort(messages)
    ids = _Ids(re.compile(id_pattern))
    steps: list[Step] = []
    for draft in drafts:
        message = draft.message
        if message.role is Role.USER:
            steps.append(Asked(_parts(message.content, NO_TEXT)))
        elif message.tool_calls or message.text.strip():
            steps.append(_said(draft, provider_name, ids))
    if not steps or not (isinstance(steps[-1], Asked) or steps[-1].calls):
        steps.append(Asked((TextPart(GO_ON if steps else NO_TEXT),)))
    return "\n\n".join(instructions), steps


def _sort(messages: Iterable[Message]) -> tuple[list[str], list[_Draft]]:
    """Take the instructions out, and lay each result beside its call; a result without a call is dropped."""
    instructions: list[str] = []
    drafts: list[_Draft] = []
    waiting: dict[str | None, list[tuple[_Draft, int]]] = {}
    for message in messages:
        if message.role is Role.SYSTEM:
            if message.text.strip():
                instructions.append(clean(message.text))
        elif message.role is Role.TOOL:
            if places := waiting.get(message.tool_call_id):
                draft, at = places.pop()
                draft.answers[at] = message
        else:
            calls = message.tool_calls if message.role is Role.ASSISTANT else ()
            draft = _Draft(message, [None] * len(calls))
            drafts.append(draft)
            for at in reversed(range(len(calls))):
                waiting.setdefault(calls[at].id, []).append((draft, at))
    return instructions, drafts


def _said(draft: _Draft, provider_name: str, ids: _Ids) -> Said:
    message = draft.message
    echo = message.echo.data if message.echo is not None and message.echo.provider == provider_name else None
    return Said(
        text=clean(message.text) if message.text.strip() else "",
        calls=tuple(_call(call, ids) for call in message.tool_calls),
        results=tuple(_result(answer) for answer in draft.answers),
        echo=echo,
        asked_as=tuple(call.id for call in message.tool_calls),
    )


def _call(call: ToolCallRequest, ids: _Ids) -> ToolCallRequest:
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", call.name)[:64] or "unnamed"
    return ToolCallRequest(ids.give(call.id), name, scrub(call.arguments))


def _result(answer: Message | None) -> Result:
    if answer is None:
        return Result((TextPart(NO_RESULT),), is_error=True)
    return Result(_parts(answer.content, NO_OUTPUT), answer.is_error)


def _parts(content: Content, instead: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(clean(content) if content.strip() else instead),)
    fit = (_fit(part) for part in content)
    return tuple(part for part in fit if isinstance(part, ImagePart) or part.text.strip()) or (TextPart(instead),)


def _fit(part: Part) -> Part:
    """Give an image as every provider takes it, or a line that says what cannot be shown."""
    if isinstance(part, TextPart):
        return TextPart(clean(part.text))
    if part.mime_type.lower() not in _IMAGES:
        return TextPart(describe(part))
    try:
        size = len(binascii.a2b_base64(part.data, strict_mode=True))
    except ValueError:
        return TextPart(describe(part))
    return ImagePart(part.data, part.mime_type.lower()) if 0 < size <= _MAX_IMAGE else TextPart(describe(part))


def describe(image: ImagePart) -> str:
    """Give the line that stands where an image cannot."""
    kind = clean(image.mime_type).strip() or "an image"
    return f"[{kind}, about {max(1, len(image.data) * 3 // 4000)} kB: it cannot be shown to the model]"


def without_images(parts: Sequence[Part]) -> str:
    """Give the parts as one text, in which a line stands for each image."""
    return "\n".join(part.text if isinstance(part, TextPart) else describe(part) for part in parts)


class _Ids:
    """Gives each call an id of its own that the endpoint takes; the same conversation always gets the same ones."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._taken: set[str] = set()

    def give(self, call_id: str) -> str:
        given, attempt = call_id, 0
        while given in self._taken or not self._pattern.fullmatch(given):
            given = hashlib.sha256(f"{call_id}/{attempt}".encode("utf-8", "replace")).hexdigest()[:9]
            attempt += 1
        self._taken.add(given)
        return given
