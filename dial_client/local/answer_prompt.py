"""The prompt for an answer: a plain conversation, without tools, JSON or a grammar.

Which reply comes next is decided before, in the form of `object_form`. The answer itself is free text, so the model is
asked as it was trained: a short system message, what was said, and behind a result what the tools returned.
"""

from __future__ import annotations

from collections.abc import Sequence

from dial_client.local.object_form import result_text
from dial_client.messages import Message, Role

SYSTEM = "You are a helpful assistant."
"""The system message of a conversation that has no instructions of its own."""

_WITH_RESULTS = """\
{question}

This was looked up just now to answer that:
{results}

Answer from it in plain words, with names, numbers, dates and times exactly as they are written there."""


def answer_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation as it is put to the model for an answer.

    Earlier turns are their questions and answers. The results of this turn stand behind its question, without errors.
    """
    instructions = [message for message in messages if message.role is Role.SYSTEM]
    last = max((at for at, message in enumerate(messages) if message.role is Role.USER), default=-1)
    told = [message for message in messages[:last] if message.role is Role.USER or _is_answer(message)]
    names = {call.id: call.name for message in messages[last + 1 :] for call in message.tool_calls}
    returned = [message for message in messages[last + 1 :] if message.role is Role.TOOL and not message.is_error]
    results = [result_text(message) for message in returned]
    if len(results) > 1:  # which result is of which call tells the one that was asked for
        results = [
            f"{names.get(message.tool_call_id or '', 'result')}: {text}"
            for message, text in zip(returned, results, strict=True)
        ]
    question = [messages[last]] if last >= 0 else []
    if results and question:
        text = _WITH_RESULTS.format(question=question[0].text, results="\n".join(results))
        question = [Message.user(text)]
    return (*(instructions or [Message.system(SYSTEM)]), *told, *question)


def _is_answer(message: Message) -> bool:
    return message.role is Role.ASSISTANT and bool(message.text) and not message.tool_calls
