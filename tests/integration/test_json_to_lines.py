"""Replies constrained to a JSON object are converted to lines, with any split of the stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial_client import DialClient, Message
from tests.inner import Api, JsonToLines, ModelProfile, ReActFormatHandler, ToolSpec
from tests.support.fakes import unhurried
from tests.support.model_endpoint import Say, hear, model_endpoint, provider_of, refuse
from tests.support.program import entry


def lines(text: str, size: int = 0) -> str:
    reader = JsonToLines()
    step = size or len(text) or 1
    return "".join(reader.feed(text[at : at + step]) for at in range(0, len(text), step))


def test_an_object_is_converted_to_lines() -> None:
    values = {"Thought": 'I "see"\nthis', "Action": "add", "Action Input": {"a": [1, "}"], "b": "é\\"}}
    expected = 'Thought: I "see"\nthis\nAction: add\nAction Input: {"a": [1, "}"], "b": "é\\\\"}'
    assert lines(json.dumps(values, ensure_ascii=False)) == expected


@pytest.mark.parametrize(
    "text",
    ["Final Answer: noon", "It is {noon}.", "[1, 2]", "", '{1: "no object"}', '{"' + "k" * 300 + '": "x"}'],
    ids=["labels", "words", "a list", "nothing", "no key", "a key without end"],
)
def test_text_that_is_not_an_object_is_unchanged(text: str) -> None:
    assert lines(text).lstrip("{") == text.lstrip("{")


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = TEXT | st.integers() | st.booleans() | st.none() | st.lists(st.text(max_size=5), max_size=3)
OBJECTS = st.dictionaries(st.text("abc Input", min_size=1, max_size=9), VALUES, max_size=4)


@unhurried
@given(OBJECTS, st.booleans(), st.integers(1, 9))
def test_the_split_of_the_stream_does_not_matter(values: dict[str, Any], is_ascii: bool, size: int) -> None:
    text = json.dumps(values, ensure_ascii=is_ascii)
    assert lines(text, size) == lines(text)
    if all(isinstance(value, str) for value in values.values()):
        assert lines(text) == "\n".join(f"{key}: {value}" for key, value in values.items())


def test_a_truncated_object_has_its_lines_so_far() -> None:
    assert lines('{"Thought": "I see", "Final Answer": "It is no') == "Thought: I see\nFinal Answer: It is no"


@unhurried
@given(st.text('{}[]",:\\u0dDcC8n ', max_size=80), st.integers(1, 5))
def test_any_text_is_converted_without_errors(text: str, size: int) -> None:
    assert lines(text, size) == lines(text)


COUNT = ToolSpec("count", "Counts.", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
NESTED = ToolSpec("nested", "", {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}})


def test_the_react_format_has_a_json_schema() -> None:
    handler = ReActFormatHandler()
    request = handler.request([Message.user("?")], (COUNT, NESTED))
    assert request.schema is not None
    count, nested, answer = (branch["properties"] for branch in request.schema["anyOf"])
    assert list(count) == ["Thought", "Action", "Action Input"]
    assert (count["Action"], count["Action Input"]) == ({"enum": ["count"]}, COUNT.input_schema)
    assert nested["Action Input"] == {"type": "object"}
    assert list(answer) == ["Thought", "Final Answer"]
    assert handler.request([Message.user("?")], ()).schema is None


CALL = '{"Thought": "Say it.", "Action": "echo", "Action Input": {"text": "hi"}}'
ANSWER = '{"Thought": "Done.", "Final Answer": "It said \\"hi\\"."}'


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_a_text_format_works_with_an_endpoint_that_supports_only_json_schema(stream: bool) -> None:
    with model_endpoint([Say(CALL, pieces=7), Say(ANSWER, pieces=7)]) as endpoint:
        profile = ModelProfile("box", Api.CHAT, endpoint.url, quirks={"constrain": "response_format"})
        async with DialClient(
            "box", servers={"raw": entry("Server")}, models={"box": profile}, tool_format="react"
        ) as dial:
            if stream:
                events = [event async for event in dial.stream([Message.user("?")])]
                turn = events[-1].turn  # type: ignore[union-attr]  # the last one is Finished
            else:
                turn = await dial.run([Message.user("?")])
        sent = endpoint.requests[0].json
    assert turn.text == 'It said "hi".'
    assert [dict(record.call.arguments) for record in turn.tool_calls] == [{"text": "hi"}]
    assert sent["response_format"]["json_schema"]["schema"]["anyOf"][0]["properties"]["Action"] == {"enum": ["echo"]}


@pytest.mark.anyio
async def test_a_request_is_repeated_without_a_refused_response_format() -> None:
    with model_endpoint([refuse(400, "Unrecognized parameter: response_format"), Say("Final Answer: hi")]) as endpoint:
        provider = provider_of(endpoint, quirks={"constrain": "response_format"})
        heard = await hear(provider, schema={"type": "object"})
        await provider.aclose()
        assert "response_format" not in endpoint.requests[1].json
    assert heard.text == "Final Answer: hi"
