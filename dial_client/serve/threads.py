"""What a turn did before it handed calls back, for when their results come.

The client sees only its own calls, and sends back only those. Without this the model would have forgotten what the
servers' tools had said in the same turn, and what its provider wants echoed.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dial_client.histories import valid_history
from dial_client.messages import Message, Role, ToolCallRequest
from dial_client.turn import Turn

MAX_TURNS = 128
MAX_CHARS = 500_000
"""Characters of one turn; a longer one is forgotten, and the model has what the client sends."""

NO_RESULT = "[no result was sent for this call]"


@dataclass(frozen=True, slots=True)
class _Thread:
    messages: tuple[Message, ...]
    inner: dict[str | None, str]
    """For each id the client was given the one the model gave."""


class Threads:
    """Remembers the latest turns that handed calls back; one it has forgotten is gone on with all the same."""

    def __init__(self) -> None:
        self._threads: OrderedDict[str, _Thread] = OrderedDict()

    def hand_out(self, turn: Turn) -> tuple[ToolCallRequest, ...]:
        """Give the calls a turn has handed back, with ids of their own: a model's are unique in a reply only."""
        calls = tuple(replace(call, id=f"call_{uuid.uuid4().hex}") for call in turn.handed_back)
        if calls and sum(len(message.text) for message in turn.messages) <= MAX_CHARS:
            inner: dict[str | None, str] = {out.id: call.id for out, call in zip(calls, turn.handed_back, strict=True)}
            self._threads[calls[0].id] = _Thread(turn.messages, inner)
            if len(self._threads) > MAX_TURNS:
                self._threads.popitem(last=False)
        return calls

    def taken_up(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Give a conversation as it was for the model, and valid: one result for each call."""
        whole: list[Message] = []
        inner: dict[str | None, str] = {}
        names: dict[str | None, str] = {}
        for message in messages:
            thread = self._threads.get(message.tool_calls[0].id) if message.tool_calls else None
            if thread is not None and [call.id for call in message.tool_calls] == list(thread.inner):
                whole += thread.messages
                inner |= thread.inner
            else:
                whole.append(_answering(message, inner, names))
            names |= {call.id: call.name for call in message.tool_calls}
        return valid_history(whole, NO_RESULT)


def _answering(message: Message, inner: dict[str | None, str], names: dict[str | None, str]) -> Message:
    if message.role is not Role.TOOL:
        return message
    of = message.tool_call_id
    return replace(message, tool_call_id=inner.get(of, of or ""), name=names.get(of))
