"""The format of the embedded model's decisions: a JSON object, constrained by a grammar, with the kind of its reply.

    {"tool": "get_sunset", "arguments": {"place": "Europe/Madrid"}}
    {"answer": "..."}
    {"unknown": "..."}

The decision "answer" or "unknown" ends after that key word: another request asks for the answer (`answer_prompt`), and
"unknown" has a composed reply (`fixed_replies`). The prompt describes a tool in one line: its whole schema doubles the
prompt's length and adds no correct call. The tools of the examples are never offered, so that no reply copies them; the
last example has the most influence. Examples without a tool call prevent calls for ordinary questions: when only three
of seven examples had none, and all of those were short facts, two of three ordinary questions led to a call.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dial_client.messages.message import NO_OUTPUT, Message, Role, TextPart, ToolCallRequest, ToolSpec
from dial_client.messages.model import Instruction, InstructionSource
from dial_client.schema.gbnf import Grammar, to_literal

MAX_ANSWER_CHARS = 300
"""Characters of an earlier answer in the prompt of a decision."""

_LIVE = """\
You do not know what is true right now: the time, the date, files, repositories, people, prices, or anything live. """

_INSTRUCTIONS = (
    _LIVE
    + """\
You cannot do anything yourself. For these you must call a tool. You have these tools:
{tools}

Reply with one JSON object. To call a tool:
{{"tool": "the tool's name", "arguments": {{"argument": "value"}}}}
When no tool above helps, or you can write it yourself: texts, code, lists, translations, explanations, \
general knowledge, small talk:
{{"answer": "..."}}
When it is about something live that no tool above gives:
{{"unknown": "..."}}"""
)

_WITHOUT_TOOLS = (
    _LIVE
    + """\
You cannot look at anything or look anything up.

Reply with one JSON object. When you can write it yourself: texts, code, lists, translations, explanations, maths, \
general knowledge, small talk:
{"answer": "..."}
When it is about something live, or on the user's computer or accounts:
{"unknown": "..."}"""
)

_ANSWER = '{"answer": "..."}'
_UNKNOWN = '{"unknown": "..."}'

_EXAMPLES: tuple[tuple[str, ...], ...] = (
    ("What colour is grass?", _ANSWER),
    (
        "What songs are in /home/ada/music?",
        '{"tool": "list_songs", "arguments": {"folder": "/home/ada/music"}}',
        "blue.mp3\nrain.mp3",
        _ANSWER,
    ),
    ("Write a song about winter.", _ANSWER),
    ("How full is the car park at the moment?", _UNKNOWN),
    (
        "How old is the owner of the dog Rex?",
        '{"tool": "find_pet", "arguments": {"pet": "Rex"}}',
        "Rex: dog, 4 years old, owner Tom Hill",
        '{"tool": "get_person", "arguments": {"person": "Tom Hill"}}',
        "Tom Hill, 43 years old, teacher",
        _ANSWER,
    ),
    ("How do I sort an array in Ruby?", _ANSWER),
    ('What is the plural of "child"?', _ANSWER),
    ("5 ideas for a birthday party", _ANSWER),
    ("What is written in my diary?", _UNKNOWN),
    ("Translate to Latin: The dog sleeps.", _ANSWER),
    (
        "When does the sun set in Madrid?",
        '{"tool": "get_sunset", "arguments": {"place": "Europe/Madrid"}}',
        '{"sunset": "21:04"}',
        _ANSWER,
    ),
    ("Hello", _ANSWER),
    ("Write a Java class for a bank account.", _ANSWER),
    ("What does a kilo of rice cost today?", _UNKNOWN),
    ("Who painted the Mona Lisa?", _ANSWER),
    (
        "Cut 20 cm off the red rope.",
        '{"tool": "cut_rope", "arguments": {"colour": "red", "centimetres": 20}}',
        "done, 180 cm left",
        _ANSWER,
    ),
)
"""Each example is a question, then calls and their results in turn, and at the end the final decision."""

_EXAMPLES_WITHOUT_TOOLS: tuple[tuple[str, ...], ...] = (
    ("What colour is grass?", _ANSWER),
    ("How full is the car park at the moment?", _UNKNOWN),
    ("Write a song about winter.", _ANSWER),
    ("What does notes.txt say?", _UNKNOWN),
    ("How do I sort an array in Ruby?", _ANSWER),
    ('What is the plural of "child"?', _ANSWER),
    ("Which songs are in my music folder?", _UNKNOWN),
    ("5 ideas for a birthday party", _ANSWER),
    ("Translate to Latin: The dog sleeps.", _ANSWER),
    ("What does a kilo of rice cost today?", _UNKNOWN),
    ("Hello", _ANSWER),
    ("Write a Java class for a bank account.", _ANSWER),
    ("When does the sun set in Madrid today?", _UNKNOWN),
    ("Who painted the Mona Lisa?", _ANSWER),
)


def _neutralize(text: str) -> str:
    """Return the text without the model's special tokens (``<|im_end|>``), which could end a turn and start another."""
    return text.replace("<|", "< |")


def _format_json(value: Any) -> str:
    return _neutralize(json.dumps(value, ensure_ascii=False))


def _build_examples(examples: tuple[tuple[str, ...], ...]) -> Iterator[Message]:
    for question, *calls, answer in examples:
        yield Message.user(question)
        for call, result in zip(calls[::2], calls[1::2], strict=True):
            yield Message.assistant(call)
            yield Message.user(f"Result: {result}")
        yield Message.assistant(answer)


EXAMPLES = tuple(_build_examples(_EXAMPLES))
"""Worked examples, with calls."""
EXAMPLES_WITHOUT_TOOLS = tuple(_build_examples(_EXAMPLES_WITHOUT_TOOLS))
"""Worked examples for requests without tools."""


def build_instruction(tools: Sequence[ToolSpec]) -> Instruction:
    """Return the instruction that describes the tools and the format of a decision."""
    listed = "\n".join(map(format_signature, tools))
    text = _INSTRUCTIONS.format(tools=listed) if tools else _WITHOUT_TOOLS
    return Instruction(InstructionSource.TOOL_FORMAT, text)


def choose_examples(tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
    """Return the worked examples that precede a conversation."""
    return EXAMPLES if tools else EXAMPLES_WITHOUT_TOOLS


def format_signature(tool: ToolSpec) -> str:
    """Return a tool as one line: its name, its description, and the type of each argument."""
    required = tool.input_schema.get("required", ())
    properties = tool.input_schema.get("properties", {})
    arguments = {
        name: _describe_required(schema) if name in required else _describe_optional(schema)
        for name, schema in properties.items()
    }
    return _format_json({"name": tool.name, "description": tool.description, "arguments": arguments})


def _describe_required(schema: Any) -> str:
    about = str(schema.get("description", "")).split(". ", maxsplit=1)[0] if isinstance(schema, Mapping) else ""
    return _describe_kind(schema) + (f": {about}" if about else "")


def _describe_optional(schema: Any) -> Any:
    if isinstance(schema, Mapping) and "default" in schema and "enum" not in schema:
        return schema["default"]  # without the default, the model invents a value
    return f"{_describe_kind(schema)}, optional"


def _describe_kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "anything"
    if isinstance(schema.get("enum"), list):
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        return " or ".join(filter(None, map(_describe_kind, choices)))
    if schema.get("type") == "array":
        return f"array of {_describe_kind(schema.get('items'))}"
    if isinstance(schema.get("properties"), Mapping):
        return "object with " + ", ".join(schema["properties"])
    kinds = schema.get("type", "anything")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(str(kind) for kind in kinds if kind != "null")


def format_conversation(messages: Sequence[Message], hidden: frozenset[str] = frozenset()) -> list[Message]:
    """Return the conversation in the format of the examples, without instructions and without the calls in `hidden`."""
    written: list[Message] = []
    for message in messages:
        match message.role:
            case Role.USER:
                written.append(message)
            case Role.TOOL if message.tool_call_id not in hidden:
                written.append(
                    Message.user(f"Result: {'ERROR: ' if message.is_error else ''}{read_result_text(message)}")
                )
            case Role.ASSISTANT:
                calls = [call for call in message.tool_calls if call.id not in hidden]
                written += [
                    Message.assistant(_format_json({"tool": c.name, "arguments": dict(c.arguments)})) for c in calls
                ]
                if message.text and not message.tool_calls:
                    written.append(Message.assistant(_format_json({"answer": _shorten(message.text)})))
    return written


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_ANSWER_CHARS else f"{text[:MAX_ANSWER_CHARS]} ..."


def read_result_text(message: Message) -> str:
    """Return the text of a result for the model; images and documents are only counted."""
    parts = () if isinstance(message.content, str) else message.content
    unseen = sum(not isinstance(part, TextPart) for part in parts)
    note = f"[{unseen} image(s) or document(s) that cannot be shown]" if unseen else ""
    return "\n".join(filter(None, (_neutralize(message.text), note))) or NO_OUTPUT


def build_grammar(tools: Sequence[ToolSpec], *, may_answer: bool) -> str:
    """Return the grammar of a decision: a call of one of the tools or, if `may_answer`, "answer" or "unknown"."""
    rules = Grammar()
    behind_name = '", "arguments": '
    calls = [
        f"{to_literal(tool.name + behind_name)} {rules.add_object(tool.input_schema, f't{at}')}"
        for at, tool in enumerate(tools)
    ]
    choices = [to_literal('"tool": "') + f" ( {' | '.join(calls)} )"] if calls else []
    if may_answer or not calls:
        choices += [to_literal(f'"{ANSWER}"'), to_literal(f'"{UNKNOWN}"')]
    return rules.to_text(f'"{{" ( {" | ".join(choices)} ) "}}"')


ANSWER = "answer"
UNKNOWN = "unknown"
_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*"([\w-]{1,64})"')


def find_called_tool(text: str) -> str:
    """Return the tool of a complete or incomplete call in a reply; empty for an answer."""
    found = _CALL.match(text)
    return found[1] if found else ""


def is_unknown(text: str) -> bool:
    """Return True if the decision is "unknown"."""
    return text.lstrip().startswith(f'{{"{UNKNOWN}"')


def parse_call(text: str) -> ToolCallRequest | None:
    """Return the call if the reply is a complete call; None otherwise."""
    tool = find_called_tool(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not tool or not isinstance(value.get("arguments"), Mapping):
        return None
    return ToolCallRequest(f"call_{secrets.token_hex(16)}", tool, dict(value["arguments"]))
