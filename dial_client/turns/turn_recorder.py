"""Records a turn's events, and builds its `Turn` at any point of the turn.

Together with the events of `settle`, which close the open calls and text, the recorded messages are a valid history at
any time.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from dial_client.hooks.call_context import Spend
from dial_client.messages.citations import Citation
from dial_client.messages.events import (
    AgentEvent,
    Event,
    MessageCompleted,
    ReasoningDelta,
    RoundStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from dial_client.messages.limits import Limits, StopReason
from dial_client.messages.message import (
    Content,
    Message,
    PendingApproval,
    Role,
    ToolCallRequest,
    ToolCallResult,
    build_interrupted_result,
    build_not_run_result,
    content_to_json,
    extract_text,
    order_results,
)
from dial_client.messages.model import ModelInfo, ModelRequest
from dial_client.messages.token_usage import Usage
from dial_client.messages.turn_result import ToolCallRecord, Turn
from dial_client.turns.prices import compute_cost

# The most calls of an agent or snippet that are kept, and the most characters of arguments and result of each.
MAX_NESTED_CALLS = 100
MAX_NESTED_CHARS = 2_000


def find_question(messages: Sequence[Message], *, is_resumed: bool = False) -> tuple[Message, ...]:
    """Return the messages at the end of a conversation with which a turn begins.

    These are the last message of the user, or the results of client-side tools, all of one reply. Earlier messages
    without an answer belong to earlier turns.

    Args:
        messages: The conversation.
        is_resumed: Whether the turn continues an earlier one, whose messages then follow the question.
    """
    if is_resumed:
        start = max((index for index, message in enumerate(messages) if message.is_question), default=0)
        return tuple(messages[start:])
    if messages and messages[-1].role is Role.USER:
        return (messages[-1],)
    results = list(takewhile(lambda message: message.role is Role.TOOL, reversed(messages)))
    return tuple(reversed(results))


def count_last_rounds(messages: Sequence[Message]) -> int:
    """Return the number of model replies with tool calls since the last question."""
    question = max((index for index, message in enumerate(messages) if message.is_question), default=0)
    return sum(bool(message.tool_calls) for message in messages[question:])


class TurnRecorder:
    """The messages, calls, notes and usage of a turn so far.

    Args:
        question: The messages with which the turn begins.
        waiting: The calls at the end of the question that waited for approval, and that this turn makes.
        spend: Receives the usage of each request too: of the turn whose function runs this turn. None if there is none.
    """

    def __init__(
        self, question: tuple[Message, ...] = (), waiting: Sequence[PendingApproval] = (), spend: Spend | None = None
    ) -> None:
        self._spend = spend
        self.question = question
        """The messages with which the turn begins; they come before the messages that it adds."""
        self._messages: list[Message] = []
        self._rounds: list[dict[str, ToolCallRecord | None]] = []
        if waiting:
            self._rounds.append(dict.fromkeys(pending.waiting_id for pending in waiting))
        self.endpoint_calls: list[tuple[int, ToolCallRecord]] = []
        """The calls that the model's endpoint ran itself, each with the number of rounds before it."""
        # The calls of snippets in the order of their starts, each with the number of rounds up to it.
        self._inner_calls: list[tuple[int, ToolCallStarted, ToolCallRecord | None]] = []
        # The running calls by id, each with its start time by `time.monotonic`.
        self._started: dict[str, tuple[ToolCallStarted, float]] = {}
        self.nested_calls: dict[str, NestedCalls] = {}
        """The calls of the agents and snippets that the turn has called, by the ids of their own calls."""
        self._notes: dict[str, None] = {}
        self.request_usages: list[Usage] = []
        """The usage of each request so far."""
        # Kept as a sum, because each round reads it.
        self.usage = Usage()
        """The usage of all requests so far."""
        self._costs: list[float | None] = []
        self.unreported: list[tuple[ModelRequest, str, ModelInfo]] = []
        """The requests whose endpoint has not said what they used, such as one that was cancelled, each with the text
        of its reply so far and its model; `usage` does not have them."""
        self._depth = 0
        self._text_deltas: list[str] = []
        # The model's reasoning, by the number of the model's messages before it.
        self._reasoning: dict[int, list[str]] = {}
        self._started_at = time.monotonic()
        self.held: dict[str, PendingApproval | None] = {pending.waiting_id: pending for pending in waiting}
        """The calls of the last round about which the approver was asked, by id: what it was asked about a call that
        has not run, None for a call that may have run."""
        self.output: Any = None
        """The typed answer; None until there is a valid answer."""
        self.output_errors: tuple[str, ...] | None = ()
        """The validation errors of the latest typed answer; empty before the first answer, None for a valid answer."""

    def record(self, event: Event) -> None:
        """Record an event."""
        match event:
            case TextDelta():
                self._text_deltas.append(event.text)
            case ReasoningDelta():
                self._reasoning.setdefault(self._count_replies(), []).append(event.text)
            case RoundStarted(depth):
                self._depth = depth
            case AgentEvent(call_id, _, inner):
                parent = self._find_parent(call_id)
                self._find_nested(parent or call_id).record(event if parent else inner)
            case MessageCompleted(message):
                self._messages.append(message)
                self._text_deltas.clear()
                if message.tool_calls:
                    self.held = {}
                    self._rounds.append(dict.fromkeys(call.id for call in message.tool_calls))
            case ToolCallStarted():
                self._started[event.call.id] = (event, time.monotonic())
                if event.parent:
                    self._inner_calls.append((len(self._rounds), event, None))
                    self._find_nested(event.parent).record(event)
            case ToolCallFinished():
                self._record_end(event)

    def _record_end(self, event: ToolCallFinished) -> None:
        result = event.result
        started, _ = self._started.pop(result.tool_call_id)
        tool = started.tool if event.changed_tool is None else event.changed_tool
        duration, changed = round(event.duration, 4), event.changed_arguments
        record = ToolCallRecord(
            started.call, result, event.server, tool, duration, event.by_endpoint, changed, started.parent
        )
        if event.by_endpoint:
            self.endpoint_calls.append((len(self._rounds), record))
        elif started.parent:
            # Not a call of the round: the snippet is, by whose result the limits of a turn judge.
            # From the end: a program may make thousands of calls, and what ends has mostly begun last.
            places = reversed(range(len(self._inner_calls)))
            place = next(place for place in places if self._inner_calls[place][1] is started)
            self._inner_calls[place] = (len(self._rounds), started, record)
            self._find_nested(started.parent).record(event)
        else:
            self._rounds[-1][result.tool_call_id] = record

    def _find_nested(self, id_: str) -> NestedCalls:
        return self.nested_calls.setdefault(id_, NestedCalls())

    def _find_parent(self, id_: str) -> str:
        """Return the id of the snippet that makes a running call; empty for a call of the model."""
        started = self._started.get(id_)
        return "" if started is None else started[0].parent

    @property
    def seconds(self) -> float:
        """The seconds since the turn started."""
        return time.monotonic() - self._started_at

    @property
    def reasoning(self) -> tuple[tuple[int, str], ...]:
        """The model's reasoning: each part is the number of the model's messages before it, and its text."""
        return tuple((reply, "".join(texts)) for reply, texts in self._reasoning.items())

    def note(self, *notes: str) -> None:
        """Add notes for the user; a note that is already there is not repeated."""
        self._notes.update(dict.fromkeys(notes))

    def add_usage(self, usage: Usage, cost_usd: float | None = None) -> None:
        """Add the usage of a request, and its cost in US dollars; None for an unknown cost."""
        self.request_usages.append(usage)
        self.usage += usage
        self._costs.append(cost_usd)
        if self._spend is not None:
            self._spend(usage, cost_usd)

    def add_request(self, usage: Usage, info: ModelInfo) -> None:
        """Add the usage of a request to a model, with its cost by the price list."""
        self.add_usage(usage, compute_cost(usage, info))

    @property
    def known_cost_usd(self) -> float:
        """The cost in US dollars of the requests so far whose models have a price."""
        return sum(cost for cost in self._costs if cost is not None)

    @property
    def rounds(self) -> tuple[tuple[ToolCallRecord, ...], ...]:
        """The calls that have ended, grouped by the reply that requested them."""
        return tuple(tuple(filter(None, calls.values())) for calls in self._rounds)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources that functions cited in the calls so far."""
        return tuple(citation for calls in self.rounds for record in calls for citation in record.result.citations)

    @property
    def unfinished_text(self) -> str:
        """The text received so far of the current reply."""
        return "".join(self._text_deltas)

    @property
    def complete_messages(self) -> tuple[Message, ...]:
        """The messages that the turn has added so far; the results of a round once all its calls have results."""
        results = self.results_so_far
        return (*self._messages, *results) if len(results) == len(self._find_unanswered()) else tuple(self._messages)

    @property
    def is_waiting(self) -> bool:
        """Whether a call of the last round waits for a later decision."""
        last = self._rounds[-1].values() if self._rounds else ()
        return any(record is not None and record.result.pending is not None for record in last)

    @property
    def held_calls(self) -> tuple[tuple[ToolCallRequest, PendingApproval | None], ...]:
        """The calls of `held` without a result."""
        open_calls = (call for call, record in self._find_unanswered() if record is None)
        return tuple((call, self.held[call.id]) for call in open_calls if call.id in self.held)

    @property
    def results_so_far(self) -> tuple[Message, ...]:
        """The results of ended calls that have no message yet."""
        return tuple(Message.tool(call, record.result) for call, record in self._find_unanswered() if record)

    def drop_reply(self) -> None:
        """Forget the text and the reasoning of the current reply, which was refused."""
        self._text_deltas.clear()
        self._reasoning.pop(self._count_replies(), None)

    def _count_replies(self) -> int:
        return sum(message.role is Role.ASSISTANT for message in self._messages)

    def settle(self, why: str) -> list[Event]:
        """Return the events that close open calls, results without a message and unfinished text."""
        events: list[Event] = []
        ends: dict[str, ToolCallResult] = {}
        for id_, (started, started_at) in self._started.items():
            pending = self.held.get(id_)
            was_run = pending is None or pending.snippet is not None  # a program has run up to the call that waits
            duration = time.monotonic() - started_at if was_run else 0.0
            ends[id_] = build_interrupted_result(id_, why) if was_run else build_not_run_result(id_, f"{why}.")
            events.append(ToolCallFinished(ends[id_], started.server, duration, started.by_endpoint))
        for call, record in self._find_unanswered():
            result = record.result if record else ends.get(call.id, build_not_run_result(call.id, f"{why}."))
            events.append(MessageCompleted(Message.tool(call, result)))
        if self.unfinished_text.strip():
            events.append(MessageCompleted(Message.assistant(self.unfinished_text)))
        return events

    def _find_unanswered(self) -> list[tuple[ToolCallRequest, ToolCallRecord | None]]:
        """Return the calls of the last round without a result message. Call ids are unique within a round only."""
        # The round of a resumed turn's first calls belongs to its question.
        messages = (*self.question, *self._messages)
        position = max((index for index, message in enumerate(messages) if message.tool_calls), default=None)
        if position is None or not self._rounds:
            return []
        answered = {message.tool_call_id for message in messages[position + 1 :]}
        calls = messages[position].tool_calls
        return [(call, self._rounds[-1].get(call.id)) for call in calls if call.id not in answered]

    def build_turn(self, stop_reason: StopReason) -> Turn:
        """Return the turn so far. Its message is the model's last message, or the reason why there is no message."""
        last = self._messages[-1] if self._messages else None
        client_tool_calls: tuple[ToolCallRequest, ...] = ()
        if stop_reason in (StopReason.CLIENT_TOOL_CALLS, StopReason.AWAITING_APPROVAL):
            client_tool_calls = tuple(call for call, _ in self._find_unanswered())
            last = next((found for found in (*self._messages[::-1], *self.question[::-1]) if found.tool_calls), last)
        # Calls that the endpoint ran precede the other calls of the same reply, those of snippets follow them.
        # All are in the order in which they were requested or began: calls that run at once end in any order.
        calls: list[ToolCallRecord] = []
        for number, ended in enumerate((*self.rounds, ())):
            calls += [record for before, record in self.endpoint_calls if before == number]
            calls += ended
            calls += [record for upto, _, record in self._inner_calls if record and upto == number + 1]
        known = [cost for cost in self._costs if cost is not None]
        fallback = f"[Unable to complete task: {stop_reason.sentence}]" if last is not None else ""
        return Turn(
            message=last if last is not None and last.role is Role.ASSISTANT else Message.assistant(fallback),
            messages=order_results((*self.question, *self._messages)),
            stop_reason=stop_reason,
            depth=self._depth,
            usage=self.usage,
            tool_calls=tuple(calls),
            notes=tuple(self._notes),
            request_usages=tuple(self.request_usages),
            cost_usd=round(sum(known), 8) if known and len(known) == len(self._costs) else None,
            client_tool_calls=client_tool_calls,
            output=self.output,
        )


def find_limit(
    rounds: Sequence[Sequence[ToolCallRecord]], usage: Usage, limits: Limits, cost_usd: float = 0.0
) -> StopReason | None:
    """Return the limit that ends the turn before its next round; None if the turn may continue.

    Args:
        rounds: The calls of each round so far, with their results.
        usage: The usage of all requests so far.
        limits: The limits of the turn.
        cost_usd: The known cost of all requests so far in US dollars.
    """
    if spent := find_spent(usage, cost_usd, limits):
        return spent
    failed = takewhile(lambda calls: not any(record.result.success for record in calls), reversed(rounds))
    if sum(1 for _ in failed) >= limits.max_consecutive_errors:
        return StopReason.CONSECUTIVE_ERRORS
    if len(rounds) >= limits.max_repeats:
        # A call counts once a round, and again only if its result is the same: a call that polls may see progress.
        results = [(record.call.name, record.result.content) for calls in rounds for record in calls]
        # Only if so many results are equal are arguments compared: to write them as JSON takes longer than all else.
        if len(results) - len(set(results)) >= limits.max_repeats - 1:
            repeats = Counter(key for calls in rounds for key in {_build_key(record) for record in calls})
            if max(repeats.values(), default=0) >= limits.max_repeats:
                return StopReason.REPEATED_CALLS
    return None


def find_spent(usage: Usage, cost_usd: float, limits: Limits) -> StopReason | None:
    """Return which limit the tokens or their known cost have reached; None for neither."""
    if limits.max_tokens_total is not None and usage.input_tokens + usage.output_tokens >= limits.max_tokens_total:
        return StopReason.TOKEN_BUDGET
    if limits.max_cost_usd is not None and cost_usd >= limits.max_cost_usd:
        return StopReason.COST_BUDGET
    return None


def _build_key(record: ToolCallRecord) -> tuple[str, str, str | None, Content]:
    call = record.call
    arguments = json.dumps(dict(call.arguments), sort_keys=True, default=str)
    return call.name, arguments, call.unreadable, record.result.content


class NestedCalls:
    """The calls of one agent or snippet, which are shown below its own call; long texts are cut."""

    def __init__(self) -> None:
        self._calls: list[dict[str, Any]] = []
        # The place of each running call; ids are unique within a round of the agent only.
        self._running: dict[str, int] = {}
        self._agents: dict[int, NestedCalls] = {}

    def record(self, event: ToolCallStarted | ToolCallFinished | AgentEvent) -> None:
        """Record an event of the agent's turn, or of a call of the snippet."""
        match event:
            case ToolCallStarted(call, server, parent=parent) if len(self._calls) < MAX_NESTED_CALLS:
                arguments = call.arguments if len(str(call.arguments)) <= MAX_NESTED_CHARS else {}
                self._running[call.id] = len(self._calls)
                # A snippet of the agent: its calls follow its own.
                program = {"parent": parent} if parent in self._running else {}
                fields = {"id": call.id, "name": call.name, "server": server, "arguments": dict(arguments)}
                self._calls.append(fields | program)
            case ToolCallFinished(result, _, duration) if result.tool_call_id in self._running:
                content = result.content if isinstance(result.content, str) else extract_text(result.content)
                self._calls[self._running.pop(result.tool_call_id)] |= {
                    "duration_s": round(duration, 4),
                    "is_error": not result.success,
                    "content": content_to_json(content[:MAX_NESTED_CHARS]),
                }
            case AgentEvent(call_id, _, inner) if call_id in self._running:
                self._agents.setdefault(self._running[call_id], NestedCalls()).record(inner)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the calls in JSON types, each with the ``calls`` of its own if it is the call of an agent."""
        return [
            call | ({"calls": self._agents[index].to_list()} if index in self._agents else {})
            for index, call in enumerate(self._calls)
        ]
