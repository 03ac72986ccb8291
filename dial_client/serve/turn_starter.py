"""Starts the turns of conversations for HTTP requests: those of the page, and those of other front ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request

from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.conversations.turn_input import ConversationInput
from dial_client.durable import DurableTurns
from dial_client.messages.events import StatusChanged
from dial_client.messages.message import Content, Message, ToolSpec
from dial_client.serve.model_api.message_parts import to_text_parts
from dial_client.serve.people.owner_limits import check_model, has_model_limit
from dial_client.serve.security import find_person, select_owned
from dial_client.serve.title_writer import TitleWriter
from dial_client.serve.turns.turn_registry import ServedModel, TurnRegistry
from dial_client.turns.turn_handle import TurnHandle


@dataclass(frozen=True)
class TurnStarter:
    """Starts turns, within the limits of the service and of the person."""

    dial: DialClient
    manager: ConversationManager
    runner: ConversationManager | DurableTurns
    """Starts turns: the manager, or what runs durable turns with it."""
    turns: TurnRegistry
    """The running turns of this process."""
    model: ServedModel
    titles: TitleWriter | None = None
    """Writes titles; None for none."""

    async def attach(self, request: Request, content: Content) -> tuple[Message, Sequence[str]]:
        """Return the user's message, with the resources that its text mentions, and notes about those that failed."""
        mentions = await self.dial.attach(content, owner=find_person(request).name)
        # After the search for mentions: a mention in the text of a file must not attach anything.
        return replace(mentions.message, content=to_text_parts(mentions.message.content)), mentions.notes

    async def start(
        self,
        request: Request,
        conversation_id: str,
        turn_input: ConversationInput,
        *,
        stream: bool = True,
        notes: Sequence[str] = (),
        client_tools: Sequence[ToolSpec] = (),
    ) -> TurnHandle:
        """Start a turn in a conversation of the person of a request.

        Raises:
            DialError: The conversation cannot go on, or there is no model.
            HttpError: The service or the person has too many turns, or may not use the model.
        """
        if not self.dial.model.profiles:
            self.dial.model.require()  # before the question is stored
        await self.check_model(request, conversation_id)
        with self.turns.reserve(find_person(request).name):
            runner = select_owned(self.runner, request)
            turn = await runner.start(conversation_id, turn_input, stream=stream, client_tools=client_tools)
            self.turns.add(turn)
        if self.titles is not None:
            self.titles.watch(self.manager, turn)
        for note in notes:
            turn.announce(StatusChanged(note))
        return turn

    async def check_model(self, request: Request, conversation_id: str) -> None:
        """Check that the person of a request may use the model of a conversation.

        Raises:
            HttpError: The person may not.
        """
        if has_model_limit():
            view = await select_owned(self.manager, request).view(conversation_id)
            check_model(str((view.settings or {}).get("model") or self.model.name))
