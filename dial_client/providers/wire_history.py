"""The conversation as every wire wants it: valid, whatever happened to it.

The rules are those of the endpoints together, and the strictest wins: instructions in one place; every call answered
exactly once, in the order of the calls, right behind the message that asks; no result without its call; no empty text;
ids, names and arguments an endpoint takes back; a question at the end. What has been sent once is sent the same way
again when more has been said: prompt caches, and signatures over what came before, depend on it. Only images and
documents are told in words when there are too many of them (`shown.too_old`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any

from dial_client.messages import (
    NO_OUTPUT,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallRequest,
    text_of,
)
from dial_client.providers.endpoint_profile import EndpointProfile
from dial_client.providers.media_fallback import MediaDescription, count_expired, describe_media, to_accepted_part
from dial_client.providers.tool_call_codec import replace_surrogates, to_plain_json

NO_RESULT = "[no result: the call was interrupted]"
NO_TEXT = "(no text)"
GO_ON = "Continue."
ERROR = "ERROR:"

_MAX_NOTES = 8
"""Things the user is told of that the model is not shown."""
_EXPIRED = "it is no longer shown to the model, newer ones are"


@dataclass(frozen=True, slots=True)
class UserStep:
    """A person's message; never empty."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave; never empty."""

    parts: tuple[Part, ...]
    is_error: bool

    @property
    def shown(self) -> tuple[ImagePart | FilePart, ...]:
        """The images and documents of it."""
        return tuple(part for part in self.parts if not isinstance(part, TextPart))

    def text(self, *more: str) -> str:
        """Give the text of it, with more of it behind, marked as an error where it is one and does not say so."""
        text = text_of((*self.parts, *map(TextPart, more))) or NO_OUTPUT
        return f"{ERROR} {text}" if self._hides_an_error else text

    def marked(self) -> tuple[Part, ...]:
        """Give the parts, with a word in front that this is an error where it is one and does not say so."""
        return (TextPart(ERROR), *self.parts) if self._hides_an_error else self.parts

    @property
    def _hides_an_error(self) -> bool:
        return self.is_error and not text_of(self.parts).lower().startswith("error")


@dataclass(frozen=True, slots=True)
class AssistantStep:
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


Step = UserStep | AssistantStep


@dataclass(slots=True)
class _Draft:
    message: Message
    answers: list[Message | None] = field(default_factory=list)


def normalize(
    messages: Iterable[Message],
    provider_name: str,
    id_pattern: str,
    profile: EndpointProfile,
    notes: list[str] | None = None,
    *,
    in_results: bool = True,
) -> list[Step]:
    """Give the conversation in steps, the last of which asks something of the model.

    Args:
        messages: any messages but system messages, in any order.
        provider_name: whose echoes are understood.
        id_pattern: what a call's id must match as a whole; nine letters and digits must match it.
        profile: whether the endpoint takes images and documents.
        notes: is told what the model is not shown of what has come since a person spoke last, that included.
        in_results: whether images and documents of results can be shown at all.
    """
    drafts = _pair_results(messages)
    ids = _CallIds(re.compile(id_pattern))
    results_profile = profile if in_results else replace(profile, images=False, documents=False)
    steps: list[Step] = []
    for draft in drafts:
        message = draft.message
        if message.role is Role.USER:
            steps.append(UserStep(_normalize_parts(message.content, NO_TEXT, profile)))
        elif message.tool_calls or message.text.strip():
            steps.append(_assistant_step(draft, provider_name, ids, results_profile))
    steps = _expire_media(steps)
    if notes is not None:
        _note_hidden_media(steps, notes)
    if not steps or not (isinstance(steps[-1], UserStep) or steps[-1].calls):
        steps.append(UserStep((TextPart(GO_ON if steps else NO_TEXT),)))
    return steps


def _pair_results(messages: Iterable[Message]) -> list[_Draft]:
    """Lay each result beside its call; a result without a call is dropped."""
    drafts: list[_Draft] = []
    waiting: dict[str | None, list[tuple[_Draft, int]]] = {}
    for message in messages:
        if message.role is Role.TOOL:
            if places := waiting.get(message.tool_call_id):
                draft, at = places.pop()
                draft.answers[at] = message
        else:
            calls = message.tool_calls if message.role is Role.ASSISTANT else ()
            draft = _Draft(message, [None] * len(calls))
            drafts.append(draft)
            for at in reversed(range(len(calls))):
                waiting.setdefault(calls[at].id, []).append((draft, at))
    return drafts


def _expire_media(steps: list[Step]) -> list[Step]:
    """Give the steps with no more images and documents than one request holds; lines stand for the oldest."""
    visible = [part for step in steps for part in _parts_of(step) if not isinstance(part, TextPart)]
    lines = {
        id(part): describe_media(part, _EXPIRED)
        for part in visible[: count_expired([len(part.data) for part in visible])]
    }
    if not lines:
        return steps

    def aged(parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(lines.get(id(part), part) for part in parts)

    return [
        UserStep(aged(step.parts))
        if isinstance(step, UserStep)
        else replace(step, results=tuple(replace(result, parts=aged(result.parts)) for result in step.results))
        for step in steps
    ]


def _parts_of(step: Step) -> Iterable[Part]:
    return step.parts if isinstance(step, UserStep) else (part for result in step.results for part in result.parts)


def _note_hidden_media(steps: Sequence[Step], notes: list[str]) -> None:
    pairs = enumerate(pairwise(steps), 1)
    answered = max(
        (at for at, (one, two) in pairs if isinstance(one, AssistantStep) and isinstance(two, UserStep)), default=0
    )
    new = (part for step in steps[answered:] for part in _parts_of(step))
    unseen = dict.fromkeys(part.text[1:-1] for part in new if isinstance(part, MediaDescription))
    notes.extend(note for note in islice(unseen, _MAX_NOTES) if note not in notes)


def _assistant_step(draft: _Draft, provider_name: str, ids: _CallIds, profile: EndpointProfile) -> AssistantStep:
    message = draft.message
    echo = message.echo.data if message.echo is not None and message.echo.provider == provider_name else None
    return AssistantStep(
        text=replace_surrogates(message.text) if message.text.strip() else "",
        calls=tuple(_normalize_call(call, ids) for call in message.tool_calls),
        results=tuple(_normalize_result(answer, profile) for answer in draft.answers),
        echo=echo,
        asked_as=tuple(call.id for call in message.tool_calls),
    )


def _normalize_call(call: ToolCallRequest, ids: _CallIds) -> ToolCallRequest:
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", call.name)[:64] or "unnamed"
    return ToolCallRequest(ids.give(call.id), name, to_plain_json(call.arguments))


def _normalize_result(answer: Message | None, profile: EndpointProfile) -> Result:
    if answer is None:
        return Result((TextPart(NO_RESULT),), is_error=True)
    return Result(_normalize_parts(answer.content, NO_OUTPUT, profile), answer.is_error)


def _normalize_parts(content: Content, instead: str, profile: EndpointProfile) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(replace_surrogates(content) if content.strip() else instead),)
    fit = (to_accepted_part(part, images=profile.images, documents=profile.documents) for part in content)
    return tuple(part for part in fit if not isinstance(part, TextPart) or part.text.strip()) or (TextPart(instead),)


class _CallIds:
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
