"""Turns that returned tool calls to the client, kept until the results arrive at any process.

The client sees only the calls of its own tools, and returns only these. For the model, the store restores the rest
of the turn: the calls and results of the servers' tools, and data that the provider requires in later requests.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile

from dial_client.conversations.history import repair_history
from dial_client.messages.errors import DialError
from dial_client.messages.message import Message, Role, ToolCallRequest
from dial_client.messages.turn_result import Turn
from dial_client.runtime.logs import get_logger
from dial_client.sinks.sse_encoder import to_json
from dial_client.stores.shared_values import SharedValues

log = get_logger(__name__)

MAX_TURNS = 128
# Characters of a turn's text. A longer turn is not kept: the model then gets only the client's messages.
MAX_CHARS = 500_000
# Characters of a turn that is shared with other processes, including images.
MAX_SHARED = 8 * MAX_CHARS
# Seconds for which other processes can read a turn.
SHARED_TTL = 3600.0
# The topic of the shared values: turns by the id of their first call.
_TOPIC = "handoff"

_CALL_ID = re.compile("call_[0-9a-f]{32}")

# The beginning of the ids of calls that a history has because the client was shown them. A kept turn has them itself.
SHOWN_CALL = "shown_"

NO_RESULT = "[no result was sent for this call]"


@dataclass(frozen=True, slots=True)
class _Handoff:
    messages: tuple[Message, ...]
    model_ids: dict[str | None, str]
    """For each call id that was issued to the client, the id from the model."""
    owner: str
    """The person whose turn it was; empty in a service for one person."""


class HandoffStore:
    """Keeps the latest turns that returned tool calls.

    Args:
        values: Shares turns with other processes; None without a database.
        max_turns: Maximum number of turns that are kept, and of turns that are restored in one request.
    """

    def __init__(self, values: SharedValues | None = None, max_turns: int = MAX_TURNS) -> None:
        self._values = values
        self._max_turns = max_turns
        self._handoffs: OrderedDict[str, _Handoff] = OrderedDict()

    async def issue_calls(self, turn: Turn, owner: str = "") -> tuple[ToolCallRequest, ...]:
        """Return the calls for the client, with unique ids: a model's ids are unique within a reply only."""
        calls = tuple(replace(call, id=f"call_{secrets.token_hex(16)}") for call in turn.client_tool_calls)
        # The client sends the question again itself.
        added = tuple(dropwhile(lambda message: message.role is not Role.ASSISTANT, turn.messages))
        if calls and sum(len(message.text) for message in added) <= MAX_CHARS:
            model_ids: dict[str | None, str] = {
                issued.id: call.id for issued, call in zip(calls, turn.client_tool_calls, strict=True)
            }
            handoff = _Handoff(added, model_ids, owner)
            self._remember(calls[0].id, handoff)
            await self._share(calls[0].id, handoff)
        return calls

    async def restore(self, messages: Sequence[Message], owner: str = "") -> tuple[Message, ...]:
        """Return the client's messages with the kept turns restored, and with exactly one result for each call.

        A turn of another person than `owner` is not restored: who learns the id of a call must not learn the turn.

        Raises:
            DialError: The database failed. Without the results that it has the model would call the tools again.
        """
        found = await self._find([message.tool_calls[0].id for message in messages if message.tool_calls])
        handoffs = {id_: handoff for id_, handoff in found.items() if handoff.owner == owner}
        restored: list[Message] = []
        model_ids: dict[str | None, str] = {}
        names: dict[str | None, str] = {}
        for message in messages:
            handoff = handoffs.get(message.tool_calls[0].id) if message.tool_calls else None
            if handoff is not None and [call.id for call in message.tool_calls] == list(handoff.model_ids):
                while restored and _is_shown(restored[-1]):
                    restored.pop()
                restored += handoff.messages
                model_ids |= handoff.model_ids
            else:
                if message.role is Role.TOOL:
                    call_id = message.tool_call_id
                    id_, name = model_ids.get(call_id, call_id or ""), names.get(call_id)
                    message = replace(message, tool_call_id=id_, name=name)  # noqa: PLW2901
                restored.append(message)
            names |= {call.id: call.name for call in message.tool_calls}
        return repair_history(restored, NO_RESULT)

    def _remember(self, call_id: str, handoff: _Handoff) -> None:
        self._handoffs[call_id] = handoff
        if len(self._handoffs) > self._max_turns:
            self._handoffs.popitem(last=False)

    async def _share(self, call_id: str, handoff: _Handoff) -> None:
        if self._values is None:
            return
        messages = [message.to_dict() for message in handoff.messages]
        body = to_json({"messages": messages, "inner": handoff.model_ids, "owner": handoff.owner})
        if len(body) > MAX_SHARED:
            return
        try:
            await self._values.put(_TOPIC, call_id, body, SHARED_TTL)
        except DialError as error:
            log.debug("handoff_not_shared", error=type(error).__name__)

    async def _find(self, call_ids: Sequence[str]) -> dict[str, _Handoff]:
        """Return the turns with these first call ids, the latest `max_turns` at most, also from other processes."""
        latest = call_ids[-self._max_turns :]
        handoffs = {id_: self._handoffs[id_] for id_ in latest if id_ in self._handoffs}
        missing = [id_ for id_ in latest if id_ not in handoffs and _CALL_ID.fullmatch(id_)]
        found = await self._values.read(_TOPIC, missing) if self._values is not None else {}
        for id_, text in found.items():
            try:
                handoffs[id_] = _parse(text)
            except (KeyError, TypeError, ValueError, RecursionError) as error:  # from another version, or forged
                log.warning("handoff_invalid", error=type(error).__name__)
                continue
            self._remember(id_, handoffs[id_])
        return handoffs


def _is_shown(message: Message) -> bool:
    """Return whether a message is a call that the client was shown, or its result."""
    ids = [message.tool_call_id] if message.role is Role.TOOL else [call.id for call in message.tool_calls]
    return bool(ids) and all((id_ or "").startswith(SHOWN_CALL) for id_ in ids)


def _parse(text: str) -> _Handoff:
    content = json.loads(text)
    model_ids, owner = content["inner"], content["owner"]
    if not isinstance(owner, str):
        raise TypeError("the owner is no text")
    if not isinstance(model_ids, dict) or not all(isinstance(id_, str) for id_ in model_ids.values()):
        raise ValueError("the call ids are invalid")
    return _Handoff(tuple(Message.from_dict(item) for item in content["messages"]), model_ids, owner)
