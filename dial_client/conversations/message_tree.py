"""The versions of a conversation: a tree of its stored messages; the conversation shows one path of the tree.

A store appends messages and never rewrites them, so the tree is computed from their order. Each message is the child of
the previous one, unless an entry in between (`StoredEntry`) moves the head: the next message then begins another
version. Entries are not part of the tree. The position of a message in the store identifies it, and is greater than
its parent's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dial_client.messages.errors import ConfigError
from dial_client.messages.message import EntryKind, Message, Role, StoredEntry
from dial_client.stores.conversation_store import Conversation

# The position before the first message.
START = -1


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with its position in the store."""

    position: int
    message: Message
    parent: int
    """The position of the message or edit that this one follows."""
    parent_message: int
    """The position of the message that this one follows, not counting edits; `START` for none."""

    @property
    def is_edit(self) -> bool:
        """True for a message that replaces others (`history`)."""
        return self.message.replaces is not None

    @property
    def place(self) -> int:
        """The position at which the message is shown; for a summary, the position of the first replaced message."""
        start, stop = self.message.replaces or (0, 0)
        return max(start, 0) if self.message.text and start < min(stop, self.position) else self.position

    @property
    def is_question(self) -> bool:
        """True for a message of the user that begins an exchange."""
        return self.message.is_question and not self.is_edit


@dataclass(frozen=True, slots=True)
class MessageTree:
    """The messages of a stored conversation with all versions."""

    messages: Mapping[int, StoredMessage]
    """The messages by position, in ascending order."""
    head: int
    """The position of the last message of the shown version; `START` for none."""
    removed: frozenset[int]
    """The positions of messages that were removed from all versions."""
    turns: Mapping[int, Sequence[Mapping[str, Any]]]
    """The details of turns, by the position of the turn's last message."""
    settings: Mapping[str, Any]
    """The latest settings; empty if there is none."""
    tasks: Sequence[tuple[int, Mapping[str, Any]]]
    """The tasks of calls (`tools.background_calls`), each after the position of the last message before it."""
    agents: Sequence[tuple[int, Mapping[str, Any]]]
    """What agents have done (`tools.agent_progress`), each after the position of the last message before it."""
    followers: Mapping[tuple[int, bool], tuple[int, ...]]
    """The positions of the messages that follow a message, without edits, by ``(position, is_question)``."""

    def find(self, position: int) -> StoredMessage:
        """Return the message at a position.

        Raises:
            ConfigError: There is no message at the position, or it is an edit or was removed.
        """
        stored = self.messages.get(position)
        if stored is None or stored.is_edit or position in self.removed:
            raise ConfigError(f"the conversation has no message {position}")
        return stored

    def find_path(self) -> tuple[StoredMessage, ...]:
        """Return the messages from the beginning to the head of the shown version, edits included."""
        path: list[StoredMessage] = []
        position = self.head
        while (stored := self.messages.get(position)) is not None:
            path.append(stored)
            position = stored.parent
        return tuple(stored for stored in reversed(path) if stored.position not in self.removed)

    def find_notes(self) -> tuple[str, ...]:
        """Return the notes of the turns of the shown version, the oldest first."""
        details = (turn for stored in self.find_path() for turn in self.turns.get(stored.position, ()))
        lists = (notes for turn in details if isinstance(notes := turn.get("notes"), list))
        return tuple(str(note) for notes in lists for note in notes)

    def find_versions(self, position: int) -> tuple[int, ...]:
        """Return the positions of all versions of a question, or of an answer's first message, including `position`."""
        stored = self.messages[position]
        return self.followers.get((stored.parent_message, stored.is_question), ())

    def find_question(self, position: int) -> StoredMessage | None:
        """Return the question of a message's exchange: the message itself, or the last question before it."""
        while (stored := self.messages.get(position)) is not None and not stored.is_question:
            position = stored.parent
        return stored

    def find_latest(self, position: int) -> int:
        """Return the position of a message's latest descendant; its own position if it has none.

        The result is the head of the version in which the conversation was last continued.
        """
        following = {position}
        for stored in self.messages.values():
            if stored.parent in following and stored.position not in self.removed:
                following.add(stored.position)
        return max(following)

    def find_exchange(self, position: int) -> frozenset[int]:
        """Return the positions of a message and of its descendants up to the next questions, in all versions."""
        found = {position}
        for stored in self.messages.values():
            if stored.parent in found and not stored.is_question and not stored.is_edit:
                found.add(stored.position)
        return frozenset(found)


def build_tree(conversation: Conversation) -> MessageTree:
    """Return the tree of a stored conversation; invalid entries are ignored."""
    messages: dict[int, StoredMessage] = {}
    turns: defaultdict[int, list[Mapping[str, Any]]] = defaultdict(list)
    removed: set[int] = set()
    head = START
    settings: Mapping[str, Any] = {}
    tasks: list[tuple[int, Mapping[str, Any]]] = []
    agents: list[tuple[int, Mapping[str, Any]]] = []
    unreadable = frozenset(conversation.unreadable)
    readable = (index for index in range(len(conversation.messages) + len(unreadable)) if index not in unreadable)
    for position, message in zip(readable, conversation.messages, strict=True):
        entry = message.entry
        if entry is None:
            before = messages.get(head)
            parent = before.parent_message if before is not None and before.is_edit else head
            messages[position] = StoredMessage(position, message, head, parent)
            head = position
            continue
        match entry.kind, entry.data:
            case EntryKind.BRANCH, {"head": int(position)} if position == START or position in messages:
                head = position
            case EntryKind.REMOVAL, {"positions": list(positions)}:
                removed.update(removal for removal in positions if isinstance(removal, int))
            case EntryKind.TURN, data:
                turns[head].append(data)
            case EntryKind.SETTINGS, data:
                settings = dict(data)
            case EntryKind.TASK | EntryKind.AGENT as kind, data:
                (tasks if kind == EntryKind.TASK else agents).append((head, data))
    followers: defaultdict[tuple[int, bool], tuple[int, ...]] = defaultdict(tuple)
    for stored in messages.values():
        if not stored.is_edit and stored.position not in removed:
            followers[stored.parent_message, stored.is_question] += (stored.position,)
    return MessageTree(messages, head, frozenset(removed), turns, settings, tasks, agents, followers)


def build_entry(kind: EntryKind, data: Mapping[str, Any]) -> Message:
    """Return a message that holds an entry, for the store."""
    return Message(Role.SYSTEM, entry=StoredEntry(kind.value, data))


def extend(conversation: Conversation, added: tuple[Message, ...]) -> Conversation:
    """Return a stored conversation with messages added at its end."""
    count = conversation.message_count + len(added)
    return replace(conversation, messages=(*conversation.messages, *added), message_count=count)
