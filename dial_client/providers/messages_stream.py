"""Reads a reply of the Messages API: its events, or the whole message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dial_client.messages import ToolCallRequest, Usage
from dial_client.model import CallChunk, Completion, Delta, FinishReason, ReasoningChunk, TextChunk
from dial_client.providers.http.provider_errors import require_object
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
_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


@dataclass(slots=True)
class _Block:
    """One block, as far as it has come."""

    start: dict[str, Any]
    grown: dict[str, list[str]] = field(default_factory=dict)
    json: list[str] = field(default_factory=list)

    def whole(self) -> dict[str, Any]:
        """Give the block as it has to go back."""
        block = self.start | {key: _text(self.start.get(key)) + "".join(more) for key, more in self.grown.items()}
        if "input" in block or self.json:
            block["input"] = dict(self.call().arguments)
        return block

    def call(self) -> ToolCallRequest:
        """Give the call that the block is."""
        arguments = "".join(self.json) or self.start.get("input")
        return parse_call(_text(self.start.get("id")), _text(self.start.get("name")), arguments)


class MessagesStreamParser:
    """A `Reply` of the Messages API. What a pause interrupts goes on in the same reply."""

    def __init__(self) -> None:
        self.ended = False
        self.paused = False
        self.blocks: list[dict[str, Any]] = []
        """What was said before the last pause, as it has to go back."""
        self._current: dict[int, _Block] = {}
        self._finish: str | None = None
        self._notes: list[str] = []
        self._usage: dict[str, Any] = {}
        self._spent = Usage()
        self._text_said = False
        self._apart = False

    @property
    def has_calls(self) -> bool:
        """Whether at least one call has begun."""
        return any(block.start.get("type") == "tool_use" for block in self._current.values())

    def feed(self, value: Any) -> Sequence[Delta]:
        """Take an event, or a whole message."""
        event = require_object(value)
        match event.get("type"):
            case "content_block_delta":
                return self._grow(event.get("index"), event.get("delta"))
            case "content_block_start":
                return self._start(event.get("index"), event.get("content_block"))
            case "message_start":
                return self._message(event.get("message"))
            case "message_delta":
                self._outcome(event.get("delta"), event.get("usage"))
            case "message_stop":
                self.ended = True
            case "message":
                deltas = self._message(event)
                self._outcome(event, None)
                self.ended = True
                return deltas
        return ()

    def finish(self, notes: Sequence[str]) -> Sequence[Delta]:
        """Give the calls, if the reply is whole, and the `Completion`."""
        finish = _FINISHES.get(self._finish or ("end_turn" if self.ended else ""), FinishReason.CUT)
        said = [*notes, *self._notes]
        if finish is FinishReason.CUT and self._finish:
            said.append(f"the endpoint stopped with {self._finish[:40]!r}")
        usage = self._spent + _parse_usage(self._usage)
        asked = [block for block in self._current.values() if block.start.get("type") == "tool_use"]
        if finish is not FinishReason.STOP:
            if asked:
                said.append("the reply is not whole: its tool calls are not run")
            return [Completion(finish, usage, notes=tuple(said))]
        calls = make_ids_unique([block.call() for block in asked])
        for block, call in zip(asked, calls, strict=True):
            block.start["id"] = call.id
        echo = [*self.blocks, *(block.whole() for block in self._current.values())]
        finish = FinishReason.TOOL_CALLS if calls else finish
        return [*(CallChunk(call) for call in calls), Completion(finish, usage, _to_echo(echo), tuple(said))]

    def _message(self, message: Any) -> list[Delta]:
        """Take a message that begins, or is whole."""
        message = message if isinstance(message, Mapping) else {}
        self._count(message.get("usage"))
        content = message.get("content")
        deltas: list[Delta] = []
        for at, block in enumerate(content if isinstance(content, list) else []):
            deltas.extend(self._start(at, block))
        return deltas

    def _start(self, index: Any, block: Any) -> list[Delta]:
        if not isinstance(block, dict):
            return []
        self._current[index if isinstance(index, int) else len(self._current)] = _Block(dict(block))
        if block.get("type") != "text":
            self._apart = self._text_said
        return self._shown("text", block.get("text")) or self._shown("thinking", block.get("thinking"))

    def _grow(self, index: Any, delta: Any) -> list[Delta]:
        block = self._current.get(index if isinstance(index, int) else len(self._current) - 1)
        if block is None or not isinstance(delta, dict):
            return []
        kind = delta.get("type")
        if key := _GROWING.get(_text(kind)):
            block.grown.setdefault(key, []).append(_text(delta.get(key)))
            return self._shown(key, delta.get(key))
        if kind == "input_json_delta":
            block.json.append(_text(delta.get("partial_json")))
        elif kind == "citations_delta":
            cited = block.start.get("citations")
            block.start["citations"] = [*(cited if isinstance(cited, list) else ()), delta.get("citation")]
        else:
            block.start |= {key: value for key, value in delta.items() if key != "type"}
        return []

    def _shown(self, key: str, text: Any) -> list[Delta]:
        """Give what people see of a text; one behind thinking or a tool is set apart from the text before that."""
        if not isinstance(text, str) or not text or key == "signature":
            return []
        if key == "thinking":
            return [ReasoningChunk(text)]
        apart, self._apart, self._text_said = self._apart, False, True
        return [TextChunk(f"\n\n{text}" if apart else text)]

    def _outcome(self, delta: Any, usage: Any) -> None:
        self._count(usage)
        if not isinstance(delta, Mapping) or not delta.get("stop_reason"):
            return
        finish = str(delta["stop_reason"])
        if finish not in _PAUSES:
            self._finish = finish
            details = delta.get("stop_details")
            if isinstance(details, Mapping) and (why := _text(details.get("explanation"))):
                self._notes.append(f"the model refused: {why[:300]}")
            return
        self.paused = True
        self.blocks.extend(block.whole() for block in self._current.values())
        self._spent, self._usage, self._current = self._spent + _parse_usage(self._usage), {}, {}

    def _count(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            self._usage |= {name: tokens for name, tokens in usage.items() if tokens is not None}


def _to_echo(blocks: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Give the blocks, unless the message itself says all that is in them."""
    return None if all(block.get("type") in ("text", "tool_use") for block in blocks) else blocks


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    cached = first_number(usage, "cache_read_input_tokens")
    details = usage.get("output_tokens_details")
    written = first_number(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=first_number(usage, "input_tokens") + written + cached,
        output_tokens=first_number(usage, "output_tokens"),
        cached_tokens=cached,
        reasoning_tokens=first_number(details, "thinking_tokens", "reasoning_tokens")
        if isinstance(details, Mapping)
        else 0,
        cache_write_tokens=written,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
