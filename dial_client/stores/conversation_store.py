"""The protocol of stores of conversations, and their data.

A message is appended and never rewritten. Messages that are appended together are stored together or not at all. A
store keeps all fields of a message, as `Message.to_dict` has them: versions of messages, settings and details of turns
are messages with an `entry`, which are computed from in `conversations.message_tree`.

A turn holds its conversation by a lease while it runs: `ConversationStore.begin` takes the lease, `renew` extends it,
`end` releases it. If the program of the turn is killed, the lease expires, and the next turn may begin. This holds
among all programs that use the store.
"""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, Self

from dial_client.errors import ConfigError, ConversationNotFound
from dial_client.messages.message import Message

MAX_TITLE = 60
"""Characters of the longest title."""

MAX_SEARCH_WORDS = 8
"""Words of a search that are used; more are ignored."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with its messages."""

    id: str
    title: str
    """Its first words in one line, or the name it was given; empty before the first message."""
    created_at: datetime
    """In UTC."""
    updated_at: datetime
    """In UTC: when the last message was added."""
    messages: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()
    """Problems with the stored conversation, a sentence each: messages that cannot be read and are left out."""
    running: bool = False
    """A turn is under way, in this program or in another."""
    turn: str = ""
    """The id of the turn that is under way, or was when its program was killed; empty where the last one ended well."""
    unfinished: tuple[Message, ...] = ()
    """The unfinished part of that turn at its last heartbeat: the results of a round that was not over, and the text so
    far."""
    message_count: int = 0
    """The number of stored messages, those that cannot be read and `Message.entry` included."""
    unreadable: tuple[int, ...] = ()
    """The positions of the stored messages that cannot be read, and are not among `messages`."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation without its messages."""

    id: str
    title: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    """Stored messages of all versions, without `Message.entry`."""
    running: bool = False
    """A turn is under way, in this program or in another."""


class Page(tuple[ConversationSummary, ...]):
    """A part of a list of conversations."""

    cursor: str | None
    """The cursor of the next page; None for the last page."""

    def __new__(cls, found: Iterable[ConversationSummary] = (), cursor: str | None = None) -> Self:
        """Return a page of these conversations."""
        page = super().__new__(cls, found)
        page.cursor = cursor
        return page


class ConversationStore(Protocol):
    """Stores conversations. A change once begun is finished, even if its caller is cancelled; every wait has an end.

    All methods may also raise `ConfigError` if the store cannot be used (the file is no database, the folder cannot be
    written), and `DialError` if an operation failed (locked for too long, disk full).
    """

    async def create(self, title: str = "", messages: Sequence[Message] = ()) -> Conversation:
        """Create a conversation, and return it.

        Args:
            title: is shortened to one line of at most `MAX_TITLE` characters.
            messages: its first messages.
        """
        ...

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, title: str = "", turn: str | None = None
    ) -> None:
        """Append messages, all or none. A conversation without a title gets `title`.

        Args:
            conversation_id: the conversation.
            messages: the messages.
            title: the title, if the conversation has none.
            turn: the id of the turn that appends, which must still hold the conversation; None for no turn.

        Raises:
            ConversationNotFound: there is no such conversation.
            ConversationBusy: another turn holds the conversation by now.
        """
        ...

    async def begin(
        self,
        conversation_id: str,
        turn: str,
        messages: Sequence[Message],
        *,
        expected_count: int,
        lease: float,
        title: str,
    ) -> bool:
        """Reserve a conversation for a turn and append its first messages; False if that is not possible now.

        It is not possible while another turn holds the conversation, and if messages were added since it was read.

        Args:
            conversation_id: the conversation.
            turn: the turn's id, of printable ASCII.
            messages: the messages; the unfinished part of an earlier turn is deleted.
            expected_count: `Conversation.message_count` as it was read.
            lease: seconds for which the turn holds the conversation, unless it renews the lease.
            title: the title, if the conversation has none.

        Raises:
            ConversationNotFound: there is no such conversation.
        """
        ...

    async def renew(
        self, conversation_id: str, turn: str, lease: float, unfinished: Sequence[Message] | None = None
    ) -> bool:
        """Set the lease to expire in `lease` seconds, and store the unfinished part of the turn, unless it is None.

        Args:
            conversation_id: the conversation.
            turn: the id of the turn.
            lease: seconds from now.
            unfinished: what the turn has said and done since the last message that was appended.

        Returns:
            False if the turn does not hold the conversation any more, or it was deleted: nothing is stored then.
        """
        ...

    async def end(self, conversation_id: str, turn: str, messages: Sequence[Message] = ()) -> None:
        """Append a turn's last messages and release the conversation. Does nothing if it was deleted.

        Args:
            conversation_id: the conversation.
            turn: the id of the turn, which must hold the conversation.
            messages: the messages that are not appended yet.

        Raises:
            ConversationBusy: another turn holds the conversation by now; nothing is appended.
        """
        ...

    async def get(self, conversation_id: str) -> Conversation:
        """Return a conversation with its messages as they were appended.

        Raises:
            ConversationNotFound: there is no such conversation.
        """
        ...

    async def list(self, limit: int = 50, *, cursor: str | None = None, search: str = "") -> Page:
        """Return at most `limit` conversations, the latest change first.

        Args:
            limit: at least 1.
            cursor: `Page.cursor` of the page before; None for the first page.
            search: words, each of which occurs in the title or in a message of the user or the model; in any case.

        Raises:
            ConfigError: the cursor is invalid.
        """
        ...

    async def latest(self) -> ConversationSummary | None:
        """Return the conversation that changed last; None if the store is empty."""
        ...

    async def rename(self, conversation_id: str, title: str) -> None:
        """Change the title of a conversation, but not its place in the list.

        Raises:
            ConversationNotFound: there is no such conversation.
        """
        ...

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation and its messages.

        Raises:
            ConversationNotFound: there is no such conversation.
        """
        ...

    async def aclose(self) -> None:
        """Close files and connections; may be called twice."""
        ...


def title_from(text: str, limit: int = MAX_TITLE) -> str:
    """Return the first words of a text, in one line of at most `limit` characters, without control characters."""
    # No title needs more than the beginning, and a text may be a whole file.
    words = " ".join(text[: 50 * limit].split())
    line = " ".join("".join(char for char in words if not unicodedata.category(char).startswith("C")).split())
    if len(line) <= limit:
        return line
    head, space, _ = line[:limit].rpartition(" ")
    return f"{head if space and len(head) > limit // 2 else line[: limit - 1]}…"


def not_found_error(conversation_id: str) -> ConversationNotFound:
    """Return the error for an unknown id."""
    return ConversationNotFound(conversation_id)


def to_sortable_time(moment: datetime) -> str:
    """Return a time in UTC as text that sorts by time."""
    return moment.isoformat(timespec="microseconds")


def build_page(found: Sequence[ConversationSummary], limit: int) -> Page:
    """Return the page of a query that asked for one row more than the page has."""
    if len(found) <= limit:
        return Page(found)
    last = found[limit - 1]
    key = f"{to_sortable_time(last.updated_at)} {last.id}"
    return Page(found[:limit], base64.urlsafe_b64encode(key.encode()).decode())


def parse_cursor(cursor: str) -> tuple[str, str]:
    """Return time and id of the last conversation of the page before.

    Raises:
        ConfigError: the cursor is invalid.
    """
    try:
        time, id_ = base64.b64decode(cursor, altchars=b"-_", validate=True).decode("ascii").split(" ")
        datetime.fromisoformat(time)
    except ValueError:
        raise ConfigError("this is no cursor", hint="give that of the page before, or none") from None
    return time, id_


def split_search(search: str) -> tuple[str, ...]:
    """Return the words of a search in the form of `fold`."""
    return tuple(fold(search).split()[:MAX_SEARCH_WORDS])


def fold(text: str) -> str:
    """Return a text in one case, without characters that text columns refuse, for searches."""
    return text.casefold().replace("\0", " ").encode(errors="replace").decode()
