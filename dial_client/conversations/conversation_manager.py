"""ConversationManager: talk that goes on over many turns, and of which nothing is lost.

    manager = ConversationManager(dial, store, when_busy="wait")   "refuse": a second request raises ConversationBusy
    await manager.create(title)                      -> Conversation
    await manager.chat(id, text)                     -> Turn
    async for event in manager.stream_chat(id, text) events, Finished last; leaving early cancels the turn
    await manager.start(id, text)                    -> LiveTurn, which goes on whether anybody reads it or not
    await manager.carry_on(id)                       -> LiveTurn | None: goes on with a turn whose program was killed
    manager.live(id, turn)                           -> LiveTurn | None: one that runs in this process, or just ended
    async for at, event in live.events(after=n)      from any position, for any number of readers; leaving is free
    await manager.get(id)                            -> Conversation: messages (a valid history), running, notes
    await manager.list(20, cursor=…, search="words") -> Page: a tuple of ConversationSummary, and .cursor of the next
    await manager.rename(id, title), .delete(id), .fork(id, at)
    await manager.export(id, "json" | "markdown")    -> str
    await manager.import_json(text)                  -> Conversation

What is stored when:

* the person's message before the model is asked;
* whatever the turn adds as soon as it is whole, before its event is handed on, by the turn itself (`persistence`);
* the partial text of a turn that was cancelled or broke off, and an answer to each of its open calls.

What is stored is never rewritten. Where the program was killed, the conversation has what was unfinished a second ago:
text is marked as cut off, and a call without a result says that it may have run (`histories`).

**Several processes.** A turn holds its conversation in the store (`store`): turns of one conversation take place one
after the other, whoever asks for them. A turn's events are in the process that runs it; another one sees
`Conversation.running`, the turn's id (`Conversation.turn`), and every message as it is stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Literal
from weakref import WeakValueDictionary

import anyio

from dial_client.client import DialClient
from dial_client.conversations import export
from dial_client.conversations.history import (
    as_it_stands,
    is_answered,
    missing,
    rounds_of_last,
    valid_history,
    without_words,
)
from dial_client.conversations.live_turn import LiveTurn
from dial_client.errors import ConfigError, ConversationBusy
from dial_client.events import Event
from dial_client.messages import Message, Role
from dial_client.stores.conversation_store import Conversation, ConversationStore, Page
from dial_client.turn_result import Turn
from dial_client.turns.turn_handle import TurnHandle

WhenBusy = Literal["wait", "refuse"]

PATIENCE = 150.0
"""Seconds a request waits for the turn before it: longer than a turn takes by default."""

LEASE = 10.0
"""Seconds after which the turn of a program that was killed holds its conversation no longer."""

_LOOK_AGAIN = 0.25
"""Seconds until it is looked again whether another program's turn is over."""

_ENDED = 32
"""Turns that can still be read after their end."""


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
    """

    def __init__(
        self,
        dial: DialClient,
        store: ConversationStore,
        *,
        when_busy: WhenBusy = "wait",
        patience: float = PATIENCE,
        lease: float = LEASE,
    ) -> None:
        if when_busy not in ("wait", "refuse"):
            raise ConfigError(f"unknown when_busy {when_busy!r}", hint='expected "wait" or "refuse"')
        self._dial = dial
        self._store = store
        self._patience = patience if when_busy == "wait" else 0.0
        self._lease = lease
        # A place is kept by the turns that use it, and goes with the last of them.
        self._places: WeakValueDictionary[str, _Place] = WeakValueDictionary()
        self._ended: OrderedDict[str, LiveTurn] = OrderedDict()
        self.is_owed: Callable[[Conversation], Awaitable[bool]] = nobody_waits
        """Whether its latest turn, which nobody runs, will be gone on with: until then it counts as running."""

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
        self._ended.pop(conversation_id, None)
        place = self._places.get(conversation_id)
        if place is not None and place.turn is not None:
            place.turn.cancel()

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
        live = await self._start(conversation_id, said, stream=False, watched=False)
        try:
            return await live.result()
        finally:
            await live.running.stopped()

    async def stream_chat(
        self,
        conversation_id: str,
        said: str | Message,
        *,
        stream: bool = True,
        on_started: Callable[[TurnHandle], None] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Say something in a conversation, and give what happens, `Finished` last.

        Leaving early cancels the turn, and what was said until then is stored; use `contextlib.aclosing`, so that this
        happens at once. The turn waits for a reader that is slow; `start` has one that does not.

        Args:
            conversation_id: which conversation.
            said: what the person says; a `Message` of the person's where it is more than text.
            stream: ask the model for its reply in pieces.
            on_started: is given the turn once it runs: its `TurnHandle.cancel` stops it from anywhere, and the events
                go on to a `Finished` whose turn says ``cancelled``.

        Raises:
            ConversationNotFound: there is none with this id.
            ConversationBusy: another turn of it is under way, and ``when_busy="refuse"`` or it took too long.
            ProviderError: the model could not be reached or refused; what was said until then is stored.
            LimitReached: a limit was met and ``on_limit="raise"`` was asked for.
            DialError: the store failed; the turn is over.
        """
        live = await self._start(conversation_id, said, stream=stream, watched=True)
        try:
            if on_started is not None:
                on_started(live.running)
            async with aclosing(live.running.events()) as events:
                async for event in events:
                    yield event
        finally:
            await live.running.stopped()

    async def start(
        self, conversation_id: str, said: str | Message, *, stream: bool = True, turn: str | None = None
    ) -> LiveTurn:
        """Say something in a conversation, and give the turn that answers, which needs no reader.

        It ends by itself, by `LiveTurn.cancel`, or with the client. Raises as `stream_chat`, up to where the model is
        asked; what comes later is raised by `LiveTurn.events` and `LiveTurn.result`.

        Args:
            conversation_id: which conversation.
            said: what the person says.
            stream: ask the model for its reply in pieces.
            turn: the turn's id, of printable ASCII and unlike that of any other; by default one is made.
        """
        return await self._start(conversation_id, said, stream=stream, watched=False, turn=turn)

    async def carry_on(self, conversation_id: str, *, stream: bool = True, turn: str | None = None) -> LiveTurn | None:
        """Go on with a turn whose program was killed, from what is stored of it; None where the last one ended well.

        What it had finished is not done again, and counts against `Limits.max_depth`; other limits begin anew. Of calls
        that were under way the model is told that they may have run.
        Arguments and errors are those of `start`.
        """
        try:
            return await self._start(conversation_id, None, stream=stream, watched=False, turn=turn)
        except _NothingLeft:
            return None

    def live(self, conversation_id: str, turn: str | None = None) -> LiveTurn | None:
        """Give the turn that is under way in this process, or the last one if it ended not long ago.

        Args:
            conversation_id: which conversation.
            turn: the id of the turn that is meant; None for whichever it is.
        """
        place = self._places.get(conversation_id)
        found = (place.turn if place is not None else None, self._ended.get(conversation_id))
        return next((one for one in found if one is not None and turn in (None, one.id)), None)

    async def _start(
        self,
        conversation_id: str,
        said: str | Message | None,
        *,
        stream: bool,
        watched: bool,
        turn: str | None = None,
    ) -> LiveTurn:
        """Begin a turn; without words, one that goes on with what was left unfinished."""
        message = Message.user(said) if isinstance(said, str) else said
        until = anyio.current_time() + self._patience
        place = self._places.setdefault(conversation_id, _Place())
        live = LiveTurn(self._store, conversation_id, self._lease, lambda: self._end(place, conversation_id), turn)
        while True:
            if not await place.taken(until):
                raise _busy(conversation_id)
            try:
                history = await self._begun(live, message, until)
                break
            except _Owed:
                place.free.release()  # whoever goes on with that turn needs it
            except BaseException:
                place.free.release()
                raise
            await anyio.sleep(_LOOK_AGAIN)
        place.turn = live
        try:
            depth = 0 if message is not None else rounds_of_last(history)
            live.begun(self._dial.start(history, stream=stream, watched=watched, witness=live, depth=depth))
        except Exception:
            place.turn = None
            place.free.release()
            await self._store.end(conversation_id, live.id)
            raise
        return live

    async def _begun(self, live: LiveTurn, message: Message | None, until: float) -> tuple[Message, ...]:
        """Store the message, and give the history that ends with it, once no other program's turn is in the way.

        Raises:
            _Owed: another turn has to be gone on with first.
        """
        while True:
            stored = await self._store.get(live.conversation_id)
            added = await self._left_over(stored) if message is None else (*missing(stored), message)
            is_owed = message is not None and bool(stored.turn) and not stored.running and await self.is_owed(stored)
            if stored.running or is_owed:
                if anyio.current_time() >= until:
                    raise _busy(live.conversation_id)
                if is_owed:
                    raise _Owed
                await anyio.sleep(_LOOK_AGAIN)
            elif await self._store.begin(
                live.conversation_id,
                live.id,
                added,
                behind=stored.message_count,
                seconds=self._lease,
                title=message.text if message is not None else "",
            ):
                return valid_history((*stored.messages, *added))

    async def _left_over(self, stored: Conversation) -> tuple[Message, ...]:
        """Give what has to be stored before a turn can be gone on with.

        Raises:
            _NothingLeft: it has come to its end.
        """
        if stored.turn and not stored.running and is_answered(stored.messages):
            await self._store.end(stored.id, stored.turn)
        elif stored.turn:
            return missing(without_words(stored))
        raise _NothingLeft

    def _end(self, place: _Place, conversation_id: str) -> None:
        live, place.turn = place.turn, None
        if live is not None:
            self._ended[conversation_id] = live
            self._ended.move_to_end(conversation_id)
            if len(self._ended) > _ENDED:
                self._ended.popitem(last=False)
        place.free.release()


async def nobody_waits(stored: Conversation) -> bool:  # noqa: ARG001 - see `ConversationManager.is_owed`
    """Say that no turn is gone on with: whose program is killed is at its end."""
    return False


class _NothingLeft(Exception):
    """There is no turn to go on with. Never leaves the module."""


class _Owed(Exception):
    """A turn that nobody runs is before this one. Never leaves the module."""


class _Place:
    """Where the turns of one conversation wait for each other."""

    def __init__(self) -> None:
        # Not a lock: a turn ends in another task than the one that asked for it.
        self.free = anyio.Semaphore(1)
        self.turn: LiveTurn | None = None

    async def taken(self, until: float) -> bool:
        """Wait until no other turn of this process is before this one; False where it takes too long."""
        try:
            self.free.acquire_nowait()
        except anyio.WouldBlock:
            with anyio.move_on_after(until - anyio.current_time()) as scope:
                await self.free.acquire()
            return not scope.cancelled_caught
        return True


def _busy(conversation_id: str) -> ConversationBusy:
    return ConversationBusy(f"another turn of the conversation {conversation_id!r} is under way")
