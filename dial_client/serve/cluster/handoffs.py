"""What a turn did before it handed calls back, for when their results come, to whichever process.

The client sees only its own calls, and sends back only those. Without this the model would have forgotten what the
servers' tools had said in the same turn, and what its provider wants echoed.
"""

from __future__ import annotations

import re
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dial_client.conversations.history import valid_history
from dial_client.errors import DialError
from dial_client.logs import get_logger
from dial_client.messages import Message, Role, ToolCallRequest
from dial_client.sinks.sse_encoder import to_json
from dial_client.stores.mailbox import Envelope, Mailbox
from dial_client.turn_result import Turn

log = get_logger(__name__)

MAX_TURNS = 128
MAX_CHARS = 500_000
"""Characters of one turn; a longer one is forgotten, and the model has what the client sends."""
MAX_PINNED = 8 * MAX_CHARS
"""Characters of one as other processes find it, images included."""
HOUR = 3600.0
"""Seconds for which they do."""

_OURS = re.compile("call_[0-9a-f]{32}")

NO_RESULT = "[no result was sent for this call]"


@dataclass(frozen=True, slots=True)
class _Handoff:
    messages: tuple[Message, ...]
    inner: dict[str | None, str]
    """For each id the client was given the one the model gave."""


class HandoffStore:
    """Remembers the latest turns that handed calls back; one it has forgotten is gone on with all the same.

    Args:
        board: where those of other processes are found, and they find this one's; None where there is none.
    """

    def __init__(self, board: Mailbox | None = None) -> None:
        self._board = board
        self._threads: OrderedDict[str, _Handoff] = OrderedDict()

    async def hand_out(self, turn: Turn) -> tuple[ToolCallRequest, ...]:
        """Give the calls a turn has handed back, with ids of their own: a model's are unique in a reply only."""
        calls = tuple(replace(call, id=f"call_{uuid.uuid4().hex}") for call in turn.client_tool_calls)
        if calls and sum(len(message.text) for message in turn.messages) <= MAX_CHARS:
            inner: dict[str | None, str] = {
                out.id: call.id for out, call in zip(calls, turn.client_tool_calls, strict=True)
            }
            thread = _Handoff(turn.messages, inner)
            self._keep(calls[0].id, thread)
            await self._pin(calls[0].id, thread)
        return calls

    async def taken_up(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Give a conversation as it was for the model, and valid: one result for each call."""
        threads = await self._found([message.tool_calls[0].id for message in messages if message.tool_calls])
        whole: list[Message] = []
        inner: dict[str | None, str] = {}
        names: dict[str | None, str] = {}
        for message in messages:
            thread = threads.get(message.tool_calls[0].id) if message.tool_calls else None
            if thread is not None and [call.id for call in message.tool_calls] == list(thread.inner):
                whole += thread.messages
                inner |= thread.inner
            else:
                whole.append(_answering(message, inner, names))
            names |= {call.id: call.name for call in message.tool_calls}
        return valid_history(whole, NO_RESULT)

    def _keep(self, first: str, thread: _Handoff) -> None:
        self._threads[first] = thread
        if len(self._threads) > MAX_TURNS:
            self._threads.popitem(last=False)

    async def _pin(self, first: str, thread: _Handoff) -> None:
        said = {"messages": [message.to_dict() for message in thread.messages], "inner": thread.inner}
        text = to_json(said) if self._board is not None else ""
        if self._board is None or len(text) > MAX_PINNED:
            return
        try:
            await self._board.pin([(_topic(first), text)], HOUR)
        except DialError as error:
            log.warning("thread_not_pinned", error=type(error).__name__)

    async def _found(self, firsts: Sequence[str]) -> dict[str, _Handoff]:
        """Give the latest of these turns, also those that other processes have handed calls back of."""
        latest = firsts[-MAX_TURNS:]
        found = {id_: self._threads[id_] for id_ in latest if id_ in self._threads}
        wanted = {_topic(id_): id_ for id_ in latest if id_ not in found and _OURS.fullmatch(id_)}
        try:
            notes = await self._board.read(dict.fromkeys(wanted, 0)) if self._board is not None else ()
        except DialError as error:
            log.warning("threads_not_found", error=type(error).__name__)
            return found
        for note in notes:
            try:
                thread = _thread(note)
            except (KeyError, TypeError, ValueError, RecursionError) as error:  # another version's, or somebody else's
                log.warning("thread_unreadable", error=type(error).__name__)
                continue
            found[wanted[note.topic]] = thread
            self._keep(wanted[note.topic], thread)
        return found


def _thread(note: Envelope) -> _Handoff:
    said = note.content()
    inner = said["inner"]
    if not isinstance(inner, dict) or not all(isinstance(id_, str) for id_ in inner.values()):
        raise ValueError("the ids of the calls are none")
    return _Handoff(tuple(Message.from_dict(message) for message in said["messages"]), inner)


def _topic(first: str) -> str:
    return f"thread:{first}"


def _answering(message: Message, inner: dict[str | None, str], names: dict[str | None, str]) -> Message:
    if message.role is not Role.TOOL:
        return message
    of = message.tool_call_id
    return replace(message, tool_call_id=inner.get(of, of or ""), name=names.get(of))
