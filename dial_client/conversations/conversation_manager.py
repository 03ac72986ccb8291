"""ConversationManager: conversations of many turns, stored while they run.

    manager = ConversationManager(dial, store, when_busy="wait")   "refuse": a second request raises ConversationBusy
    await manager.create(title)                      -> Conversation
    await manager.chat(id, text)                     -> Turn
    async for event in manager.stream_chat(id, text) events, Finished last; leaving early cancels the turn
    await manager.start(id, text)                    -> TurnHandle of a turn that needs no reader
    await manager.resume(id)                         -> TurnHandle | None: resumes a turn whose program was killed
    manager.find_turn(id, turn)                      -> TurnHandle | None: one that runs in this process, or just ended
    async for position, event in turn.log.events(n)  from any position, for any number of readers; leaving is free
    await manager.get(id)                            -> Conversation: messages (a valid history), running, notes
    await manager.list(20, cursor=…, search="words") -> Page: a tuple of ConversationSummary, and .cursor of the next
    await manager.rename(id, title), .delete(id), .fork(id, at)
    await manager.start(id, Regeneration(position)), EditedMessage(position, text), Continuation(): further versions
    await manager.view(id)                           -> ConversationView: positions, versions, details of turns
    await manager.switch(id, position)               shows another version; .remove_message(id, position)
    await manager.undo(id), .restore(id)             takes back the last exchange; brings it back
    await manager.compact(id)                        -> Compaction | None: the model summarizes the older messages
    await manager.export(id, "json" | "markdown")    -> str
    await manager.import_json(text)                  -> Conversation

What is stored when:

* the person's message before the model is asked;
* each message the turn adds as soon as it is whole, before its event is logged, by the turn itself (`persistence`);
* the partial text of a turn that was cancelled or failed, and a result for each of its open calls.

A stored message is never rewritten, and what is taken back or summarized is still stored (`history_edits`). If the
program was killed, the conversation has the text and results of a second earlier: text is marked as cut off, and a call
without a result says that it may have run (`history`).

**Several processes.** A turn holds its conversation in the store: turns of one conversation take place one after the
other, whoever requests them (`turn_queue`). A turn's events are in the process that runs it; another one sees
`Conversation.running`, the turn's id (`Conversation.turn`), and every message as it is stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypedDict

from dial_client.audit.entries import Origin
from dial_client.client.argument_types import check_members
from dial_client.client.client_model import ClientModel
from dial_client.client.dial_client import DialClient
from dial_client.conversations import export
from dial_client.conversations.chat_methods import ChatMethods
from dial_client.conversations.compaction import KEPT_EXCHANGES, Compaction
from dial_client.conversations.compactor import Compactor
from dial_client.conversations.conversation_settings import leave_out_missing, to_turn_settings
from dial_client.conversations.conversation_view import copy_messages
from dial_client.conversations.history import count_last_rounds, repair_conversation, repair_history
from dial_client.conversations.history_editor import HistoryEditor
from dial_client.conversations.history_edits import build_removal, find_edit, find_last_exchange
from dial_client.conversations.message_tree import StoredMessage, build_tree
from dial_client.conversations.persistence import LeaseHeartbeat, TurnPersister
from dial_client.conversations.turn_input import CONTINUE, Continuation, TurnInput, check_turn_input
from dial_client.conversations.turn_queue import NothingToResume, TurnQueue, WillBeResumed, never_resumed
from dial_client.conversations.version_methods import VersionMethods
from dial_client.errors import ConfigError
from dial_client.messages.message import Message, Role
from dial_client.stores.conversation_store import Conversation, ConversationStore, Page
from dial_client.turns.turn_handle import TurnHandle, TurnObserver

WhenBusy = Literal["wait", "refuse"]

PATIENCE = 150.0
"""Seconds a request waits for the turn before it; a turn takes less by default."""

LEASE = 10.0
"""Seconds after which a killed program holds its conversation no longer."""


class ManagerOptions(TypedDict, total=False):
    """The options of `ConversationManager`."""

    when_busy: WhenBusy
    patience: float
    lease: float
    compact_at: float | None
    locked_settings: Collection[str]


class ConversationManager(ChatMethods, VersionMethods):
    """Runs the turns of conversations that are kept in a store.

    Turns of one conversation run one after the other, in this program in the order of the requests, and among all
    programs that use the store; turns of different conversations run side by side.

    Args:
        dial: answers, and asks for approval; opened and closed by the caller.
        store: stores the conversations; closed by the caller.
        when_busy: ``"wait"``: a request waits while another turn of its conversation runs; ``"refuse"``: it fails.
        patience: seconds a request waits at most.
        lease: seconds for which a turn holds its conversation without a heartbeat.
        compact_at: the part of the context window, from 0 to 1, from which on a conversation is compacted before its
            next turn, as `compact` does; None for never. It costs a request to the model.
        will_be_resumed: whether some process will resume the interrupted turn of a conversation: until then no other
            turn begins. By default none does.
        locked_settings: settings that conversations cannot have (`conversation_settings.KEYS`).
    """

    def __init__(  # noqa: PLR0913 - the options of a manager, all but two by name
        self,
        dial: DialClient,
        store: ConversationStore,
        *,
        when_busy: WhenBusy = "wait",
        patience: float = PATIENCE,
        lease: float = LEASE,
        compact_at: float | None = None,
        will_be_resumed: WillBeResumed = never_resumed,
        locked_settings: Collection[str] = (),
    ) -> None:
        if when_busy not in ("wait", "refuse"):
            raise ConfigError(f"unknown when_busy {when_busy!r}", hint='expected "wait" or "refuse"')
        hint = f": SQLStore({store!r}) opens a database" if isinstance(store, str) else ""
        check_members(store, ConversationStore, "a ConversationStore", hint)
        self._dial = dial
        self._store = store
        self._lease = lease
        self.locked_settings = frozenset(locked_settings)
        """Settings that conversations cannot have, from the next turn on."""
        self._compact_at = compact_at
        patience = patience if when_busy == "wait" else 0.0
        self._queue = TurnQueue(store, patience=patience, lease=lease, will_be_resumed=will_be_resumed)
        self._editor = HistoryEditor(store, patience=patience, lease=lease, will_be_resumed=will_be_resumed)
        self._compactor = Compactor(dial, self._select_model, store, self._editor, self._queue)

    def _select_model(self, stored: Conversation) -> ClientModel:
        settings, _ = to_turn_settings(build_tree(stored).settings, self._dial.limits, self.locked_settings)
        return self._dial.model.select(leave_out_missing(settings, self._dial.model)[0])

    @property
    def store(self) -> ConversationStore:
        """The store of the conversations."""
        return self._store

    async def create(self, title: str | None = None) -> Conversation:
        """Create a conversation, and return it; without a title it gets the first words of its first message."""
        return await self._store.create(title or "")

    async def get(self, conversation_id: str) -> Conversation:
        """Return a conversation; its messages are a valid history (`history`).

        Raises:
            ConversationNotFound: there is no such conversation.
        """
        return repair_conversation(await self._store.get(conversation_id))

    async def list(self, limit: int = 50, *, cursor: str | None = None, search: str = "") -> Page:
        """Return at most `limit` conversations, the latest change first.

        Args:
            limit: at least 1.
            cursor: `Page.cursor` of the page before; None for the first page.
            search: words, each of which occurs in the title or in a message of the user or the model; in any case.

        Raises:
            ConfigError: the cursor is invalid, or the limit is less than 1.
        """
        if limit < 1:
            raise ConfigError("a page has at least one conversation")
        return await self._store.list(limit, cursor=cursor, search=search)

    async def rename(self, conversation_id: str, title: str) -> None:
        """Change the title of a conversation, but not its place in the list.

        Raises:
            ConversationNotFound: there is no such conversation.
        """
        await self._store.rename(conversation_id, title)

    async def fork(self, conversation_id: str, at: int | None = None, *, title: str | None = None) -> Conversation:
        """Create a conversation from the first messages of another, with its settings and the details of its turns.

        Args:
            conversation_id: the other conversation.
            at: the number of messages to copy, as `get` returns them; None for all. The results of calls are copied
                with their calls.
            title: the title; by default that of the other conversation.

        Raises:
            ConversationNotFound: there is no such conversation.
            ConfigError: the conversation does not have so many messages.
        """
        view = await self.view(conversation_id)
        source = view.conversation
        end = len(source.messages) if at is None else at
        if not 0 <= end <= len(source.messages):
            raise ConfigError(f"the conversation has {len(source.messages)} messages, not {end}")
        while 0 < end < len(source.messages) and source.messages[end].role is Role.TOOL:
            end += 1
        created = await self._store.create(source.title if title is None else title, copy_messages(view, end))
        return repair_conversation(created)

    async def undo(self, conversation_id: str) -> tuple[Message, ...]:
        """Take back the last exchange, and return its messages, the question first; empty where there is none.

        The messages stay in the store, but the conversation goes on without them. What tools have done stays done.

        Raises:
            ConversationNotFound: there is no such conversation.
            ConversationBusy: a turn of it is under way.
        """
        removed: tuple[StoredMessage, ...] = ()

        def build(stored: Conversation) -> tuple[Message, ...]:
            nonlocal removed
            removed = find_last_exchange(stored)
            return (build_removal(removed),) if removed else ()

        await self._editor.edit(conversation_id, build)
        return tuple(stored.message for stored in removed)

    async def restore(self, conversation_id: str, edit: Literal["undo", "compact"] = "undo") -> bool:
        """Undo the latest `undo` or `compact`, and return whether there was one.

        An exchange can be restored for as long as nothing was said since. Raises as `undo`.
        """

        def build(stored: Conversation) -> tuple[Message, ...]:
            found = find_edit(stored, is_summary=edit == "compact")
            return (build_removal((found,)),) if found is not None else ()

        return await self._editor.edit(conversation_id, build)

    async def compact(self, conversation_id: str, *, keep: int = KEPT_EXCHANGES, at: float = 0.0) -> Compaction | None:
        """Let the model summarize the older part of a conversation; return None where there is nothing to summarize.

        The summary takes the place of the older messages, which stay in the store: `restore` brings them back. Calls
        and their results are never separated.

        Args:
            conversation_id: which conversation.
            keep: exchanges at the end that stay as they are, if they take at most a quarter of the context window.
            at: the part of the context window that the conversation has to fill, from 0 to 1; else nothing is done.

        Raises:
            ConversationNotFound: there is no such conversation.
            ConversationBusy: a turn of it is under way, or it was edited meanwhile.
            ProviderError: the model could not be reached, refused, or wrote nothing.
            ConfigError: the client has no model.
        """
        return await self._compactor.compact(conversation_id, keep, at)

    async def measure(self, conversation_id: str) -> float:
        """Return the part of the model's context window that a conversation fills; 0 where its size is not known.

        Raises:
            ConversationNotFound: there is no such conversation.
        """
        return self._compactor.measure(await self._store.get(conversation_id))

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation. A turn that runs is cancelled, and stores nothing more.

        Raises:
            ConversationNotFound: there is no such conversation.
        """
        await self._store.delete(conversation_id)
        self._queue.forget(conversation_id)

    async def export(self, conversation_id: str, form: Literal["json", "markdown"] = "json") -> str:
        """Return a conversation as text: JSON, which `import_json` reads, or Markdown for people.

        Raises:
            ConversationNotFound: there is no such conversation.
            ConfigError: there is no such form.
        """
        if form not in export.FORMS:
            raise ConfigError(f"unknown form {form!r}", hint=f"one of {', '.join(export.FORMS)}")
        return export.FORMS[form](await self.get(conversation_id))

    async def import_json(self, text: str) -> Conversation:
        """Return a new conversation made of an export in JSON, or of messages in the form of `Message.to_dict`.

        Raises:
            ConfigError: the text is neither.
        """
        title, messages = export.from_json(text)
        return await self._store.create(title, repair_history(messages))

    async def start(
        self,
        conversation_id: str,
        message: TurnInput,
        *,
        stream: bool = True,
        turn_id: str | None = None,
        output_type: Any = None,
    ) -> TurnHandle:
        """Send a message in a conversation, and return the turn that answers, which needs no reader.

        It ends by itself, by `TurnHandle.cancel`, or with the client. Raises as `stream_chat`, up to where the model is
        asked; later errors are raised by ``TurnHandle.log.events`` and `TurnHandle.result`.

        Args:
            conversation_id: which conversation.
            message: the person's text, or a `Message` of the person's; an `EditedMessage` or a `Regeneration` for a new
                version of an earlier message or answer; a `Continuation` for the rest of an answer that was cut off.
            stream: ask the model for its reply in pieces.
            turn_id: of printable ASCII and unlike that of any other turn; by default a random one.
            output_type: the type of the answer, as for `DialClient.run`.
        """
        check_turn_input(message)
        return await self._start(conversation_id, message, stream=stream, turn_id=turn_id, output_type=output_type)

    async def resume(
        self, conversation_id: str, *, stream: bool = True, turn_id: str | None = None, output_type: Any = None
    ) -> TurnHandle | None:
        """Resume a turn whose program was killed, and return it; None where the last turn ended well.

        What it had finished is not done again, and counts against `Limits.max_depth`; other limits begin anew. Of calls
        that were under way the model is told that they may have run. The type of the answer is not stored: name it
        again. Arguments and errors are those of `start`.
        """
        try:
            return await self._start(conversation_id, None, stream=stream, turn_id=turn_id, output_type=output_type)
        except NothingToResume:
            return None

    def find_turn(self, conversation_id: str, turn_id: str | None = None) -> TurnHandle | None:
        """Return the turn that runs in this process, or the last one if it ended not long ago; else None.

        Args:
            conversation_id: which conversation.
            turn_id: the turn that is meant; None for any.
        """
        return self._queue.find(conversation_id, turn_id)

    async def _start(
        self,
        conversation_id: str,
        message: TurnInput | None,
        *,
        stream: bool,
        stream_events: bool = False,
        turn_id: str | None = None,
        output_type: Any = None,
    ) -> TurnHandle:
        """Start the next turn; without a message, one that resumes an interrupted turn."""
        origin = Origin(conversation_id, turn_id or secrets.token_hex(16))
        note = ""
        if isinstance(message, str | Message) and self._compact_at is not None:
            note = await self._compactor.compact_when_full(conversation_id, self._compact_at)

        def start(history: tuple[Message, ...], stored: Mapping[str, Any], slot: TurnObserver) -> TurnHandle:
            settings, max_tokens = to_turn_settings(stored, self._dial.limits, self.locked_settings)
            settings, model_note = leave_out_missing(settings, self._dial.model)
            messages = (*history, Message.user(CONTINUE)) if isinstance(message, Continuation) else history
            persister = TurnPersister(self._store, self._dial.model.select(settings).name)
            turn = self._dial.start(
                messages,
                stream=stream,
                stream_events=stream_events,
                origin=origin,
                observers=(
                    LeaseHeartbeat(self._store, self._lease),
                    persister,
                    slot,
                ),
                depth=count_last_rounds(history) if message is None else 0,
                output_type=output_type,
                settings=settings,
                max_tokens=max_tokens,
            )
            turn.recorder.note(*filter(None, (model_note, note)))
            return turn

        return await self._queue.start_next(origin, message, start)
