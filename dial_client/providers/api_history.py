"""Normalization of conversations for model APIs. Any conversation becomes a valid one.

The result satisfies the rules of all endpoints together. Every call has exactly one result, directly after the message
with the call, in the order of the calls. There is no result without a call and no empty text. Ids, names and arguments
have the forms that endpoints accept. The last message asks for a reply. In a longer conversation, each earlier message
is sent in the same form again, because prompt caches, and signatures over earlier messages, depend on that; only images
and documents are replaced by descriptions if there are too many of them (`count_expired`).

If an endpoint refuses one image or document, it refuses the whole request, and every later request of the conversation.
So they are checked first: one with invalid base64, an unknown type, a damaged header, invalid PDF data or too large a
size is replaced by a description, which says why. MCP servers often declare a wrong image type, which the Messages API
refuses, so the first bytes of an image determine its type.
"""

from __future__ import annotations

import binascii
import hashlib
import re
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
from dial_client.providers.tool_call_codec import to_plain_json
from dial_client.runtime.image_size import find_image_size
from dial_client.runtime.kept_prefix import KeptPrefix
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.media_types import IMAGE_TYPES, PDF, find_media_type, normalize_media_type
from dial_client.runtime.text import replace_surrogates
from dial_client.settings.endpoint_profile import EndpointProfile

# The most base64 characters of an image (the limit of the Messages API; other APIs accept more).
MAX_IMAGE = 5 * 1024 * 1024
# The most pixels on a side of an image (the limit of the Messages API; other APIs make a larger image smaller).
MAX_SIDE = 8000
# The most base64 characters of all media in one request, and of one document: the Messages API accepts 32 MB.
MAX_TOTAL = 28 * 1024 * 1024
# The most images and documents in one request. With more than 20, the Messages API accepts only small images.
MAX_PARTS = 20

_NO_NAME = compile_lazily(r"[^a-zA-Z0-9_-]")
_ALPHABET = (string.ascii_letters + string.digits + "+/").encode()
_MAX_TITLE = 200
# The first bytes of a PDF, which must contain its header (Adobe's PDF Reference 1.7, implementation note 13).
_HEADER = 1024


@dataclass(frozen=True, slots=True)
class MediaDescription(TextPart):
    """The description that replaces an image or a document that the model is not shown."""


def describe_media(part: ImagePart | FilePart, why: str = "it cannot be shown to the model") -> MediaDescription:
    """Return the description that replaces an image or a document."""
    return MediaDescription(f"[{replace_surrogates(describe(part))}: {why}]")


def to_accepted_part(part: Part, *, images: bool, documents: bool) -> Part:
    """Return a part in the form that endpoints accept, or else its description.

    Args:
        part: Any part.
        images: True if the endpoint accepts images.
        documents: True if the endpoint accepts documents.
    """
    if isinstance(part, MediaDescription):
        return part
    if isinstance(part, TextPart):
        return TextPart(replace_surrogates(part.text))
    data = "".join(part.data.split())  # base64 may be split into lines, as in mail
    if not (images or documents) or len(data) > MAX_TOTAL:
        return describe_media(part)
    head = _decode_start(data)
    # The first bytes decide, not the declared type, which MCP servers often get wrong.
    detected = find_media_type(head)
    declared = normalize_media_type(part.mime_type)
    if images and (detected in IMAGE_TYPES or declared in IMAGE_TYPES):
        why = _find_flaw(data) if detected in IMAGE_TYPES else f"it is no image of the type {declared}"
        return describe_media(part, why) if why else ImagePart(data, detected)
    if documents and b"%PDF-" in head and declared == PDF:
        name = "" if isinstance(part, ImagePart) else " ".join(replace_surrogates(part.name).split())
        name = name[:_MAX_TITLE].strip() or "document"
        return FilePart(data, declared, name if name.lower().endswith(".pdf") else f"{name}.pdf")
    return describe_media(part)


def _find_flaw(data: str) -> str:
    """Return why no endpoint accepts an image; empty if endpoints accept it."""
    if len(data) > MAX_IMAGE:
        return f"it has more than {MAX_IMAGE * 3 / 4_000_000:.1f} MB, the most that models accept"
    size = find_image_size(data)
    if size is None:
        return "its header is damaged"
    width, height = size
    if max(size) > MAX_SIDE:
        return f"it has {width:,} by {height:,} pixels, and models accept at most {MAX_SIDE:,} on a side"
    return ""


def _decode_start(data: str) -> bytes:
    """Return the first decoded bytes of valid base64; empty bytes if it is invalid."""
    padding = data.encode("ascii", "replace").translate(None, _ALPHABET)
    if len(data) % 4 or padding not in (b"", b"=", b"==") or not data.endswith(padding.decode()):
        return b""
    return binascii.a2b_base64(data[: _HEADER // 3 * 4])


def count_expired(sizes: Sequence[int]) -> int:
    """Return how many of a conversation's images and documents are replaced by descriptions, the oldest first.

    Whenever a limit is exceeded, half of it is freed. The function replays the conversation from its beginning, so the
    number stays the same until a limit is exceeded again. Until then, prompt caches, and signatures over earlier
    messages, stay valid.

    Args:
        sizes: The sizes of all images and documents in order, in base64 characters.
    """
    first = total = 0
    for index, size in enumerate(sizes):
        total += size
        if index - first < MAX_PARTS and total <= MAX_TOTAL:
            continue
        while first < index and (index - first >= MAX_PARTS // 2 or total > MAX_TOTAL // 2):
            total -= sizes[first]
            first += 1
    return first


NO_RESULT = "[no result: the call was interrupted]"
NO_TEXT = "(no text)"
GO_ON = "Continue."
ERROR = "ERROR:"

# The most notes on hidden parts, in one request.
_MAX_NOTES = 8
_EXPIRED = "it is no longer shown to the model, because newer images and documents take its place"


@dataclass(frozen=True, slots=True)
class UserStep:
    """A user's message; never empty."""

    parts: tuple[Part, ...]

    def list_parts(self) -> Iterable[Part]:
        """Return the parts that may contain images and documents."""
        return self.parts


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call; never empty."""

    parts: tuple[Part, ...]
    is_error: bool

    @property
    def media(self) -> list[ImagePart | FilePart]:
        """The images and documents of the result."""
        return [part for part in self.parts if not isinstance(part, TextPart)]

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

    def list_parts(self) -> Iterable[Part]:
        """Return the parts that may contain images and documents."""
        return [part for result in self.results for part in result.parts]


HistoryStep = UserStep | AssistantStep


# The steps of a conversation, and the ids that its calls have got.
KeptSteps = tuple[list[HistoryStep], set[str]]


def normalize(
    messages: Sequence[Message],
    provider_name: str,
    id_pattern: str,
    profile: EndpointProfile,
    notes: list[str] | None = None,
    *,
    in_results: bool = True,
    kept: KeptPrefix[KeptSteps] | None = None,
) -> list[HistoryStep]:
    """Return the conversation in steps. The last step asks the model for a reply.

    Args:
        messages: The conversation, without system messages, in any order.
        provider_name: The name of the provider whose echoes are kept.
        id_pattern: A regular expression for ids of calls; it must match any nine letters and digits.
        profile: The flags that say whether the endpoint accepts images and documents.
        notes: Receives notes on images and documents since the last user message that the model is not shown.
        in_results: True if results may contain images and documents.
        kept: The steps of the last request, with which those of this one may begin, and then the steps of this one.
    """
    kept = KeptPrefix() if kept is None else kept
    settings = (provider_name, id_pattern, profile, in_results)
    known, (known_steps, known_ids) = kept.find(messages, *settings, begin=lambda: ([], set()))
    steps, taken_ids = [*known_steps], {*known_ids}
    is_valid_id = re.compile(id_pattern).fullmatch

    def assign_id(call_id: str) -> str:
        """Return a unique id that the endpoint accepts; the same conversation always gets the same ids."""
        assigned, attempt = call_id, 0
        while assigned in taken_ids or not is_valid_id(assigned):
            # A hash: the same call must get the same id in every request, for prompt caches.
            assigned = hashlib.sha256(f"{call_id}/{attempt}".encode("utf-8", "replace")).hexdigest()[:9]
            attempt += 1
        taken_ids.add(assigned)
        return assigned

    results_profile = profile if in_results else replace(profile, images=False, documents=False)
    pairs = pair_results(messages[known:])
    for message, received in pairs:
        if message.role is Role.USER:
            steps.append(UserStep(_normalize_parts(message.content, NO_TEXT, profile)))
        elif message.tool_calls or _to_assistant_text(message).strip():
            # A name may be one that the model invented; an invalid one would block the whole conversation.
            calls = tuple(
                ToolCallRequest(
                    assign_id(call.id), _NO_NAME.sub("_", call.name)[:64] or "unnamed", to_plain_json(call.arguments)
                )
                for call in message.tool_calls
            )
            results = tuple(
                Result((TextPart(NO_RESULT),), is_error=True)
                if result is None
                else Result(_normalize_parts(result.content, NO_OUTPUT, results_profile), result.is_error)
                for result in received
            )
            echo = message.echo.data if message.echo is not None and message.echo.provider == provider_name else None
            original_ids = tuple(call.id for call in message.tool_calls)
            steps.append(AssistantStep(_to_assistant_text(message), calls, results, echo, original_ids))
    # A result that is missing may follow.
    if not any(None in received for _, received in pairs):
        kept.keep(messages, *settings, built=([*steps], taken_ids))
    # Most conversations have nothing but text, of which there is nothing to hide.
    if {type(part) for step in steps for part in step.list_parts()} - {TextPart}:
        steps = _expire_media(steps)
        if notes is not None:
            _note_unseen(steps, notes)
    # Endpoints refuse a conversation that ends with their own message.
    if not steps or not (isinstance(steps[-1], UserStep) or steps[-1].calls):
        steps.append(UserStep((TextPart(GO_ON if steps else NO_TEXT),)))
    return steps


def _note_unseen(steps: Sequence[HistoryStep], notes: list[str]) -> None:
    """Add notes on the new images and documents that the model is not shown."""
    # Only what is new: the parts since the last user message that follows an assistant message.
    start = 0
    for index, (step, following) in enumerate(pairwise(steps), 1):
        if isinstance(step, AssistantStep) and isinstance(following, UserStep):
            start = index
    new = (part for step in steps[start:] for part in step.list_parts())
    unseen = dict.fromkeys(part.text[1:-1] for part in new if isinstance(part, MediaDescription))
    notes.extend(note for note in islice(unseen, _MAX_NOTES) if note not in notes)


def pair_results(messages: Iterable[Message]) -> list[tuple[Message, list[Message | None]]]:
    """Return the user and assistant messages, each with the results of its calls; drop results without a call."""
    pairs: list[tuple[Message, list[Message | None]]] = []
    waiting: dict[str | None, list[tuple[list[Message | None], int]]] = {}
    for message in messages:
        if message.role is Role.TOOL:
            if places := waiting.get(message.tool_call_id):
                results, index = places.pop()
                results[index] = message
        else:
            calls = message.tool_calls if message.role is Role.ASSISTANT else ()
            results = [None] * len(calls)
            pairs.append((message, results))
            for index in reversed(range(len(calls))):
                waiting.setdefault(calls[index].id, []).append((results, index))
    return pairs


def _expire_media(steps: list[HistoryStep]) -> list[HistoryStep]:
    """Replace the oldest images and documents by descriptions if there are too many for one request."""
    visible = [part for step in steps for part in step.list_parts() if not isinstance(part, TextPart)]
    expired = visible[: count_expired([len(part.data) for part in visible])]
    descriptions = {id(part): describe_media(part, _EXPIRED) for part in expired}
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


def to_content(parts: tuple[Part, ...], to_part: Callable[[Part], Any]) -> Any:
    """Return parts in the form of an API: as one text if there is nothing but text, and else as a list of parts."""
    if all(isinstance(part, TextPart) for part in parts):
        return extract_text(parts)
    return list(map(to_part, parts))


def _to_assistant_text(message: Message) -> str:
    """Return the text of an assistant message, with its images and files only named: few APIs accept them there."""
    text = replace_surrogates(message.text) if message.text.strip() else ""
    if isinstance(message.content, str):
        return text
    media = [describe(part) for part in message.content if not isinstance(part, TextPart)]
    return "\n".join([*([text] if text else []), *(f"[{name}: sent to the user]" for name in media)])


def _normalize_parts(content: Content, placeholder: str, profile: EndpointProfile) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(replace_surrogates(content) if content.strip() else placeholder),)
    accepted = (to_accepted_part(part, images=profile.images, documents=profile.documents) for part in content)
    return tuple(part for part in accepted if not isinstance(part, TextPart) or part.text.strip()) or (
        TextPart(placeholder),
    )
