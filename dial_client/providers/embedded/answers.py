"""The replies of the embedded model that are no calls: answers in free text, and replies that the program composes.

An answer from the model has the form that the model was trained with: a short system message and the conversation,
without tools, JSON or a grammar. The result of a call is shown as it is, in a readable form: the model would say "on
time" beside "delayed by 40 minutes". It would also invent an answer after a failed call, if an argument is missing, and
if nothing can look up what the question asks. The replies for these cases contain only texts that the user wrote or
that calls returned.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dial_client.messages.message import Message, Role, ToolSpec
from dial_client.messages.model import Instruction, InstructionSource, ModelRequest

# The system message of a conversation without instructions: the message that these weights were trained with.
# With the second sentence alone, the model calls itself John, and packs 75 kinds of sunscreen for a holiday.
SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
# The reply to a question about the present if no tools are offered.
NOT_CONNECTED = (
    "I cannot know that. It needs something I can look at or look up, and no MCP server is connected that could. "
    "Run `dial-chat init` to connect one that can, and ask again."
)
# The reply to a question about the present if tools are offered and none of them helps.
NO_TOOL_FITS = (
    "I cannot know that: it needs something I can look at or look up, and none of the connected tools can. "
    "Run `dial-chat init` to connect an MCP server that can, and ask again."
)
# Characters to quote from an error.
MAX_ERROR_CHARS = 400
# Characters to show of a result.
MAX_RESULT_CHARS = 4_000
# The number of last words that `Repetition` compares. A multiplication table of twenty lines is shorter.
WINDOW = 120
# The minimum number of different words in the window, apart from digits; fewer are a repetition.
LEAST_DISTINCT = 9

_AS_JSON = "Answer with one JSON object that satisfies this JSON Schema:\n{schema}"
_FAILED = "I could not find that out: the call of "
_NOT_ALLOWED = "I could not do that: the call of "
_ARGUMENT = re.compile(r"I can use [\w.-]+ for that, but you have not said its ")
_PREFACE = re.compile(r"^(?:error executing tool [\w.-]+: |error: )+", re.IGNORECASE)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?")
_DIGITS = re.compile(r"\d+")
_LABEL = re.compile(r"#*[A-Z]{0,2}[.,:)|]*")


def build_answer_request(request: ModelRequest, results: Sequence[str]) -> ModelRequest:
    """Return the request for an answer in plain text or, if the request has an output format, as JSON.

    Of earlier turns only the questions and answers are kept. Turns with a composed reply are left out, because the
    model would repeat their failure. The results of this turn are put before its question.
    """
    instructions = request.instructions or (Instruction(InstructionSource.HOST, SYSTEM),)
    if request.output_format is not None:
        text = _AS_JSON.format(schema=json.dumps(request.output_format.schema, ensure_ascii=False))
        instructions = (*instructions, Instruction(InstructionSource.HOST, text))
    messages: list[Message] = []
    for message in request.messages:
        if message.role is Role.USER:
            messages.append(message)
        elif message.role is Role.ASSISTANT and _is_composed(message.text):
            messages = messages[:-1]
        elif message.role is Role.ASSISTANT and message.text and not message.tool_calls:
            messages.append(message)
    if results and messages:
        messages[-1] = Message.user("Results:\n" + "\n".join(results) + f"\n\n{messages[-1].text}")
    settings = replace(request.settings, tool_choice=None)
    return replace(request, instructions=instructions, messages=tuple(messages), tools=(), settings=settings)


def show_results(results: Sequence[str]) -> str:
    """Return results as a reply: JSON as lines, and several lines in a code fence."""
    text = "\n".join(_shorten(_format_json(result) or result.strip(), MAX_RESULT_CHARS) for result in results)
    return f"```\n{text}\n```" if "\n" in text and "```" not in text else text


def compose_failed_call(name: str, error: str, found: Sequence[str] = ()) -> str:
    """Compose the reply after a failed call.

    Args:
        name: The tool's name.
        error: The error that the tool returned.
        found: The results of other calls of the turn.
    """
    reason = _shorten(_PREFACE.sub("", error.strip()), MAX_ERROR_CHARS)
    return _append_results(f"{_FAILED}{name} failed. It says: {reason or 'nothing'}", found)


def compose_denied_call(name: str, found: Sequence[str] = ()) -> str:
    """Compose the reply after a call that was not allowed."""
    return _append_results(f"{_NOT_ALLOWED}{name} was not allowed.", found)


def _append_results(reply: str, found: Sequence[str]) -> str:
    return f"{reply}\n\nWhat was found before that:\n{show_results(found)}" if found else reply


def compose_missing_argument(tool: ToolSpec, names: Sequence[str]) -> str:
    """Compose a question to the user for arguments that do not occur in the conversation."""
    described = []
    for name in names:
        about = str(tool.input_schema["properties"][name].get("description") or "").split(". ", maxsplit=1)[0]
        described.append(f"{name} ({about.rstrip('.')})" if about and len(about) <= 80 else name)
    return f"I can use {tool.name} for that, but you have not said its {' and '.join(described)}. Which should I use?"


def _is_composed(text: str) -> bool:
    return bool(_ARGUMENT.match(text)) or text.startswith((_FAILED, _NOT_ALLOWED, NOT_CONNECTED, NO_TOOL_FITS))


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit].rstrip()}…"


def _format_json(text: str) -> str:
    """Return a JSON object or array as lines, "target timezone: Asia/Tokyo"; empty for other texts."""
    try:
        value = json.loads(text) if len(text) <= MAX_RESULT_CHARS else None
    except (ValueError, RecursionError):
        return ""
    return "\n".join(_format_lines(value, "")) if isinstance(value, dict | list) else ""


def _format_lines(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _format_lines(inner, f"{name} {str(key).replace('_', ' ')}".strip())
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for number, inner in enumerate(value, 1):
            yield from _format_lines(inner, f"{name} {number}".strip())
    else:
        written = ", ".join(map(_format_scalar, value)) if isinstance(value, list) else _format_scalar(value)
        yield f"{name}: {written}" if name else written


def _format_scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else _TIME.sub(r"\1 \2", str(value))


class Repetition:
    """Detects an answer that repeats itself without end, such as a numbered list of the same item."""

    def __init__(self) -> None:
        self._words: deque[str] = deque(maxlen=WINDOW)
        self._rest = ""

    def feed(self, text: str) -> bool:
        """Add a piece of the answer; return True if the answer now only repeats itself."""
        *whole, self._rest = re.split(r"\s", self._rest + text)
        self._words.extend(_mask_numbering(word) for word in whole if word)
        return len(self._words) == WINDOW and len(set(self._words)) < LEAST_DISTINCT


def _mask_numbering(word: str) -> str:
    """Return a word without the parts that count in a list: its digits, or one or two capital letters."""
    masked = _DIGITS.sub("#", word)
    return "#" if _LABEL.fullmatch(masked) else masked
