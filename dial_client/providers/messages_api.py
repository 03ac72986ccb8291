"""Anthropic's Messages API.

https://platform.claude.com/docs/en/api/messages. The content blocks of a reply are kept unchanged: thinking blocks are
sent back with their signatures, unmodified and in their original positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from dial_client.messages.citations import Citation, parse_block_citation
from dial_client.messages.errors import OUTPUT_FORMAT_UNSUPPORTED, ProviderError
from dial_client.messages.message import FilePart, ImagePart, Message, Part, TextPart, ToolCallRequest, ToolSpec
from dial_client.messages.model import (
    ArgumentsChunk,
    CallChunk,
    Completion,
    Delta,
    EndpointCallChunk,
    FinishReason,
    ModelRequest,
    OutputFormat,
    ReasoningChunk,
    TextChunk,
    Thinking,
)
from dial_client.messages.token_usage import Usage, find_number
from dial_client.providers import server_tools
from dial_client.providers.api_history import NO_TEXT, AssistantStep, UserStep, normalize
from dial_client.providers.http.http_provider import HttpProvider, build_sampling_fields
from dial_client.providers.http.provider_errors import StreamedError, require_object
from dial_client.providers.http.response_stream import StreamParser
from dial_client.providers.tool_call_codec import make_ids_unique, parse_call, to_plain_json
from dial_client.runtime.json_fields import find_text, to_list, to_object, to_text
from dial_client.runtime.kept_prefix import KeptPrefix
from dial_client.runtime.text import replace_surrogates
from dial_client.schema.provider_schema import can_be_strict, to_output_schema
from dial_client.settings.endpoint_profile import (
    ANTHROPIC,
    NEWEST_MESSAGES_VERSION,
    OLDER_MESSAGES_VERSION,
    EndpointProfile,
)

if TYPE_CHECKING:
    from anthropic import types
    from anthropic.types.message_create_params import MessageCreateParamsBase

_ID = r"[a-zA-Z0-9_-]{1,64}"
_DEFAULT_MAX_TOKENS = 8_192
# The highest ``max_tokens`` of an unstreamed request: the API closes connections that are idle for ten minutes.
_MAX_UNSTREAMED_TOKENS = 21_333


_VERSION = "anthropic-version"
_VERSION_NOTE = (
    f"the endpoint does not accept version {NEWEST_MESSAGES_VERSION} of the API: {OLDER_MESSAGES_VERSION} is sent"
)


class MessagesProvider(HttpProvider):
    """A provider for endpoints with the Messages API."""

    api = "messages"
    search_tool = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}  # noqa: RUF012 - fixed
    required = frozenset({"max_tokens"})
    absent_settings = frozenset({"seed"})
    # True after the endpoint has refused the newest version of the API.
    _is_older_version = False

    def _get_path(self) -> str:
        return "/messages" if self.endpoint.base_url.endswith("/v1") else "/v1/messages"

    def _create_parser(self) -> MessagesStreamParser:
        return MessagesStreamParser()

    def _encode_tool(self, tool: ToolSpec) -> dict[str, Any]:
        definition: types.ToolParam = {"name": tool.name, "input_schema": dict(tool.input_schema or {"type": "object"})}
        if self._adaptation.profile.strict:
            definition["strict"] = True
        if tool.deferred:
            definition["defer_loading"] = True
        if tool.description:
            definition["description"] = tool.description
        return {**definition}

    def _build_fields(self, request: ModelRequest, notes: list[str], *, has_tools: bool) -> dict[str, Any]:
        profile = self._adaptation.profile
        messages = to_messages(request.messages, self._name, profile, notes, request.converted)
        settings = self._choose_settings(request, notes, has_tools=has_tools)
        limit = settings.max_tokens or _DEFAULT_MAX_TOKENS
        params: MessageCreateParamsBase = {"model": self._model, "max_tokens": limit, "messages": messages}
        if system := replace_surrogates(request.instruction_text):
            params["system"] = system
        if settings.tool_choice is not None:
            params["tool_choice"] = _encode_choice(settings.tool_choice)
        if has_tools and settings.parallel_calls is False and settings.tool_choice != "none":
            # The field belongs to the choice.
            choice: Any = {**params.get("tool_choice", {"type": "auto"}), "disable_parallel_tool_use": True}
            params["tool_choice"] = choice
        blocks = (block for message in messages for block in message["content"] if block.get("type") == "tool_use")
        if not has_tools and (names := sorted({str(block["name"]) for block in blocks})):
            # Bedrock refuses a history with calls but without tools.
            params["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
            params["tool_choice"] = {"type": "none"}
        # One mark at the end caches all before it, and moves along with the conversation.
        if profile.prompt_cache:
            params["cache_control"] = {"type": "ephemeral"}
        # The API refuses stop sequences of white space only.
        if request.stop and (stop := [text for text in request.stop if text.strip()]):
            params["stop_sequences"] = stop
        if settings.thinking is not None:
            params["thinking"] = {"type": "disabled"} if settings.thinking == "none" else {"type": "adaptive"}
        if output_config := _build_output_config(request.output_format, settings.thinking):
            params["output_config"] = output_config
        # A long reply without a stream would be lost with its connection, so it is streamed all the same.
        is_streamed = request.stream or limit > _MAX_UNSTREAMED_TOKENS
        return {**params, "stream": is_streamed, **build_sampling_fields(settings)}

    def _adapt_headers(self, error: ProviderError, notes: list[str]) -> str | None:
        # Gateways may know only the older version; the answer is the same for this package.
        if error.status != 400 or _VERSION not in str(error) or _VERSION_NOTE in notes:
            return None
        headers = dict(self.endpoint.headers)
        if headers.get(_VERSION) == NEWEST_MESSAGES_VERSION:
            headers[_VERSION] = OLDER_MESSAGES_VERSION
            self._transport.endpoint = replace(self.endpoint, headers=headers)
            self._is_older_version = True
        return _VERSION_NOTE if self._is_older_version else None

    def _add_paused_reply(self, fields: dict[str, Any], parser: Any) -> dict[str, Any]:
        if blocks := drop_empty_blocks(parser.blocks):
            fields["messages"].append({"role": "assistant", "content": blocks})
        return fields


def _encode_choice(choice: str) -> types.ToolChoiceParam:
    if choice == "none":
        return {"type": "none"}
    return {"type": "any"} if choice == "required" else {"type": "tool", "name": choice}


def _build_output_config(form: OutputFormat | None, thinking: Thinking | None) -> types.OutputConfigParam:
    """Return the ``output_config`` field with the schema of the answer and the effort of the model.

    Raises:
        ProviderError: The schema has open objects, which the API does not accept: all property names must be known.
    """
    config: types.OutputConfigParam = {}
    if form is not None:
        if not can_be_strict(form.schema):
            raise ProviderError("the API does not support schemas with open objects", code=OUTPUT_FORMAT_UNSUPPORTED)
        config["format"] = {"type": "json_schema", "schema": to_output_schema(form.schema, "anthropic")[0]}
    if thinking is not None and thinking != "none":
        config["effort"] = "low" if thinking == "minimal" else thinking  # with thinking, no effort is lower
    return config


def to_messages(
    messages: Sequence[Message],
    provider_name: str,
    profile: EndpointProfile = ANTHROPIC,
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
    kept_steps = None if kept is None else kept.setdefault("steps", KeptPrefix())
    steps = normalize(messages, provider_name, _ID, profile, notes, kept=kept_steps)
    sent: list[Any] = []
    # The first message must be of the user.
    if not isinstance(steps[0], UserStep):
        _append_blocks(sent, "user", [{"type": "text", "text": NO_TEXT}])
    for step in steps:
        if isinstance(step, UserStep):
            _append_blocks(sent, "user", [_to_part(part) for part in step.parts])
            continue
        _append_blocks(sent, "assistant", _read_echo(step) or _build_blocks(step))
        for call, result in zip(step.calls, step.results, strict=True):
            parts = [_to_part(part) for part in result.parts]
            content: Any = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
            block: types.ToolResultBlockParam = {"type": "tool_result", "tool_use_id": call.id, "content": content}
            if result.is_error:
                block["is_error"] = True
            _append_blocks(sent, "user", [block])
    return sent


def drop_empty_blocks(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    """Return received blocks without empty text blocks, which the API refuses."""
    return [
        block
        for block in blocks
        if isinstance(block, dict)
        and isinstance(block.get("type"), str)
        and (block["type"] != "text" or str(block.get("text") or "").strip())
    ]


def _read_echo(step: AssistantStep) -> list[dict[str, Any]]:
    """Return the echo's blocks, with valid ids for calls; an empty list if the calls are not those of the step."""
    blocks = drop_empty_blocks(to_list(step.echo))
    if [block.get("id") for block in blocks if block.get("type") == "tool_use"] != list(step.original_ids):
        return []
    calls = iter(step.calls)
    valid = []
    for block in blocks:
        if block.get("type") == "tool_use":
            call = next(calls)
            arguments = block.get("input") if isinstance(block.get("input"), dict) else call.arguments
            valid.append(block | {"id": call.id, "name": call.name, "input": to_plain_json(arguments)})
        else:
            valid.append(to_plain_json(block))
    return valid


def _build_blocks(step: AssistantStep) -> list[types.ContentBlockParam]:
    blocks: list[types.ContentBlockParam] = [{"type": "text", "text": step.text}] if step.text else []
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)} for call in step.calls
    ]
    return blocks


def _to_part(part: Part) -> types.TextBlockParam | types.ImageBlockParam | types.DocumentBlockParam:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(data, mime_type):
            # `api_history` lets only the four types through that the API accepts.
            media_type: Any = mime_type
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case FilePart(data, _, name):
            return {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": data},
                "title": name,
            }


def _append_blocks(sent: list[Any], role: Literal["user", "assistant"], blocks: Sequence[Any]) -> None:
    """Append blocks, to the last message if it has the same role: one message must have the results of all calls."""
    if sent and sent[-1]["role"] == role:
        sent[-1]["content"].extend(blocks)
    elif blocks:
        sent.append({"role": role, "content": list(blocks)})


_FINISHES = {
    **dict.fromkeys(("end_turn", "stop_sequence", "tool_use", "stop", "tool_calls"), FinishReason.STOP),
    **dict.fromkeys(("max_tokens", "length", "model_context_window_exceeded"), FinishReason.LENGTH),
    "refusal": FinishReason.REFUSED,
}
_PAUSES = frozenset({"pause_turn", "compaction"})
_DELTA_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


@dataclass(slots=True)
class _Block:
    """A content block, as far as it has been received."""

    start: dict[str, Any]
    deltas: dict[str, list[str]] = field(default_factory=dict)
    json: list[str] = field(default_factory=list)
    begin: int = 0
    """The position of the block's text in the text of the reply, in characters."""
    end: int = 0

    def to_content(self) -> dict[str, Any]:
        """Return the block in the form in which it is sent back."""
        block = self.start | {key: to_text(self.start.get(key)) + "".join(texts) for key, texts in self.deltas.items()}
        if "input" in block or self.json:
            block["input"] = dict(self.to_call().arguments)
        return block

    def list_citations(self) -> list[Citation]:
        """Return the citations of the block, each with the span of the block's text."""
        parsed = map(parse_block_citation, to_list(self.start.get("citations")))
        return [citation.at(self.begin, self.end) for citation in parsed if citation is not None]

    def to_call(self) -> ToolCallRequest:
        """Return the tool call in the block."""
        arguments = "".join(self.json) or self.start.get("input")
        return parse_call(to_text(self.start.get("id")), to_text(self.start.get("name")), arguments)


class MessagesStreamParser(StreamParser):
    """The `StreamParser` of the Messages API. A paused reply continues in the next message."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        """The blocks before the last pause, in the form in which they are sent back."""
        # The id of the current message; None before its start, or if the endpoint sent no id.
        self._message_id: str | None = None
        self._message_has_text = False
        self._current: dict[int, _Block] = {}
        self._finish: str | None = None
        self._notes: list[str] = []
        self._usage: dict[str, Any] = {}
        self._earlier_usage = Usage()
        # The length of the text so far, in characters.
        self._length = 0
        self._is_new_paragraph = False
        # The citations before the last pause.
        self._citations: list[Citation] = []
        self._endpoint_calls: dict[str, ToolCallRequest] = {}

    @property
    def has_calls(self) -> bool:
        """True if at least one tool call has begun."""
        return any(block.start.get("type") == "tool_use" for block in self._current.values())

    def feed(self, value: Any) -> Sequence[Delta]:
        """Parse a stream event, or an unstreamed message."""
        event = require_object(value)
        match event.get("type"):
            case "content_block_delta":
                return self._add_delta(event.get("index"), event.get("delta"))
            case "content_block_start":
                return self._start_block(event.get("index"), event.get("content_block"))
            case "content_block_stop":
                return self._end_block(event.get("index"))
            case "message_start":
                self._check_restart(event.get("message"))
                return self._start_message(event.get("message"))
            case "message_delta":
                self._end_message(event.get("delta"), event.get("usage"))
            case "message_stop":
                self.ended = True
            case "message":
                deltas = self._start_message(event)
                self._end_message(event, None)
                self.ended = True
                return deltas
        return ()

    def finish(self, notes: Sequence[str]) -> Sequence[Delta]:
        """Return the tool calls of a complete reply, and the `Completion`."""
        finish = _FINISHES.get(self._finish or ("end_turn" if self.ended else ""), FinishReason.CUT)
        notes = (*notes, *self._notes, *self._describe_end(finish, self._finish))
        citations = (*self._citations, *self._list_citations())
        # The endpoint does not always count the calls of its own tools.
        usage = self._earlier_usage + _parse_usage(self._usage)
        usage = replace(usage, server_tool_calls=max(usage.server_tool_calls, len(self._endpoint_calls)))
        completion = Completion(finish, usage, notes=notes, citations=citations)
        if finish is not FinishReason.STOP:
            return [completion]
        call_blocks = [block for block in self._current.values() if block.start.get("type") == "tool_use"]
        calls = make_ids_unique([block.to_call() for block in call_blocks])
        for block, call in zip(call_blocks, calls, strict=True):
            block.start["id"] = call.id
        echo = [*self.blocks, *(block.to_content() for block in self._current.values())]
        finish = FinishReason.TOOL_CALLS if calls else finish
        # Without an echo, the message itself contains all the content of the blocks.
        is_plain = all(block.get("type") in ("text", "tool_use") and not block.get("citations") for block in echo)
        completion = replace(completion, finish=finish, echo=None if is_plain else echo)
        return [*map(CallChunk, calls), completion]

    def _list_citations(self) -> list[Citation]:
        return [citation for block in self._current.values() for citation in block.list_citations()]

    def _check_restart(self, message: Any) -> None:
        """Discard the current message if a message with another id begins, because a gateway has retried its model.

        Raises:
            StreamedError: Text of the current message was already streamed, and cannot be withdrawn.
        """
        message_id = find_text(message, "id") or None
        earlier, self._message_id = self._message_id, message_id or self._message_id
        if earlier is None or message_id in (None, earlier):
            return
        if self._message_has_text:
            raise StreamedError({"message": "a second message began before the end of the first", "code": "cut"})
        self._current, self._usage, self._finish = {}, {}, None

    def _start_message(self, message: Any) -> list[Delta]:
        """Parse the message of a ``message_start`` event, or an unstreamed message."""
        message = to_object(message)
        self._add_usage(message.get("usage"))
        deltas: list[Delta] = []
        for position, block in enumerate(to_list(message.get("content"))):
            deltas.extend(self._start_block(position, block))
            deltas.extend(self._end_block(position))
        return deltas

    def _start_block(self, index: Any, block: Any) -> list[Delta]:
        if not isinstance(block, dict):
            return []
        started = _Block(dict(block), begin=self._length, end=self._length)
        self._current[index if isinstance(index, int) else len(self._current)] = started
        if block.get("type") != "text":
            self._is_new_paragraph = self._length > 0
        # The result of a call that the endpoint ran itself follows the call, whose block may have had no end event.
        if call_id := to_text(block.get("tool_use_id")):
            deltas: list[Delta] = []
            if call_id not in self._endpoint_calls:
                places = [position for position, earlier in self._current.items() if earlier.start.get("id") == call_id]
                deltas = [delta for position in places for delta in self._end_block(position)]
            call = self._endpoint_calls.get(call_id)
            if call is None:
                return deltas
            return [*deltas, EndpointCallChunk(call, server_tools.parse_result_block(block, call))]
        text, thinking = block.get("text"), block.get("thinking")
        return self._to_deltas(started, "text", text) or self._to_deltas(started, "thinking", thinking)

    def _end_block(self, index: Any) -> list[Delta]:
        """Return the call in a block that has ended, if it is a call of the endpoint's own tools."""
        block = self._current.get(index) if isinstance(index, int) else None
        if block is None or not server_tools.is_call_block(block.start):
            return []
        call = server_tools.parse_call_block(block.to_content())
        self._endpoint_calls[call.id] = call
        return [EndpointCallChunk(call)]

    def _add_delta(self, index: Any, delta: Any) -> list[Delta]:
        index = index if isinstance(index, int) else len(self._current) - 1
        block = self._current.get(index)
        if block is None or not isinstance(delta, dict):
            return []
        kind = delta.get("type")
        if key := _DELTA_FIELDS.get(to_text(kind)):
            block.deltas.setdefault(key, []).append(to_text(delta.get(key)))
            return self._to_deltas(block, key, delta.get(key))
        if kind == "input_json_delta":
            block.json.append(to_text(delta.get("partial_json")))
            if self.streams_arguments and block.start.get("type") == "tool_use":
                return [ArgumentsChunk(index, to_text(block.start.get("name")), block.json[-1])]
        elif kind == "citations_delta":
            block.start["citations"] = [*to_list(block.start.get("citations")), delta.get("citation")]
        else:
            block.start |= {key: value for key, value in delta.items() if key != "type"}
        return []

    def _to_deltas(self, block: _Block, key: str, text: Any) -> list[Delta]:
        """Return the delta for text or thinking. Text after thinking or a tool call begins a new paragraph."""
        if not isinstance(text, str) or not text or key == "signature":
            return []
        if key == "thinking":
            return [ReasoningChunk(text)]
        is_new_paragraph, self._is_new_paragraph = self._is_new_paragraph, False
        self._message_has_text = True
        shown = f"\n\n{text}" if is_new_paragraph else text
        self._length += len(shown)
        if block.begin == block.end:
            block.begin = self._length - len(text)
        block.end = self._length
        return [TextChunk(shown)]

    def _end_message(self, delta: Any, usage: Any) -> None:
        self._add_usage(usage)
        if not isinstance(delta, Mapping) or not delta.get("stop_reason"):
            return
        finish = str(delta["stop_reason"])
        if finish not in _PAUSES:
            self._finish = finish
            if why := find_text(delta.get("stop_details"), "explanation"):
                self._notes.append(f"the model refused: {why[:300]}")
            return
        self.paused = True
        self.blocks.extend(block.to_content() for block in self._current.values())
        self._citations.extend(self._list_citations())
        self._earlier_usage, self._usage, self._current = self._earlier_usage + _parse_usage(self._usage), {}, {}
        self._message_id, self._message_has_text = None, False

    def _add_usage(self, usage: Any) -> None:
        self._usage |= {name: tokens for name, tokens in to_object(usage).items() if tokens is not None}


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    cached = find_number(usage, "cache_read_input_tokens")
    details, calls = to_object(usage.get("output_tokens_details")), to_object(usage.get("server_tool_use"))
    cache_written = find_number(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=find_number(usage, "input_tokens") + cache_written + cached,
        output_tokens=find_number(usage, "output_tokens"),
        cached_tokens=cached,
        reasoning_tokens=find_number(details, "thinking_tokens", "reasoning_tokens"),
        cache_write_tokens=cache_written,
        server_tool_calls=sum(find_number(calls, name) for name in calls),
    )
