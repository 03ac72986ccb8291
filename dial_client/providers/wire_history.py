"""Normalization of conversations for model APIs. Any conversation becomes a valid one.

The result satisfies the rules of all endpoints together. Every call has exactly one result, directly after the message
with the call, in the order of the calls. There is no result without a call and no empty text. Ids, names and arguments
have the forms that endpoints accept. The last message asks for a reply. In a longer conversation, each earlier message
is sent in the same form again, because prompt caches, and signatures over earlier messages, depend on that; only images
and documents are replaced by descriptions if there are too many of them (`media_fallback.count_expired`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any

from dial_client.messages.message import (
    NO_OUTPUT,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCallRequest,
    describe,
    extract_text,
)
from dial_client.providers.endpoint_profile import EndpointProfile
from dial_client.providers.media_fallback import MediaDescription, count_expired, describe_media, to_accepted_part
from dial_client.providers.tool_call_codec import to_plain_json
from dial_client.runtime.surrogates import replace_surrogates

NO_RESULT = "[no result: the call was interrupted]"
NO_TEXT = "(no text)"
GO_ON = "Continue."
ERROR = "ERROR:"

_MAX_NOTES = 8
"""The most notes on hidden parts, in one request."""
_EXPIRED = "it is no longer shown to the model, because newer images and documents take its place"


@dataclass(frozen=True, slots=True)
class UserStep:
    """A user's message; never empty."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call; never empty."""

    parts: tuple[Part, ...]
    is_error: bool

    @property
    def media(self) -> tuple[ImagePart | FilePart, ...]:
        """The images and documents of the result."""
        return tuple(part for part in self.parts if not isinstance(part, TextPart))

    def to_text(self, *extra_texts: str) -> str:
        """Return the text, with `extra_texts` appended, and marked as an error if it is one and does not say so."""
        text = extract_text((*self.parts, *map(TextPart, extra_texts))) or NO_OUTPUT
        return f"{ERROR} {text}" if self._hides_an_error else text

    def to_parts(self) -> tuple[Part, ...]:
        """Return the parts, marked as an error if the result is one and its text does not say so."""
        return (TextPart(ERROR), *self.parts) if self._hides_an_error else self.parts

    @property
    def _hides_an_error(self) -> bool:
        return self.is_error and not extract_text(self.parts).lower().startswith("error")


@dataclass(frozen=True, slots=True)
class AssistantStep:
    """An assistant message, with the results of its calls."""

    text: str
    calls: tuple[ToolCallRequest, ...]
    """The calls, with ids and names that the API accepts."""
    results: tuple[Result, ...]
    """The results, one for each call, in the order of the calls."""
    echo: Any
    """The echo of this provider; None for a message without an echo, or from another provider."""
    original_ids: tuple[str, ...]
    """The ids of the calls in the model's reply, which are also in the echo."""


HistoryStep = UserStep | AssistantStep


@dataclass(slots=True)
class _Draft:
    message: Message
    results: list[Message | None] = field(default_factory=list)


def normalize(
    messages: Iterable[Message],
    provider_name: str,
    id_pattern: str,
    profile: EndpointProfile,
    notes: list[str] | None = None,
    *,
    in_results: bool = True,
) -> list[HistoryStep]:
    """Return the conversation in steps. The last step asks the model for a reply.

    Args:
        messages: The conversation, without system messages, in any order.
        provider_name: The name of the provider whose echoes are kept.
        id_pattern: A regular expression for ids of calls; it must match any nine letters and digits.
        profile: The flags that say whether the endpoint accepts images and documents.
        notes: Receives notes on images and documents since the last user message that the model is not shown.
        in_results: True if results may contain images and documents.
    """
    drafts = _pair_results(messages)
    ids = _CallIds(re.compile(id_pattern))
    results_profile = profile if in_results else replace(profile, images=False, documents=False)
    steps: list[HistoryStep] = []
    for draft in drafts:
        message = draft.message
        if message.role is Role.USER:
            steps.append(UserStep(_normalize_parts(message.content, NO_TEXT, profile)))
        elif message.tool_calls or _to_assistant_text(message).strip():
            steps.append(_to_assistant_step(draft, provider_name, ids, results_profile))
    steps = _expire_media(steps)
    if notes is not None:
        _note_hidden_media(steps, notes)
    if not steps or not (isinstance(steps[-1], UserStep) or steps[-1].calls):
        steps.append(UserStep((TextPart(GO_ON if steps else NO_TEXT),)))
    return steps


def _pair_results(messages: Iterable[Message]) -> list[_Draft]:
    """Return the user and assistant messages, each with the results of its calls; drop results without a call."""
    drafts: list[_Draft] = []
    waiting: dict[str | None, list[tuple[_Draft, int]]] = {}
    for message in messages:
        if message.role is Role.TOOL:
            if places := waiting.get(message.tool_call_id):
                draft, at = places.pop()
                draft.results[at] = message
        else:
            calls = message.tool_calls if message.role is Role.ASSISTANT else ()
            draft = _Draft(message, [None] * len(calls))
            drafts.append(draft)
            for at in reversed(range(len(calls))):
                waiting.setdefault(calls[at].id, []).append((draft, at))
    return drafts


def _expire_media(steps: list[HistoryStep]) -> list[HistoryStep]:
    """Replace the oldest images and documents by descriptions if there are too many for one request."""
    visible = [part for step in steps for part in _list_parts(step) if not isinstance(part, TextPart)]
    descriptions = {
        id(part): describe_media(part, _EXPIRED)
        for part in visible[: count_expired([len(part.data) for part in visible])]
    }
    if not descriptions:
        return steps

    def expire(parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(descriptions.get(id(part), part) for part in parts)

    return [
        UserStep(expire(step.parts))
        if isinstance(step, UserStep)
        else replace(step, results=tuple(replace(result, parts=expire(result.parts)) for result in step.results))
        for step in steps
    ]


def _list_parts(step: HistoryStep) -> Iterable[Part]:
    return step.parts if isinstance(step, UserStep) else (part for result in step.results for part in result.parts)


def _note_hidden_media(steps: Sequence[HistoryStep], notes: list[str]) -> None:
    """Add a note for each hidden image or document since the last user message that follows an assistant message."""
    start = 0
    for at, (step, following) in enumerate(pairwise(steps), 1):
        if isinstance(step, AssistantStep) and isinstance(following, UserStep):
            start = at
    new = (part for step in steps[start:] for part in _list_parts(step))
    unseen = dict.fromkeys(part.text[1:-1] for part in new if isinstance(part, MediaDescription))
    notes.extend(note for note in islice(unseen, _MAX_NOTES) if note not in notes)


def _to_assistant_step(draft: _Draft, provider_name: str, ids: _CallIds, profile: EndpointProfile) -> AssistantStep:
    message = draft.message
    echo = message.echo.data if message.echo is not None and message.echo.provider == provider_name else None
    return AssistantStep(
        text=_to_assistant_text(message),
        calls=tuple(_normalize_call(call, ids) for call in message.tool_calls),
        results=tuple(_normalize_result(result, profile) for result in draft.results),
        echo=echo,
        original_ids=tuple(call.id for call in message.tool_calls),
    )


def _to_assistant_text(message: Message) -> str:
    """Return the text of an assistant message, with its images and files only named: few APIs accept them there."""
    text = replace_surrogates(message.text) if message.text.strip() else ""
    if isinstance(message.content, str):
        return text
    media = [describe(part) for part in message.content if not isinstance(part, TextPart)]
    return "\n".join([*([text] if text else []), *(f"[{name}: sent to the user]" for name in media)])


def _normalize_call(call: ToolCallRequest, ids: _CallIds) -> ToolCallRequest:
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", call.name)[:64] or "unnamed"
    return ToolCallRequest(ids.assign(call.id), name, to_plain_json(call.arguments))


def _normalize_result(message: Message | None, profile: EndpointProfile) -> Result:
    if message is None:
        return Result((TextPart(NO_RESULT),), is_error=True)
    return Result(_normalize_parts(message.content, NO_OUTPUT, profile), message.is_error)


def _normalize_parts(content: Content, placeholder: str, profile: EndpointProfile) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(replace_surrogates(content) if content.strip() else placeholder),)
    accepted = (to_accepted_part(part, images=profile.images, documents=profile.documents) for part in content)
    return tuple(part for part in accepted if not isinstance(part, TextPart) or part.text.strip()) or (
        TextPart(placeholder),
    )


class _CallIds:
    """Assigns a unique id that the endpoint accepts to each call; the same conversation always gets the same ids."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._taken: set[str] = set()

    def assign(self, call_id: str) -> str:
        assigned, attempt = call_id, 0
        while assigned in self._taken or not self._pattern.fullmatch(assigned):
            assigned = hashlib.sha256(f"{call_id}/{attempt}".encode("utf-8", "replace")).hexdigest()[:9]
            attempt += 1
        self._taken.add(assigned)
        return assigned
