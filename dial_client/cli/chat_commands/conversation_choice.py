"""Finds the stored conversation that the user means: the latest, by id, by words in it, or chosen from a list."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dial_client.cli import tty
from dial_client.cli.bootstrap import warn
from dial_client.cli.chat_commands.choice import MAX_FOUND, Choice
from dial_client.cli.chat_commands.command_screen import CommandScreen
from dial_client.cli.chat_commands.pick import pick
from dial_client.cli.options import Options
from dial_client.conversations.conversation_manager import ConversationManager
from dial_client.messages.errors import ConfigError, ConversationNotFound
from dial_client.runtime.safe_text import to_one_line
from dial_client.stores.conversation_store import ConversationSummary

_PAGE = 200
_HINT = "`dial-chat conversations` lists them"


async def find_conversation(options: Options, manager: ConversationManager, screen: CommandScreen) -> str | None:
    """Return the id of the conversation that the options name; None for a new conversation.

    Raises:
        ConfigError: There is no conversation to continue, or several match.
        ConversationNotFound: There is no such conversation.
    """
    if options.resume is not None:
        known = await resolve(options.resume, manager, screen)
        if known is None:
            raise ConfigError("no conversation was chosen", hint=_HINT)
    elif options.continue_latest:
        latest = next(iter(await manager.list(limit=1)), None)
        if latest is None:
            raise ConfigError("there is no conversation to continue")
        known = latest.id
    else:
        return None
    if (await manager.get(known)).running:
        warn("a turn of this conversation is running, or its program was just killed: waiting for it")
    return known


async def resolve(text: str, manager: ConversationManager, screen: CommandScreen) -> str | None:
    """Return the id of the conversation that a text names by its id, the beginning of its id, or words in it.

    If several conversations match, or the text is empty, the user chooses; None if they choose none.

    Raises:
        ConfigError: Several conversations match, and there is no terminal to ask at.
        ConversationNotFound: No conversation matches.
    """
    text = text.strip()
    if text:
        exact = [summary.id for summary in await _list_all(manager) if summary.id.startswith(text.lower())]
        if text in exact or len(exact) == 1:
            return text if text in exact else exact[0]
        found = exact or [summary.id for summary in await manager.list(2, search=text)]
        if not found:
            raise ConversationNotFound(text, f"there is no conversation {to_one_line(text, 60)!r} ({_HINT})")
        if len(found) == 1:
            return found[0]
    if not tty.can_ask_user():
        problem = f"{to_one_line(text, 60)!r} matches several conversations" if text else "which conversation?"
        raise ConfigError(problem, hint=f"give more of its id; {_HINT}")
    search = partial(_search, manager)
    return await pick(screen, "Conversation", search, nothing="No conversation is stored yet.", words=text)


async def _list_all(manager: ConversationManager) -> Sequence[ConversationSummary]:
    page = await manager.list(_PAGE)
    found = list(page)
    while page.cursor is not None:
        page = await manager.list(_PAGE, cursor=page.cursor)
        found += page
    return found


async def _search(manager: ConversationManager, words: str) -> list[Choice]:
    found: list[ConversationSummary] = list(await manager.list(MAX_FOUND, search=words))
    if words and not found:
        found = [summary for summary in await _list_all(manager) if summary.id.startswith(words.lower())]
    return [Choice(summary.id, describe(summary)) for summary in found]


def describe(summary: ConversationSummary) -> str:
    """Return a conversation in one line: the beginning of its id, its time, its title."""
    title = to_one_line(summary.title, 60) or "(no title)"
    return f"{summary.id[:8]}  {summary.updated_at.astimezone():%Y-%m-%d %H:%M}  {title}"
