"""Lists of stored conversations: those of a folder, each in one line, and the conversation that an id or words name.

The metadata of a conversation name the folder, the model and the kind of its last question. A conversation that a
single question of the command line began is a one-shot, until it is continued in a conversation at the terminal.
Conversations of other programs, and those that earlier releases stored, have no such metadata.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dial_client.cli.streams import tty
from dial_client.cli.terminal.banner import shorten_path
from dial_client.cli.terminal.command_screen import MAX_FOUND, Choice, CommandScreen, pick
from dial_client.messages.errors import ConfigError, ConversationNotFound
from dial_client.runtime.safe_text import to_one_line
from dial_client.stores.conversation_store import ConversationStore, ConversationSummary, Page, build_page

# The keys of the metadata.
FOLDER, MODEL, ONE_SHOT = "folder", "model", "one_shot"

# The word that asks for the conversations of all folders, and for one-shots.
ALL = "--all"

HINT = "`dial-chat conversations --all` lists them"

# The most characters of a title in a list, so that a row of 100 columns has the model and the folder too.
MAX_TITLE = 44
# The number of conversations that are read at once.
_PAGE = 200
# The fewest characters of the beginning of an id.
_MIN_BEGINNING = 4


def build_metadata(stored: Mapping[str, Any], model: str, *, is_one_shot: bool) -> dict[str, Any]:
    """Return the metadata that a question changes which is asked now; with None those that it removes.

    Args:
        stored: The metadata so far; empty for a new conversation.
        model: The name of the model that answers.
        is_one_shot: Whether the question is a single one of the command line.
    """
    described: dict[str, Any] = {FOLDER: str(Path.cwd()), MODEL: model}
    if is_one_shot and (not stored or stored.get(ONE_SHOT)):
        return described | {ONE_SHOT: True}
    return described | ({ONE_SHOT: None} if ONE_SHOT in stored else {})


@dataclass(frozen=True, slots=True)
class Scope:
    """The conversations that are listed."""

    folder: str | None
    """The folder of the conversations; None for all folders."""
    has_one_shots: bool

    @classmethod
    def of_folder(cls, *, has_one_shots: bool = False) -> Scope:
        """Return the conversations of the current folder."""
        return cls(str(Path.cwd()), has_one_shots)

    def contains(self, summary: ConversationSummary) -> bool:
        """Return True if a conversation is listed."""
        metadata = summary.metadata
        return self.folder in (None, metadata.get(FOLDER)) and (self.has_one_shots or not metadata.get(ONE_SHOT))


EVERYTHING = Scope(None, has_one_shots=True)


async def list_conversations(
    store: ConversationStore, scope: Scope, limit: int, *, cursor: str | None = None, search: str = ""
) -> Page:
    """Return a page of the conversations in a scope; the other arguments are those of `ConversationStore.list`."""
    found = await _collect(store, scope.contains, limit + 1, cursor, search)
    return build_page(found[: limit + 1], limit)


async def _collect(
    store: ConversationStore,
    is_wanted: Callable[[ConversationSummary], bool],
    count: int = sys.maxsize,
    cursor: str | None = None,
    search: str = "",
) -> list[ConversationSummary]:
    """Return at least `count` conversations, or all, for which `is_wanted` returns True."""
    found: list[ConversationSummary] = []
    while True:
        page = await store.list(_PAGE, cursor=cursor, search=search)
        found += filter(is_wanted, page)
        cursor = page.cursor
        if cursor is None or len(found) >= count:
            return found


async def find_ids(store: ConversationStore, beginning: str) -> list[str]:
    """Return the ids that begin with a text; if a conversation has this id, only this one."""
    beginnings = (beginning, beginning.lower())
    found = [summary.id for summary in await _collect(store, lambda summary: summary.id.startswith(beginnings))]
    return [beginning] if beginning in found else found


async def find_id(store: ConversationStore, beginning: str) -> str:
    """Return the only id that begins with a text.

    Raises:
        ConfigError: Several ids begin with the text, or it is too short.
        ConversationNotFound: No id begins with the text.
    """
    found = await find_ids(store, beginning)
    if not found:
        raise build_not_found(beginning)
    if len(found) > 1:
        shown = ", ".join(to_one_line(id_, 40) for id_ in found[:5])
        raise ConfigError(f"{to_one_line(beginning, 60)!r} is the beginning of several ids", hint=shown)
    if len(beginning) < min(_MIN_BEGINNING, len(found[0])):
        raise ConfigError(f"the beginning of an id has at least {_MIN_BEGINNING} characters", hint=found[0])
    return found[0]


def build_not_found(text: str) -> ConversationNotFound:
    """Return the error for a text that names no conversation."""
    return ConversationNotFound(text, f"there is no conversation {to_one_line(text, 60)!r} ({HINT})")


async def resolve(
    text: str, store: ConversationStore, screen: CommandScreen, *, is_everywhere: bool = False
) -> str | None:
    """Return the id of the conversation that a text names by its id, the beginning of its id, or words in it.

    If several conversations match, or the text is empty, the user chooses; None if they choose none. An id may be of
    any folder. Conversations of this folder come before those of other folders; `is_everywhere` lists all at once.

    Raises:
        ConfigError: Several conversations match, and there is no terminal to ask at.
        ConversationNotFound: No conversation matches.
    """
    text = text.strip()
    scope = EVERYTHING if is_everywhere else Scope.of_folder()
    if text:
        found = await find_ids(store, text) or await _find_by_words(store, scope, text)
        if not found:
            raise build_not_found(text)
        if len(found) == 1:
            return found[0]
    if not tty.can_ask_user():
        problem = f"{to_one_line(text, 60)!r} matches several conversations" if text else "no conversation is named"
        raise ConfigError(problem, hint=f"give more of its id; {HINT}")
    return await _choose(text, store, screen, scope)


async def _find_by_words(store: ConversationStore, scope: Scope, words: str) -> list[str]:
    """Return the ids of up to two conversations with these words, of other folders only if there are none here."""
    found = await list_conversations(store, scope, 2, search=words)
    return [summary.id for summary in found or await list_conversations(store, EVERYTHING, 2, search=words)]


async def _choose(text: str, store: ConversationStore, screen: CommandScreen, scope: Scope) -> str | None:
    unlisted = await _collect(store, lambda summary: not scope.contains(summary), 1)
    more = [Choice(ALL, "… conversations of all folders, and single questions")] if unlisted else []

    async def search(words: str) -> list[Choice]:
        found: Sequence[ConversationSummary] = await list_conversations(store, scope, MAX_FOUND, search=words)
        if words and not found:
            found = await list_conversations(store, EVERYTHING, MAX_FOUND, search=words)
        if words and not found:
            found = await _collect(store, lambda summary: summary.id.startswith(words.lower()), MAX_FOUND)
        return [*(Choice(summary.id, describe(summary)) for summary in found), *more]

    chosen = await pick(screen, "Conversation", search, nothing="No conversation is stored yet.", words=text)
    return await _choose(text, store, screen, EVERYTHING) if chosen == ALL else chosen


def describe(summary: ConversationSummary) -> str:
    """Return a conversation in one line: id, age, number of messages, title, model, and folder if it is another one."""
    metadata = summary.metadata
    folder = metadata.get(FOLDER)
    shown_folder = "" if folder in (None, str(Path.cwd())) else shorten_path(str(folder), str(Path.home()))
    kind = "single question" if metadata.get(ONE_SHOT) else ""
    details = (to_one_line(str(text), 100) for text in (metadata.get(MODEL), shown_folder, kind) if text)
    columns = f"{shorten_id(summary.id):<8}  {_format_age(summary.updated_at):>6}  {summary.message_count:>3} msg"
    return f"{columns}  {' · '.join([to_one_line(summary.title, MAX_TITLE) or '(no title)', *details])}"


def shorten_id(id_: str) -> str:
    """Return the beginning of a random id, which is as good as unique; an id that a program has chosen is whole."""
    return id_[:8] if re.fullmatch("[0-9a-f]{32}", id_) else to_one_line(id_, 40)


def _format_age(moment: datetime) -> str:
    age = datetime.now(UTC) - moment
    if age < timedelta(minutes=1):
        return "now"
    if age < timedelta(hours=1):
        return f"{age // timedelta(minutes=1)} min"
    if age < timedelta(days=2):
        return f"{age // timedelta(hours=1)} h"
    return f"{age.days} d"
