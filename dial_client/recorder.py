"""Folds a turn's events into a `Turn`, wherever the turn ends.

What is recorded is a valid history at every moment: `settle` answers what is still open.
"""

from __future__ import annotations

from dial_client.events import Event, MessageCompleted, RoundStarted, TextDelta, ToolCallFinished, ToolCallStarted
from dial_client.limits import StopReason
from dial_client.messages import Failure, Message, Role, ToolCallRequest, ToolCallResult, Usage
from dial_client.turn import ToolCallRecord, Turn


class TurnRecorder:
    """Everything a turn has said and done so far."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._rounds: list[dict[str, ToolCallRecord | None]] = []
        self._started: dict[str, ToolCallStarted] = {}
        self._notes: dict[str, None] = {}
        self._usage = Usage()
        self._depth = 0
        self._unfinished_text: list[str] = []

    def record(self, event: Event) -> None:
        """Take note of one event."""
        match event:
            case TextDelta(text):
                self._unfinished_text.append(text)
            case RoundStarted(depth):
                self._depth = depth
            case MessageCompleted(message):
                self._messages.append(message)
                self._unfinished_text.clear()
                if message.tool_calls:
                    self._rounds.append(dict.fromkeys(call.id for call in message.tool_calls))
            case ToolCallStarted():
                self._started[event.call.id] = event
            case ToolCallFinished(result, server, duration):
                started = self._started.pop(result.tool_call_id)
                record = ToolCallRecord(started.call, result, server, started.tool, duration)
                self._rounds[-1][result.tool_call_id] = record

    def note(self, *notes: str) -> None:
        """Remember what the user should know; the same note counts once."""
        self._notes.update(dict.fromkeys(notes))

    def add_usage(self, usage: Usage) -> None:
        """Count what one request took."""
        self._usage += usage

    @property
    def said(self) -> str:
        """The text of the reply that is being written, as far as it came."""
        return "".join(self._unfinished_text)

    def settle(self, why: str) -> list[Event]:
        """Give the events that close what is open: calls without an end, results without a message, cut text."""
        events: list[Event] = []
        interrupted = f"Interrupted: {why}. It is not known whether the tool did its work."
        ends: dict[str, ToolCallResult] = {}
        for id_, started in self._started.items():
            ends[id_] = ToolCallResult.failed(id_, Failure.NOT_RUN, interrupted)
            events.append(ToolCallFinished(ends[id_], started.server, 0.0))
        for call, record in self._unanswered():
            not_run = ToolCallResult.failed(call.id, Failure.NOT_RUN, f"Not run: {why}.")
            result = record.result if record else ends.get(call.id, not_run)
            events.append(MessageCompleted(Message.tool(call, result)))
        if self.said.strip():
            events.append(MessageCompleted(Message.assistant(self.said)))
        return events

    def _unanswered(self) -> list[tuple[ToolCallRequest, ToolCallRecord | None]]:
        """Give the calls of the last round that have no result message: ids are unique in a round, not beyond."""
        asked_at = max((at for at, message in enumerate(self._messages) if message.tool_calls), default=None)
        if asked_at is None:
            return []
        answered = {message.tool_call_id for message in self._messages[asked_at + 1 :]}
        calls = self._messages[asked_at].tool_calls
        return [(call, self._rounds[-1][call.id]) for call in calls if call.id not in answered]

    def turn(self, stop_reason: StopReason) -> Turn:
        """Give what the turn came to; its last word is the last thing the model said."""
        last = self._messages[-1] if self._messages else None
        return Turn(
            message=last if last is not None and last.role is Role.ASSISTANT else Message.assistant(""),
            messages=tuple(self._messages),
            stop_reason=stop_reason,
            depth=self._depth,
            usage=self._usage,
            tool_calls=tuple(record for calls in self._rounds for record in calls.values() if record),
            notes=tuple(self._notes),
        )
