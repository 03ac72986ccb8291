"""Builds the entries that select, or remove, versions of a conversation."""

from __future__ import annotations

from dial_client.conversations.history_edits import find_effective
from dial_client.conversations.message_tree import MessageTree, build_entry, build_tree
from dial_client.messages.message import EntryKind, Message
from dial_client.stores.conversation_store import Conversation


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
    while start != parent and tree.find_parent(start) != parent and position != parent:
        start = tree.find_parent(start)
    removed = tree.find_exchange(start)
    removal = build_entry(EntryKind.REMOVAL, {"positions": sorted(removed)})
    siblings = [sibling for sibling in tree.find_versions(start) if sibling != start]
    if tree.head not in removed or not siblings:
        return (removal,)
    return removal, build_entry(EntryKind.BRANCH, {"head": tree.find_latest(siblings[-1])})
