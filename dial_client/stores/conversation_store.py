"""What a store of conversations is: the data it gives, and what it promises. The stores themselves are in `stores`.

A message is appended and never rewritten. What is appended together is stored together or not at all.

A turn holds its conversation while it runs: `ConversationStore.begin` gives it the conversation for some seconds,
`renew` for some more, `end` gives it back. Where its program is killed, the seconds run out, and the next turn may
begin. This holds among all programs that use the store.
"""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, Self

from dial_client.errors import ConfigError, ConversationNotFound
from dial_client.messages import Message

MAX_TITLE = 60
"""Characters of a title."""

MAX_SEARCH_WORDS = 8
"""Words of a search that are looked for."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation and what was said in it."""

    id: str
    title: str
    """Its first words, in one line, or what it was named; empty until something was said."""
    created_at: datetime
    """In UTC."""
    updated_at: datetime
    """In UTC: when the last message was added."""
    messages: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()
    """What is wrong with what is stored, in a person's words: messages that cannot be read and are left out."""
    running: bool = False
    """A turn is under way, in this program or in another."""
    turn: str = ""
    """The id of the turn that is under way, or was when its program was killed; empty where the last one ended well."""
    unfinished: tuple[Message, ...] = ()
    """What that turn had beyond `messages` when it was last heard of: results of a round that was not over, and text as
    far as it was written."""
    message_count: int = 0
    """Messages that are stored, those that cannot be read included."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation without its messages."""

    id: str
    title: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    running: bool = False
    """A turn is under way, in this program or in another."""


class Page(tuple[ConversationSummary, ...]):
    """Some conversations of a list that may have more."""

    cursor: str | None
    """What gives the next page; None where this is the last."""

    def __new__(cls, found: Iterable[ConversationSummary] = (), cursor: str | None = None) -> Self:
        """Make a page."""
        page = super().__new__(cls, found)
        page.cursor = cursor
        return page


class ConversationStore(Protocol):
    """Keeps conversations. A change once begun is finished, even if its caller is cancelled, and every wait has an end.

    Besides what they name, all methods raise `ConfigError` where the store cannot be used (the file is no database, the
    folder cannot be written), and `DialError` where it failed this time (locked for too long, disk full).
    """

    async def create(self, title: str = "", messages: Sequence[Message] = ()) -> Conversation:
        """Begin a conversation; of the title one line of at most `MAX_TITLE` characters is kept."""
        ...

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, title: str = "", turn: str | None = None
    ) -> None:
        """Add messages behind all others, all or none. A conversation without a title gets this one.

        Args:
            conversation_id: which conversation.
            messages: what is added.
            title: what it is called, unless it is called something already.
            turn: the turn that adds them, which must still hold the conversation; None for no turn.

        Raises:
            ConversationNotFound: there is none with this id.
            ConversationBusy: another turn holds it by now.
        """
        ...

    async def begin(
        self, conversation_id: str, turn: str, messages: Sequence[Message], *, behind: int, seconds: float, title: str
    ) -> bool:
        """Give a conversation to a turn and add its first messages, or do nothing and say so.

        It is not given where another turn holds it, and where it does not have as many messages as was thought.

        Args:
            conversation_id: which conversation.
            turn: the turn's id, of printable ASCII.
            messages: what is added, as by `append`; what an earlier turn had left unfinished is forgotten.
            behind: `Conversation.message_count` as it was read.
            seconds: how long the turn holds it, unless it renews that.
            title: what it is called, unless it is called something already.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        ...

    async def renew(
        self, conversation_id: str, turn: str, seconds: float, unfinished: Sequence[Message] | None = None
    ) -> bool:
        """Hold a conversation for so many seconds from now, and keep what is not whole yet; None changes nothing of it.

        Gives False where the turn does not hold it any more, or it is gone: then nothing is kept.
        """
        ...

    async def end(self, conversation_id: str, turn: str, messages: Sequence[Message] = ()) -> None:
        """Add a turn's last messages, and give the conversation back. One that is gone is nothing to give back.

        Raises:
            ConversationBusy: another turn holds it by now; nothing is added.
        """
        ...

    async def get(self, conversation_id: str) -> Conversation:
        """Give a conversation with its messages as they were appended.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        ...

    async def list(self, limit: int = 50, *, cursor: str | None = None, search: str = "") -> Page:
        """Give at most `limit` conversations, first the one that changed last.

        Args:
            limit: at least 1.
            cursor: `Page.cursor` of the page before; None for the first page.
            search: words, each of which occurs in the title or in what the person or the model said; in any case.

        Raises:
            ConfigError: the cursor is none.
        """
        ...

    async def latest(self) -> ConversationSummary | None:
        """Give the conversation that changed last; None where there is none."""
        ...

    async def rename(self, conversation_id: str, title: str) -> None:
        """Call a conversation something else; its place in the list stays.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        ...

    async def delete(self, conversation_id: str) -> None:
        """Forget a conversation and its messages.

        Raises:
            ConversationNotFound: there is none with this id.
        """
        ...

    async def aclose(self) -> None:
        """Let go of files and connections; may be called twice."""
        ...


def title_from(text: str, limit: int = MAX_TITLE) -> str:
    """Give the first words of a text, in one line of at most `limit` characters, without anything that controls."""
    # No title needs more than the beginning, and a text may be a whole file.
    words = " ".join(text[: 50 * limit].split())
    line = "".join(char for char in words if not unicodedata.category(char).startswith("C")).strip()
    if len(line) <= limit:
        return line
    head, space, _ = line[:limit].rpartition(" ")
    return f"{head if space and len(head) > limit // 2 else line[: limit - 1]}…"


def not_found(conversation_id: str) -> ConversationNotFound:
    """Make the error that says so."""
    return ConversationNotFound(conversation_id)


def time_text(moment: datetime) -> str:
    """Give a time in UTC as text that sorts as time does."""
    return moment.isoformat(timespec="microseconds")


def page_of(found: Sequence[ConversationSummary], limit: int) -> Page:
    """Make a page of what was found, which is one more than fits where there are more."""
    if len(found) <= limit:
        return Page(found)
    last = found[limit - 1]
    key = f"{time_text(last.updated_at)} {last.id}"
    return Page(found[:limit], base64.urlsafe_b64encode(key.encode()).decode())


def read_cursor(cursor: str) -> tuple[str, str]:
    """Give time and id of the conversation behind which a page begins.

    Raises:
        ConfigError: this is no cursor.
    """
    try:
        time, id_ = base64.b64decode(cursor, altchars=b"-_", validate=True).decode("ascii").split(" ")
        datetime.fromisoformat(time)
    except ValueError:
        raise ConfigError("this is no cursor", hint="give that of the page before, or none") from None
    return time, id_


def search_words(search: str) -> tuple[str, ...]:
    """Give the words to look for, as `folded` writes them."""
    return tuple(folded(search).split()[:MAX_SEARCH_WORDS])


def folded(text: str) -> str:
    """Give a text as a search looks at it: in one case, and without what text columns refuse."""
    return text.casefold().replace("\0", " ").encode(errors="replace").decode()
