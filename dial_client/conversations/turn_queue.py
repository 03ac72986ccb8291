"""Runs the turns of a conversation one after the other, in this process and among all processes that use the store.

In a process, turns wait in the order in which they were requested. Among processes, the lease in the store decides
(`ConversationStore.acquire`): a waiting turn polls it every quarter of a second.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

import anyio

from dial_client.conversations.history import (
    apply_edits,
    build_closing_messages,
    drop_unfinished_text,
    ends_with_answer,
    find_sent,
    repair_history,
)
from dial_client.conversations.message_tree import build_tree, extend
from dial_client.conversations.open_work import find_open_agents, find_open_tasks, hold_agents
from dial_client.conversations.turn_input import (
    ConversationInput,
    build_first_messages,
    build_question,
    find_typed_text,
)
from dial_client.hooks.audit.entries import Origin
from dial_client.messages.errors import ConversationBusy, ConversationNotFound, DialError, StoreUnavailable
from dial_client.messages.message import Message, find_pending_approvals
from dial_client.runtime.light_lock import LightLock
from dial_client.stores.conversation_store import Conversation, ConversationStore
from dial_client.tools.agent_progress import AgentState
from dial_client.tools.background_calls import TaskRecord
from dial_client.turns.turn_handle import TurnHandle, TurnObserver

# Returns the edits to append to a stored conversation; empty if there is none.
BuildEdits = Callable[[Conversation], Sequence[Message]]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The conversation at the beginning of a turn."""

    history: tuple[Message, ...]
    settings: Mapping[str, Any]
    owner: str
    tasks: tuple[TaskRecord, ...]
    """The tasks that earlier turns have left open at their servers."""
    agents: dict[str, AgentState]
    """The agents in which an interrupted turn goes on, by the ids of their calls."""
    notes: tuple[str, ...]
    """The notes of the earlier turns of the shown version, the oldest first."""


# Starts a turn in this conversation, with this additional observer.
Start = Callable[[Beginning, TurnObserver], TurnHandle]
# Returns True if a process will resume the interrupted turn of a conversation.
WillBeResumed = Callable[[Conversation], Awaitable[bool]]
# Raises an error if the turn with this id must not begin in the conversation, which was just read.
CheckBeginning = Callable[[Conversation, str], None]

# The number of ended turns that can still be found.
MAX_ENDED = 32

# Seconds between two checks whether the turn of another process has ended.
POLL_INTERVAL = 0.25


async def never_resumed(stored: Conversation) -> bool:  # noqa: ARG001 - a `WillBeResumed`
    """Return False: a turn whose process was killed is not resumed."""
    return False


def begin_always(stored: Conversation, turn_id: str) -> None:
    """Let every turn begin: a `CheckBeginning`."""


class NothingToResume(Exception):
    """The conversation has no interrupted turn. Callers outside of the package never see this error."""


@dataclass(frozen=True, slots=True, eq=False)
class TurnQueue:
    """Starts the turns of a conversation one after the other, and finds running turns.

    Edits hold the same lease as a turn, so that no edit happens while a turn runs in any process.
    """

    store: ConversationStore
    patience: float
    """The most seconds that a turn or an edit waits for earlier turns."""
    lease: float
    """Seconds for which a new turn, or an edit, holds its conversation."""
    will_be_resumed: WillBeResumed = never_resumed
    """Returns True if a process will resume the interrupted turn of a conversation. Other turns and edits then wait."""
    check_beginning: CheckBeginning = begin_always
    """Is called each time a turn that waits to begin has read its conversation."""
    # The slots of conversations, which the turns that wait for a slot or hold it keep alive.
    _slots: WeakValueDictionary[str, _Slot] = field(default_factory=WeakValueDictionary, init=False)
    _ended: OrderedDict[str, TurnHandle] = field(default_factory=OrderedDict, init=False)

    async def start_next(self, origin: Origin, turn_input: ConversationInput | None, start: Start) -> TurnHandle:
        """Wait for the earlier turns, store the user's message, and start the turn.

        Args:
            origin: The ids of the conversation and the turn, and the owner that the conversation must have.
            turn_input: The input of the turn; None to resume an interrupted turn.
            start: Starts the turn.

        Raises:
            ConversationNotFound: The conversation does not exist, or has another owner than `origin` names.
            ConversationBusy: The earlier turns took longer than `patience`.
            ConfigError: The message that `turn_input` names does not exist.
            NothingToResume: There is no interrupted turn.
            Exception: That of `check_beginning`.
        """
        deadline = anyio.current_time() + self.patience
        slot = self._slots.setdefault(origin.conversation, _Slot(self._remember))
        beginning = None
        while beginning is None:
            if not await slot.acquire(deadline):
                raise _build_busy_error(origin.conversation)
            try:
                beginning = await self._begin(origin, turn_input, deadline)
            except BaseException:
                slot.release()
                raise
            if beginning is None:
                slot.release()  # the task that resumes the interrupted turn needs it
                await anyio.sleep(POLL_INTERVAL)
        try:
            slot.turn = start(beginning, slot)
        except Exception:
            slot.release()
            await self.store.release(origin.conversation, origin.turn)
            raise
        return slot.turn

    async def edit(self, conversation_id: str, build: BuildEdits, check: Callable[[Conversation], object]) -> bool:
        """Store the edits that `build` returns for the current conversation, and return True; False if it returns none.

        `check` raises an error for a conversation that the caller must not find, also while a turn of it runs.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: A turn ran longer than `patience`.
        """
        deadline = anyio.current_time() + self.patience
        while True:
            check(stored := await self.store.get(conversation_id))
            if not await self.is_running(stored):
                if not (edits := build(stored)):
                    return False
                edit_id = secrets.token_hex(16)
                with anyio.CancelScope(shield=True):
                    if await self._acquire(stored, edit_id, build_closing_messages(stored), stored.title):
                        await self.store.release(stored.id, edit_id, edits)
                        return True
            if anyio.current_time() >= deadline:
                raise ConversationBusy(conversation_id, "a turn of this conversation is under way: wait for its end")
            await anyio.sleep(POLL_INTERVAL)

    async def _acquire(self, stored: Conversation, turn_id: str, added: tuple[Message, ...], title: str) -> bool:
        """Return whether the conversation is now held and has these messages; False if it has changed since."""
        count = stored.message_count
        try:
            return await self.store.acquire(
                stored.id, turn_id, added, expected_count=count, lease=self.lease, title=title
            )
        except StoreUnavailable:
            # The store may have done this without an acknowledgement: then the messages must not be stored again.
            if await self._has_acquired(stored.id, turn_id):
                return True
            raise

    async def _has_acquired(self, conversation_id: str, turn_id: str) -> bool:
        """Renew the lease of a turn if it holds the conversation, and return whether it does.

        A store that fails is asked again for the time of a lease.
        """
        deadline = anyio.current_time() + self.lease
        while True:
            try:
                return await self.store.renew(conversation_id, turn_id, self.lease)
            except StoreUnavailable:
                if anyio.current_time() >= deadline:
                    raise
            await anyio.sleep(POLL_INTERVAL)

    def find(self, conversation_id: str, turn_id: str | None = None) -> TurnHandle | None:
        """Return the turn that this process runs in a conversation, or a turn that ended recently, or None.

        Args:
            conversation_id: The id of the conversation.
            turn_id: The id of the turn; None for any turn.
        """
        slot = self._slots.get(conversation_id)
        known = (slot.turn if slot is not None else None, self._ended.get(conversation_id))
        return next((turn for turn in known if turn is not None and turn_id in (None, turn.id)), None)

    def forget(self, conversation_id: str) -> None:
        """Cancel the running turn of a deleted conversation, and drop its ended turn."""
        self._ended.pop(conversation_id, None)
        slot = self._slots.get(conversation_id)
        if slot is not None and slot.turn is not None:
            slot.turn.cancel()

    async def _begin(self, origin: Origin, turn_input: ConversationInput | None, deadline: float) -> Beginning | None:
        """Store the message once no other process runs a turn; None if an interrupted turn must be resumed first.

        Raises:
            ConversationBusy: The deadline has passed.
        """
        question = build_question(turn_input)
        title = find_typed_text(question) if question is not None else ""
        while True:
            stored = await self._read(origin, is_new=turn_input is not None)
            if stored.running or (turn_input is not None and await self.is_running(stored)):
                if anyio.current_time() >= deadline:
                    raise _build_busy_error(origin.conversation)
                if not stored.running:
                    return None
                await anyio.sleep(POLL_INTERVAL)
                continue
            added = await self._prepare(stored, turn_input)
            try:
                has_begun = await self._acquire(stored, origin.turn, added, title)
            except anyio.get_cancelled_exc_class():
                if turn_input is not None:  # an interrupted turn must still be resumed
                    # The store may have begun this turn, which will not start.
                    with anyio.CancelScope(shield=True), suppress(DialError):
                        await self.store.release(origin.conversation, origin.turn)
                raise
            if has_begun:
                extended = extend(stored, added)
                history = repair_history(stored.message for stored in find_sent(extended))
                tree = build_tree(extended)
                tasks, agents = find_open_tasks(tree), {}
                if turn_input is None:  # who cancels the turn stops the calls of its earlier part, too
                    agents = find_open_agents(tree)
                    own = {task.id for task in tasks if task.turn == stored.turn}
                    tasks = tuple(replace(task, turn=origin.turn) if task.id in own else task for task in tasks)
                return Beginning(history, tree.settings, stored.owner, tasks, agents, tree.find_notes())
            # Another process was faster.

    async def _read(self, origin: Origin, *, is_new: bool) -> Conversation:
        """Return the conversation of a turn.

        Raises:
            ConversationNotFound: It does not exist, or has another owner.
            Exception: That of `check_beginning` for a new turn.
        """
        stored = await self.store.get(origin.conversation)
        if origin.owner not in ("", stored.owner):
            raise ConversationNotFound(origin.conversation)
        if is_new:
            self.check_beginning(stored, origin.turn)
        return stored

    async def is_running(self, stored: Conversation) -> bool:
        """Return True if the conversation has a turn that runs in any process, or will be resumed."""
        return stored.running or (bool(stored.turn) and await self.will_be_resumed(stored))

    async def _prepare(self, stored: Conversation, turn_input: ConversationInput | None) -> tuple[Message, ...]:
        """Return the messages to store before the model is asked.

        Raises:
            ConfigError: The message that `turn_input` names does not exist.
            NothingToResume: No turn was interrupted or waits for approval, or it already has its answer.
        """
        if turn_input is not None:
            closing = build_closing_messages(stored)
            return (*closing, *build_first_messages(extend(stored, closing), turn_input))
        waits = find_pending_approvals(repair_history(apply_edits(stored).messages))
        if not stored.turn and not waits:
            raise NothingToResume
        if ends_with_answer(apply_edits(stored).messages):
            await self.store.release(stored.id, stored.turn)
            raise NothingToResume
        closing, tree = build_closing_messages(drop_unfinished_text(stored)), build_tree(stored)
        return hold_agents(closing, [found.message for found in tree.find_path()], find_open_agents(tree))

    def _remember(self, turn: TurnHandle) -> None:
        self._ended[turn.conversation_id] = turn
        self._ended.move_to_end(turn.conversation_id)
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)


class _Slot(TurnObserver):
    """The place of the one turn of a conversation in this process, released when the running turn has ended."""

    def __init__(self, remember: Callable[[TurnHandle], None]) -> None:
        self._remember = remember
        self._lock = LightLock()
        self.turn: TurnHandle | None = None

    async def acquire(self, deadline: float) -> bool:
        """Wait until no other turn holds the slot, and return True; return False if the deadline passes before."""
        with anyio.move_on_after(deadline - anyio.current_time()) as scope:
            await self._lock.acquire()
        return not scope.cancelled_caught

    def release(self) -> None:
        """Let the next turn acquire the slot."""
        self._lock.release()

    def on_ended(self, turn: TurnHandle) -> None:
        """Let the next turn acquire the slot, and keep this turn for `TurnQueue.find`."""
        self.turn = None
        self._remember(turn)
        self.release()


def _build_busy_error(conversation_id: str) -> ConversationBusy:
    return ConversationBusy(conversation_id, f"another turn of the conversation {conversation_id!r} is under way")
