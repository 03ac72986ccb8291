"""Stores a turn while it runs. The turn's observers do this, so it does not depend on a reader of the events.

These are stored while the turn waits:

* a reply with tool calls, before any of them runs, so that after a crash the stored conversation shows each such call;
* the results of a round, when the last call of the round has ended;
* the last message, before the turn ends;
* the details of the turn (`build_turn_entry`), at its end.

A write that fails is repeated for `STORING_SECONDS`, also after the end of the lease: while the database is away,
nobody can take the conversation, and afterwards a write counts only if nobody has. So a database that restarts, or a
disk that is full for a while, loses nothing.

Beside the turn, its lease of the conversation is renewed. Once a second, if they have changed, the results of the
unfinished round and the partial text are stored too. So a killed process loses at most one second of them; the
conversation then shows of an unfinished call only that it may have run. A message of the user that steers the turn is
stored at once, and becomes part of the conversation even if the process is killed before the model gets it.

The details of a turn are an entry after its messages, so that they can be shown again later. Its data has JSON types
only; empty fields are left out:

* ``turn``, ``model``: the id of the turn, and the name of its model;
* ``stop_reason``, ``depth``, ``usage``, ``notes``: the values of the `Turn`;
* ``messages``: the number of messages that the turn has added;
* ``duration_s``: seconds from the start of the turn to its end;
* ``error``: the text of the error that ended the turn;
* ``refused``: true if that error refused the question, so that later requests leave it out (`history.find_sent`);
* ``calls``: ``{"id", "server", "tool", "duration_s"}`` for each finished call, with ``changed_arguments`` if an
  approver changed them. The call of an agent has ``calls`` too, and so has that of a program in code mode: the name,
  the arguments and the beginning of the result of each call of its own (`turns.turn_recorder`). A call that the
  endpoint ran itself has its whole record and ``round``, the number of earlier replies with calls;
* ``reasoning``: ``{"reply", "text"}`` for each part of the model's reasoning; ``reply`` is the number of earlier
  messages of the model.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeGuard

import anyio
import anyio.lowlevel

from dial_client.conversations.history import CUT_OFF, build_unknown_result
from dial_client.conversations.lease_heartbeat import LeaseHeartbeat
from dial_client.conversations.message_tree import build_entry
from dial_client.hooks.audit.entries import Origin
from dial_client.messages.errors import (
    ConfigError,
    ConversationError,
    ConversationNotFound,
    DialError,
    ProviderError,
    RequestRefused,
    StoreUnavailable,
)
from dial_client.messages.events import StatusChanged
from dial_client.messages.message import EntryKind, Message, build_waiting_result
from dial_client.messages.turn_result import Turn
from dial_client.runtime.light_lock import LightLock
from dial_client.runtime.logs import get_logger
from dial_client.settings.agent import AGENTS
from dial_client.stores.conversation_store import Conversation, ConversationStore
from dial_client.tools.catalog import RUN_CODE
from dial_client.turns.status_text import STORING
from dial_client.turns.turn_handle import TurnHandle, TurnObserver

log = get_logger(__name__)

# Seconds between two attempts to store a message.
RETRY_INTERVAL = 0.25
# Seconds for which a store that fails is tried again. While somebody waits for the end of a turn that was stopped, it
# is the time of the lease: a program that ends does not wait longer.
STORING_SECONDS = 120.0


class TurnPersister(TurnObserver):
    """Stores each message that a turn adds to its conversation once, in order, and the turn's details at its end.

    It also renews the turn's lease of the conversation until the turn ends. Once another turn has taken the
    conversation over, the store accepts nothing more of this one.

    Args:
        store: The store of the conversation.
        lease: Seconds after which the lease expires; it is renewed after a third of them.
        heartbeat: Looks after the turns of the program.
        model: The name of the turn's model.
        is_durable: True if a turn whose messages cannot be stored in time is resumed from what is stored.
    """

    def __init__(
        self,
        store: ConversationStore,
        lease: float,
        heartbeat: LeaseHeartbeat,
        model: str = "",
        *,
        is_durable: bool = False,
    ) -> None:
        self._store = store
        self._lease = lease
        self._heartbeat = heartbeat
        self._model = model
        self._is_durable = is_durable
        # The turn, from the beginning of its lease to its end.
        self._turn: TurnHandle | None = None
        self._stored = 0
        # The messages that are being stored, or could not be.
        self._pending: tuple[Message, ...] = ()
        # Whether the lease must not be renewed any more, because the conversation is about to be released.
        self._is_stopped = False
        # Held while unfinished messages are stored, so that older ones never replace newer ones.
        self._renewing = LightLock()
        self._unfinished: tuple[Message, ...] = ()
        self._renewed_at = anyio.current_time()
        # Since when the store fails; None while it works.
        self._failing_since: float | None = None

    async def run_beside(self, turn: TurnHandle) -> None:
        """Have the lease renewed when it is due, and the unfinished results and text stored when they have changed."""
        self._turn = turn
        if (tasks := turn.background_calls.tasks) is not None:
            self._heartbeat.add(self, tasks)

    @property
    def is_running(self) -> bool:
        """Whether the lease is to be renewed: the turn does not end yet."""
        return not self._is_stopped

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew the lease, or the unfinished results or the text have changed."""
        if self._is_stopped or self._turn is None:
            return False
        is_late = anyio.current_time() - self._renewed_at >= self._lease / 3
        return is_late or _build_unfinished(self._turn) != self._unfinished

    async def renew(self) -> None:
        """Renew the lease and store what has changed, unless somebody has done so meanwhile."""
        async with self._renewing:
            if self._turn is None or not self.is_due:
                return
            try:
                await self._renew(self._turn)
            except DialError as error:
                # The next heartbeat tries again. If the store keeps failing, the turn ends when it has to store a
                # message.
                log.debug("turn_not_renewed", error=type(error).__name__)

    async def _renew(self, turn: TurnHandle) -> None:
        now, unfinished = anyio.current_time(), _build_unfinished(turn)
        is_held = await self._store.renew(turn.conversation_id, turn.id, self._lease, unfinished)
        self._renewed_at, self._unfinished = now, unfinished
        if not is_held and not self._is_stopped:
            log.warning("turn_lost_its_conversation")
            turn.cancel()

    async def on_held_call(self, turn: TurnHandle) -> None:
        """Store which calls wait for approval, and that another one may run now. Raises as `on_message`."""
        # Other calls of the round may have returned just now: their results are stored with it.
        await anyio.lowlevel.cancel_shielded_checkpoint()
        async with self._renewing:
            await self._persist(turn, partial(self._renew, turn))

    async def on_message(self, turn: TurnHandle) -> None:
        """Store the messages that are not stored yet. If the conversation was deleted, cancel the turn.

        Raises:
            ConversationBusy: Another turn has taken the conversation over, because this turn's lease expired.
            DialError: The store failed.
        """
        self._pending = turn.recorder.complete_messages[self._stored :]
        try:
            await self._append_pending(turn)
        except ConversationNotFound:
            log.debug("conversation_deleted_while_running", messages=len(self._pending))
            turn.cancel()
        self._stored += len(self._pending)
        self._pending = ()
        if anyio.current_time() - self._renewed_at >= self._lease:
            # The store was away for longer than the lease. Calls of a reply must not run while another process may take
            # the conversation, and make them again.
            await self.on_held_call(turn)

    async def store_agent(self, origin: Origin, data: Mapping[str, Any]) -> None:
        """Store what an agent of the turn has done, as `on_message` stores a message of the turn. Raises as it.

        A store that fails is tried again; an entry that is stored twice counts once.
        """
        entry = build_entry(EntryKind.AGENT, data)
        given_up = anyio.current_time() + STORING_SECONDS
        while True:
            try:
                await self._store.append(origin.conversation, (entry,), turn=origin.turn)
            except DialError as error:
                if _is_lasting(error) or anyio.current_time() >= given_up:
                    raise
                await anyio.sleep(RETRY_INTERVAL)
            else:
                return

    async def _append_pending(self, turn: TurnHandle) -> None:
        if added := self._pending:
            append = partial(self._store.append, turn.conversation_id, added, turn=turn.id)
            await self._persist(turn, append, partial(self._has_appended, turn, added))

    async def on_ending(self, turn: TurnHandle) -> None:
        """Store the last messages and release the conversation; for a turn that is resumed, only end the lease.

        Raises as `on_message`; the error of the store that ended a durable turn, too.
        """
        self._is_stopped = True
        if turn.is_abandoned:
            await self._store.renew(turn.conversation_id, turn.id, 0.0)
            return
        if self._is_durable and isinstance(turn.failure, StoreUnavailable):
            _explain(turn.failure, RESUMED)
            # Without the messages that close the turn, so that it goes on where it was.
            await self._append_pending(turn)
            await self._store.renew(turn.conversation_id, turn.id, 0.0)
            raise turn.failure
        if (error := turn.failure) is not None and _is_refusal(error):
            error.left_out = True
            _explain(error, LEFT_OUT)
        unstored = turn.recorder.complete_messages[self._stored :]
        details = () if turn.ending is None else (build_turn_entry(turn, turn.ending, self._model),)
        added = (*unstored, *details)
        try:
            release = partial(self._store.release, turn.conversation_id, turn.id, added)
            await self._persist(turn, release, partial(self._has_released, turn, added))
        except DialError as error:
            # Without its end the turn counts as interrupted. But an error that lasts is no reason to resume it.
            if _is_lasting(error):
                await self._store.release(turn.conversation_id, turn.id)
            elif isinstance(failure := turn.failure or error, DialError):
                _explain(failure, RESUMED if self._is_durable else NOT_STORED)
            raise

    async def _persist(
        self,
        turn: TurnHandle,
        write: Callable[[], Awaitable[None]],
        is_stored: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Write to the store; repeat a write that fails until the store has failed for `STORING_SECONDS`.

        Args:
            turn: The turn.
            write: Writes.
            is_stored: Returns True if an earlier attempt has succeeded, although its acknowledgement was lost; None for
                a write that may happen twice.
        """
        began, is_repeated = anyio.current_time(), False
        while True:
            try:
                if not (is_repeated and is_stored is not None and await is_stored()):
                    await write()
            except DialError as error:
                if _is_lasting(error):
                    raise
                if self._failing_since is None:
                    self._failing_since = anyio.current_time()
                    turn.announce(StatusChanged(STORING))
                given_up = began + self._lease
                if not turn.is_awaited:
                    given_up = max(given_up, self._failing_since + STORING_SECONDS)
                if anyio.current_time() >= given_up:
                    raise
                is_repeated = True
                await anyio.sleep(RETRY_INTERVAL)
            else:
                self._failing_since = None
                return

    async def _has_appended(self, turn: TurnHandle, added: tuple[Message, ...]) -> bool:
        """Return whether the turn holds the conversation, which ends with these messages."""
        stored = await self._store.get(turn.conversation_id)
        # Another turn that has taken the conversation over may have got the same reply.
        return stored.turn == turn.id and _encode(_find_own(stored)[-len(added) :]) == _encode(added)

    async def _has_released(self, turn: TurnHandle, added: tuple[Message, ...]) -> bool:
        """Return whether the conversation has the end of the turn, perhaps before a later turn."""
        stored = await self._store.get(turn.conversation_id)
        return _encode(added)[-1] in _encode(_find_own(stored)) if added else stored.turn != turn.id

    def on_ended(self, turn: TurnHandle) -> None:  # noqa: ARG002 - the same for every turn
        """Stop renewing the lease, even if `on_ending` was not called."""
        self._is_stopped, self._turn = True, None

    def on_steering(self, turn: TurnHandle) -> None:
        """Store the message without waiting for the next heartbeat."""
        self._turn = turn
        tasks = turn.background_calls.tasks
        if tasks is not None and not tasks.is_closed:
            tasks.start_soon(self.renew)


def _is_lasting(error: DialError) -> bool:
    """Return True if a store fails each time: it is no store, lacks the conversation, or cannot encode a message."""
    is_unencodable = isinstance(error.__cause__, TypeError | ValueError | RecursionError)
    return is_unencodable or isinstance(error, ConversationError | ConfigError)


def _find_own(stored: Conversation) -> list[Message]:
    """Return the messages without those that others may add while a turn holds the conversation, such as settings."""
    return [message for message in stored.messages if message.entry is None or message.entry.kind == EntryKind.TURN]


def _encode(messages: Sequence[Message]) -> list[str]:
    return [json.dumps(message.to_dict(), sort_keys=True) for message in messages]


def _build_unfinished(turn: TurnHandle) -> tuple[Message, ...]:
    """Return the results so far of the unfinished round, the partial text, and the user's messages to the running turn.

    The calls that wait for approval have results that say so.
    """
    text = turn.recorder.unfinished_text
    cut = (Message.assistant(f"{text}\n\n{CUT_OFF}"),) if text.strip() else ()
    held = (
        Message.tool(call, build_waiting_result(pending) if pending is not None else build_unknown_result(call))
        for call, pending in turn.recorder.held_calls
    )
    return (*turn.recorder.results_so_far, *held, *cut, *turn.unsent)


# Statuses of a response that refuses what the request contains, or whoever asks: a model has read neither. With another
# key the user asks again, and the model would read the question twice.
_REFUSALS = frozenset({400, 401, 402, 403, 413, 415, 422})
# The end of the text of an error that refused a question.
LEFT_OUT = "later requests leave this question out, unless it is asked again"
# The end of the text of an error after which a turn lacks its end.
NOT_STORED = "the end of this turn is not stored"
# The same for a durable turn.
RESUMED = "the turn is resumed from what is stored"


def _explain(error: DialError, consequence: str) -> None:
    if consequence not in str(error):
        error.args = (f"{str(error).removesuffix('.')}; {consequence}",)


def _is_refusal(error: Exception) -> TypeGuard[DialError]:
    """Return True if the endpoint has refused the question, and did not only fail to answer it."""
    return isinstance(error, RequestRefused) or (isinstance(error, ProviderError) and error.status in _REFUSALS)


# The most characters of a turn's reasoning that are stored.
MAX_REASONING = 200_000
MAX_NOTES = 100


def build_turn_entry(turn: TurnHandle, result: Turn, model: str) -> Message:
    """Return the message that stores the details of a turn at its end.

    Args:
        turn: The turn, which adds no more messages.
        result: The result of the turn.
        model: The name of the turn's model.
    """
    error = turn.failure
    details: dict[str, Any] = {
        "turn": turn.id,
        "model": model,
        "stop_reason": "" if error is not None else result.stop_reason.value,
        "error": str(error) if error is not None else "",
        "refused": error is not None and _is_refusal(error),
        "messages": len(turn.recorder.complete_messages),
        "depth": result.depth,
        "duration_s": round(turn.recorder.seconds, 3),
        "usage": result.usage_to_dict() if result.request_usages else {},
        "notes": list(result.notes[:MAX_NOTES]),
        "calls": list(_describe_calls(turn, result)),
        "reasoning": _cut_reasoning(turn.recorder.reasoning),
    }
    return build_entry(EntryKind.TURN, {name: value for name, value in details.items() if value})


def _describe_calls(turn: TurnHandle, result: Turn) -> Iterator[dict[str, Any]]:
    rounds = {id(record): number for number, record in turn.recorder.endpoint_calls}
    for record in result.tool_calls:
        if record.parent:
            continue  # among those of its program
        if record.by_endpoint:
            yield record.to_dict() | ({"round": rounds[id(record)]} if id(record) in rounds else {})
            continue
        call = {"id": record.call.id, "server": record.server, "tool": record.tool, "duration_s": record.duration}
        if (changed := record.changed_arguments) is not None:
            call["changed_arguments"] = dict(changed)
        is_caller = record.server == AGENTS or (not record.server and record.tool == RUN_CODE)
        if is_caller and (nested := turn.recorder.nested_calls.get(record.call.id)) is not None:
            call["calls"] = nested.to_list()
        yield call


def _cut_reasoning(parts: tuple[tuple[int, str], ...]) -> list[dict[str, Any]]:
    remaining, kept_parts = MAX_REASONING, []
    for reply, text in parts:
        if remaining <= 0:
            break
        kept_parts.append({"reply": reply, "text": text[:remaining]})
        remaining -= len(text)
    return kept_parts
