"""The parser of replies of the Chat Completions API, for all endpoints.

Endpoints stream tool calls in different ways. The index may be missing, 0 for every call, or start at 1. The id may be
missing, late, or the same for every call. The id and the name may be repeated in every chunk, or the name may be split.
The arguments may be an object, or missing. A call may arrive in one chunk, or several calls in alternating chunks.
``choices`` may be missing or null, the finish reason may be missing, and the response may be one JSON text instead of a
stream. In all these cases the parser keeps every call and does not mix up two calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jiter

from dial_client.messages.errors import CALL_UNREADABLE
from dial_client.messages.message import FilePart, ImagePart, ToolCallRequest
from dial_client.messages.model import (
    ArgumentsChunk,
    CallChunk,
    Completion,
    Delta,
    FinishReason,
    MediaChunk,
    ReasoningChunk,
    TextChunk,
)
from dial_client.messages.token_usage import Usage, parse_usage
from dial_client.providers.api_citations import CITATION_FIELDS, ChatCitations
from dial_client.providers.http.provider_errors import RETRY_NOTE, StreamedError, require_object
from dial_client.providers.tool_call_codec import make_ids_unique, parse_call, to_json_text
from dial_client.runtime.json_fields import to_text
from dial_client.runtime.safe_text import to_one_line
from dial_client.settings.endpoint_profile import EndpointProfile

_DATA_URL = re.compile(r"data:([^;,]{1,100})(?:;[^;,]{1,100})*?;base64,", re.ASCII)
_MAX_NOTES = 20


class ChatContent:
    """The content of one reply, as far as it has been received."""

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}
        self._audio_chars = 0

    @property
    def notes(self) -> list[str]:
        """Notes on content that neither the text nor a media part shows."""
        size = max(1, self._audio_chars * 3 // 4000)
        audio = [f"the endpoint sent audio, about {size} kB: only its transcript is kept"] if self._audio_chars else []
        return [*self._notes, *audio]

    def parse(self, content: Any) -> list[Delta]:
        """Return the deltas of content: a text, a list of parts, or any other JSON value (some gateways)."""
        if isinstance(content, str):
            return [TextChunk(content)] if content else []
        if isinstance(content, list):
            return [delta for part in content for delta in self._parse_part(part)]
        if isinstance(content, Mapping) and ("type" in content or "text" in content):
            return self._parse_part(content)
        return [] if content is None else [TextChunk(to_json_text(content))]

    def parse_media(self, delta: Mapping[str, Any]) -> list[Delta]:
        """Return the deltas of the images and the audio, which are fields beside the content."""
        images = delta.get("images")
        deltas = [piece for image in (images if isinstance(images, list) else ()) for piece in self._parse_image(image)]
        audio = delta.get("audio")
        if isinstance(audio, Mapping):
            self._audio_chars += len(to_text(audio.get("data")))
            if transcript := to_text(audio.get("transcript")):
                deltas.append(TextChunk(transcript))
        return deltas

    def note(self, note: str) -> None:
        """Add a note, unless it was added before."""
        if len(self._notes) < _MAX_NOTES:
            self._notes[note] = None

    def _parse_part(self, part: Any) -> list[Delta]:
        if isinstance(part, str):
            return [TextChunk(part)] if part else []
        if not isinstance(part, Mapping):
            return [TextChunk(to_json_text(part))]
        kind = to_text(part.get("type"))
        if kind == "thinking":
            text = _join_thinking(part.get("thinking"))
            return [ReasoningChunk(text)] if text else []
        if kind in ("image_url", "image"):
            return self._parse_image(part)
        if isinstance(part.get("text"), str):
            return [TextChunk(part["text"])] if part["text"] else []
        self.note(f"a part of the reply is not shown (type {to_one_line(kind, 40) or 'unknown'})")
        return []

    def _parse_image(self, image: Any) -> list[Delta]:
        inner = image.get("image_url", image) if isinstance(image, Mapping) else image
        url = to_text(inner.get("url")) if isinstance(inner, Mapping) else to_text(inner)
        if (part := parse_data_url(url)) is not None:
            return [MediaChunk(part)]
        if url:
            self.note(f"the reply has an image that is not fetched: {to_one_line(url, 300)}")
        return []


def parse_data_url(url: str) -> ImagePart | FilePart | None:
    """Return the image or file in a ``data:`` URL; None for any other URL."""
    found = _DATA_URL.match(url)
    if found is None or len(url) == found.end():
        return None
    mime_type, data = found[1].lower(), url[found.end() :]
    return ImagePart(data, mime_type) if mime_type.startswith("image/") else FilePart(data, mime_type)


def _join_thinking(thinking: Any) -> str:
    pieces = thinking if isinstance(thinking, list) else [{"text": thinking}]
    return "".join(to_text(piece.get("text")) for piece in pieces if isinstance(piece, Mapping))


_FINISHES = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "tool_use": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "content_filter": FinishReason.REFUSED,
    "refusal": FinishReason.REFUSED,
    "safety": FinishReason.REFUSED,
}
_MAX_ATTACHMENTS = 20
_CALL_FIELDS = frozenset({"index", "id", "type", "function"})


@dataclass(slots=True)
class _PartialCall:
    """A tool call, as far as it has been received."""

    index: Any
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def is_whole(self) -> bool:
        if not self.arguments or self.arguments[-1].rstrip()[-1:] != "}":
            return False
        try:
            jiter.from_json("".join(self.arguments).encode("utf-8", "replace"))
        except ValueError:
            return False
        return True

    def is_repeated(self, call_id: str, arguments: str) -> bool:
        return call_id != "" and call_id == self.id and arguments == "".join(self.arguments)

    def add(self, call_id: str, name: str, arguments: str) -> str:
        """Add a piece of the call, and return the text that it adds to the arguments."""
        if name and self.arguments and self.is_repeated(call_id, arguments):
            return ""
        self.id = self.id or call_id
        if name and name != self.name and not self.arguments:
            self.name += name
        if arguments:
            self.arguments.append(arguments)
        return arguments


class CallAssembler:
    """Assembles tool calls from streamed pieces."""

    def __init__(self) -> None:
        self._calls: list[_PartialCall] = []

    def add(self, piece: Any) -> ArgumentsChunk | None:
        """Add an item of ``tool_calls``, and return the piece of arguments in it; None without one."""
        if not isinstance(piece, Mapping):
            return None
        function = piece.get("function")
        function = function if isinstance(function, Mapping) else {}
        call_id, name = to_text(piece.get("id")), to_text(function.get("name"))
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):
            arguments = to_json_text(arguments)
        extra = {key: value for key, value in piece.items() if key not in _CALL_FIELDS}
        if not (call_id or name or arguments or extra):
            return None
        index = piece.get("index")
        call = self._find(index if isinstance(index, int | str) else None, call_id, name, arguments)
        added = call.add(call_id, name, arguments)
        call.extra |= extra
        return ArgumentsChunk(self._calls.index(call), call.name.strip(), added) if added else None

    def assemble(self) -> list[tuple[ToolCallRequest, dict[str, Any]]]:
        """Return the calls, with unique ids, each with the extra fields that the endpoint sent with it."""
        calls = self._calls
        if all(isinstance(call.index, int) for call in calls):
            calls = sorted(calls, key=lambda call: int(call.index))
        parsed = [parse_call(call.id, call.name.strip(), "".join(call.arguments)) for call in calls]
        return list(zip(make_ids_unique(parsed), (call.extra for call in calls), strict=True))

    def __len__(self) -> int:
        return len(self._calls)

    def _find(self, index: Any, call_id: str, name: str, arguments: str) -> _PartialCall:
        candidates = [call for call in self._calls if index is None or call.index == index]
        call = next(
            (call for call in candidates if call_id and call.id == call_id), candidates[-1] if candidates else None
        )
        if call is None or _is_new_call(call, call_id, name, arguments, has_index=index is not None):
            call = _PartialCall(index)
            self._calls.append(call)
        return call


def _is_new_call(call: _PartialCall, call_id: str, name: str, arguments: str, *, has_index: bool) -> bool:
    """Return True if a piece begins a new call, although its index, or its missing index, matches `call`."""
    if call_id and call.id and call_id != call.id:
        return True
    if not name or not call.name:
        return False
    if name == call.name:
        return bool(arguments.strip()) and call.is_whole() and not call.is_repeated(call_id, arguments)
    may_be_split = has_index or (call_id != "" and call_id == call.id)
    return bool(call.arguments) or not may_be_split


class ChatStreamParser:
    """The `StreamParser` of the Chat Completions API."""

    def __init__(self, profile: EndpointProfile) -> None:
        self.ended = False
        self.paused = False
        self.streams_arguments = False
        self._reasoning_in = profile.reasoning_in
        self._assembler = CallAssembler()
        self._finish: str | None = None
        self._refused = False
        self._usage = Usage()
        self._notes: list[str] = []
        self._has_answer = False
        self._reasoning: dict[str, list[str]] = {}
        self._details: list[Any] = []
        self._message: dict[str, Any] = {}
        self._content = ChatContent()
        self._citations = ChatCitations()
        self._text: list[str] = []

    @property
    def has_calls(self) -> bool:
        """True if at least one tool call has begun."""
        return len(self._assembler) > 0

    def feed(self, value: Any) -> Sequence[Delta]:
        """Parse a ``chat.completion.chunk`` event, or a ``chat.completion`` object of an unstreamed response."""
        try:
            chunk = require_object(value)
        except StreamedError as error:
            if not self._may_be_retried(error.value):
                raise
            self.paused = True
            return ()
        if usage := chunk.get("usage"):
            self._usage = parse_usage(usage)
        elif isinstance(groq := chunk.get("x_groq"), dict) and groq.get("usage"):
            self._usage = parse_usage(groq["usage"])
        if not CITATION_FIELDS.isdisjoint(chunk):
            self._citations.add(chunk)
        choices = chunk.get("choices")
        choice = choices[0] if choices and isinstance(choices, list) else None
        if not isinstance(choice, dict):
            return ()
        return self._parse_choice(choice)

    def finish(self, notes: Sequence[str]) -> Sequence[Delta]:
        """Return the tool calls of a complete reply, and the `Completion`."""
        finish, notes = self._find_finish_reason(), [*notes, *self._notes, *self._content.notes]
        citations = self._citations.finish("".join(self._text))
        if finish is FinishReason.CUT and self._finish:
            notes.append(f"the reply ended with the unknown stop reason {self._finish[:40]!r}")
        if finish is not FinishReason.STOP:
            if self.has_calls:
                notes.append("the reply is incomplete: its tool calls are not run")
            return [Completion(finish, self._usage, notes=tuple(notes), citations=citations)]
        calls = self._assembler.assemble()
        extras = {call.id: extra for call, extra in calls if extra}
        reasoning: dict[str, Any] = {name: "".join(text) for name, text in self._reasoning.items()}
        if self._details:
            reasoning["reasoning_details"] = self._details
        parts = {"reasoning": reasoning, "message": self._message, "calls": extras}
        echo = {name: value for name, value in parts.items() if value}
        finish = FinishReason.TOOL_CALLS if calls else finish
        completion = Completion(finish, self._usage, echo or None, tuple(notes), citations)
        return [*(CallChunk(call) for call, _ in calls), completion]

    def _parse_choice(self, choice: dict[str, Any]) -> Sequence[Delta]:
        if not CITATION_FIELDS.isdisjoint(choice):
            self._citations.add(choice)
        if choice.get("error"):
            raise StreamedError(choice)
        if finish := choice.get("finish_reason"):
            self._finish = str(finish).lower()
        if usage := choice.get("usage"):
            self._usage = parse_usage(usage)
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(message, dict) and not self._has_answer and _is_blank(delta):
            delta = message
        return self._parse_delta(delta) if delta and isinstance(delta, dict) else ()

    def _find_finish_reason(self) -> FinishReason:
        if self._refused:
            return FinishReason.REFUSED
        if self._finish is None:
            return FinishReason.STOP if self.ended else FinishReason.CUT
        return _FINISHES.get(self._finish, FinishReason.CUT)

    def _may_be_retried(self, report: Any) -> bool:
        """Return True if the endpoint could not parse its model's tool call (Groq), and no answer was streamed yet.

        Reasoning does not count as an answer. The reasoning of the failed reply is not sent back.
        """
        error = report.get("error") if isinstance(report, dict) else None
        failed = isinstance(error, dict) and error.get("code") == CALL_UNREADABLE
        if not failed or self._has_answer or RETRY_NOTE in self._notes:
            return False
        self._notes.append(RETRY_NOTE)
        self._reasoning, self._details = {}, []
        return True

    def _parse_delta(self, delta: Mapping[str, Any]) -> list[Delta]:
        content = delta.get("content")
        if len(delta) == 1 and isinstance(content, str) and content:  # nearly all chunks
            self._text.append(content)
            self._has_answer = True
            return [TextChunk(content)]
        deltas = self._to_deltas(delta)
        self._text += [delta.text for delta in deltas if isinstance(delta, TextChunk)]
        self._has_answer = self._has_answer or self.has_calls or bool(self._text)
        return deltas

    def _to_deltas(self, delta: Mapping[str, Any]) -> list[Delta]:
        deltas: list[Delta] = []
        content = delta.get("content")
        if len(delta) > 1 or content is None:
            deltas.extend(self._to_non_text_deltas(delta))
        deltas.extend(self._content.parse(content))
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            deltas.append(TextChunk(refusal))
        return deltas

    def _to_non_text_deltas(self, delta: Mapping[str, Any]) -> list[Delta]:
        deltas: list[Delta] = []
        for name in self._reasoning_in:
            if isinstance(text := delta.get(name), str):
                self._reasoning.setdefault(name, []).append(text)
                if text and not deltas:
                    deltas.append(ReasoningChunk(text))
        if "images" in delta or "audio" in delta:
            deltas.extend(self._content.parse_media(delta))
        if not CITATION_FIELDS.isdisjoint(delta):
            self._citations.add(delta)
        deltas.extend(self._add_calls(delta))
        self._parse_rare_fields(delta)
        return deltas

    def _add_calls(self, delta: Mapping[str, Any]) -> list[ArgumentsChunk]:
        calls = delta.get("tool_calls") or []
        pieces = list(calls) if isinstance(calls, list) else [calls]
        if legacy := delta.get("function_call"):
            pieces.append({"index": 0, "function": legacy})
        added = [chunk for piece in pieces if (chunk := self._assembler.add(piece)) is not None]
        return added if self.streams_arguments else []

    def _parse_rare_fields(self, delta: Mapping[str, Any]) -> None:
        """Parse fields that must be sent back unchanged, and attachments."""
        if isinstance(details := delta.get("reasoning_details"), list):
            merge_reasoning_details(self._details, details)
        if isinstance(custom := delta.get("custom_content"), dict):
            if custom.get("state"):
                self._message["custom_content"] = {"state": custom["state"]}
            attached = custom.get("attachments")
            for attachment in attached if isinstance(attached, list) else ():
                self._note_attachment(attachment)

    def _note_attachment(self, attachment: Any) -> None:
        """Add a note on an attachment of a DIAL deployment, because the text does not show it."""
        if isinstance(attachment, dict) and len(self._notes) < _MAX_ATTACHMENTS:
            labels = [to_text(attachment.get(key))[:200] for key in ("title", "type", "url")]
            self._notes.append(f"the deployment attached: {', '.join(label for label in labels if label)}")


def merge_reasoning_details(details: list[Any], new_details: Sequence[Any]) -> None:
    """Append OpenRouter's ``reasoning_details``, and join pieces with the same index and type."""
    for detail in new_details:
        last = details[-1] if details else None
        if (
            isinstance(detail, dict)
            and isinstance(last, dict)
            and detail.get("index") is not None
            and (detail.get("index"), detail.get("type")) == (last.get("index"), last.get("type"))
        ):
            for key, value in detail.items():
                if key in ("text", "summary", "data") and isinstance(value, str):
                    last[key] = (last.get(key) or "") + value
                elif value is not None:
                    last[key] = value
        else:
            details.append(dict(detail) if isinstance(detail, dict) else detail)


def _is_blank(delta: Any) -> bool:
    """Return True if a delta has only a role: Perplexity sends such a delta beside a complete message."""
    return not isinstance(delta, Mapping) or not any(value for name, value in delta.items() if name != "role")
