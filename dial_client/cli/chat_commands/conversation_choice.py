"""The stored conversation that a person means: the latest one, one by its id, or one from a list."""

from __future__ import annotations

from dial_client.cli.bootstrap import warn
from dial_client.cli.chat_commands.command_screen import CommandScreen
from dial_client.cli.options import Options
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.errors import ConfigError
from dial_client.stores.conversation_store import Conversation, ConversationSummary


async def find_conversation(options: Options, manager: ConversationManager, screen: CommandScreen) -> str | None:
    """Return the id of the conversation that the options name; None for a new one.

    Raises:
        ConfigError: there is no conversation to continue.
        ConversationNotFound: there is none with this id.
    """
    del screen  # asked once there is a list to choose from
    known: Conversation | ConversationSummary | None = None
    if options.resume:
        known = await manager.get(options.resume)
    elif options.continue_latest:
        known = next(iter(await manager.list(limit=1)), None)
        if known is None:
            raise ConfigError("there is no conversation to continue")
    if known is not None and known.running:
        warn("a turn of this conversation is running, or its program was just killed: waiting for it")
    return None if known is None else known.id
