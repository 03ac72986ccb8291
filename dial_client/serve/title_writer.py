"""Lets a model write the titles of conversations, after their first answers."""

from __future__ import annotations

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.conversations.conversation_title import write_title
from dial_client.messages.errors import DialError
from dial_client.messages.message import Message, Role, extract_text
from dial_client.messages.model import Provider
from dial_client.runtime.logs import get_logger
from dial_client.stores.conversation_store import build_title
from dial_client.turns.turn_handle import TurnHandle

log = get_logger(__name__)

# A turn, with the manager that runs it.
_Ending = tuple[ConversationManager, TurnHandle]
# Turns whose titles wait; further conversations keep the beginnings of their first messages as titles.
_MAX_WAITING = 100
# The name, in the metadata of a conversation, of what its title has used.
TITLE_USAGE = "title"


class TitleWriter:
    """Writes titles in the background.

    A conversation that has chosen a model has its title written by that model: its messages are sent to no other.

    Args:
        dial: The client, which has the models.
        model: The model of conversations that choose none: the name of a profile, or a provider.
    """

    def __init__(self, dial: DialClient, model: str | Provider) -> None:
        self._dial = dial
        self._model = model
        # Where `run` receives turns; None while it does not run.
        self._send: MemoryObjectSendStream[_Ending] | None = None

    def watch(self, manager: ConversationManager, turn: TurnHandle) -> None:
        """Write the title of a turn's conversation when the turn has ended, if it is the first one."""
        if self._send is None:
            return
        try:
            self._send.send_nowait((manager, turn))
        except anyio.WouldBlock:
            log.debug("title_skipped")

    async def run(self) -> None:
        """Write titles until cancelled."""
        self._send, received = anyio.create_memory_object_stream[_Ending](_MAX_WAITING)
        with self._send, received:
            try:
                async with anyio.create_task_group() as group:
                    async for manager, turn in received:
                        group.start_soon(self._write, manager, turn)
            finally:
                self._send = None

    async def _write(self, manager: ConversationManager, turn: TurnHandle) -> None:
        try:
            await turn.result()
            await self._write_for(manager, turn.conversation_id)
        except DialError as error:  # the title stays as it is
            log.debug("title_not_written", error=type(error).__name__)

    async def _write_for(self, manager: ConversationManager, conversation_id: str) -> None:
        view = await manager.view(conversation_id)
        conversation = view.conversation
        questions = [entry for entry in conversation.messages if entry.role is Role.USER and not entry.steers]
        answer = _find_answer(conversation.messages)
        if len(questions) != 1 or not answer:
            return
        question = extract_text(questions[0].content)
        automatic = build_title(question)
        model = self._dial.model.select((view.settings or {}).get("model") or self._model)
        written = await write_title(model, question, answer)
        # The person may have given a title meanwhile.
        stored = await manager.get(conversation_id)
        if stored.title not in ("", automatic):
            return
        usage = {**written.usage.to_dict(), **({} if written.cost_usd is None else {"cost_usd": written.cost_usd})}
        await manager.update(conversation_id, metadata_changes={TITLE_USAGE: usage})
        await manager.rename(conversation_id, written.text)


def _find_answer(messages: tuple[Message, ...]) -> str:
    last = messages[-1] if messages else None
    return extract_text(last.content) if last is not None and last.role is Role.ASSISTANT else ""
