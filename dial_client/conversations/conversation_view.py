"""A conversation with the positions and versions of its messages, and the details of its turns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dial_client.conversations.history import detach, repair_conversation
from dial_client.conversations.message_tree import MessageTree, StoredMessage, build_entry, build_tree
from dial_client.messages.message import EntryKind, Message
from dial_client.stores.conversation_store import Conversation


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of a question, or of the answer to it."""

    message: int
    """The index of the question or of the answer's first message; if no answer is shown, the index of the question."""
    positions: tuple[int, ...]
    """The position of the first message of each version, in the order in which they were stored."""
    current: int | None
    """The index in `positions` of the shown version; None if no answer is shown."""
    is_answer: bool
    """True for the versions of an answer, False for those of a question."""

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"message", "of", "positions", "current"}``."""
        kind = "answer" if self.is_answer else "question"
        return {"message": self.message, "of": kind, "positions": list(self.positions), "current": self.current}


@dataclass(frozen=True, slots=True)
class ConversationView:
    """The shown version of a conversation, with positions, versions and details of turns."""

    conversation: Conversation
    """The conversation, as `ConversationManager.get` returns it."""
    positions: tuple[int | None, ...]
    """The position of each message in the store; None for summaries, unfinished messages, and results that replace
    missing ones."""
    versions: tuple[Versions, ...] = ()
    """The versions of each question and answer that has more than one."""
    turns: tuple[tuple[int, dict[str, Any]], ...] = ()
    """The details of each turn (`persistence`), after the index of the turn's last message."""
    settings: Mapping[str, Any] | None = None
    """The settings of the conversation (`conversation_settings`); None if there is none."""
    state: str = ""
    """A hash of the conversation's state, to detect changes."""
    usage: Mapping[str, float] | None = None
    """The sums of ``input_tokens``, ``output_tokens`` and ``cost_usd`` of all turns, also of versions that are not
    shown; a sum that no turn has is missing."""

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"positions", "versions", "turns", "state"}`` of JSON types."""
        return {
            "positions": list(self.positions),
            "versions": [versions.to_dict() for versions in self.versions],
            "turns": [details | {"message": index} for index, details in self.turns],
            "state": self.state,
        }


def build_view(stored: Conversation) -> ConversationView:
    """Return the view of a stored conversation."""
    conversation = repair_conversation(stored)
    tree = build_tree(stored)
    path = tree.find_path()
    by_identity = {id(node.message): node.position for node in path if not node.is_edit}
    positions = tuple(by_identity.get(id(message)) for message in conversation.messages)
    shown = {position: index for index, position in enumerate(positions) if position is not None}
    return ConversationView(
        conversation,
        positions,
        tuple(_find_versions(tree, path, shown)),
        tuple(_find_turns(tree, path, shown, conversation.messages)),
        tree.settings or None,
        hash_state(stored.turn, stored.running, stored.message_count, stored.title),
        _add_usages(details for turns in tree.turns.values() for details in turns),
    )


def _add_usages(turns: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for details in turns:
        usage = details.get("usage")
        for name in ("input_tokens", "output_tokens", "cost_usd"):
            number = usage.get(name) if isinstance(usage, Mapping) else None
            if isinstance(number, int | float):
                sums[name] = sums.get(name, 0) + number
    return sums


def hash_state(turn: str, running: bool, message_count: int, title: str) -> str:  # noqa: FBT001 - of a `Conversation`
    """Return `ConversationView.state` of a stored conversation."""
    return hashlib.sha256(repr((turn, running, message_count, title)).encode(errors="replace")).hexdigest()[:16]


def _find_versions(tree: MessageTree, path: Sequence[StoredMessage], shown: Mapping[int, int]) -> Iterator[Versions]:
    on_path = {node.position for node in path}
    for node in path:
        if not node.is_question or node.position not in shown:
            continue
        index = shown[node.position]
        questions = tree.find_versions(node.position)
        if len(questions) > 1:
            yield Versions(index, questions, questions.index(node.position), is_answer=False)
        answers = tree.followers.get((node.position, False), ())  # the first message of each answer
        current = next((index for index, position in enumerate(answers) if position in on_path), None)
        if len(answers) > 1 or (answers and current is None):
            start = index if current is None else shown.get(answers[current], index)
            yield Versions(start, answers, current, is_answer=True)


def _find_turns(
    tree: MessageTree, path: Sequence[StoredMessage], shown: Mapping[int, int], messages: Sequence[Message]
) -> Iterator[tuple[int, dict[str, Any]]]:
    index = -1
    for node in path:
        index = shown.get(node.position, index)
        details = tree.turns.get(node.position, ())
        # The details of a removed or summarized exchange are not shown.
        if index >= 0 and (node.is_edit or node.position in shown):
            # Several attempts to answer added no message: show the details of the last attempt.
            attempts = details[-1:] if messages[index].role.value == "user" else details
            yield from ((index, dict(attempt)) for attempt in attempts)


def list_messages(stored: Conversation) -> list[dict[str, Any]]:
    """Return the messages of all versions: ``{"position", "parent", "shown", "message"}``, with -1 for no parent."""
    tree = build_tree(stored)
    on_path = {node.position for node in tree.find_path()}
    return [
        {
            "position": node.position,
            "parent": node.parent_message,
            "shown": node.position in on_path,
            "message": node.message.without_kept().to_dict(),
        }
        for node in tree.messages.values()
        if not node.is_edit and node.position not in tree.removed
    ]


def copy_messages(view: ConversationView, count: int) -> tuple[Message, ...]:
    """Return copies of the first `count` messages for a new conversation, with settings and details of turns."""
    copied: list[Message] = [] if view.settings is None else [build_entry(EntryKind.SETTINGS, view.settings)]
    for index, message in enumerate(view.conversation.messages[:count]):
        copied.append(detach(message))
        copied += [build_entry(EntryKind.TURN, details) for place, details in view.turns if place == index]
    return tuple(copied)
