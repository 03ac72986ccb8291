"""`ConversationManager`: conversations of many turns, stored while their turns run.

    manager = ConversationManager(dial, store, when_busy="wait")   "refuse": a second request raises ConversationBusy
    await manager.create(title, owner=…, metadata=…) -> Conversation
    manager.for_owner("ann")                         -> ConversationManager: it finds only conversations of this owner
    await manager.chat(id, text)                     -> Turn
    async for event in manager.stream_chat(id, text) events, Finished last; leaving early cancels the turn
    async for line in manager.stream_response(id, text) server-sent events, for a web application
    await manager.start(id, text)                    -> TurnHandle: the turn runs without a reader
    await manager.resume(id, decisions)              -> TurnHandle | None: resumes a killed or waiting turn
    manager.find_turn(id, turn)                      -> TurnHandle | None: a running or recent turn of this process
    async for position, event in turn.log.events(n)  events from any position, for any number of readers
    await manager.get(id)                            -> Conversation: messages (a valid history), running, notes
    await manager.list(20, cursor=…, search="words") -> Page: a tuple of ConversationSummary, and .cursor of the next
    await manager.rename(id, title), .delete(id), .fork(id, count), .update(id, owner=…, metadata=…)
    await manager.start(id, Regeneration(position)), EditedMessage(position, text), Continuation(): further versions
    await manager.view(id)                           -> ConversationView: positions, versions, details of turns
    await manager.switch(id, position)               shows another version; .remove_message(id, position)
    await manager.undo(id), .restore(id)             removes the last exchange; restores it
    await manager.compact(id)                        -> Compaction | None: the model summarizes the older messages
    await manager.export(id, "json" | "markdown")    -> str
    await manager.import_json(text)                  -> Conversation

When messages are stored:

* the user's message before the model is asked;
* each message of the turn when it is complete, before its event is logged (`persistence`);
* if the turn is cancelled or fails, its partial text, and a result for each unfinished call.

A stored message is never rewritten. Messages that are removed or summarized stay in the store (`history`). If the
process is killed, at most the last second of text and results is lost. Interrupted text is then marked as cut off, and
a call without a result gets a result which says that it may have run (`history`).

**Several processes.** A turn holds a lease of its conversation in the store, so turns of one conversation run one after
the other, in whichever process they start (`turn_queue`). Only the process that runs a turn has its events. The others
can read `Conversation.running`, the turn's id (`Conversation.turn`), and each message once it is stored.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, overload

from dial_client.conversations import conversation_view, export
from dial_client.conversations.client_calls import ClientCalls, find_answered_calls, find_client_calls
from dial_client.conversations.compaction import (
    KEPT_EXCHANGES,
    Compaction,
    compute_fill,
    compute_max_kept_chars,
    find_older_part,
    list_counted_tokens,
    summarize,
)
from dial_client.conversations.conversation_client import ConversationClient
from dial_client.conversations.conversation_settings import StoredSettings, check_limits, check_settings, read_settings
from dial_client.conversations.conversation_view import ConversationView, build_view, copy_messages, hash_state
from dial_client.conversations.history import (
    build_deletion,
    build_removal,
    build_switch,
    build_transcript,
    find_edit,
    find_last_exchange,
    repair_conversation,
    repair_history,
)
from dial_client.conversations.lease_heartbeat import LeaseHeartbeat
from dial_client.conversations.message_tree import StoredMessage, build_entry, build_tree
from dial_client.conversations.persistence import TurnPersister
from dial_client.conversations.turn_input import CONTINUE, Continuation, ConversationInput, check_turn_input
from dial_client.conversations.turn_queue import (
    Beginning,
    BuildEdits,
    CheckBeginning,
    NothingToResume,
    TurnQueue,
    WillBeResumed,
    begin_always,
    never_resumed,
)
from dial_client.hooks.audit.entries import Origin
from dial_client.messages.errors import (
    ConfigError,
    ConversationBusy,
    ConversationNotFound,
    DialError,
    MiddlewareError,
    ProviderError,
    RequestRefused,
)
from dial_client.messages.events import Event
from dial_client.messages.message import EntryKind, Message, Role, ToolSpec
from dial_client.messages.turn_result import Turn
from dial_client.runtime.logs import get_logger
from dial_client.settings.argument_types import check_members, check_seconds, check_types
from dial_client.sinks import sse_encoder
from dial_client.stores.conversation_store import (
    Conversation,
    ConversationStore,
    Page,
    check_conversation_id,
    check_owner,
)
from dial_client.stores.sql_store import SQLStore
from dial_client.tools.agent_progress import AgentProgress
from dial_client.tools.approval import Decisions
from dial_client.tools.background_calls import BackgroundCall, BackgroundCalls, TaskRecord
from dial_client.turns.client_model import ClientModel
from dial_client.turns.context_report import ContextReport, with_counted_tokens
from dial_client.turns.turn_handle import TurnHandle, TurnObserver
from dial_client.turns.turn_keywords import TurnKeywords, check_keywords

OutputT = TypeVar("OutputT")
log = get_logger(__name__)

WhenBusy = Literal["wait", "refuse"]

# The most seconds that a request waits for the previous turn; the default time limit of a turn is shorter.
PATIENCE = 150.0

# The most conversations whose calls in the background are kept between turns.
MAX_BACKGROUND = 1_000

# Seconds after which the conversation of a killed process is free again.
LEASE = 10.0


class ManagerOptions(TypedDict, total=False):
    """The options of `ConversationManager`."""

    when_busy: WhenBusy
    patience: float
    lease: float
    compact_at: float | None
    locked_settings: Collection[str]
    observers: Sequence[TurnObserver]


@dataclass(frozen=True, slots=True, eq=False)
class _BackgroundObserver(TurnObserver):
    """Keeps the calls in the background of a conversation for its next turn."""

    kept: OrderedDict[str, BackgroundCalls]

    def on_ended(self, turn: TurnHandle) -> None:
        if not turn.background:
            self.kept.pop(turn.conversation_id, None)
        elif turn.conversation_id in self.kept:
            self.kept.move_to_end(turn.conversation_id)
            while len(self.kept) > MAX_BACKGROUND:
                self.kept.popitem(last=False)


class ConversationManager:
    """Runs the turns of conversations, and stores them.

    Turns of one conversation run one after the other, also if several processes use the store; in this process they run
    in the order of the requests. Turns of different conversations run concurrently.

    Args:
        dial: The client that answers; the caller opens and closes it.
        store: The store of the conversations; the caller closes it.
        when_busy: ``"wait"`` makes a request wait while another turn of its conversation runs; ``"refuse"`` raises
            `ConversationBusy`.
        patience: The most seconds that a request waits.
        lease: Seconds for which a turn holds its conversation without a heartbeat.
        compact_at: The part of the context window, from 0 to 1, at which a conversation is compacted before its next
            turn (see `compact`), with one more request to the model; None to compact no conversation.
        will_be_resumed: Returns True if a process will resume the conversation's interrupted turn. Other turns of the
            conversation then wait. By default no turn is resumed.
        check_beginning: Raises an error if the turn with this id must not begin in this conversation.
        locked_settings: The names of settings that conversations cannot change (`conversation_settings.KEYS`).
        observers: Observe each turn.

    Raises:
        ConfigError: An option has an invalid value.
        TypeError: An argument has the wrong type, such as a `store` without a method of `ConversationStore`.
    """

    def __init__(  # noqa: PLR0913 - the options of a manager, all but two by name
        self,
        dial: ConversationClient,
        store: ConversationStore,
        *,
        when_busy: WhenBusy = "wait",
        patience: float = PATIENCE,
        lease: float = LEASE,
        compact_at: float | None = None,
        will_be_resumed: WillBeResumed = never_resumed,
        check_beginning: CheckBeginning = begin_always,
        locked_settings: Collection[str] = (),
        observers: Sequence[TurnObserver] = (),
    ) -> None:
        if when_busy not in ("wait", "refuse"):
            raise ConfigError(f"unknown when_busy {when_busy!r}", hint='expected "wait" or "refuse"')
        check_members(dial, ConversationClient, "a DialClient(…)")
        check_seconds(patience=patience, lease=lease)
        if compact_at is not None and not 0 <= compact_at <= 1:
            raise ConfigError(f"compact_at must be from 0 to 1, not {compact_at}")
        where = repr(store) if "://" in str(store) else f"Path({store!r})"
        hint = f": SQLStore({where}) opens a database" if isinstance(store, str) else ""
        check_members(store, ConversationStore, "a ConversationStore", hint)
        self._dial = dial
        self.store = store
        """The store of the conversations."""
        self.locked_settings = frozenset(locked_settings)
        """The names of settings that conversations cannot change; applied from the next turn on."""
        self._compact_at, self._observers = compact_at, tuple(observers)
        # The calls in the background of conversations, until a turn ends without any.
        self._background: OrderedDict[str, BackgroundCalls] = OrderedDict()
        # The only owner whose conversations are found; None for all conversations.
        self._owner: str | None = None
        self._heartbeat = LeaseHeartbeat(lease)
        patience = patience if when_busy == "wait" else 0.0
        self._queue = TurnQueue(store, patience, lease, will_be_resumed, check_beginning)

    def _select_model(self, stored: Conversation) -> ClientModel:
        return self._read_settings(build_tree(stored).settings).select_model(self._dial.model, {})[0]

    def _read_settings(self, stored: Mapping[str, Any]) -> StoredSettings:
        return read_settings(stored, self._dial.limits, self.locked_settings)

    def for_owner(self, owner: str) -> Self:
        """Return a manager of the conversations of one owner, for a program with several users.

        It creates conversations of this owner, and does not find any other: `ConversationNotFound`. It shares the turns
        that run with this manager.

        Raises:
            ConfigError: The owner is empty, too long, or has characters that cannot be stored; or this manager is of
                another owner.
        """
        check_types(owner=(owner, str))
        if not check_owner(owner):
            raise ConfigError("the owner is empty", hint="name the user, for example by an id of your program")
        if self._owner not in (None, owner):
            raise ConfigError("this manager finds only the conversations of another owner")
        manager = copy(self)
        manager._owner = owner  # noqa: SLF001 - of this class
        return manager

    async def create(
        self,
        title: str | None = None,
        *,
        owner: str | None = None,
        metadata: Mapping[str, Any] = MappingProxyType({}),
        conversation_id: str | None = None,
    ) -> Conversation:
        """Create a conversation, and return it.

        Args:
            title: The title; by default the first words of its first message.
            owner: The person that the conversation belongs to; by default the owner of this manager, else nobody.
            metadata: Data of your program, of JSON types, at most 16,000 characters.
            conversation_id: The id, in printable ASCII; by default a random id. If a conversation has this id, it is
                returned unchanged.

        Raises:
            ConversationNotFound: A conversation has this id, or `owner` is given, and this manager is of another owner.
            ConfigError: The owner or the metadata cannot be stored.
        """
        check_types(title=(title, str), owner=(owner, str))
        if self._owner is not None and owner not in (None, self._owner):
            raise ConversationNotFound(conversation_id or "")
        return self._check_owner(
            await self.store.create(
                title or "",
                conversation_id=conversation_id,
                owner=owner if owner is not None else self._owner or "",
                metadata=metadata,
            )
        )

    def _check_owner(self, stored: Conversation, owner: str | None = None) -> Conversation:
        """Return a conversation that this manager finds.

        Raises:
            ConversationNotFound: It belongs to another owner. An id that is not found and an id of somebody else look
                alike, so that nobody learns which ids exist.
        """
        if not {self._owner, owner} <= {None, stored.owner}:
            raise ConversationNotFound(stored.id)
        return stored

    async def _read(self, conversation_id: str) -> Conversation:
        return self._check_owner(await self.store.get(conversation_id))

    async def _check_access(self, conversation_id: str) -> None:
        """Check the owner of a conversation, before a change that does not read it. Raises as `get`."""
        if self._owner is not None:
            await self._read(conversation_id)

    async def _edit(self, conversation_id: str, build: BuildEdits) -> bool:
        """Store the edits that `build` returns, as `TurnQueue.edit`, in a conversation that this manager finds."""
        return await self._queue.edit(conversation_id, build, self._check_owner)

    async def update(
        self,
        conversation_id: str,
        *,
        owner: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        metadata_changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Change the owner or the metadata of a conversation, but not its place in the list.

        Args:
            conversation_id: The id of the conversation.
            owner: The new owner, from the next turn on; None to keep it. A manager of one owner cannot change it.
            metadata: The metadata that replace all earlier ones; None to keep them.
            metadata_changes: Metadata with new values, in one step with what the store has: other programs may change
                other names at the same time. None removes a name.

        Raises:
            ConversationNotFound: The conversation does not exist, or this manager is of another owner.
            ConfigError: The owner or the metadata cannot be stored.
        """
        check_types(owner=(owner, str))
        await self._check_access(conversation_id)
        if self._owner is not None and owner not in (None, self._owner):
            raise ConversationNotFound(conversation_id)
        # A store of an older program does not know the parameter.
        changes: dict[str, Any] = {"metadata_changes": metadata_changes} if metadata_changes else {}
        await self.store.update(conversation_id, owner=owner, metadata=metadata, **changes)

    @overload
    async def chat(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        output_type: type[OutputT],
        **keywords: Unpack[TurnKeywords],
    ) -> Turn[OutputT]: ...

    @overload
    async def chat(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> Turn[Any]: ...

    async def chat(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> Turn[Any]:
        """Send a message in a conversation, and wait for the answer. Arguments and errors as `stream_chat`."""
        turn = await self.start(conversation_id, message, stream=False, output_type=output_type, **keywords)
        try:
            return await turn.result()
        finally:
            await turn.stop()

    @overload
    def stream_chat(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        stream: bool = True,
        on_started: Callable[[TurnHandle], None] | None = None,
        output_type: type[OutputT],
        **keywords: Unpack[TurnKeywords],
    ) -> AsyncGenerator[Event[OutputT], None]: ...

    @overload
    def stream_chat(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        stream: bool = True,
        on_started: Callable[[TurnHandle], None] | None = None,
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> AsyncGenerator[Event[Any], None]: ...

    async def stream_chat(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        stream: bool = True,
        on_started: Callable[[TurnHandle], None] | None = None,
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> AsyncGenerator[Event[Any], None]:
        """Send a message in a conversation, and yield the turn's events, `Finished` last.

        Leaving the loop early cancels the turn and stores the partial text; use `contextlib.aclosing`, so that this
        happens at once. The turn waits for a slow reader; a turn of `start` does not.

        Args:
            conversation_id: The id of the conversation.
            message: The user's text, or another input that `ConversationManager.start` accepts.
            stream: True to ask the model for a streamed reply.
            on_started: Called with the turn once it runs. Its `TurnHandle.cancel` stops it from anywhere; the last
                event is then `Finished` with a turn whose stop reason is ``cancelled``.
            output_type: The type of the answer, as for `DialClient.run`.
            keywords: Further keywords of this turn, as for `DialClient.run`. They precede the settings of the
                conversation; ``history`` precedes its messages, and is not stored.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: Another turn of the conversation is running, with ``when_busy="refuse"`` or for too long.
            ProviderError: The model could not be reached, or refused the request; the partial text is stored.
            LimitReached: A limit was met, and the client has ``on_limit="raise"``.
            OutputError: No answer is of `output_type`.
            ConfigError: The message to edit, to answer again or to continue does not exist.
            DialError: The store failed, which ended the turn.
        """
        check_turn_input(message)
        turn = await self._start(
            conversation_id, message, keywords, stream=stream, stream_events=True, output_type=output_type
        )
        try:
            if on_started is not None:
                on_started(turn)
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
        finally:
            await turn.stop()

    async def stream_response(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> AsyncGenerator[str, None]:
        """Send a message in a conversation, and yield server-sent events, as `DialClient.stream_response` does.

        Leaving the loop early cancels the turn. Until the model is asked, this raises as `stream_chat`; a later error
        of the turn becomes an ``error`` event. Arguments are those of `stream_chat`.
        """
        check_turn_input(message)
        turn = await self._start(
            conversation_id, message, keywords, stream=True, stream_events=True, output_type=output_type
        )
        try:
            async with aclosing(sse_encoder.encode(turn.events(), model=self._dial.model.name)) as encoded:
                async for text in encoded:
                    yield text
        finally:
            await turn.stop()

    @overload
    async def start(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        stream: bool = True,
        turn_id: str | None = None,
        client_tools: Sequence[ToolSpec] = (),
        output_type: type[OutputT],
        **keywords: Unpack[TurnKeywords],
    ) -> TurnHandle[OutputT]: ...

    @overload
    async def start(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        stream: bool = True,
        turn_id: str | None = None,
        client_tools: Sequence[ToolSpec] = (),
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> TurnHandle[Any]: ...

    async def start(
        self,
        conversation_id: str,
        message: ConversationInput,
        *,
        stream: bool = True,
        turn_id: str | None = None,
        client_tools: Sequence[ToolSpec] = (),
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> TurnHandle[Any]:
        """Send a message in a conversation, and return the turn that answers it, which runs without a reader.

        The turn can be stopped by `TurnHandle.cancel`, and stops when the client is closed. Until the model is asked,
        this raises as `stream_chat`; later errors are raised by ``TurnHandle.log.events`` and `TurnHandle.result`.

        Args:
            conversation_id: The id of the conversation.
            message: The user's text or `Message`; an `EditedMessage` for a new version of an earlier message; a
                `Regeneration` for a new version of an answer; a `Continuation` for the rest of a cut-off answer;
                `ClientResults` for the results of the caller's own tools.
            stream: True to ask the model for a streamed reply.
            turn_id: The id of the turn, in printable ASCII and unique among all turns; by default a random id.
            client_tools: Tools that the caller runs itself, as for `DialClient.start`. Such a call ends the turn; the
                next turn begins with `ClientResults`.
            output_type: The type of the answer, as for `DialClient.run`.
            keywords: Further keywords of this turn, as for `stream_chat`.
        """
        check_turn_input(message)
        return await self._start(
            conversation_id,
            message,
            keywords,
            stream=stream,
            turn_id=turn_id,
            client_tools=client_tools,
            output_type=output_type,
        )

    async def resume(
        self,
        conversation_id: str,
        decisions: Decisions = MappingProxyType({}),
        *,
        stream: bool = True,
        turn_id: str | None = None,
        client_tools: Sequence[ToolSpec] = (),
        output_type: Any = None,
        **keywords: Unpack[TurnKeywords],
    ) -> TurnHandle[Any] | None:
        """Resume a turn whose process was killed, or whose calls wait for approval; None if there is no such turn.

        Stored rounds are not repeated, and count towards `Limits.max_depth`; other limits start again. The model is
        told that unfinished calls may have run. A call that waits for approval has not run: it runs now if `decisions`
        or the approver allow it. The keywords of the turn are not stored: pass them again. Other arguments and errors
        are those of `start`.

        Args:
            conversation_id: The id of the conversation.
            decisions: The decisions by the ids in `Conversation.pending_approvals`, as for `DialClient.resume`.
            stream: As for `start`.
            turn_id: As for `start`.
            client_tools: As for `start`.
            output_type: As for `start`.
            keywords: As for `start`.
        """
        try:
            return await self._start(
                conversation_id,
                None,
                keywords,
                stream=stream,
                turn_id=turn_id,
                client_tools=client_tools,
                decisions=decisions,
                output_type=output_type,
            )
        except NothingToResume:
            return None

    def find_turn(self, conversation_id: str, turn_id: str | None = None) -> TurnHandle | None:
        """Return the turn that this process runs in a conversation, or a turn that ended recently, or None.

        Args:
            conversation_id: The id of the conversation.
            turn_id: The id of the turn; None for any turn.
        """
        turn = self._queue.find(conversation_id, turn_id)
        return turn if turn is None or self._owner in (None, turn.origin.owner) else None

    async def _start(  # noqa: PLR0913 - the options of a turn, all but three by name
        self,
        conversation_id: str,
        message: ConversationInput | None,
        keywords: TurnKeywords,
        *,
        stream: bool,
        stream_events: bool = False,
        turn_id: str | None = None,
        client_tools: Sequence[ToolSpec] = (),
        decisions: Decisions = MappingProxyType({}),
        output_type: Any = None,
    ) -> TurnHandle[Any]:
        """Start the next turn; if `message` is None, resume the interrupted turn."""
        check_conversation_id(conversation_id)
        check_keywords(keywords)
        owner = keywords.get("owner") or self._owner
        if owner is not None:
            # Before the queue, so that nobody waits for, or delays, the turns of somebody else.
            self._check_owner(await self.store.get(conversation_id), owner)
        origin = Origin(conversation_id, turn_id or secrets.token_hex(16), owner or "")
        note = ""
        if isinstance(message, str | Message) and self._compact_at is not None:
            note = await self._compact_when_full(conversation_id, self._compact_at)

        def start(beginning: Beginning, slot: TurnObserver) -> TurnHandle:
            history = beginning.history
            settings = self._read_settings(beginning.settings)
            model, merged = settings.select_model(self._dial.model, keywords)
            is_durable = self._queue.will_be_resumed is not never_resumed
            lease, heartbeat = self._queue.lease, self._heartbeat
            persister = TurnPersister(self.store, lease, heartbeat, model.name, is_durable=is_durable)
            background = self._background.setdefault(conversation_id, BackgroundCalls(is_kept=True))
            background.store_task = partial(self._store_task, conversation_id)
            background.open(beginning.tasks)
            turn = self._dial.start(
                (*history, Message.user(CONTINUE)) if isinstance(message, Continuation) else history,
                stream=stream,
                stream_events=stream_events,
                client_tools=client_tools,
                origin=replace(origin, owner=beginning.owner),
                observers=(persister, _BackgroundObserver(self._background), slot, *self._observers),
                background=background,
                agents=AgentProgress(partial(persister.store_agent, origin), beginning.agents),
                earlier_notes=beginning.notes,
                tool_format=settings.tool_format,
                hidden_tools=settings.hidden_tools,
                decisions=decisions if message is None else None,
                output_type=output_type,
                **merged,
            )
            if isinstance(message, Continuation):
                turn.recorder.question = ()  # `CONTINUE` is not part of the conversation
            turn.recorder.note(*filter(None, (note,)))
            return turn

        return await self._queue.start_next(origin, message, start)

    async def _store_task(self, conversation_id: str, record: TaskRecord) -> bool:
        try:
            await self.store.append(conversation_id, [build_entry(EntryKind.TASK, record.to_dict())])
        except DialError as error:
            log.debug("task_not_stored", error=type(error).__name__)  # it is tried again with the next poll
            return False
        return True

    def list_background_calls(self, conversation_id: str) -> tuple[BackgroundCall[Any], ...]:
        """Return the calls of a conversation that are in the background of this process, also between its turns."""
        background = self._background.get(conversation_id)
        return () if background is None else background.calls

    async def find_client_calls(self, conversation_id: str, *, answered: bool = False) -> ClientCalls | None:
        """Return the calls of the caller's own tools with which the last turn ended; None if none waits for a result.

        Args:
            conversation_id: The id of the conversation.
            answered: True for the calls with whose results the last turn began.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        tree = build_tree(await self._read(conversation_id))
        return find_answered_calls(tree) if answered else find_client_calls(tree)

    async def get(self, conversation_id: str) -> Conversation:
        """Return a conversation, with messages that form a valid history (`history`).

        A durable turn that waits to be resumed counts as running.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        stored = await self._read(conversation_id)
        return replace(repair_conversation(stored), running=await self._queue.is_running(stored))

    async def list(
        self,
        limit: int = 50,
        *,
        cursor: str | None = None,
        search: str = "",
        owner: str | None = None,
        marks: Mapping[str, bool] = MappingProxyType({}),
    ) -> Page:
        """Return at most `limit` conversations, the most recently changed first.

        Args:
            limit: The size of the page, at least 1.
            cursor: The `Page.cursor` of the previous page; None for the first page.
            search: Words that must all occur in the title or in messages of the user or the model, in any case.
            owner: Only conversations of this owner; by default those of the owner of this manager, else all.
            marks: Only conversations whose metadata have these marks, or have them not (`ConversationStore.list`).

        Raises:
            ConfigError: The cursor is invalid, or the limit is less than 1.
        """
        if limit < 1:
            raise ConfigError("a page has at least one conversation")
        if self._owner is not None:
            owner = self._owner if owner in (None, self._owner) else None
            if owner is None:
                return Page()
        return await self.store.list(limit, cursor=cursor, search=search, owner=owner, marks=marks)

    async def rename(self, conversation_id: str, title: str) -> None:
        """Change the title of a conversation, but not its place in the list.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        await self._check_access(conversation_id)
        await self.store.rename(conversation_id, title)

    async def fork(self, conversation_id: str, count: int | None = None, *, title: str | None = None) -> Conversation:
        """Create a conversation with the first messages of another, its settings, and the details of its turns.

        Args:
            conversation_id: The id of the conversation to copy.
            count: The number of messages to copy, as `get` returns them; None for all. Results of copied calls are
                copied too.
            title: The title; by default the title of the copied conversation.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConfigError: The conversation has fewer messages than `count`, or `count` is negative.
        """
        view = await self.view(conversation_id)
        source = view.conversation
        end = len(source.messages) if count is None else count
        if not 0 <= end <= len(source.messages):
            raise ConfigError(f"the conversation has {len(source.messages)} messages, not {end}")
        while 0 < end < len(source.messages) and source.messages[end].role is Role.TOOL:
            end += 1
        created = await self.store.create(
            source.title if title is None else title,
            copy_messages(view, end),
            owner=source.owner,
            metadata=source.metadata,
        )
        return repair_conversation(created)

    async def undo(self, conversation_id: str) -> tuple[Message, ...]:
        """Remove the last exchange from the conversation, and return its messages, if there were any.

        The messages stay in the store, but are not sent to the model any more. Effects of tool calls are not reverted.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: A turn of the conversation is running.
        """
        removed: tuple[StoredMessage, ...] = ()

        def build(stored: Conversation) -> tuple[Message, ...]:
            nonlocal removed
            removed = find_last_exchange(stored)
            return (build_removal(removed),) if removed else ()

        await self._edit(conversation_id, build)
        return tuple(stored.message for stored in removed)

    async def restore(self, conversation_id: str, edit: Literal["undo", "compact"] = "undo") -> bool:
        """Revert the latest `undo` or `compact`, and return True; return False if there is none to revert.

        A removed exchange can be restored until a new message is added. Raises as `undo`.
        """

        def build(stored: Conversation) -> tuple[Message, ...]:
            found = find_edit(stored, is_summary=edit == "compact")
            return (build_removal((found,)),) if found is not None else ()

        return await self._edit(conversation_id, build)

    async def compact(
        self, conversation_id: str, *, keep: int = KEPT_EXCHANGES, share: float = 0.0
    ) -> Compaction | None:
        """Let the model summarize the older part of a conversation; return None if there is nothing to summarize.

        The summary replaces the older messages, which stay in the store: `restore` brings them back. Calls and their
        results are never separated.

        Args:
            conversation_id: The id of the conversation.
            keep: The number of exchanges at the end that are not summarized, if they fill at most a quarter of the
                context window.
            share: The part of the context window, from 0 to 1, that the conversation must fill to be summarized.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: A turn of the conversation is running, or the conversation was edited meanwhile.
            ProviderError: The model could not be reached, refused the request, wrote nothing, or took too long.
            MiddlewareError: A middleware failed.
            ConfigError: The client has no model, or the conversation's model does not exist any more.
        """
        self._dial.model.require()
        stored = await self._read(conversation_id)
        model = self._select_model(stored)
        if stored.running:
            raise ConversationBusy(conversation_id, "a turn of this conversation is under way: wait for its end")
        part = find_older_part(stored, keep, compute_max_kept_chars(model))
        if part is None or (share and self._compute_fill(stored) < share):
            return None
        compaction = await summarize(model, part.messages)
        taint = ", ".join(self._dial.find_taint(part.messages))
        build = partial(part.build_edit, summary=compaction.summary, taint=taint)
        if not await self._edit(conversation_id, build):
            raise ConversationBusy(conversation_id, "the conversation was edited while it was being summarized")
        return compaction

    async def _compact_when_full(self, conversation_id: str, share: float) -> str:
        """Compact a conversation that fills at least this part of the window, and return a note, or an empty one.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        try:
            compaction = await self.compact(conversation_id, share=share)
        except ConversationBusy:
            return ""  # a turn is running, which the next turn waits for
        except (ProviderError, RequestRefused, MiddlewareError) as error:
            return f"the conversation nearly fills the model's context window, and it could not be summarized: {error}"
        return "" if compaction is None else compaction.note

    async def measure(self, conversation_id: str) -> float:
        """Return the part of the model's context window that a conversation fills; 0 if the window's size is unknown.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConfigError: The conversation's model does not exist any more.
        """
        return self._compute_fill(await self._read(conversation_id))

    async def measure_context(self, conversation_id: str) -> ContextReport:
        """Return what fills the model's context window when a conversation goes on.

        If its latest turn ran in this process, the sum of the parts is the number of tokens that the endpoint counted.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConfigError: The client has no model, or the conversation's model does not exist any more.
        """
        stored = await self._read(conversation_id)
        settings = self._read_settings(build_tree(stored).settings)
        settings.select_model(self._dial.model, {})  # the conversation's model may not exist any more
        report = self._dial.measure_context(
            repair_conversation(stored).messages,
            tool_format=settings.tool_format,
            hidden_tools=settings.hidden_tools,
            **settings.keywords,
        )
        counted = list_counted_tokens(stored, self._queue.find(stored.id))
        return with_counted_tokens(report, counted[-1]) if counted else report

    def _compute_fill(self, stored: Conversation) -> float:
        return compute_fill(stored, self._select_model(stored), self._dial.tools, self._queue.find(stored.id))

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation. A running turn is cancelled, and stores nothing more.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        await self._check_access(conversation_id)
        await self.store.delete(conversation_id)
        self._queue.forget(conversation_id)
        if (background := self._background.pop(conversation_id, None)) is not None:
            await background.stop_calls()

    async def export(self, conversation_id: str, form: Literal["json", "markdown"] = "json") -> str:
        """Return a conversation as text: JSON, which `import_json` reads, or Markdown for people.

        It has the messages that `compact` summarized, without the summaries, and the text so far of a running turn.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConfigError: The format is unknown.
        """
        if form not in export.FORMS:
            raise ConfigError(f"unknown format {form!r}", hint=f"one of {', '.join(export.FORMS)}")
        return export.FORMS[form](build_transcript(await self._read(conversation_id)))

    async def import_json(self, text: str) -> Conversation:
        """Create a conversation from JSON, and return it: an export, or a list of messages as `Message.to_dict` has.

        Raises:
            ConfigError: The text is neither.
        """
        title, messages = export.from_json(text)
        return await self.store.create(title, repair_history(messages), owner=self._owner or "")

    async def view(self, conversation_id: str) -> ConversationView:
        """Return a conversation with the positions and versions of its messages, and the details of its turns.

        A durable turn that waits to be resumed counts as running.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        stored = await self._read(conversation_id)
        view = build_view(stored)
        return replace(view, conversation=replace(view.conversation, running=await self._queue.is_running(stored)))

    async def list_messages(self, conversation_id: str) -> Sequence[dict[str, Any]]:
        """Return the messages of all versions (`conversation_view.list_messages`).

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        return conversation_view.list_messages(await self._read(conversation_id))

    async def read_state(self, conversation_id: str) -> str:
        """Return the conversation's `ConversationView.state`; a `SQLStore` computes it without reading the messages.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """
        if isinstance(self.store, SQLStore) and self._owner is None:
            return hash_state(*await self.store.read_state(conversation_id))
        stored = await self._read(conversation_id)
        return hash_state(stored.turn, stored.running, stored.message_count, stored.title)

    async def switch(self, conversation_id: str, position: int) -> bool:
        """Show the latest version of the conversation that contains the message at `position`.

        Returns:
            True if the shown version has changed; False if the message was already shown.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: A turn of the conversation is running.
            ConfigError: There is no message at `position`.
        """
        return await self._edit(conversation_id, partial(build_switch, position=position))

    async def remove_message(self, conversation_id: str, position: int) -> None:
        """Remove a question with all its answers, or one answer with its calls; later exchanges are kept.

        The messages stay in the store, but no version shows them, and they are not sent to a model. Raises as `switch`.
        """
        await self._edit(conversation_id, partial(build_deletion, position=position))

    async def update_settings(self, conversation_id: str, settings: Mapping[str, Any]) -> None:
        """Replace all settings of a conversation, from its next turn on.

        Args:
            conversation_id: The id of the conversation.
            settings: The settings, as `conversation_settings` describes them; empty for the client's settings.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConfigError: A setting is unknown, wrong, locked or above a limit of the client, or the model is unknown.
        """
        checked = check_settings(settings)
        if locked := sorted(self.locked_settings.intersection(checked)):
            raise ConfigError(f"the setting {locked[0]!r} is locked")
        check_limits(checked, self._dial.limits)
        # This raises what the next turn would.
        read_settings(checked, self._dial.limits).select_model(self._dial.model, {})
        await self._check_access(conversation_id)
        await self.store.append(conversation_id, [build_entry(EntryKind.SETTINGS, checked)])
