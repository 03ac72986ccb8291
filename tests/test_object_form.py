"""The form in which the embedded model calls tools: what it is told, and how its reply is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dial_client.local.object_form import ObjectReader, signature
from dial_client.messages import ToolSpec


def answer(text: str) -> str:
    return json.dumps({"answer": text})


def test_a_tool_is_a_line_that_says_what_it_takes() -> None:
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
    assert json.loads(signature(ToolSpec("t", "Does it.", schema))) == {
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


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_answer_is_read_in_pieces_of_any_size(size: int) -> None:
    text = answer('A "quoted" \\ path\tand\nlines')
    reader = ObjectReader()
    shown = "".join(reader.feed(text[at : at + size]) for at in range(0, len(text), size))
    assert shown + reader.finish() == 'A "quoted" \\ path\tand\nlines'
    assert (reader.tool, reader.call()) == ("", None)


def test_a_reply_that_is_no_object_is_text() -> None:
    reader = ObjectReader()
    assert reader.feed("Just words.") + reader.finish() == "Just words."
