"""The prompt format in which the embedded model calls tools: signatures of tools, and parsing of replies."""

from __future__ import annotations

import json
from typing import Any

from dial_client.messages.message import Message, ToolSpec
from dial_client.providers.embedded.json_prompt_format import (
    MAX_ANSWER_CHARS,
    find_called_tool,
    format_conversation,
    format_signature,
    is_unknown,
    parse_call,
)


def test_the_signature_of_a_tool_describes_its_arguments() -> None:
    properties: dict[str, Any] = {
        "path": {"type": "string", "description": "The file. It must exist."},
        "unit": {"enum": ["km", "mi"], "default": "km"},
        "count": {"type": "integer", "default": 10},
        "tags": {"type": "array", "items": {"type": "string"}},
        "since": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "where": {"type": "object", "properties": {"x": {}, "y": {}}},
        "odd": True,
    }
    schema = {"type": "object", "properties": properties, "required": ["path"]}
    assert json.loads(format_signature(ToolSpec("t", "Does it.", schema))) == {
        "name": "t",
        "description": "Does it.",
        "arguments": {
            "path": "string: The file",
            "unit": '"km" or "mi", optional',
            "count": 10,
            "tags": "array of string, optional",
            "since": "string, optional",
            "where": "object with x, y, optional",
            "odd": "anything, optional",
        },
    }


def test_a_decision_names_a_tool_or_none() -> None:
    assert find_called_tool('{"tool": "measure", "arguments": {"room"') == "measure"
    assert find_called_tool('{"answer"}') == find_called_tool('{"unknown"}') == find_called_tool("") == ""
    assert is_unknown('{"unknown"}')
    assert not is_unknown('{"answer"}')


def test_an_incomplete_call_is_not_parsed() -> None:
    call = parse_call('{"tool": "measure", "arguments": {"room": "office"}}')
    assert call is not None
    assert (call.name, call.arguments) == ("measure", {"room": "office"})
    assert parse_call('{"tool": "measure", "arguments": {"room"') is None
    assert parse_call('{"tool": "measure", "arguments": "office"}') is None
    assert parse_call('{"answer"}') is None


def test_a_long_answer_of_an_earlier_turn_is_shortened() -> None:
    (history,) = format_conversation([Message.assistant("word " * 1000)])
    assert len(history.text) < MAX_ANSWER_CHARS + 50
