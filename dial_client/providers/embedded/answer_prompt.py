"""The prompt for an answer: a plain conversation, without tools, JSON or a grammar.

An earlier request, in the format of `json_prompt_format`, decides whether the model calls a tool or answers. The answer
itself is free text, so its prompt has the form that the model was trained with: a short system message, the
conversation, and the tools' results before the question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dial_client.messages.message import Message, Role
from dial_client.messages.model import Instruction, InstructionSource, ModelRequest
from dial_client.providers.embedded.fixed_replies import is_fixed
from dial_client.providers.embedded.json_prompt_format import read_result_text
from dial_client.providers.embedded.result_lines import reword

SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
"""The system message of a conversation without instructions: the message that these weights were trained with.
With the second sentence alone, the model calls itself John, and packs 75 kinds of sunscreen for a holiday."""
_REPORTING = (
    "You are a helpful assistant. You answer from the results of tools, "
    "with names, numbers, dates and times exactly as the results have them."
)
_RESULTS = "Results:\n{results}\n\n{question}"
_EXAMPLES = (
    (
        "What songs are in /home/ada/music?",
        "list_songs: blue.mp3\nrain.mp3\nlive\nsea.ogg",
        "There are blue.mp3, rain.mp3, live and sea.ogg in /home/ada/music.",
    ),
    (
        "How old is the owner of the dog Rex?",
        "find_pet: Rex: dog, 4 years old, owner Tom Hill\nget_person: Tom Hill, 43 years old, teacher",
        "Tom Hill, the owner of Rex, is 43 years old.",
    ),
    (
        "When does the next ferry leave?",
        'next_ferry: {"ferry": "Aurora", "leaves": "2026-05-04T07:35:00+02:00", "delayed": false}',
        "The next ferry, the Aurora, leaves at 07:35.",
    ),
    (
        "Cut 20 cm off the red rope.",
        "cut_rope: done, 180 cm left",
        "I have cut 20 cm off the red rope; 180 cm are left.",
    ),
)
"""Questions, results and answers. Without them, 03:20 became 3:20 PM, and answers had only the first of two results."""
EXAMPLE_NAMES = ("Tom Hill", "Rex", "Aurora", "blue.mp3", "rain.mp3", "sea.ogg", "red rope")
"""Names in the examples. An answer with a name that no result has was copied from the examples."""


def has_results(messages: Sequence[Message]) -> bool:
    """Return True if results follow the last question."""
    return bool(find_results(messages))


def find_results(messages: Sequence[Message]) -> list[str]:
    """Return the results after the last question, without errors, each prefixed with the name of its tool."""
    return _format_results(messages, _find_last_question(messages))


def find_question(messages: Sequence[Message]) -> str:
    """Return the text of the last question."""
    return next((message.text for message in reversed(messages) if message.role is Role.USER), "")


def build_answer_instructions(request: ModelRequest) -> tuple[Instruction, ...]:
    """Return the conversation's own instructions, and if there are results, how to answer from them."""
    if has_results(request.messages) and _find_last_question(request.messages) >= 0:
        return (*request.instructions, Instruction(InstructionSource.HOST, _REPORTING))
    return request.instructions or (Instruction(InstructionSource.HOST, SYSTEM),)


def build_answer_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages that the model gets to write an answer.

    Of earlier turns only the questions and answers are kept. Turns with a composed reply are left out, because the
    model would repeat their failure. The results of this turn, without errors, are put before its question; if there
    are any, worked examples come first.
    """
    last = _find_last_question(messages)
    earlier = _find_answered_turns(messages[: max(last, 0)])
    question = messages[last : last + 1] if last >= 0 else ()
    results = _format_results(messages, last)
    if not results or not question:
        return (*earlier, *question)
    prompt = Message.user(_RESULTS.format(results="\n".join(results), question=question[0].text))
    return (*_build_examples(), *earlier, prompt)


def _find_answered_turns(messages: Sequence[Message]) -> list[Message]:
    """Return the questions and answers of earlier turns, without turns whose reply was composed."""
    written: list[Message] = []
    for message in messages:
        if message.role is Role.USER or _is_answer(message):
            written.append(message)
        elif is_fixed(message) and written and written[-1].role is Role.USER:
            written.pop()
    return written


def _find_last_question(messages: Sequence[Message]) -> int:
    return max((at for at, message in enumerate(messages) if message.role is Role.USER), default=-1)


def _format_results(messages: Sequence[Message], question: int) -> list[str]:
    names = {call.id: call.name for message in messages[question + 1 :] for call in message.tool_calls}
    return [
        f"{names.get(message.tool_call_id or '', 'result')}: {reword(read_result_text(message))}"
        for message in messages[question + 1 :]
        if message.role is Role.TOOL and not message.is_error
    ]


def _build_examples() -> Iterator[Message]:
    for question, results, answer in _EXAMPLES:
        yield Message.user(_RESULTS.format(results=results, question=question))
        yield Message.assistant(answer)


def _is_answer(message: Message) -> bool:
    return message.role is Role.ASSISTANT and bool(message.text) and not message.tool_calls and not is_fixed(message)
