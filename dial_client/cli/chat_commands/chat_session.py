"""The conversation that a person holds: the client, the stored conversation, and the turns of this run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from dial_client.cli import process_runner
from dial_client.cli.chat_commands.command_screen import CommandScreen
from dial_client.cli.chat_commands.conversation_choice import find_conversation
from dial_client.cli.options import Options
from dial_client.client.dial_client import DialClient
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.errors import ConfigError
from dial_client.events import Event, Finished
from dial_client.messages import Message
from dial_client.settings.configuration import Settings
from dial_client.stores.memory_store import MemoryStore
from dial_client.stores.sql_store import SQLStore
from dial_client.turn_result import Turn


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command leaves to do."""

    message: str | Message | None = None
    """The question to ask; None for none."""
    draft: str | None = None
    """The text to put into the input line; None for none."""
    quit: bool = False
    """The person wants to leave."""


class ChatSession:
    """The conversation at the terminal.

    Args:
        dial: answers the questions.
        manager: stores the conversations.
        options: those of the command line.
        settings: the configuration in use.
        screen: where commands print and ask.
        conversation_id: the stored conversation; None for a new one, which begins with its first question.
    """

    def __init__(
        self,
        dial: DialClient,
        manager: ConversationManager,
        options: Options,
        settings: Settings,
        screen: CommandScreen,
        conversation_id: str | None = None,
    ) -> None:
        self.dial = dial
        self.manager = manager
        self.options = options
        self.settings = settings
        self.screen = screen
        self.conversation_id = conversation_id
        self.turns: list[Turn] = []
        """The turns of this run, the latest last."""

    def print(self, text: str) -> None:
        """Print lines; text of models and servers in it is safe already."""
        self.screen.print(text)

    async def ask(self, question: str | Message) -> AsyncGenerator[Event, None]:
        """Ask a question in the conversation, and yield the events of its turn. Raises as `stream_chat`."""
        # A new one begins with its first question: one that was given up before is not worth going on with.
        self.conversation_id = self.conversation_id or (await self.manager.create()).id
        watch = process_runner.interrupts.watch
        stream = self.manager.stream_chat(self.conversation_id, question, stream=self.options.stream, on_started=watch)
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Finished):
                    self.turns.append(event.turn)
                yield event


@asynccontextmanager
async def open_session(
    options: Options, settings: Settings, dial: DialClient, screen: CommandScreen
) -> AsyncGenerator[ChatSession, None]:
    """Open the conversation that the options name: a new or a stored one.

    Raises:
        ConfigError: there is no conversation to continue.
        ConversationNotFound: there is none with the id of ``--resume``.
    """
    if not options.save and (options.continue_latest or options.resume is not None):
        raise ConfigError("--no-save does not go with --continue or --resume")
    store = SQLStore.sqlite() if options.save else MemoryStore()
    try:
        if isinstance(store, SQLStore):
            await store.warm()  # the servers are starting meanwhile
        manager = ConversationManager(dial, store)
        known = await find_conversation(options, manager, screen)
        yield ChatSession(dial, manager, options, settings, screen, known)
    finally:
        await store.aclose()
