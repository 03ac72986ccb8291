"""The Chat Completions API: OpenAI's older API, which most other endpoints implement too.

Requests and responses: https://platform.openai.com/docs/api-reference/chat.

Endpoints stream tool calls in different ways. The index may be missing, 0 for every call, or start at 1. The id may be
missing, late, or the same for every call. The id and the name may be repeated in every chunk, or the name may be split.
The arguments may be an object, or missing. A call may arrive in one chunk, or several calls in alternating chunks.
``choices`` may be missing or null, the finish reason may be missing, and the response may be one JSON text instead of a
stream. In all these cases the parser keeps every call and does not mix up two calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jiter

from dial_client.messages.citations import CITATION_FIELDS, ChatCitations
from dial_client.messages.errors import CALL_UNREADABLE
from dial_client.messages.message import FilePart, ImagePart, Message, Part, TextPart, ToolCallRequest, ToolSpec
from dial_client.messages.model import (
    ArgumentsChunk,
    CallChunk,
    Completion,
    Delta,
    FinishReason,
    MediaChunk,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
)
from dial_client.messages.token_usage import Usage, parse_usage
from dial_client.providers.api_history import AssistantStep, Result, UserStep, normalize, to_content
from dial_client.providers.http.http_provider import HttpProvider, build_output_schema, build_sampling_fields
from dial_client.providers.http.provider_errors import RETRY_NOTE, StreamedError, require_object
from dial_client.providers.http.response_stream import RawBody, StreamParser
from dial_client.providers.tool_call_codec import make_ids_unique, parse_call, to_json_text
from dial_client.runtime.json_fields import to_list, to_object, to_text
from dial_client.runtime.kept_prefix import KeptPrefix
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.text import replace_surrogates
from dial_client.settings.endpoint_profile import CHAT, EndpointProfile

if TYPE_CHECKING:
    from openai.types import chat, shared_params
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase

NO_ANSWER = "(no answer)"

_ANY_ID = r"[!-~]{1,40}"
# The fields of a call that must be sent back: thought signatures of Gemini, and of LiteLLM as a proxy for Gemini.
_SIGNED_FIELDS = frozenset({"extra_content", "provider_specific_fields"})
_SHORT_ID = r"[a-zA-Z0-9]{9}"


class ChatProvider(HttpProvider):
    """A provider for endpoints with the Chat Completions API."""

    api = "chat"

    def _get_path(self) -> str:
        return "/chat/completions"

    def _create_parser(self) -> ChatStreamParser:
        return ChatStreamParser(self._adaptation.profile)

    def _encode_tool(self, tool: ToolSpec) -> dict[str, Any]:
        function: shared_params.FunctionDefinition = {"name": tool.name}
        if tool.input_schema:
            function["parameters"] = dict(tool.input_schema)
        if tool.description:
            function["description"] = tool.description
        if self._adaptation.profile.strict:
            function["strict"] = True
        return {"type": "function", "function": function}

    def generate_recorded(self, request: ModelRequest, bodies: list[RawBody] | None) -> AsyncGenerator[Delta, None]:
        """Do the same as `generate`, and append the body of every response to `bodies`."""
        deltas = super().generate_recorded(request, bodies)
        is_json = request.schema is not None and self._adaptation.profile.constrain == "response_format"
        return _convert_json_to_lines(deltas) if is_json else deltas

    def _build_fields(self, request: ModelRequest, notes: list[str], *, has_tools: bool) -> dict[str, Any]:
        profile = self._adaptation.profile
        settings = self._choose_settings(request, notes, has_tools=has_tools)
        messages = to_messages(request.messages, self._name, profile, notes, request.converted)
        if text := replace_surrogates(request.instruction_text):
            system: chat.ChatCompletionSystemMessageParam = {"role": "system", "content": text}
            messages.insert(0, system)
        params: CompletionCreateParamsBase = {"model": self._model, "messages": messages}
        # Without this option, most endpoints report no usage in a stream.
        if request.stream and profile.stream_usage:
            params["stream_options"] = {"include_usage": True}
        if settings.tool_choice is not None:
            params["tool_choice"] = _encode_choice(settings.tool_choice)
        # Endpoints that do not know the field refuse it, so it is sent only on request.
        if has_tools and (settings.parallel_calls is False or profile.parallel != "omit"):
            params["parallel_tool_calls"] = settings.parallel_calls is not False and profile.parallel == "send_true"
        if request.stop:
            params["stop"] = list(request.stop)
        if settings.thinking is not None:
            params["reasoning_effort"] = settings.thinking
        if settings.max_tokens and profile.max_tokens_field:
            params[profile.max_tokens_field] = settings.max_tokens
        server_tools = self._server_tools.fields if request.endpoint_tools and request.allows_calls else {}
        constraint = _build_constraint(request, profile)
        return {**params, "stream": request.stream, **constraint, **server_tools, **build_sampling_fields(settings)}


def _encode_choice(choice: str) -> Any:
    return choice if choice in ("none", "required") else {"type": "function", "function": {"name": choice}}


def _build_constraint(request: ModelRequest, profile: EndpointProfile) -> dict[str, Any]:
    """Return the body's field that constrains the reply or its answer; an empty object for free text."""
    constraint: dict[str, Any] = {}
    definition = build_output_schema(request.output_format, profile) if request.output_format is not None else None
    match profile.constrain:
        case "grammar" if request.grammar:
            constraint["grammar"] = request.grammar
        case "structured_outputs" if request.grammar:
            constraint["structured_outputs"] = {"grammar": request.grammar}
        case "response_format" if request.schema is not None and definition is None:
            definition = {"name": "reply", "schema": dict(request.schema), "strict": True}
    if definition is not None:
        constraint["response_format"] = {"type": "json_schema", "json_schema": definition}
    return constraint


async def _convert_json_to_lines(deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a reply whose text is a JSON object, with the object converted to labelled lines."""
    lines = JsonToLines()
    async with aclosing(deltas):
        async for delta in deltas:
            if not isinstance(delta, TextChunk):
                yield delta
            elif text := lines.feed(delta.text):
                yield TextChunk(text)


def to_messages(
    messages: Sequence[Message],
    provider_name: str,
    profile: EndpointProfile = CHAT,
    notes: list[str] | None = None,
    kept: dict[str, KeptPrefix[Any]] | None = None,
) -> list[Any]:
    """Return the ``messages`` of a request, which are valid whatever conversation they are built from.

    Args:
        messages: The conversation, without system messages.
        provider_name: The name of the provider whose echoes are sent.
        profile: The flags that say which content the endpoint accepts.
        notes: Receives notes on content that the model is not shown.
        kept: `ModelRequest.converted`.
    """
    kept = {} if kept is None else kept
    kept_steps, kept_sent = (kept.setdefault(name, KeptPrefix()) for name in ("steps", "sent"))
    ids = _SHORT_ID if profile.short_ids else _ANY_ID
    steps = normalize(messages, provider_name, ids, profile, notes, in_results=profile.user_after_tool, kept=kept_steps)
    known, known_sent = kept_sent.find(steps, profile, begin=list[Any])
    sent = [*known_sent]
    for step in steps[known:]:
        if isinstance(step, UserStep):
            _add_user(sent, to_content(step.parts, _to_part), profile)
        else:
            _add_step(sent, step, profile)
    kept_sent.keep(steps, profile, built=[*sent])
    return sent


def _add_step(sent: list[Any], step: AssistantStep, profile: EndpointProfile) -> None:
    """Append the assistant's message, the results of its calls, and the media in them."""
    # None, not an empty string, which some endpoints refuse beside calls.
    message: chat.ChatCompletionAssistantMessageParam = {"role": "assistant", "content": step.text or None}
    if step.calls:
        message["tool_calls"] = _to_tool_calls(step, profile)
    fields: dict[str, Any] = {**message}
    if profile.echo_reasoning == "always" or (profile.echo_reasoning == "tool_turns" and step.calls):
        fields |= _read_echo(step, "reasoning")
    # DeepSeek refuses the conversation if the field is missing, even when it is empty.
    if profile.reasoning_field and step.calls:
        fields.setdefault(profile.reasoning_field, "")
    _add_assistant(sent, fields | _read_echo(step, "message"))
    sent.extend(
        [
            {"role": "tool", "tool_call_id": call.id, "content": _to_tool_content(result, profile)}
            for call, result in zip(step.calls, step.results, strict=True)
        ]
    )
    if media := _to_media_parts(step):
        _add_user(sent, media, profile)


def _to_part(part: Part) -> chat.ChatCompletionContentPartParam:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(data, mime_type):
            return {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{data}"}}
        case FilePart(data, mime_type, name):
            return {"type": "file", "file": {"filename": name, "file_data": f"data:{mime_type};base64,{data}"}}


def _read_echo(step: AssistantStep, part: str) -> dict[str, Any]:
    return to_object(step.echo.get(part)) if isinstance(step.echo, dict) else {}


def _to_tool_calls(step: AssistantStep, profile: EndpointProfile) -> list[Any]:
    received = _read_echo(step, "calls") if profile.echo_call_extra else {}
    calls: list[dict[str, Any]] = []
    is_signed = False
    for call, original_id in zip(step.calls, step.original_ids, strict=True):
        # Endpoints may refuse the other extra fields of a call.
        extra = to_object(received.get(original_id)) if received else {}
        signed = {name: value for name, value in extra.items() if name in _SIGNED_FIELDS}
        tool_call: chat.ChatCompletionMessageFunctionToolCallParam = {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": to_json_text(call.arguments)},
        }
        calls.append({**signed, **tool_call})
        is_signed = is_signed or bool(signed)
    # Gemini refuses a first call without a signature; it documents this value for calls of other models.
    if profile.unsigned_call and not is_signed:
        calls[0] = {**profile.unsigned_call, **calls[0]}
    return calls


def _to_tool_content(result: Result, profile: EndpointProfile) -> str | list[chat.ChatCompletionContentPartTextParam]:
    """Return the content of a tool message as text only. Images and documents follow the results in a user message."""
    # The API accepts text only in a tool message.
    media = result.media
    images = sum(isinstance(part, ImagePart) for part in media)
    documents = len(media) - images
    counted = [f"{number} {kind}(s)" for number, kind in ((images, "image"), (documents, "document")) if number]
    text = result.to_text(f"[{', '.join(counted)}: shown below]") if counted else result.to_text()
    return [{"type": "text", "text": text}] if profile.tool_content == "parts" else text


def _to_media_parts(step: AssistantStep) -> list[chat.ChatCompletionContentPartParam]:
    media: list[chat.ChatCompletionContentPartParam] = []
    for call, result in zip(step.calls, step.results, strict=True):
        if result.media:
            media.append({"type": "text", "text": f"[the result of {call.name}:]"})
            media.extend(_to_part(part) for part in result.media)
    return media


def _add_user(
    sent: list[Any], content: str | list[chat.ChatCompletionContentPartParam], profile: EndpointProfile
) -> None:
    """Append a user message, joined with a preceding user message: many chat templates require alternating roles."""
    if sent and sent[-1]["role"] == "tool" and not profile.user_after_tool:
        sent.append({"role": "assistant", "content": NO_ANSWER})
    if sent and sent[-1]["role"] == "user":
        # Another object: the next request may begin with the messages so far.
        sent[-1] = {**sent[-1], "content": _join_contents(sent[-1]["content"], content)}
    else:
        message: chat.ChatCompletionUserMessageParam = {"role": "user", "content": content}
        sent.append(message)


def _add_assistant(sent: list[Any], message: dict[str, Any]) -> None:
    before = sent[-1] if sent else {}
    if before.get("role") == "assistant" and "tool_calls" not in before:
        text = "\n\n".join(text for text in (before["content"], message["content"]) if text)
        sent[-1] = message | {"content": text or None}
    else:
        sent.append(message)


def _join_contents(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    contents = ([{"type": "text", "text": text}] if isinstance(text, str) else text for text in (first, second))
    return [part for content in contents for part in content]


_DATA_URL = compile_lazily(r"data:([^;,]{1,100})(?:;[^;,]{1,100})*?;base64,", re.ASCII)
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
        if isinstance(content, list):
            return [delta for part in content for delta in self._parse_part(part)]
        if isinstance(content, str) or (isinstance(content, Mapping) and ("type" in content or "text" in content)):
            return self._parse_part(content)
        return [] if content is None else [TextChunk(to_json_text(content))]

    def parse_media(self, delta: Mapping[str, Any]) -> list[Delta]:
        """Return the deltas of the images and the audio, which are fields beside the content."""
        deltas = [piece for image in to_list(delta.get("images")) for piece in self._parse_image(image)]
        audio = to_object(delta.get("audio"))
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
            thinking = part.get("thinking")
            pieces = thinking if isinstance(thinking, list) else [{"text": thinking}]
            text = "".join(to_text(piece.get("text")) for piece in pieces if isinstance(piece, Mapping))
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


_FINISHES = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "eos"), FinishReason.STOP),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), FinishReason.STOP),
    **dict.fromkeys(("length", "max_tokens", "model_length"), FinishReason.LENGTH),
    **dict.fromkeys(("content_filter", "refusal", "safety"), FinishReason.REFUSED),
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
        function = to_object(piece.get("function"))
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


# The fields of a chunk, and of its choice, beside which only the delta has to be read.
_PLAIN_CHUNK = frozenset({"id", "object", "created", "model", "choices", "system_fingerprint", "service_tier", "usage"})
_PLAIN_CHOICE = frozenset({"index", "delta", "finish_reason", "logprobs"})


def _find_only_delta(value: Any) -> dict[str, Any] | None:
    """Return the delta of a chunk in which nothing else has to be read, as in nearly all; None of any other value.

    The test is written out because a pattern of ``match`` takes four times as long.
    """
    if not isinstance(value, dict) or value.get("object") != "chat.completion.chunk" or value.get("usage"):
        return None
    choices = value.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not _PLAIN_CHUNK.issuperset(value):
        return None
    choice = choices[0]
    if not isinstance(choice, dict) or not _PLAIN_CHOICE.issuperset(choice) or choice.get("finish_reason") is not None:
        return None
    delta = choice.get("delta")
    return delta if isinstance(delta, dict) else None


class ChatStreamParser(StreamParser):
    """The `StreamParser` of the Chat Completions API."""

    def __init__(self, profile: EndpointProfile) -> None:
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
        if (delta := _find_only_delta(value)) is not None:
            return self._parse_delta(delta) if delta else ()
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
        return self._parse_choice(choice) if isinstance(choice, dict) else ()

    def finish(self, notes: Sequence[str]) -> Sequence[Delta]:
        """Return the tool calls of a complete reply, and the `Completion`."""
        finish = self._find_finish_reason()
        notes = (*notes, *self._notes, *self._content.notes, *self._describe_end(finish, self._finish))
        citations = self._citations.finish("".join(self._text))
        if finish is not FinishReason.STOP:
            return [Completion(finish, self._usage, notes=notes, citations=citations)]
        calls = self._assembler.assemble()
        extras = {call.id: extra for call, extra in calls if extra}
        reasoning: dict[str, Any] = {name: "".join(text) for name, text in self._reasoning.items()}
        if self._details:
            reasoning["reasoning_details"] = self._details
        parts = {"reasoning": reasoning, "message": self._message, "calls": extras}
        echo = {name: value for name, value in parts.items() if value}
        finish = FinishReason.TOOL_CALLS if calls else finish
        completion = Completion(finish, self._usage, echo or None, notes, citations)
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
        if isinstance(message, dict) and not self._has_answer:
            # Perplexity sends a delta with only a role beside a complete message.
            has_delta = isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role")
            delta = delta if has_delta else message
        return self._parse_delta(delta) if delta and isinstance(delta, dict) else ()

    def _find_finish_reason(self) -> FinishReason:
        if self._refused:
            return FinishReason.REFUSED
        if self._finish is None:
            return FinishReason.STOP if self.ended else FinishReason.CUT
        # Gemini could not parse its model's call: without any content this is an empty reply, which is asked for again.
        if self._finish.endswith("malformed_function_call") and not (self._has_answer or self.has_calls):
            return FinishReason.STOP
        return _FINISHES.get(self._finish, FinishReason.CUT)

    def _may_be_retried(self, report: Any) -> bool:
        """Return True if the endpoint could not parse its model's tool call (Groq), and no answer was streamed yet.

        Reasoning does not count as an answer. The reasoning of the failed reply is not sent back.
        """
        failed = to_object(to_object(report).get("error")).get("code") == CALL_UNREADABLE
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
        deltas = self._to_non_text_deltas(delta) if len(delta) > 1 or content is None else []
        deltas += self._content.parse(content)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            deltas.append(TextChunk(refusal))
        self._text += [delta.text for delta in deltas if isinstance(delta, TextChunk)]
        self._has_answer = self._has_answer or self.has_calls or bool(self._text)
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
        calls = delta.get("tool_calls") or []
        pieces = list(calls) if isinstance(calls, list) else [calls]
        if legacy := delta.get("function_call"):
            pieces.append({"index": 0, "function": legacy})
        added = [chunk for piece in pieces if (chunk := self._assembler.add(piece)) is not None]
        deltas.extend(added if self.streams_arguments else [])
        self._parse_rare_fields(delta)
        return deltas

    def _parse_rare_fields(self, delta: Mapping[str, Any]) -> None:
        """Parse fields that must be sent back unchanged, and attachments."""
        if isinstance(details := delta.get("reasoning_details"), list):
            merge_reasoning_details(self._details, details)
        custom = to_object(delta.get("custom_content"))
        if custom.get("state"):
            self._message["custom_content"] = {"state": custom["state"]}
        for attachment in to_list(custom.get("attachments")):
            # The text does not show the attachments of a DIAL deployment.
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


_KEY = compile_lazily(r'"([^"\\]{0,200})"[ \t\r\n]*:[ \t\r\n]*')
# The most characters of a key. An object is not converted from a longer key on.
_MAX_KEY = 256
_PLAIN = compile_lazily(r'[^"\\]+')
_ESCAPE = compile_lazily(r'\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\["\\/bfnrt]')
# The second half of a surrogate pair may follow.
_HALF_ESCAPE = compile_lazily(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z")
_MAX_ESCAPE = 12
_SPACE = " \t\r\n"


class JsonToLines:
    """Converts a streamed JSON object to labelled lines: ``{"Action": "f"}`` becomes ``Action: f``.

    A tool format with labelled lines then needs no second parser for endpoints that constrain replies only by JSON
    Schema. A text that does not begin with an object is returned unchanged.
    """

    def __init__(self) -> None:
        self._held = ""
        self._lines: list[str] = []
        self._conversion = self._convert()

    def feed(self, text: str) -> str:
        """Add text, and return the converted lines so far. An incomplete object is converted as far as it goes."""
        self._held += text
        next(self._conversion)
        converted = "".join(self._lines)
        self._lines.clear()
        return converted

    def _take(self, count: int) -> str:
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    def _skip(self, characters: str) -> Generator[None, None, None]:
        """Drop these characters up to the first other one."""
        while not (held := self._held.lstrip(characters)):
            yield
        self._held = held

    def _convert(self) -> Generator[None, None, None]:
        """Convert the whole text, and yield whenever more of it is needed."""
        yield from self._skip(_SPACE)
        is_object, separator = self._held.startswith("{"), ""
        if is_object:
            self._take(1)
        while is_object:
            yield from self._skip(f"{_SPACE},")
            while (key := _KEY.match(self._held)) is None and self._held[0] == '"' and len(self._held) <= _MAX_KEY:
                yield
            if key is None:
                break
            self._lines.append(f"{separator}{key[1]}: ")
            separator = "\n"
            self._take(key.end())
            yield from self._skip(_SPACE)
            yield from self._convert_string() if self._held[0] == '"' else self._convert_literal()
        is_ended = is_object and self._held[0] == "}"
        while True:
            rest = self._take(len(self._held))
            self._lines.append("" if is_ended else rest)
            yield

    def _convert_string(self) -> Generator[None, None, None]:
        self._take(1)
        while not self._held.startswith('"'):
            if plain := _PLAIN.match(self._held):
                self._lines.append(self._take(plain.end()))
            elif not _HALF_ESCAPE.match(self._held) and (escape := _ESCAPE.match(self._held)):
                self._lines.append(replace_surrogates(json.loads(f'"{self._take(escape.end())}"')))
            elif len(self._held) >= _MAX_ESCAPE:
                self._lines.append(self._take(1))
            else:
                yield
        self._take(1)

    def _convert_literal(self) -> Generator[None, None, None]:
        """Convert a value that is not a string: its text stays unchanged."""
        depth, in_string, is_escaped = 0, False, False
        while True:
            for index, char in enumerate(self._held):
                if in_string:
                    in_string = char != '"' or is_escaped
                    is_escaped = char == "\\" and not is_escaped
                elif char == '"':
                    in_string = True
                elif char in "{[":
                    depth += 1
                elif depth and char in "}]":
                    depth -= 1
                elif not depth and char in ",}":
                    self._lines.append(self._take(index))
                    return
            self._lines.append(self._take(len(self._held)))
            yield
