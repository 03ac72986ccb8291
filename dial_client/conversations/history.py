"""A conversation as it can go on, whatever was stored of it when its program was killed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dial_client.messages import Failure, Message, Role, ToolCallResult
from dial_client.stores.conversation_store import Conversation

INTERRUPTED = "[may have run: the program was interrupted, and it is not known whether the tool did its work]"
"""The result of a call whose own was never stored."""

AT_WORK = "[no result yet: the tool is still at work]"
"""The result of a call of a turn that is under way."""

CUT_OFF = "[cut off: the program was interrupted here]"
"""Stands behind text that was still being written when its program was killed."""

_BROKEN = "the last turn was interrupted: its program ended in the middle of it"


def as_it_stands(conversation: Conversation) -> Conversation:
    """Give what is stored of a conversation as a valid history.

    Of a turn whose program was killed there is also what it had not finished, and a note says that it was interrupted.
    """
    if conversation.running:
        return replace(conversation, messages=valid_history(conversation.messages, AT_WORK), unfinished=())
    messages = valid_history((*conversation.messages, *conversation.unfinished))
    broken = conversation.turn and not (is_answered(messages) and not conversation.unfinished)
    notes = (*conversation.notes, _BROKEN) if broken else conversation.notes
    return replace(conversation, messages=messages, notes=notes, unfinished=())


def is_answered(messages: tuple[Message, ...]) -> bool:
    """Whether a history ends with an answer."""
    return bool(messages) and messages[-1].role is Role.ASSISTANT and not messages[-1].tool_calls


def rounds_of_last(messages: tuple[Message, ...]) -> int:
    """Count the replies with calls since a person said something."""
    said = max((at for at, message in enumerate(messages) if message.role is Role.USER), default=0)
    return sum(bool(message.tool_calls) for message in messages[said:])


def without_words(conversation: Conversation) -> Conversation:
    """Give a conversation without the text that was being written: it is going to be written anew."""
    results = tuple(message for message in conversation.unfinished if message.role is Role.TOOL)
    return replace(conversation, unfinished=results)


def missing(conversation: Conversation) -> tuple[Message, ...]:
    """Give what has to be stored behind a turn whose program was killed, so that what is stored is valid by itself."""
    if not conversation.turn:
        return ()
    stored = conversation.messages
    last = max((at for at, message in enumerate(stored) if message.role is not Role.TOOL), default=0)
    return valid_history((*stored[last:], *conversation.unfinished))[len(stored) - last :]


def valid_history(messages: Iterable[Message], unanswered: str = INTERRUPTED) -> tuple[Message, ...]:
    """Give the messages with one result for each call, right behind the message that asks for it.

    A call without a result is answered with `unanswered`. A result that comes late (another program said something in
    between) is moved to its call; one without a call is left out.
    """
    history: list[Message] = []
    places: dict[str | None, int] = {}
    for message in messages:
        if message.role is not Role.TOOL:
            history.append(message)
        elif (at := places.pop(message.tool_call_id, None)) is not None:
            history[at] = message
        for call in message.tool_calls:
            places[call.id] = len(history)
            history.append(Message.tool(call, ToolCallResult.failed(call.id, Failure.NOT_RUN, unanswered)))
    return tuple(history)
