"""Edits of a conversation: removed exchanges, and summaries that replace older messages.

Stored messages are never rewritten, so an edit is a message too. Its `Message.replaces` is the range of positions of
earlier messages that the conversation does not show any more. An edit with text is a summary, which is shown instead of
these messages; an edit without text is never shown. An edit that replaces another edit reverts it.

Positions count all stored messages, edits and entries included. An edit applies to the versions of the conversation
(`message_tree`) that contain it. The entries that show another version, or remove a message from all versions, are
built here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dial_client.conversations.message_tree import MessageTree, StoredMessage, build_entry, build_tree
from dial_client.messages.message import EntryKind, Message, Role
from dial_client.stores.conversation_store import Conversation

SUMMARY_HEAD = "[Summary of the conversation so far, in place of its older messages]"
"""The first line of a summary."""


def apply_edits(conversation: Conversation) -> Conversation:
    """Return a stored conversation with only the messages that it shows."""
    if not any(message.replaces or message.entry for message in conversation.messages):
        return conversation
    return replace(conversation, messages=tuple(stored.message for stored in find_shown(conversation)))


def find_shown(conversation: Conversation) -> tuple[StoredMessage, ...]:
    """Return the messages that a stored conversation shows, in order; a summary has the place of its first message."""
    effective = find_effective(conversation)
    shown = [stored for stored in effective if not stored.is_edit or stored.message.text]
    return tuple(sorted(shown, key=lambda stored: stored.place))


def find_effective(conversation: Conversation) -> list[StoredMessage]:
    """Return the messages and edits that no later edit replaces, in the order in which they were stored."""
    effective: list[StoredMessage] = []
    replaced: set[int] = set()
    for stored in reversed(build_tree(conversation).find_path()):
        # A later summary also replaces an earlier summary in its range, which was stored after that range.
        if stored.position in replaced or stored.place in replaced:
            continue
        effective.append(stored)
        start, stop = stored.message.replaces or (0, 0)
        # An edit can only replace earlier messages, even if its stored range is wrong.
        replaced.update(range(max(start, 0), min(stop, stored.position)))
    return effective[::-1]


def find_last_exchange(conversation: Conversation) -> tuple[StoredMessage, ...]:
    """Return the last question that a stored conversation shows, and all messages after it; empty for none."""
    shown = find_shown(conversation)
    start = max((index for index, stored in enumerate(shown) if stored.is_question), default=len(shown))
    return shown[start:]


def find_edit(conversation: Conversation, *, is_summary: bool) -> StoredMessage | None:
    """Return the latest edit in effect, either a summary or a removal; None for none.

    A removal counts only while no message follows it, because an exchange is only restored at the end.
    """
    edits = {stored.position for stored in build_tree(conversation).find_path() if stored.is_edit}
    for found in reversed(find_effective(conversation)):
        start, stop = found.message.replaces or (0, 0)
        if start == stop or bool(found.message.text) != is_summary or (start in edits and not is_summary):
            continue
        shown = [stored.position for stored in find_shown(conversation) if not stored.is_edit]
        return found if is_summary or max(shown, default=-1) <= found.position else None
    return None


def build_removal(removed: Sequence[StoredMessage]) -> Message:
    """Return the edit that removes messages, which must be consecutive in the store."""
    return Message(Role.SYSTEM, replaces=(removed[0].position, removed[-1].position + 1))


def build_summary(text: str, stop: int, *, start: int = 0, taint: str = "") -> Message:
    """Return the edit that replaces the messages from position `start` up to, but without, `stop` by a summary."""
    return Message(Role.USER, f"{SUMMARY_HEAD}\n\n{text}", taint=taint, replaces=(start, stop))


def detach(message: Message) -> Message:
    """Return a copy of a message for another conversation, in which it replaces no messages."""
    return message if message.replaces is None else replace(message, replaces=(0, 0))


def build_branch(stored: Conversation, tree: MessageTree, head: int) -> tuple[Message, ...]:
    """Return the entries that make the next message follow the message at `head`; empty if it does already.

    Later summaries of messages up to `head` are repeated after the branch, so that they apply to the new version too.
    """
    if head == tree.head:
        return ()
    summaries = (
        edit.message
        for edit in find_effective(stored)
        if edit.position > head and edit.place != edit.position and (edit.message.replaces or (0, 0))[1] <= head + 1
    )
    return (build_entry(EntryKind.BRANCH, {"head": head}), *summaries)


def build_switch(stored: Conversation, position: int) -> tuple[Message, ...]:
    """Return the entry that shows the latest version with the message at `position`; empty if it is already shown.

    Raises:
        ConfigError: There is no message at `position`.
    """
    tree = build_tree(stored)
    tree.find(position)
    if any(shown.position == position for shown in tree.find_path()):
        return ()
    return (build_entry(EntryKind.BRANCH, {"head": tree.find_latest(position)}),)


def build_deletion(stored: Conversation, position: int) -> tuple[Message, ...]:
    """Return the entries that remove a question with all its answers, or one answer, from the conversation.

    If the last answer of the shown version is removed, the latest other version of that answer is shown.

    Raises:
        ConfigError: There is no message at `position`.
    """
    tree = build_tree(stored)
    tree.find(position)
    question = tree.find_question(position)
    parent = question.position if question is not None else -1
    start = position
    while start != parent and tree.messages[start].parent_message != parent and position != parent:
        start = tree.messages[start].parent_message
    removed = tree.find_exchange(start)
    removal = build_entry(EntryKind.REMOVAL, {"positions": sorted(removed)})
    siblings = [sibling for sibling in tree.find_versions(start) if sibling != start]
    if tree.head not in removed or not siblings:
        return (removal,)
    return removal, build_entry(EntryKind.BRANCH, {"head": tree.find_latest(siblings[-1])})
