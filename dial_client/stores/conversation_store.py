"""What a store of conversations is: the protocol `ConversationStore`, and what it reads and returns.

Stored messages are never rewritten, only appended; messages in one call are appended together or not at all. A store
keeps all fields of a message that `Message.to_dict` returns. Selected versions, settings and details of turns are
messages with an `entry`, which `conversations.message_tree` evaluates.

While a turn runs, it holds a lease of its conversation: `ConversationStore.acquire` takes the lease, `renew` extends
it, and `release` ends it. If the turn's process is killed, the lease expires, and the next turn may begin. Leases apply
to all processes that use the store.
"""

from __future__ import annotations

import base64
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol, Self

from dial_client.messages.errors import ConfigError
from dial_client.messages.message import Message, PendingApproval, find_pending_approvals
from dial_client.settings.argument_types import describe_type

# Limit of characters of a title, and of the beginning of the last answer in a list.
MAX_TITLE = 60
MAX_PREVIEW = 120

# Limit of words of a search; further words are ignored.
MAX_SEARCH_WORDS = 8

# Limit of characters of an owner, and of metadata as JSON.
MAX_OWNER = 200
MAX_METADATA = 16_000

# The time of a conversation whose stored time cannot be read.
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with its messages."""

    id: str
    title: str
    """The title in one line: its first words, or the title that was set; empty before the first message."""
    created_at: datetime
    """The time of its creation, in UTC."""
    updated_at: datetime
    """The time at which the last message was added, in UTC."""
    messages: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()
    """Problems with the stored conversation, one sentence each, such as messages that cannot be read."""
    running: bool = False
    """True while a turn of the conversation runs, in this process or another."""
    turn: str = ""
    """The id of the running or interrupted turn; empty if the last turn ended normally."""
    unfinished: tuple[Message, ...] = ()
    """The unfinished part of that turn at its last heartbeat: results of an incomplete round, and partial text."""
    message_count: int = 0
    """The number of stored messages, including entries and messages that cannot be read."""
    unreadable: tuple[int, ...] = ()
    """The positions of stored messages that cannot be read, and are missing in `messages`."""
    owner: str = ""
    """The person that the conversation belongs to, in the words of the program; empty if it names none."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Data of the program, of JSON types only."""

    @property
    def pending_approvals(self) -> tuple[PendingApproval, ...]:
        """The calls at the end of `messages` that wait for approval, as `ConversationManager.get` returns them."""
        return find_pending_approvals(self.messages)


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation without its messages."""

    id: str
    title: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    """The number of stored messages of all versions, without entries."""
    running: bool = False
    """True while a turn of the conversation runs, in this process or another."""
    owner: str = ""
    """The person that the conversation belongs to; empty if the program names none."""
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Data of the program, of JSON types only."""
    preview: str = ""
    """The beginning of the last answer, in one line of at most `MAX_PREVIEW` characters; empty before the first answer,
    and if an earlier release stored it."""


class Page(tuple[ConversationSummary, ...]):
    """A page of a list of conversations."""

    cursor: str | None
    """The cursor of the next page; None for the last page."""

    def __new__(cls, found: Iterable[ConversationSummary] = (), cursor: str | None = None) -> Self:
        """Return a page of these conversations."""
        page = super().__new__(cls, found)
        page.cursor = cursor
        return page


class ConversationStore(Protocol):
    """Stores conversations. A started change is finished even if its caller is cancelled; every wait has a timeout.

    All methods may also raise `ConfigError` if the store cannot be used (the file is not a database, the folder cannot
    be written), and `DialError` if an operation failed (locked for too long, disk full).
    """

    async def create(
        self,
        title: str = "",
        messages: Sequence[Message] = (),
        *,
        conversation_id: str | None = None,
        owner: str = "",
        metadata: Mapping[str, Any] = MappingProxyType({}),
    ) -> Conversation:
        """Create a conversation, and return it.

        Args:
            title: The title, which is shortened to one line of at most `MAX_TITLE` characters.
            messages: The first messages.
            conversation_id: The id, in printable ASCII; by default a random id. If a conversation has this id, it is
                returned unchanged, whoever owns it.
            owner: The person that the conversation belongs to, at most `MAX_OWNER` characters; empty for none.
            metadata: Data of the program, of JSON types, at most `MAX_METADATA` characters as JSON.

        Raises:
            ConfigError: The owner or the metadata cannot be stored.
        """

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, title: str = "", turn: str | None = None
    ) -> None:
        """Append messages, all or none.

        Args:
            conversation_id: The id of the conversation.
            messages: The messages.
            title: The title of the conversation, if it has none yet.
            turn: The id of the turn that appends, which must still be the conversation's turn; None for no turn.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConversationBusy: The turn has ended, or another turn has taken the conversation over.
        """

    async def acquire(
        self,
        conversation_id: str,
        turn: str,
        messages: Sequence[Message],
        *,
        expected_count: int,
        lease: float,
        title: str,
    ) -> bool:
        """Take the lease of a conversation for a turn, and append the turn's first messages.

        The unfinished part of an earlier turn is deleted.

        Args:
            conversation_id: The id of the conversation.
            turn: The id of the turn, in printable ASCII.
            messages: The first messages of the turn.
            expected_count: The `Conversation.message_count` that the caller has read.
            lease: Seconds after which the lease expires, unless it is renewed.
            title: The title of the conversation, if it has none yet.

        Returns:
            False, with nothing stored, if another turn holds the conversation or messages were added since it was read.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """

    async def renew(
        self, conversation_id: str, turn: str, lease: float, unfinished: Sequence[Message] | None = None
    ) -> bool:
        """Set the lease to expire in `lease` seconds, and store the unfinished part of the turn.

        Args:
            conversation_id: The id of the conversation.
            turn: The id of the turn.
            lease: Seconds from now until the lease expires.
            unfinished: The results and text of the turn since its last appended message; None to keep the stored ones.

        Returns:
            False, with nothing stored, if another turn has taken the conversation over or it was deleted. A lease that
            has expired can be renewed until then.
        """

    async def release(self, conversation_id: str, turn: str, messages: Sequence[Message] = ()) -> None:
        """Append a turn's last messages, and release the conversation; does nothing if it was deleted.

        Args:
            conversation_id: The id of the conversation.
            turn: The id of the turn, which must still be the conversation's turn.
            messages: The messages that are not appended yet.

        Raises:
            ConversationBusy: The turn has already ended, or another turn has taken the conversation over; nothing is
                appended.
        """

    async def get(self, conversation_id: str) -> Conversation:
        """Return a conversation with all its stored messages.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """

    async def list(
        self,
        limit: int = 50,
        *,
        cursor: str | None = None,
        search: str = "",
        owner: str | None = None,
        marks: Mapping[str, bool] = MappingProxyType({}),
    ) -> Page:
        """Return at most `limit` conversations, the most recently changed first.

        Args:
            limit: The size of the page, at least 1.
            cursor: The `Page.cursor` of the previous page; None for the first page.
            search: Words that must all occur in the title or in messages of the user or the model, in any case.
            owner: Only conversations of this owner; empty for those without an owner, None for all.
            marks: Names of `metadata`, each of letters, digits and ``-``: only conversations in which those with True
                have the value true, and those with False have not.

        Raises:
            ConfigError: The cursor is invalid.
        """

    async def latest(self) -> ConversationSummary | None:
        """Return the most recently changed conversation; None if the store is empty."""

    async def rename(self, conversation_id: str, title: str) -> None:
        """Change the title of a conversation, but not its place in the list.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """

    async def update(
        self,
        conversation_id: str,
        *,
        owner: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        metadata_changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Change the owner or the metadata of a conversation, but not its place in the list.

        Args:
            conversation_id: The id of the conversation.
            owner: The new owner; None to keep it.
            metadata: The metadata that replace all stored ones; None to keep them.
            metadata_changes: Metadata with new values, in one step with what the store has: other programs may change
                other names at the same time. None removes a name.

        Raises:
            ConversationNotFound: The conversation does not exist.
            ConfigError: The owner or the metadata cannot be stored.
        """

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation and its messages.

        Raises:
            ConversationNotFound: The conversation does not exist.
        """

    async def aclose(self) -> None:
        """Close files and connections; may be called twice."""


def build_title(text: str, limit: int = MAX_TITLE) -> str:
    """Return the first words of a text, in one line of at most `limit` characters, without control characters."""
    # The text may be a whole file: only its beginning is processed.
    words = " ".join(text[: 50 * limit].split())
    line = " ".join("".join(char for char in words if not unicodedata.category(char).startswith("C")).split())
    if len(line) <= limit:
        return line
    head, space, _ = line[:limit].rpartition(" ")
    return f"{head if space and len(head) > limit // 2 else line[: limit - 1]}…"


def check_owner(owner: str) -> str:
    """Return an owner that every store can keep.

    Raises:
        ConfigError: The text is too long, or has characters that text columns cannot store.
    """
    if len(owner) > MAX_OWNER or "\0" in owner or owner != owner.encode(errors="replace").decode():
        raise ConfigError(f"owner is a text of at most {MAX_OWNER} characters, without NUL and lone surrogates")
    return owner


def copy_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as a store returns them, so that no later change of the caller's objects reaches the store.

    Raises:
        ConfigError: They are no mapping, not of JSON types, or too long.
    """
    try:
        text = json.dumps(dict(metadata), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"metadata is an object of JSON types: {error}") from None
    if len(text) > MAX_METADATA:
        raise ConfigError(f"metadata has at most {MAX_METADATA:,} characters as JSON, not {len(text):,}")
    copied: dict[str, Any] = json.loads(text)
    return copied


def to_sortable_time(moment: datetime) -> str:
    """Return a time in UTC as text whose alphabetical order is the order of time."""
    return moment.isoformat(timespec="microseconds")


def build_page(found: Sequence[ConversationSummary], limit: int) -> Page:
    """Return the page for the rows of a query with the limit ``limit + 1``."""
    # The next page begins after the last conversation whose time can be read.
    known = [summary for summary in found[:limit] if summary.updated_at != EPOCH]
    if len(found) <= limit or not known:
        return Page(found[:limit])
    key = f"{to_sortable_time(known[-1].updated_at)} {known[-1].id}"
    return Page(found[:limit], base64.urlsafe_b64encode(key.encode()).decode())


def parse_cursor(cursor: str) -> tuple[str, str]:
    """Return the time and the id of the last conversation on the previous page.

    Raises:
        ConfigError: The cursor is invalid.
    """
    try:
        time, id_ = base64.b64decode(cursor, altchars=b"-_", validate=True).decode("ascii").split(" ")
        datetime.fromisoformat(time)
    except ValueError:
        raise ConfigError("invalid cursor", hint="pass the cursor of the previous page, or none") from None
    return time, id_


def split_search(search: str) -> tuple[str, ...]:
    """Return the words of a search, normalized by `casefold_text`."""
    return tuple(casefold_text(search).split()[:MAX_SEARCH_WORDS])


def casefold_text(text: str) -> str:
    """Return a text normalized for searches: case-folded, without characters that text columns cannot store."""
    return text.casefold().replace("\0", " ").encode(errors="replace").decode()


def check_conversation_id(given: Any) -> None:
    """Check that an argument can be the id of a conversation.

    Raises:
        TypeError: The argument is no string.
    """
    if not isinstance(given, str):
        hint = ": pass its .id" if isinstance(given, Conversation | ConversationSummary) else ""
        raise TypeError(f"expected the id of a conversation, not {describe_type(given)}{hint}")
