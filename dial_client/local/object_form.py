"""The form the embedded model calls tools in: one JSON object, a call or an answer, held to a grammar.

    {"tool": "get_sunset", "arguments": {"place": "Europe/Madrid"}}
    {"answer": "The sun sets in Madrid at 21:04."}

Every word was chosen by measuring (``python -m evals``). A tool is one line that says what it takes: its whole schema
doubles the reading and adds no right call. The examples' tools are never on offer, so that nobody copies them; the last
example weighs most. Behind a result the question is said once more: without that the model tells all it has read.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dial_client.grammar import Grammar, literal
from dial_client.messages import Message, Role, TextPart, ToolCallRequest, ToolSpec

_INSTRUCTIONS = """\
You do not know what is true right now: the time, the date, files, repositories, people, prices, or anything live. \
You cannot do or compute anything yourself. For these you must call a tool. You have these tools:
{tools}

Reply with one JSON object. To call a tool:
{{"tool": "the tool's name", "arguments": {{"argument": "value"}}}}
When you know the answer, or need no tool:
{{"answer": "the answer in one short sentence"}}"""

_AGAIN = "{result}\n\n{question}\nAnswer this in one sentence, with names and numbers just as the result has them."

_EXAMPLES: tuple[tuple[str, ...], ...] = (
    ("What colour is grass?", "Grass is green."),
    (
        "What songs are in /home/ada/music?",
        '{"tool": "list_songs", "arguments": {"folder": "/home/ada/music"}}',
        "blue.mp3\nrain.mp3",
        "There are two songs in /home/ada/music: blue.mp3 and rain.mp3.",
    ),
    ('What is the plural of "child"?', 'The plural of "child" is "children".'),
    (
        "How old is the owner of the dog Rex?",
        '{"tool": "find_pet", "arguments": {"pet": "Rex"}}',
        "Rex: dog, 4 years old, owner Tom Hill",
        '{"tool": "get_person", "arguments": {"person": "Tom Hill"}}',
        "Tom Hill, 43 years old, teacher",
        "Tom Hill, the owner of Rex, is 43 years old.",
    ),
    (
        "When does the sun set in Madrid?",
        '{"tool": "get_sunset", "arguments": {"place": "Europe/Madrid"}}',
        '{"sunset": "21:04"}',
        "The sun sets in Madrid at 21:04.",
    ),
    ("Hello", "Hello! How can I help you?"),
    (
        "Cut 20 cm off the red rope.",
        '{"tool": "cut_rope", "arguments": {"colour": "red", "centimetres": 20}}',
        "done, 180 cm left",
        "I have cut 20 cm off the red rope; 180 cm are left.",
    ),
)
"""Each a question, then by turns a call and its result, and at last the answer."""


def _harmless(text: str) -> str:
    """Give the text without what could end a turn and begin another: the model's own tokens (``<|im_end|>``)."""
    return text.replace("<|", "< |")


def _written(value: Any) -> str:
    return _harmless(json.dumps(value, ensure_ascii=False))


def _examples() -> Iterator[Message]:
    for question, *calls, answer in _EXAMPLES:
        yield Message.user(question)
        for call, result in zip(calls[::2], calls[1::2], strict=True):
            yield Message.assistant(call)
            yield Message.user(f"Result: {result}")
        yield Message.assistant(_written({"answer": answer}))


EXAMPLES = tuple(_examples())


def instructions(tools: Sequence[ToolSpec]) -> str:
    """Say what the tools are, and how one is called."""
    return _INSTRUCTIONS.format(tools="\n".join(map(signature, tools)))


def signature(tool: ToolSpec) -> str:
    """Give a tool in one line: its name, its description, and for each argument what it takes."""
    required = tool.input_schema.get("required", ())
    properties = tool.input_schema.get("properties", {})
    arguments = {
        name: _required(schema) if name in required else _optional(schema) for name, schema in properties.items()
    }
    return _written({"name": tool.name, "description": tool.description, "arguments": arguments})


def _required(schema: Any) -> str:
    about = str(schema.get("description", "")).split(". ", maxsplit=1)[0] if isinstance(schema, Mapping) else ""
    return _kind(schema) + (f": {about}" if about else "")


def _optional(schema: Any) -> Any:
    if isinstance(schema, Mapping) and "default" in schema and "enum" not in schema:
        return schema["default"]  # said without it, a model this small makes a value up
    return f"{_kind(schema)}, optional"


def _kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "anything"
    if isinstance(schema.get("enum"), list):
        return " or ".join(json.dumps(one, ensure_ascii=False) for one in schema["enum"])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        return " or ".join(filter(None, map(_kind, choices)))
    if schema.get("type") == "array":
        return f"array of {_kind(schema.get('items'))}"
    if isinstance(schema.get("properties"), Mapping):
        return "object with " + ", ".join(schema["properties"])
    kinds = schema.get("type", "anything")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(str(kind) for kind in kinds if kind != "null")


def conversation(messages: Sequence[Message], hidden: frozenset[str] = frozenset()) -> list[Message]:
    """Give the conversation in the form of the examples, without instructions, and without the calls of these ids."""
    told: list[Message] = []
    for message in messages:
        match message.role:
            case Role.USER:
                told.append(message)
            case Role.TOOL if message.tool_call_id not in hidden:
                told.append(Message.user(f"Result: {'ERROR: ' if message.is_error else ''}{_result(message)}"))
            case Role.ASSISTANT:
                calls = [call for call in message.tool_calls if call.id not in hidden]
                told += [Message.assistant(_written({"tool": c.name, "arguments": dict(c.arguments)})) for c in calls]
                if message.text and not message.tool_calls:
                    told.append(Message.assistant(_written({"answer": message.text})))
    return told


def _result(message: Message) -> str:
    parts = () if isinstance(message.content, str) else message.content
    unseen = sum(not isinstance(part, TextPart) for part in parts)
    note = f"[{unseen} image(s) or document(s) that cannot be shown]" if unseen else ""
    return "\n".join(filter(None, (_harmless(message.text), note))) or "(no output)"


def asked_again(told: Sequence[Message], question: str) -> list[Message]:
    """Give the conversation, which ends in a result, with the question said once more."""
    *before, last = told
    return [*before, Message.user(_AGAIN.format(result=last.text, question=question))]


def grammar(tools: Sequence[ToolSpec], *, may_answer: bool) -> str:
    """Give the grammar of a reply that calls one of these tools, or answers; without tools it answers."""
    rules = Grammar()
    behind_name = '", "arguments": '
    calls = [
        f"{literal(tool.name + behind_name)} {rules.object(tool.input_schema, f't{at}')}"
        for at, tool in enumerate(tools)
    ]
    choices = [literal('"tool": "') + f" ( {' | '.join(calls)} )"] if calls else []
    if may_answer or not calls:
        choices.append(literal('"answer": ') + " string")
    return rules.text(f'"{{" ( {" | ".join(choices)} ) "}}"')


_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*"([\w-]{1,64})"')
_HEX = "[0-9a-fA-F]"
_PAIR = rf"\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
_WHOLE = re.compile(rf'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F]){_HEX}{{4}}|{_PAIR})*')


class ObjectReader:
    """Reads the object as it comes: an answer is shown word by word, a call is given when it is whole."""

    def __init__(self) -> None:
        self._text = ""
        self._read = 0
        self._is_answer = False

    def feed(self, text: str) -> str:
        """Take more of the reply, give what of its answer can be shown."""
        self._text += text
        if not self._is_answer:
            found = _ANSWER.match(self._text)
            if found is None:
                return ""
            self._is_answer, self._read = True, found.end()
        whole = _WHOLE.match(self._text, self._read)
        assert whole is not None
        self._read = whole.end()
        return str(json.loads(f'"{whole.group()}"', strict=False))

    def finish(self) -> str:
        """Take the end of the reply, give what of it is still to be shown: a reply that is no object, as it is."""
        return "" if self._text.lstrip().startswith("{") else self._text

    @property
    def tool(self) -> str:
        """The tool the reply calls, or began to call; empty for an answer."""
        found = _CALL.match(self._text)
        return found[1] if found else ""

    def call(self) -> ToolCallRequest | None:
        """Give the call, if the reply is a whole one."""
        try:
            value = json.loads(self._text)
        except (ValueError, RecursionError):
            return None
        if not self.tool or not isinstance(value.get("arguments"), Mapping):
            return None
        return ToolCallRequest(f"call_{uuid.uuid4().hex}", self.tool, dict(value["arguments"]))
