"""Refusals of images and documents: the refused one is replaced by a description, and the others stay.

An endpoint that refuses one image refuses the whole request, and so every later request of the conversation. Few
endpoints say which image they refuse. If one does not, the request is sent without one image after the other, the
newest first, until it is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dial_client.messages.message import FilePart, ImagePart, Part, TextPart
from dial_client.messages.model import ModelRequest
from dial_client.providers.api_history import describe_media
from dial_client.runtime.lazy_pattern import compile_lazily

MediaType = type[ImagePart] | type[FilePart]

_REFUSED = "the endpoint refused it"
_NAMES: Mapping[MediaType, str] = {ImagePart: "image", FilePart: "document"}
# The place of a part in the body of a request: ``messages.3.content.1.image.source``, ``input[2].content[1]``.
_PLACE = compile_lazily(r"\b(?:messages|input)(?:[.\[][\w\]]+)+")


@dataclass(slots=True)
class MediaTrial:
    """The search for the refused image or document of one request. An image is known by the hash of its data."""

    key: int | None = None
    """The image that the request is sent without; None if there is no search."""
    tried: set[int] = field(default_factory=set)


@dataclass(slots=True)
class RefusedMedia:
    """The images and documents that an endpoint refused, which no further request shows to the model."""

    _reasons: dict[int, str] = field(default_factory=dict)

    def hide(self, request: ModelRequest, trial: MediaTrial) -> ModelRequest:
        """Return the request with a description in place of each refused image and document."""
        if not self._reasons and trial.key is None:
            return request

        def show(part: Part) -> Part:
            if isinstance(part, TextPart):
                return part
            key = hash(part.data)
            why = _REFUSED if key == trial.key else self._reasons.get(key)
            return describe_media(part, why) if why else part

        messages = tuple(
            message if isinstance(message.content, str) else replace(message, content=tuple(map(show, message.content)))
            for message in request.messages
        )
        return replace(request, messages=messages)

    def accept(self, trial: MediaTrial) -> None:
        """Record that the endpoint accepted the request of a trial: what it did not show was refused."""
        if trial.key is not None:
            self._reasons[trial.key] = _REFUSED

    def list_shown(self, kind: MediaType, request: ModelRequest) -> dict[int, str]:
        """Return the data of the shown images, or documents, of a request by their keys, the newest first."""
        contents = [message.content for message in reversed(request.messages) if not isinstance(message.content, str)]
        parts = [part for content in contents for part in reversed(content) if isinstance(part, kind)]
        return {hash(part.data): part.data for part in parts if hash(part.data) not in self._reasons}

    def hide_all(self, kind: MediaType, request: ModelRequest, why: str) -> None:
        """Hide all images, or documents, of a request."""
        self._reasons |= dict.fromkeys(self.list_shown(kind, request), why)

    def record(
        self, kind: MediaType, text: str, request: ModelRequest, body: Mapping[str, Any], trial: MediaTrial
    ) -> str | None:
        """Choose what the next request does not show, and return a note for the user; None if it shows nothing now.

        Args:
            kind: What the endpoint refused.
            text: The message of the refusal.
            request: The refused request, with all its images and documents.
            body: The fields of the refused body.
            trial: The search for the refused image of this request.
        """
        # A response with status 200 may refuse the request too, after it was counted as accepted.
        self._reasons.pop(trial.key or 0, None)
        trial.key = None
        shown = self.list_shown(kind, request)
        suspects = _find_named(text, body, shown) or list(shown)
        untried = [key for key in suspects if key not in trial.tried]
        if not suspects:
            return None
        if len(suspects) > 1 and not untried:
            self._reasons |= dict.fromkeys(suspects, _REFUSED)
            return (
                f"the endpoint refused more than one of {len(suspects)} {_NAMES[kind]}s, and did not say which: "
                "they are replaced by descriptions"
            )
        if len(suspects) > 1:
            trial.key = untried[0]
            trial.tried.add(trial.key)
        else:
            self._reasons[suspects[0]] = _REFUSED
        return (
            f"the endpoint refused {'an' if kind is ImagePart else 'a'} {_NAMES[kind]}: it is replaced by a description"
        )


def _find_named(text: str, body: Mapping[str, Any], shown: Mapping[int, str]) -> list[int]:
    """Return the keys of those images in the part of the body that a refusal names."""
    place: Any = body
    found = _PLACE.search(text)
    for name in re.findall(r"\w+", found[0]) if found else ():
        # Anthropic's places also have the types of blocks, which are no keys: `content.1.image.source`.
        if isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        elif isinstance(place, Mapping) and name in place:
            place = place[name]
    if place is body:
        return []
    texts = _list_texts(place)
    return [key for key, data in shown.items() if any("".join(data.split()) in text for text in texts)]


def _list_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for item in items for text in _list_texts(item)]
