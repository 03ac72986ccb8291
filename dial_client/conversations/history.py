"""Repairs the history of a conversation whose process was killed during a turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dial_client.conversations.history_edits import apply_edits
from dial_client.conversations.message_tree import build_tree
from dial_client.messages.message import Failure, Message, Role, ToolCallResult
from dial_client.stores.conversation_store import Conversation

INTERRUPTED = "[may have run: the program was interrupted, and it is not known whether the tool did its work]"
"""The result of a call whose own result was never stored."""

NO_RESULT_YET = "[no result yet: the tool is still at work]"
"""The result of an unfinished call of a running turn."""

CUT_OFF = "[cut off: the program was interrupted here]"
"""The end of text that was still being written when its process was killed."""

_INTERRUPTED_NOTE = "the last turn was interrupted: its program ended in the middle of it"


def repair_conversation(conversation: Conversation) -> Conversation:
    """Return a stored conversation with a valid history.

    If the last turn was interrupted, its unfinished messages are included, and a note says so. Removed messages are
    left out, and summarized ones replaced by their summary.
    """
    conversation = apply_edits(conversation)
    if conversation.running:
        return replace(conversation, messages=repair_history(conversation.messages, NO_RESULT_YET), unfinished=())
    messages = repair_history((*conversation.messages, *conversation.unfinished))
    is_interrupted = conversation.turn and not (ends_with_answer(messages) and not conversation.unfinished)
    notes = (*conversation.notes, _INTERRUPTED_NOTE) if is_interrupted else conversation.notes
    return replace(conversation, messages=messages, notes=notes, unfinished=())


def ends_with_answer(messages: tuple[Message, ...]) -> bool:
    """Return True if a history ends with an answer."""
    return bool(messages) and messages[-1].role is Role.ASSISTANT and not messages[-1].tool_calls


def count_last_rounds(messages: tuple[Message, ...]) -> int:
    """Return the number of model replies with tool calls since the last message of the user."""
    question = max((index for index, message in enumerate(messages) if message.role is Role.USER), default=0)
    return sum(bool(message.tool_calls) for message in messages[question:])


def drop_unfinished_text(conversation: Conversation) -> Conversation:
    """Return a conversation without its unfinished text, because the model will write that again."""
    results = tuple(message for message in conversation.unfinished if message.role is Role.TOOL)
    return replace(conversation, unfinished=results)


def build_closing_messages(conversation: Conversation) -> tuple[Message, ...]:
    """Return the messages to append after an interrupted turn, so that the stored history is valid."""
    if not conversation.turn:
        return ()
    stored = tuple(stored.message for stored in build_tree(conversation).find_path())
    last = max((index for index, message in enumerate(stored) if message.role is not Role.TOOL), default=0)
    return repair_history((*stored[last:], *conversation.unfinished))[len(stored) - last :]


def repair_history(messages: Iterable[Message], unanswered: str = INTERRUPTED) -> tuple[Message, ...]:
    """Return the messages with exactly one result for each call, directly after the message with the call.

    A call without a result gets the text `unanswered` as its result. A result that comes later, because another process
    added messages in between, is moved to its call. A result without a call is left out.
    """
    history: list[Message] = []
    positions: dict[str | None, int] = {}
    for message in messages:
        if message.role is not Role.TOOL:
            history.append(message)
        elif (position := positions.pop(message.tool_call_id, None)) is not None:
            history[position] = message
        for call in message.tool_calls:
            positions[call.id] = len(history)
            history.append(Message.tool(call, ToolCallResult.failed(call.id, Failure.NOT_RUN, unanswered)))
    return tuple(history)
