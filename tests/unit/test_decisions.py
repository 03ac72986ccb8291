"""The prompt format in which the embedded model calls tools: signatures of tools, and parsing of replies."""

from __future__ import annotations

import json
from typing import Any

from tests.inner import (
    MAX_ANSWER_CHARS,
    Completion,
    FinishReason,
    Message,
    ToolDecision,
    ToolSpec,
    format_conversation,
    format_signature,
    read_decision,
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


STOPPED = Completion(FinishReason.STOP)


def test_a_decision_is_a_call_an_answer_or_unknown() -> None:
    decision = read_decision('{"tool": "measure", "arguments": {"room": "office"}}', STOPPED)
    assert decision.call is not None
    assert (decision.call.name, decision.call.arguments) == ("measure", {"room": "office"})
    assert read_decision('{"answer"}', STOPPED) == read_decision("", STOPPED) == ToolDecision()
    assert read_decision('{"unknown"}', STOPPED) == ToolDecision(is_unknown=True)


def test_a_decision_has_the_scores_of_its_echo() -> None:
    assert read_decision('{"answer"}', Completion(FinishReason.STOP, echo=(-7.5, True))) == ToolDecision(
        "", None, -7.5, True
    )


def test_an_incomplete_call_has_no_arguments() -> None:
    assert read_decision('{"tool": "measure", "arguments": {"room"', STOPPED) == ToolDecision("measure")
    assert read_decision('{"tool": "measure", "arguments": "office"}', STOPPED) == ToolDecision("measure")
    whole = '{"tool": "measure", "arguments": {"room": "office"}}'
    assert read_decision(whole, Completion(FinishReason.CUT)) == ToolDecision("measure")


def test_a_long_answer_of_an_earlier_turn_is_shortened() -> None:
    (history,) = format_conversation([Message.assistant("word " * 1000)])
    assert len(history.text) < MAX_ANSWER_CHARS + 50
