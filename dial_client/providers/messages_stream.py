"""The parser of replies of the Messages API, from its events or from a whole message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dial_client.messages import ToolCallRequest, Usage
from dial_client.model import CallChunk, Completion, Delta, FinishReason, ReasoningChunk, TextChunk
from dial_client.providers.http.provider_errors import StreamedError, require_object
from dial_client.providers.tool_call_codec import make_ids_unique, parse_call
from dial_client.providers.usage import first_number

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
    """A content block, as far as it has come."""

    start: dict[str, Any]
    deltas: dict[str, list[str]] = field(default_factory=dict)
    json: list[str] = field(default_factory=list)

    def to_content(self) -> dict[str, Any]:
        """Return the block as it has to be sent back."""
        block = self.start | {key: _to_text(self.start.get(key)) + "".join(texts) for key, texts in self.deltas.items()}
        if "input" in block or self.json:
            block["input"] = dict(self.to_call().arguments)
        return block

    def to_call(self) -> ToolCallRequest:
        """Return the tool call in the block."""
        arguments = "".join(self.json) or self.start.get("input")
        return parse_call(_to_text(self.start.get("id")), _to_text(self.start.get("name")), arguments)


class MessagesStreamParser:
    """The `StreamParser` of the Messages API. A reply that pauses continues in the next message."""

    def __init__(self) -> None:
        self.ended = False
        self.paused = False
        self.blocks: list[dict[str, Any]] = []
        """The blocks before the last pause, as they have to be sent back."""
        self._message_id: str | None = None
        """The id of the message under way, if it has begun and the endpoint sent one."""
        self._message_has_text = False
        self._current: dict[int, _Block] = {}
        self._finish: str | None = None
        self._notes: list[str] = []
        self._usage: dict[str, Any] = {}
        self._earlier_usage = Usage()
        self._has_text = False
        self._is_new_paragraph = False

    @property
    def has_calls(self) -> bool:
        """True if at least one tool call has begun."""
        return any(block.start.get("type") == "tool_use" for block in self._current.values())

    def feed(self, value: Any) -> Sequence[Delta]:
        """Parse an event, or a whole message."""
        event = require_object(value)
        match event.get("type"):
            case "content_block_delta":
                return self._add_delta(event.get("index"), event.get("delta"))
            case "content_block_start":
                return self._start_block(event.get("index"), event.get("content_block"))
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
        if finish is FinishReason.CUT and self._finish:
            notes.append(f"the endpoint stopped with {self._finish[:40]!r}")
        usage = self._earlier_usage + _parse_usage(self._usage)
        call_blocks = [block for block in self._current.values() if block.start.get("type") == "tool_use"]
        if finish is not FinishReason.STOP:
            if call_blocks:
                notes.append("the reply is not whole: its tool calls are not run")
            return [Completion(finish, usage, notes=tuple(notes))]
        calls = make_ids_unique([block.to_call() for block in call_blocks])
        for block, call in zip(call_blocks, calls, strict=True):
            block.start["id"] = call.id
        echo = [*self.blocks, *(block.to_content() for block in self._current.values())]
        finish = FinishReason.TOOL_CALLS if calls else finish
        return [*(CallChunk(call) for call in calls), Completion(finish, usage, _to_echo(echo), tuple(notes))]

    def _check_restart(self, message: Any) -> None:
        """Forget the message under way if one with another id begins: a gateway has asked its model once more.

        Raises:
            StreamedError: text of the first message was already streamed, and cannot be taken back.
        """
        message_id = (_to_text(message.get("id")) if isinstance(message, Mapping) else "") or None
        earlier, self._message_id = self._message_id, message_id or self._message_id
        if earlier is None or message_id in (None, earlier):
            return
        if self._message_has_text:
            raise StreamedError({"message": "a second message began in the middle of the first", "code": "cut"})
        self._current, self._usage, self._finish = {}, {}, None

    def _start_message(self, message: Any) -> list[Delta]:
        """Parse a message that begins, or a whole one."""
        message = message if isinstance(message, Mapping) else {}
        self._add_usage(message.get("usage"))
        content = message.get("content")
        deltas: list[Delta] = []
        for at, block in enumerate(content if isinstance(content, list) else []):
            deltas.extend(self._start_block(at, block))
        return deltas

    def _start_block(self, index: Any, block: Any) -> list[Delta]:
        if not isinstance(block, dict):
            return []
        self._current[index if isinstance(index, int) else len(self._current)] = _Block(dict(block))
        if block.get("type") != "text":
            self._is_new_paragraph = self._has_text
        return self._to_deltas("text", block.get("text")) or self._to_deltas("thinking", block.get("thinking"))

    def _add_delta(self, index: Any, delta: Any) -> list[Delta]:
        block = self._current.get(index if isinstance(index, int) else len(self._current) - 1)
        if block is None or not isinstance(delta, dict):
            return []
        kind = delta.get("type")
        if key := _DELTA_FIELDS.get(_to_text(kind)):
            block.deltas.setdefault(key, []).append(_to_text(delta.get(key)))
            return self._to_deltas(key, delta.get(key))
        if kind == "input_json_delta":
            block.json.append(_to_text(delta.get("partial_json")))
        elif kind == "citations_delta":
            citations = block.start.get("citations")
            block.start["citations"] = [*(citations if isinstance(citations, list) else ()), delta.get("citation")]
        else:
            block.start |= {key: value for key, value in delta.items() if key != "type"}
        return []

    def _to_deltas(self, key: str, text: Any) -> list[Delta]:
        """Return the delta of a text; text after thinking or a tool call begins a new paragraph."""
        if not isinstance(text, str) or not text or key == "signature":
            return []
        if key == "thinking":
            return [ReasoningChunk(text)]
        is_new_paragraph, self._is_new_paragraph, self._has_text = self._is_new_paragraph, False, True
        self._message_has_text = True
        return [TextChunk(f"\n\n{text}" if is_new_paragraph else text)]

    def _end_message(self, delta: Any, usage: Any) -> None:
        self._add_usage(usage)
        if not isinstance(delta, Mapping) or not delta.get("stop_reason"):
            return
        finish = str(delta["stop_reason"])
        if finish not in _PAUSES:
            self._finish = finish
            details = delta.get("stop_details")
            if isinstance(details, Mapping) and (why := _to_text(details.get("explanation"))):
                self._notes.append(f"the model refused: {why[:300]}")
            return
        self.paused = True
        self.blocks.extend(block.to_content() for block in self._current.values())
        self._earlier_usage, self._usage, self._current = self._earlier_usage + _parse_usage(self._usage), {}, {}
        self._message_id, self._message_has_text = None, False

    def _add_usage(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            self._usage |= {name: tokens for name, tokens in usage.items() if tokens is not None}


def _to_echo(blocks: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the blocks; None if the message itself has all that is in them."""
    return None if all(block.get("type") in ("text", "tool_use") for block in blocks) else blocks


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    cached = first_number(usage, "cache_read_input_tokens")
    details = usage.get("output_tokens_details")
    cache_written = first_number(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=first_number(usage, "input_tokens") + cache_written + cached,
        output_tokens=first_number(usage, "output_tokens"),
        cached_tokens=cached,
        reasoning_tokens=first_number(details, "thinking_tokens", "reasoning_tokens")
        if isinstance(details, Mapping)
        else 0,
        cache_write_tokens=cache_written,
    )


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else ""
