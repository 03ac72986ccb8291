"""The parser of replies of the Messages API, from stream events or from an unstreamed message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dial_client.messages.citations import Citation, parse_block_citation
from dial_client.messages.message import ToolCallRequest
from dial_client.messages.model import (
    ArgumentsChunk,
    CallChunk,
    Completion,
    Delta,
    EndpointCallChunk,
    FinishReason,
    ReasoningChunk,
    TextChunk,
)
from dial_client.messages.token_usage import Usage, find_number
from dial_client.providers import server_tools
from dial_client.providers.http.provider_errors import StreamedError, require_object
from dial_client.providers.tool_call_codec import make_ids_unique, parse_call
from dial_client.runtime.json_fields import to_text

_FINISHES = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_use": FinishReason.STOP,
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "length": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
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
        values = self.start.get("citations")
        parsed = map(parse_block_citation, values if isinstance(values, list) else ())
        return [citation.at(self.begin, self.end) for citation in parsed if citation is not None]

    def to_call(self) -> ToolCallRequest:
        """Return the tool call in the block."""
        arguments = "".join(self.json) or self.start.get("input")
        return parse_call(to_text(self.start.get("id")), to_text(self.start.get("name")), arguments)


class MessagesStreamParser:
    """The `StreamParser` of the Messages API. A paused reply continues in the next message."""

    def __init__(self) -> None:
        self.ended = False
        self.paused = False
        self.streams_arguments = False
        self.blocks: list[dict[str, Any]] = []
        """The blocks before the last pause, in the form in which they are sent back."""
        self._message_id: str | None = None
        """The id of the current message; None before its start, or if the endpoint sent no id."""
        self._message_has_text = False
        self._current: dict[int, _Block] = {}
        self._finish: str | None = None
        self._notes: list[str] = []
        self._usage: dict[str, Any] = {}
        self._earlier_usage = Usage()
        self._length = 0
        """The length of the text so far, in characters."""
        self._is_new_paragraph = False
        self._citations: list[Citation] = []
        """The citations before the last pause."""
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
        notes = [*notes, *self._notes]
        citations = (*self._citations, *self._list_citations())
        if finish is FinishReason.CUT and self._finish:
            notes.append(f"the reply ended with the unknown stop reason {self._finish[:40]!r}")
        usage = self._count_usage()
        call_blocks = [block for block in self._current.values() if block.start.get("type") == "tool_use"]
        if finish is not FinishReason.STOP:
            if call_blocks:
                notes.append("the reply is incomplete: its tool calls are not run")
            return [Completion(finish, usage, notes=tuple(notes), citations=citations)]
        calls = make_ids_unique([block.to_call() for block in call_blocks])
        for block, call in zip(call_blocks, calls, strict=True):
            block.start["id"] = call.id
        echo = [*self.blocks, *(block.to_content() for block in self._current.values())]
        finish = FinishReason.TOOL_CALLS if calls else finish
        completion = Completion(finish, usage, _to_echo(echo), tuple(notes), citations)
        return [*(CallChunk(call) for call in calls), completion]

    def _list_citations(self) -> list[Citation]:
        return [citation for block in self._current.values() for citation in block.list_citations()]

    def _count_usage(self) -> Usage:
        """Return the usage. Calls of the endpoint's own tools are counted here if the endpoint does not count them."""
        usage = self._earlier_usage + _parse_usage(self._usage)
        return replace(usage, server_tool_calls=max(usage.server_tool_calls, len(self._endpoint_calls)))

    def _check_restart(self, message: Any) -> None:
        """Discard the current message if a message with another id begins, because a gateway has retried its model.

        Raises:
            StreamedError: Text of the current message was already streamed, and cannot be withdrawn.
        """
        message_id = (to_text(message.get("id")) if isinstance(message, Mapping) else "") or None
        earlier, self._message_id = self._message_id, message_id or self._message_id
        if earlier is None or message_id in (None, earlier):
            return
        if self._message_has_text:
            raise StreamedError({"message": "a second message began before the end of the first", "code": "cut"})
        self._current, self._usage, self._finish = {}, {}, None

    def _start_message(self, message: Any) -> list[Delta]:
        """Parse the message of a ``message_start`` event, or an unstreamed message."""
        message = message if isinstance(message, Mapping) else {}
        self._add_usage(message.get("usage"))
        content = message.get("content")
        deltas: list[Delta] = []
        for position, block in enumerate(content if isinstance(content, list) else []):
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
        if call_id := to_text(block.get("tool_use_id")):
            return self._end_call(call_id, block)
        text, thinking = block.get("text"), block.get("thinking")
        return self._to_deltas(started, "text", text) or self._to_deltas(started, "thinking", thinking)

    def _end_call(self, call_id: str, block: dict[str, Any]) -> list[Delta]:
        """Return the result of a call that the endpoint ran itself, after the call if its block had no end event."""
        deltas: list[Delta] = []
        if call_id not in self._endpoint_calls:
            places = [position for position, earlier in self._current.items() if earlier.start.get("id") == call_id]
            deltas = [delta for position in places for delta in self._end_block(position)]
        call = self._endpoint_calls.get(call_id)
        if call is None:
            return deltas
        return [*deltas, EndpointCallChunk(call, server_tools.parse_result_block(block, call))]

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
            citations = block.start.get("citations")
            block.start["citations"] = [*(citations if isinstance(citations, list) else ()), delta.get("citation")]
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
            details = delta.get("stop_details")
            if isinstance(details, Mapping) and (why := to_text(details.get("explanation"))):
                self._notes.append(f"the model refused: {why[:300]}")
            return
        self.paused = True
        self.blocks.extend(block.to_content() for block in self._current.values())
        self._citations.extend(self._list_citations())
        self._earlier_usage, self._usage, self._current = self._earlier_usage + _parse_usage(self._usage), {}, {}
        self._message_id, self._message_has_text = None, False

    def _add_usage(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            self._usage |= {name: tokens for name, tokens in usage.items() if tokens is not None}


def _to_echo(blocks: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the blocks as the echo of a message; None if the message itself contains all their content."""
    is_plain = all(block.get("type") in ("text", "tool_use") and not block.get("citations") for block in blocks)
    return None if is_plain else blocks


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    cached = find_number(usage, "cache_read_input_tokens")
    details = usage.get("output_tokens_details")
    cache_written = find_number(usage, "cache_creation_input_tokens")
    server_tools = usage.get("server_tool_use")
    return Usage(
        input_tokens=find_number(usage, "input_tokens") + cache_written + cached,
        output_tokens=find_number(usage, "output_tokens"),
        cached_tokens=cached,
        reasoning_tokens=find_number(details, "thinking_tokens", "reasoning_tokens")
        if isinstance(details, Mapping)
        else 0,
        cache_write_tokens=cache_written,
        server_tool_calls=sum(find_number(server_tools, name) for name in server_tools)
        if isinstance(server_tools, Mapping)
        else 0,
    )
