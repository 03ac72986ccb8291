"""ConversationManager: talk that goes on over many turns, and of which nothing is lost.

What is stored when:

* the person's message before the model is asked;
* whatever the turn adds as soon as it is whole, before its event is handed on;
* the partial text of a turn that was cancelled or broke off, and an answer to each of its open calls.

What is stored is never rewritten. Where the program was killed between a call and its result, the conversation is given
a result that says so each time it is read (`valid_history`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from weakref import WeakValueDictionary

import anyio

from dial_client.client import DialClient
from dial_client.errors import ConversationNotFound
from dial_client.events import Event, Finished, MessageCompleted
from dial_client.limits import StopReason
from dial_client.logs import get_logger
from dial_client.messages import Failure, Message, Role, ToolCallResult
from dial_client.running import RunningTurn
from dial_client.store import Conversation, ConversationStore, ConversationSummary
from dial_client.turn import Turn

log = get_logger(__name__)

INTERRUPTED = "[interrupted: it is not known whether the tool did its work]"
"""The result of a call whose own was never stored."""


class ConversationManager:
    """Carries on conversations that are kept in a store.

    Turns of one conversation take place one after the other, in the order in which they were asked for; those of
    different conversations run side by side. This holds within one program: two that add to the same conversation at
    the same time lose nothing, but their messages mix.

    Args:
        dial: answers; opened and closed by whoever made it.
        store: keeps; closed by whoever made it.
    """

    def __init__(self, dial: DialClient, store: ConversationStore) -> None:
        self._dial = dial
        self._store = store
        # A place is kept by the turns that use it, and goes with the last of them.
        self._places: WeakValueDictionary[str, _Place] = WeakValueDictionary()

    async def create(self, title: str | None = None) -> Conversation:
        """Begin a conversation; without a title it gets one from the first words that are said."""
        return await self._store.create(title or "")

    async def get(self, conversation_id: str) -> Conversation:
        """Give a conversation; its messages are a valid history (`valid_history`).

        Raises:
            ConversationNotFound: there is none with this id.
        """
        conversation = await self._store.get(conversation_id)
        return replace(conversation, messages=valid_history(conversation.messages))

    async def list(self, limit: int = 50) -> tuple[ConversationSummary, ...]:
        """Give at most `limit` conversations, first the one that changed last."""
        return await self._store.list(limit)

    async def delete(self, conversation_id: str) -> None:
        """Forget a conversation. A turn of it that is running is cancelled, and nothing more of it is stored.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        await self._store.delete(conversation_id)
        place = self._places.get(conversation_id)
        if place is not None and place.running is not None:
            place.running.cancel()

    async def chat(self, conversation_id: str, text: str) -> Turn:
        """Say something in a conversation, and wait for the answer. Raises as `stream_chat`."""
        turn: Turn | None = None
        async with aclosing(self.stream_chat(conversation_id, text, stream=False)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    turn = event.turn
        assert turn is not None
        return turn

    async def stream_chat(
        self,
        conversation_id: str,
        text: str,
        *,
        stream: bool = True,
        on_started: Callable[[RunningTurn], None] | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Say something in a conversation, and give what happens, `Finished` last.

        Leaving early cancels the turn, and what was said until then is stored; use `contextlib.aclosing`, so that this
        happens at once. Until it is left or read to its end, no other turn of the conversation begins.

        Args:
            conversation_id: which conversation.
            text: what the person says.
            stream: ask the model for its reply in pieces.
            on_started: is given the turn once it runs: its `RunningTurn.cancel` stops it from anywhere, and the events
                go on to a `Finished` whose turn says ``cancelled``.

        Raises:
            ConversationNotFound: there is none with this id.
            ProviderError: the model could not be reached or refused; what was said until then is stored.
            LimitReached: a limit was met and ``on_limit="raise"`` was asked for.
            DialError: the store failed; the turn is cancelled.
        """
        place = self._places.setdefault(conversation_id, _Place())
        async with place.free:
            await self._store.append(conversation_id, [Message.user(text)], title=text)
            history = (await self.get(conversation_id)).messages
            place.running = running = self._dial.start(history, stream=stream)
            keeper = _Keeper(self._store, conversation_id, running)
            try:
                if on_started is not None:
                    on_started(running)
                async with aclosing(running.events()) as events:
                    async for event in events:
                        if isinstance(event, MessageCompleted | Finished):
                            await keeper.keep()
                        yield event
            finally:
                place.running = None
                await running.stopped()
                await keeper.keep()


class _Place:
    """Where the turns of one conversation wait for each other."""

    def __init__(self) -> None:
        # Not a lock: a generator may be closed by another task than the one that read it.
        self.free = anyio.Semaphore(1)
        self.running: RunningTurn | None = None


class _Keeper:
    """Stores what a turn adds, each message once, in order."""

    def __init__(self, store: ConversationStore, conversation_id: str, running: RunningTurn) -> None:
        self._store = store
        self._conversation_id = conversation_id
        self._running = running
        self._kept = 0

    async def keep(self) -> None:
        """Store what the turn has added and is not stored yet.

        It is taken from the turn and not from its events: of those a turn that is cancelled may drop some.
        """
        added = self._running.recorder.turn(StopReason.CANCELLED).messages[self._kept :]
        if not added:
            return
        with anyio.CancelScope(shield=True):
            try:
                await self._store.append(self._conversation_id, added)
            except ConversationNotFound:
                log.debug("conversation_deleted_while_running", messages=len(added))
                self._running.cancel()
            self._kept += len(added)


def valid_history(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Give the messages with one result for each call, right behind the message that asks for it.

    A call without a result (the program was killed before it came) is answered with `INTERRUPTED`. A result that comes
    late (another program said something in between) is moved to its call; one without a call is left out.
    """
    history: list[Message] = []
    unanswered: dict[str | None, int] = {}
    for message in messages:
        if message.role is not Role.TOOL:
            history.append(message)
        elif (at := unanswered.pop(message.tool_call_id, None)) is not None:
            history[at] = message
        for call in message.tool_calls:
            unanswered[call.id] = len(history)
            history.append(Message.tool(call, ToolCallResult.failed(call.id, Failure.NOT_RUN, INTERRUPTED)))
    return tuple(history)
