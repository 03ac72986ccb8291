"""The answers of the corpus, and how this package parses them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.inner import (
    Api,
    ApiReply,
    CallChunk,
    Completion,
    FinishReason,
    Message,
    ModelRequest,
    ProviderError,
    ReasoningChunk,
    Script,
    ScriptedProvider,
    TextChunk,
    ToolCallRequest,
)

FOLDER = Path(__file__).parent
REQUEST = ModelRequest((Message.user("Hello?"),))


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the corpus."""

    name: str
    events: Sequence[Any] = ()
    body: Any = None
    sse: str | None = None
    status: int = 200
    asked: str = ""
    why: str = ""
    """The reason why this package is right, if its reading differs from that of the SDK."""
    ours: Mapping[str, Any] = field(default_factory=dict)
    """The fields of this package's reading that differ from the SDK's reading."""

    @property
    def is_stream(self) -> bool:
        """True if the request asked for a stream."""
        return self.asked == "stream" if self.asked else self.body is None and self.status == 200

    @property
    def content_type(self) -> str:
        """The content type of the body."""
        if self.body is not None or self.asked == "whole":
            return "text/event-stream" if self.events else "application/json"
        return "text/event-stream" if self.status == 200 else "text/html"

    def to_bytes(self, wire: Api) -> bytes:
        """Return the bytes of the body."""
        if self.sse is not None:
            return self.sse.encode()
        if self.body is not None:
            return json.dumps(self.body).encode()
        names = (f"event: {event.get('type')}\n" if wire is not Api.CHAT else "" for event in self.events)
        data = (json.dumps(event, ensure_ascii=False) for event in self.events)
        framed = "".join(f"{name}data: {text}\n\n" for name, text in zip(names, data, strict=True))
        return (framed + ("data: [DONE]\n\n" if wire is Api.CHAT else "")).encode()


@dataclass(slots=True)
class Reading:
    """The result of parsing an answer, in fields that all parsers share."""

    error: bool = False
    text: str = ""
    calls: list[list[Any]] = field(default_factory=list)
    """Names and arguments of the calls; empty if the reply is incomplete, because its calls are not run."""
    usage: list[int] = field(default_factory=lambda: [0, 0])
    """Input tokens and output tokens."""
    finish: str = "cut"
    """``stop``, ``length``, ``refused``, ``cut``, or an unknown value that the SDK returns."""
    reasoning: str = ""
    citations: list[list[Any]] = field(default_factory=list)
    """URL or file, start and end in the text."""

    def list_differences(self, reading: Reading) -> dict[str, Any]:
        """Return the fields of this reading that differ from `reading`; two errors are always equal."""
        if self.error or reading.error:
            return {} if self.error is reading.error else {"error": self.error}
        mine = {f.name: value for f in fields(self) if (value := self.to_dict()[f.name]) != reading.to_dict()[f.name]}
        return json.loads(json.dumps(mine)) if mine else {}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return {
            "error": self.error,
            "text": self.text,
            "calls": self.calls,
            "usage": self.usage,
            "finish": self.finish,
            "reasoning": self.reasoning,
            "citations": self.citations,
        }


def read_corpus(wire: Api) -> Iterator[Answer]:
    """Yield the answers of an API."""
    with (FOLDER / f"{wire.value}.jsonl").open(encoding="utf-8") as file:
        for line in file:
            yield Answer(**json.loads(line))


async def read_answer(wire: Api, reply: ApiReply) -> Reading:
    """Parse an answer with this package."""
    reading = Reading()
    text: list[str] = []
    calls: list[ToolCallRequest] = []
    reasoning: list[str] = []
    completion = Completion(FinishReason.CUT)
    try:
        async with aclosing(ScriptedProvider(Script((reply,))).generate(REQUEST)) as deltas:
            async for delta in deltas:
                match delta:
                    case TextChunk(piece):
                        text.append(piece)
                    case ReasoningChunk(piece):
                        reasoning.append(piece)
                    case CallChunk(call):
                        calls.append(call)
                    case Completion():
                        completion = delta
    except ProviderError:
        return Reading(error=True)
    reading.text, reading.reasoning = "".join(text), "".join(reasoning)
    reading.calls = [[call.name, dict(call.arguments)] for call in calls]
    reading.usage = [completion.usage.input_tokens, completion.usage.output_tokens]
    is_whole = completion.finish in (FinishReason.STOP, FinishReason.TOOL_CALLS)
    reading.finish = "stop" if is_whole else completion.finish.value
    spans = ((cited.url or cited.source, cited.start, cited.end) for cited in completion.citations)
    reading.citations = [
        [source, start, end] if end is not None and end <= len(reading.text) else [source, None, None]
        for source, start, end in spans
    ]
    return reading


def to_reply(answer: Answer, wire: Api, data: bytes | None = None, **options: Any) -> ApiReply:
    """Return an answer as a reply of the scripted model; `data` replaces its body."""
    return ApiReply(wire, answer.to_bytes(wire) if data is None else data, answer.status, **options)
