"""The history of a stored conversation: its edits, and its repair if a process was killed during a turn.

Stored messages are never rewritten, so an edit is a message too. Its `Message.replaces` is the range of positions of
earlier messages that the conversation does not show any more. An edit with text is a summary, which is shown instead of
these messages; an edit without text is never shown. An edit that replaces another edit reverts it.

Positions count all stored messages, edits and entries included. An edit applies to the versions of the conversation
(`message_tree`) that contain it. The entries that show another version, or remove a message from all versions, are
built here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from dial_client.conversations.client_calls import find_client_calls
from dial_client.conversations.message_tree import MessageTree, StoredMessage, build_entry, build_tree
from dial_client.conversations.open_work import add_task, find_open_tasks, find_waiting_agents, hold_agents
from dial_client.messages.message import EntryKind, Failure, Message, Role, ToolCallRequest, ToolCallResult
from dial_client.stores.conversation_store import Conversation
from dial_client.tools.agent_progress import INTERRUPTED
from dial_client.tools.background_calls import TaskRecord

# The first line of a summary.
SUMMARY_HEAD = "[Summary of the conversation so far, in place of its older messages]"

# The result of an unfinished call of a running turn, or of a caller that has not sent it.
NO_RESULT_YET = "[no result yet: the tool is still at work]"

# The end of text that was still being written when its process was killed.
CUT_OFF = "[cut off: the rest was not stored]"

_INTERRUPTED_NOTE = "the last turn was interrupted: its program ended in the middle of it, or could not store the rest"


def apply_edits(conversation: Conversation, *, summarized: bool = True) -> Conversation:
    """Return a stored conversation with only the messages that it shows; the arguments are those of `find_shown`."""
    if not any(message.replaces or message.entry for message in conversation.messages):
        return conversation
    shown = find_shown(conversation, summarized=summarized)
    return replace(conversation, messages=tuple(stored.message for stored in shown))


def find_shown(conversation: Conversation, *, summarized: bool = True) -> tuple[StoredMessage, ...]:
    """Return the messages that a stored conversation shows, in order; a summary has the place of its first message.

    Args:
        conversation: The conversation.
        summarized: Whether summaries are shown; otherwise the messages that they replace are.
    """
    effective = find_effective(conversation, summarized=summarized)
    shown = [stored for stored in effective if not stored.is_edit or stored.message.text]
    return tuple(sorted(shown, key=lambda stored: stored.place))


def find_sent(conversation: Conversation) -> tuple[StoredMessage, ...]:
    """Return the shown messages without the exchanges that ended in a refusal, which would be refused again.

    The last exchange is always included: it is being answered.
    """
    shown, turns = find_shown(conversation), build_tree(conversation).turns
    starts = [index for index, stored in enumerate(shown) if stored.is_question]
    refused = [
        range(start, end)
        for start, end in pairwise(starts)
        if any(details.get("refused") for details in turns.get(shown[end - 1].position, ())[-1:])
    ]
    return tuple(stored for index, stored in enumerate(shown) if not any(index in part for part in refused))


def find_effective(conversation: Conversation, *, summarized: bool = True) -> list[StoredMessage]:
    """Return the messages and edits that no later edit replaces, in the order in which they were stored.

    The arguments are those of `find_shown`.
    """
    effective: list[StoredMessage] = []
    replaced: set[int] = set()
    for stored in reversed(build_tree(conversation).find_path()):
        # A later summary also replaces an earlier summary in its range, which was stored after that range.
        if stored.position in replaced or stored.place in replaced:
            continue
        if stored.is_edit and stored.message.text and not summarized:
            continue
        effective.append(stored)
        start, stop = stored.message.replaces or (0, 0)
        # An edit can only replace earlier messages, even if its stored range is wrong.
        replaced.update(range(max(start, 0), min(stop, stored.position)))
    return effective[::-1]


def find_last_exchange(conversation: Conversation) -> tuple[StoredMessage, ...]:
    """Return the last question that a stored conversation shows, and all messages after it; empty if there is none."""
    shown = find_shown(conversation)
    start = max((index for index, stored in enumerate(shown) if stored.is_question), default=len(shown))
    return shown[start:]


def find_edit(conversation: Conversation, *, is_summary: bool) -> StoredMessage | None:
    """Return the latest edit in effect, either a summary or a removal; None if there is none.

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


def repair_conversation(conversation: Conversation) -> Conversation:
    """Return a stored conversation with a valid history.

    If the last turn was interrupted, its unfinished messages are included, and a note says so. Removed messages are
    left out, and summarized ones replaced by their summary.
    """
    stored, conversation = conversation, apply_edits(conversation)
    if conversation.running:
        return replace(conversation, messages=repair_history(conversation.messages, NO_RESULT_YET), unfinished=())
    tree = build_tree(stored)
    unanswered = INTERRUPTED if find_client_calls(tree) is None else NO_RESULT_YET
    repaired = repair_history((*conversation.messages, *conversation.unfinished), unanswered)
    messages = _add_tasks(repaired, find_open_tasks(tree))
    if agents := find_waiting_agents(tree) if conversation.turn else {}:
        messages = hold_agents(messages, messages, agents)
    is_interrupted = conversation.turn and not (ends_with_answer(messages) and not conversation.unfinished)
    notes = (*conversation.notes, _INTERRUPTED_NOTE) if is_interrupted else conversation.notes
    return replace(conversation, messages=messages, notes=notes, unfinished=())


def build_transcript(conversation: Conversation) -> Conversation:
    """Return a stored conversation for a reader: with what summaries replace, and with the end of a running turn.

    These are its text and the messages that steer it, as of the last heartbeat. The turn may still be at work, or its
    program was killed moments ago.
    """
    repaired = repair_conversation(apply_edits(conversation, summarized=False))
    running = conversation.unfinished if conversation.running else ()
    texts = (
        replace(message, content=message.text.removesuffix(CUT_OFF).rstrip())
        for message in running
        if message.role is Role.ASSISTANT
    )
    steering = (message for message in running if message.steers)
    return replace(repaired, messages=(*repaired.messages, *texts, *steering))


def ends_with_answer(messages: tuple[Message, ...]) -> bool:
    """Return True if a history ends with an answer."""
    return bool(messages) and messages[-1].role is Role.ASSISTANT and not messages[-1].tool_calls


def drop_unfinished_text(conversation: Conversation) -> Conversation:
    """Return a conversation without its unfinished text, because the model will write that again."""
    kept = tuple(message for message in conversation.unfinished if message.role is not Role.ASSISTANT)
    return replace(conversation, unfinished=kept)


def build_closing_messages(conversation: Conversation) -> tuple[Message, ...]:
    """Return the messages to append after an interrupted turn, so that the stored history is valid."""
    if not conversation.turn:
        return ()
    tree = build_tree(conversation)
    stored = tuple(stored.message for stored in tree.find_path())
    last = max((index for index, message in enumerate(stored) if message.role is not Role.TOOL), default=0)
    known = {id(message) for message in stored[last:]}
    repaired = repair_history((*stored[last:], *conversation.unfinished))
    return _add_tasks([message for message in repaired if id(message) not in known], find_open_tasks(tree))


def _add_tasks(messages: Sequence[Message], tasks: Sequence[TaskRecord]) -> tuple[Message, ...]:
    """Return messages in which calls without a result go on at their servers, as far as these have tasks for them."""
    by_call = {record.call.id: record for record in tasks}
    return tuple(add_task(message, by_call, INTERRUPTED) if by_call else message for message in messages)


def build_unknown_result(call: ToolCallRequest, text: str = INTERRUPTED) -> ToolCallResult:
    """Return the result of a call whose own result was never stored."""
    return ToolCallResult.failed(call.id, Failure.NOT_RUN, text)


def repair_history(messages: Iterable[Message], unanswered: str = INTERRUPTED) -> tuple[Message, ...]:
    """Return the messages with exactly one result for each call, directly after the message with the call.

    A call without a result gets the text `unanswered` as its result. A result that comes later, because another process
    added messages in between, is moved to its call; it replaces a result that says that the call waits for approval. A
    result without a call is left out.
    """
    history: list[Message] = []
    positions: dict[str | None, int] = {}
    for message in messages:
        if message.role is not Role.TOOL:
            history.append(message)
        elif (position := positions.get(message.tool_call_id)) is not None:
            history[position] = message
            if message.pending is None:
                del positions[message.tool_call_id]
        for call in message.tool_calls:
            positions[call.id] = len(history)
            history.append(Message.tool(call, build_unknown_result(call, unanswered)))
    return tuple(history)


def has_waiting_calls(conversation: Conversation) -> bool:
    """Return whether a call of a stored, unfinished round waits for approval, or one of an agent."""
    return any(message.pending for message in conversation.unfinished) or bool(
        find_waiting_agents(build_tree(conversation))
    )
