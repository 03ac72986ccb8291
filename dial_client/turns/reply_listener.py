"""Receives one reply of the model: emits events, and collects the content of its message."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from dial_client.messages.events import (
    Emit,
    ReasoningDelta,
    StatusChanged,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from dial_client.messages.message import Failure, FilePart, ImagePart, ToolCallRequest, ToolCallResult
from dial_client.messages.model import (
    ArgumentsChunk,
    CallChunk,
    CommentaryChunk,
    Completion,
    Delta,
    EndpointCallChunk,
    FinishReason,
    MediaChunk,
    ModelInfo,
    ReasoningChunk,
    ReplyReader,
    TextChunk,
)
from dial_client.runtime.safe_text import SafeStream, to_one_line
from dial_client.turns import status_text

# Maximum characters of the model's commentary in a status.
_MAX_COMMENTARY = 200
_NO_RESULT = "the endpoint sent no result"


@dataclass(eq=False, slots=True)
class ReplyListener:
    """Receives one reply: emits its text and reasoning as they arrive, and collects its calls.

    Args:
        reader: Finds reasoning and calls in the text.
        emit: Receives the events.
        info: The model, whose endpoint is the server of calls that the endpoint runs itself.
        receive_arguments: Receives the arguments of calls while the model writes them; None to ignore them.
    """

    reader: ReplyReader
    emit: Emit
    info: ModelInfo
    receive_arguments: Callable[[ArgumentsChunk], Awaitable[None]] | None = None
    text: list[str] = field(default_factory=list)
    received: list[str] = field(default_factory=list)
    """The text as the endpoint sent it. The spans of citations refer to this text."""
    media: list[ImagePart | FilePart] = field(default_factory=list)
    calls: list[ToolCallRequest] = field(default_factory=list)
    are_calls_printed: bool = False
    """Whether the calls were found in the text."""
    completion: Completion = field(default_factory=lambda: Completion(FinishReason.CUT))
    _safe_text: SafeStream = field(default_factory=SafeStream)
    _safe_reasoning: SafeStream = field(default_factory=SafeStream)
    # True once the text before `</think>` has become reasoning: the events have shown it, the message does not have it.
    _is_withdrawn: bool = False
    _commentary: list[str] = field(default_factory=list)
    taint: str = ""
    """The first of the endpoint's tools that returned untrusted content; empty if there is none."""
    # The start time of each call of the endpoint that has not ended, by `time.monotonic`.
    _endpoint_starts: dict[str, float] = field(default_factory=dict)
    _endpoint_shown: set[str] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        """The server of calls that the endpoint runs itself."""
        return urlsplit(self.info.url).hostname or self.info.name

    async def receive(self, delta: Delta) -> None:
        """Take the next delta of the reply.

        Raises:
            TypeError: `delta` is not a `Delta`. A provider of the embedding program may yield a wrong type.
        """
        # Without patterns for fields, which take longer than the rest of a piece of text.
        match delta:
            case TextChunk():
                await self._add_text(delta.text)
            case ReasoningChunk():
                await self._add_reasoning(delta.text or self.reader.reasoning())
            case CommentaryChunk(text, is_end):
                await self._add_commentary(text, is_end=is_end)
            case MediaChunk(part):
                self.media.append(part)
            case ArgumentsChunk():
                if self.receive_arguments is not None:
                    await self.receive_arguments(delta)
            case CallChunk(call):
                self.calls.append(call)
            case EndpointCallChunk(call, result):
                await self._add_endpoint_call(call, result)
            case Completion():
                self.completion = delta
            case _:
                raise TypeError(f"the provider yielded {type(delta).__name__} in place of a Delta, such as TextChunk")

    async def end(self) -> None:
        """End the reply: emit the text that was held back, and collect the calls found in the text."""
        remaining_text, printed_calls = self.reader.finish()
        await self._add_reasoning(self.reader.reasoning())
        await self._emit_reasoning(self._safe_reasoning.finish())
        await self._emit_text(self._safe_text.feed(remaining_text))
        await self._emit_text(self._safe_text.finish())
        for call_id in [call_id for call_id in self._endpoint_starts if call_id in self._endpoint_shown]:
            failed = ToolCallResult.failed(call_id, Failure.NOT_RUN, _NO_RESULT)
            await self.emit(ToolCallFinished(failed, self.endpoint, 0.0, by_endpoint=True))
        if not self.calls:
            self.calls, self.are_calls_printed = list(printed_calls), True

    async def _add_endpoint_call(self, call: ToolCallRequest, result: ToolCallResult | None) -> None:
        """Emit the events of a call: first a status, then the call once its arguments are known, then its result."""
        is_new = call.id not in self._endpoint_starts
        started_at = self._endpoint_starts.setdefault(call.id, time.monotonic())
        if is_new:
            await self.emit(StatusChanged(status_text.describe_tool(call, None)))
        if call.id not in self._endpoint_shown and (result is not None or call.arguments):
            self._endpoint_shown.add(call.id)
            await self.emit(ToolCallStarted(call, self.endpoint, call.name, by_endpoint=True))
        if result is not None:
            del self._endpoint_starts[call.id]
            if result.taint:
                result = replace(result, taint=f"{self.endpoint}/{result.taint}")
                self.taint = self.taint or result.taint
            await self.emit(ToolCallFinished(result, self.endpoint, time.monotonic() - started_at, by_endpoint=True))

    async def _add_commentary(self, text: str, *, is_end: bool) -> None:
        """Emit the model's commentary on its work: in full as reasoning, and shortened as a status."""
        self._commentary.append(text)
        await self._add_reasoning(text)
        if is_end and (commentary := "".join(self._commentary)).strip():
            self._commentary.clear()
            await self._add_reasoning("\n\n")
            await self.emit(StatusChanged(to_one_line(commentary, _MAX_COMMENTARY)))

    async def _add_text(self, text: str) -> None:
        self.received.append(text)
        visible = self.reader.feed(text)
        # A reader of the embedding program need not have this.
        if self.text and not self._is_withdrawn and getattr(self.reader, "withdraws_text", False):
            self._is_withdrawn = True
            withdrawn = "".join((*self.text, self._safe_text.finish()))
            self.text.clear()
            self._safe_text = SafeStream()
            await self._add_reasoning(withdrawn)
        if reasoning := self.reader.reasoning():
            await self._add_reasoning(reasoning)
        await self._emit_text(self._safe_text.feed(visible))

    async def _add_reasoning(self, text: str) -> None:
        await self._emit_reasoning(self._safe_reasoning.feed(text))

    async def _emit_reasoning(self, text: str) -> None:
        if text:
            await self.emit(ReasoningDelta(text))

    async def _emit_text(self, text: str) -> None:
        if not text:
            return
        if not self.text:
            await self.emit(StatusChanged(status_text.FORMULATING))
        self.text.append(text)
        await self.emit(TextDelta(text))
