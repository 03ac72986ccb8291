"""ConversationManager: talk that goes on over many turns, and of which nothing is lost.

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
    await manager.export(id, "json" | "markdown")    -> str
    await manager.import_json(text)                  -> Conversation

What is stored when:

* the person's message before the model is asked;
* each message the turn adds as soon as it is whole, before its event is logged, by the turn itself (`persistence`);
* the partial text of a turn that was cancelled or broke off, and an answer to each of its open calls.

What is stored is never rewritten. Where the program was killed, the conversation has what was unfinished a second ago:
text is marked as cut off, and a call without a result says that it may have run (`history`).

**Several processes.** A turn holds its conversation in the store: turns of one conversation take place one after the
other, whoever requests them (`turn_queue`). A turn's events are in the process that runs it; another one sees
`Conversation.running`, the turn's id (`Conversation.turn`), and every message as it is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Literal, TypedDict

from dial_client.audit.entries import Origin
from dial_client.client import DialClient
from dial_client.conversations import export
from dial_client.conversations.history import as_it_stands, rounds_of_last, valid_history
from dial_client.conversations.persistence import LeaseHeartbeat, TurnPersister
from dial_client.conversations.turn_queue import NothingToResume, TurnQueue, WillBeResumed, never_resumed
from dial_client.errors import ConfigError
from dial_client.events import Event
from dial_client.messages import Message, Role
from dial_client.stores.conversation_store import Conversation, ConversationStore, Page
from dial_client.turn_result import Turn
from dial_client.turns.turn_handle import TurnHandle, TurnObserver

WhenBusy = Literal["wait", "refuse"]

PATIENCE = 150.0
"""Seconds a request waits for the turn before it: longer than a turn takes by default."""

LEASE = 10.0
"""Seconds after which the turn of a program that was killed holds its conversation no longer."""


class ManagerOptions(TypedDict, total=False):
    """The options of a `ConversationManager`, for who makes it on behalf of somebody."""

    when_busy: WhenBusy
    patience: float
    lease: float


class ConversationManager:
    """Carries on conversations that are kept in a store.

    Turns of one conversation take place one after the other, in this program in the order in which they were asked for,
    and among all programs that use the store; those of different conversations run side by side.

    Args:
        dial: answers, and asks for approval; opened and closed by whoever made it.
        store: keeps; closed by whoever made it.
        when_busy: what becomes of a request while another turn of its conversation is under way: it waits, or it is
            refused.
        patience: seconds it waits at most.
        lease: seconds for which a turn holds its conversation without a sign of life.
        will_be_resumed: whether some process will resume the latest turn of a conversation, which nobody runs: until
            then it counts as running. By default nobody does.
    """

    def __init__(
        self,
        dial: DialClient,
        store: ConversationStore,
        *,
        when_busy: WhenBusy = "wait",
        patience: float = PATIENCE,
        lease: float = LEASE,
        will_be_resumed: WillBeResumed = never_resumed,
    ) -> None:
        if when_busy not in ("wait", "refuse"):
            raise ConfigError(f"unknown when_busy {when_busy!r}", hint='expected "wait" or "refuse"')
        self._dial = dial
        self._store = store
        self._lease = lease
        patience = patience if when_busy == "wait" else 0.0
        self._queue = TurnQueue(store, patience=patience, lease=lease, will_be_resumed=will_be_resumed)

    @property
    def store(self) -> ConversationStore:
        """Keeps the conversations."""
        return self._store

    async def create(self, title: str | None = None) -> Conversation:
        """Begin a conversation; without a title it gets one from the first words that are said."""
        return await self._store.create(title or "")

    async def get(self, conversation_id: str) -> Conversation:
        """Give a conversation; its messages are a valid history (`histories`).

        Raises:
            ConversationNotFound: there is none with this id.
        """
        return as_it_stands(await self._store.get(conversation_id))

    async def list(self, limit: int = 50, *, cursor: str | None = None, search: str = "") -> Page:
        """Give at most `limit` conversations, first the one that changed last.

        Args:
            limit: at least 1.
            cursor: `Page.cursor` of the page before; None for the first page.
            search: words, each of which occurs in the title or in what the person or the model said; in any case.

        Raises:
            ConfigError: the cursor is none, or the limit is less than 1.
        """
        if limit < 1:
            raise ConfigError("a page has at least one conversation")
        return await self._store.list(limit, cursor=cursor, search=search)

    async def rename(self, conversation_id: str, title: str) -> None:
        """Call a conversation something else; its place in the list stays.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        await self._store.rename(conversation_id, title)

    async def fork(self, conversation_id: str, at: int | None = None, *, title: str | None = None) -> Conversation:
        """Make a new conversation of the beginning of another.

        Args:
            conversation_id: the other one.
            at: how many of the messages `get` gives are taken over; None for all. The results of a round go with the
                calls it begins with.
            title: what it is called; by default like the other one.

        Raises:
            ConversationNotFound: there is none with this id.
            ConfigError: it does not have so many messages.
        """
        other = await self.get(conversation_id)
        end = len(other.messages) if at is None else at
        if not 0 <= end <= len(other.messages):
            raise ConfigError(f"the conversation has {len(other.messages)} messages, not {end}")
        while 0 < end < len(other.messages) and other.messages[end].role is Role.TOOL:
            end += 1
        return await self._store.create(other.title if title is None else title, other.messages[:end])

    async def delete(self, conversation_id: str) -> None:
        """Forget a conversation. A turn of it that is running is cancelled, and nothing more of it is stored.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        await self._store.delete(conversation_id)
        self._queue.forget(conversation_id)

    async def export(self, conversation_id: str, form: Literal["json", "markdown"] = "json") -> str:
        """Give a conversation as text: JSON, which `import_json` reads back, or Markdown for people.

        Raises:
            ConversationNotFound: there is none with this id.
            ConfigError: there is no such form.
        """
        if form not in export.FORMS:
            raise ConfigError(f"unknown form {form!r}", hint=f"one of {', '.join(export.FORMS)}")
        return export.FORMS[form](await self.get(conversation_id))

    async def import_json(self, text: str) -> Conversation:
        """Make a new conversation of what `export` gave, or of a list of messages as `Message.from_dict` reads them.

        Raises:
            ConfigError: it is neither.
        """
        title, messages = export.from_json(text)
        return await self._store.create(title, valid_history(messages))

    async def chat(self, conversation_id: str, said: str | Message) -> Turn:
        """Say something in a conversation, and wait for the answer. Raises as `stream_chat`."""
        turn = await self._start(conversation_id, said, stream=False)
        try:
            return await turn.result()
        finally:
            await turn.stopped()

    async def stream_chat(
        self,
        conversation_id: str,
        said: str | Message,
        *,
        stream: bool = True,
        on_started: Callable[[TurnHandle], None] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Say something in a conversation, and yield the turn's events, `Finished` last.

        Leaving early cancels the turn, and the text up to then is stored; use `contextlib.aclosing`, so that this
        happens at once. The turn waits for a reader that is slow; `start` has one that does not.

        Args:
            conversation_id: which conversation.
            said: the person's text; a `Message` of the person's where it is more than text.
            stream: ask the model for its reply in pieces.
            on_started: is given the turn once it runs: its `TurnHandle.cancel` stops it from anywhere, and the events
                go on to a `Finished` whose turn says ``cancelled``.

        Raises:
            ConversationNotFound: there is none with this id.
            ConversationBusy: another turn of it is under way, and ``when_busy="refuse"`` or it took too long.
            ProviderError: the model could not be reached or refused; the text up to then is stored.
            LimitReached: a limit was met and ``on_limit="raise"`` was asked for.
            DialError: the store failed; the turn is over.
        """
        turn = await self._start(conversation_id, said, stream=stream, stream_events=True)
        try:
            if on_started is not None:
                on_started(turn)
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
        finally:
            await turn.stopped()

    async def start(
        self, conversation_id: str, said: str | Message, *, stream: bool = True, turn_id: str | None = None
    ) -> TurnHandle:
        """Say something in a conversation, and return the turn that answers, which needs no reader.

        It ends by itself, by `TurnHandle.cancel`, or with the client. Raises as `stream_chat`, up to where the model is
        asked; later errors are raised by ``TurnHandle.log.events`` and `TurnHandle.result`.

        Args:
            conversation_id: which conversation.
            said: the person's text, or a `Message` of the person's.
            stream: ask the model for its reply in pieces.
            turn_id: of printable ASCII and unlike that of any other turn; by default a random one.
        """
        return await self._start(conversation_id, said, stream=stream, turn_id=turn_id)

    async def resume(
        self, conversation_id: str, *, stream: bool = True, turn_id: str | None = None
    ) -> TurnHandle | None:
        """Resume a turn whose program was killed, from what is stored of it; None where the last turn ended well.

        What it had finished is not done again, and counts against `Limits.max_depth`; other limits begin anew. Of calls
        that were under way the model is told that they may have run.
        Arguments and errors are those of `start`.
        """
        try:
            return await self._start(conversation_id, None, stream=stream, turn_id=turn_id)
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
        said: str | Message | None,
        *,
        stream: bool,
        stream_events: bool = False,
        turn_id: str | None = None,
    ) -> TurnHandle:
        """Start the next turn; without a message, one that resumes an interrupted turn."""
        message = Message.user(said) if isinstance(said, str) else said
        origin = Origin(conversation_id, turn_id or uuid.uuid4().hex)

        def start(history: tuple[Message, ...], slot: TurnObserver) -> TurnHandle:
            return self._dial.start(
                history,
                stream=stream,
                stream_events=stream_events,
                origin=origin,
                observers=(LeaseHeartbeat(self._store, self._lease), TurnPersister(self._store), slot),
                depth=rounds_of_last(history) if message is None else 0,
            )

        return await self._queue.start_next(origin, message, start)
