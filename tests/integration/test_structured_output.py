"""Typed answers with the three model APIs: schemas of requests, answers, corrections and refusals."""

from __future__ import annotations

import datetime
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from dial_client import DialClient, Finished, OutputDelta, OutputError, Turn
from tests.inner import Api, Completion, FinishReason, ModelInfo, StructuredOutput, TextChunk
from tests.support.fakes import Model
from tests.support.model_endpoint import Answer, Call, Recorded, Say, model_endpoint, provider_of, refuse

pytestmark = [pytest.mark.anyio, pytest.mark.once]


class Address(BaseModel):
    street: str
    city: str


class Person(BaseModel):
    name: str
    home: Annotated[Address, Field(description="Where the person lives.")]
    work: Address | None = None
    nick: str = "none"


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Order(BaseModel):
    number: Annotated[int, Field(ge=1, le=10)]
    price: Annotated[float, Field(gt=0)]
    code: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    colours: Annotated[list[Colour], Field(max_length=2)]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: bool


@dataclass
class Point:
    x: int
    y: int = 0


class Film(TypedDict):
    title: str
    seen: datetime.date


CASES: list[tuple[Any, Any]] = [
    (Person, {"name": "Ada", "home": {"street": "Main", "city": "London"}, "work": None, "nick": None}),
    (Node, {"value": 1, "children": [{"value": 2, "children": []}]}),
    (Order, {"number": 3, "price": 1.5, "code": "ABC", "colours": ["red"]}),
    (Cat | Dog, {"result": {"kind": "dog", "barks": True}}),
    (Annotated[Cat | Dog, Field(discriminator="kind")], {"result": {"kind": "cat", "lives": 9}}),
    (Point, {"x": 1, "y": None}),
    (Film, {"title": "Dune", "seen": "2026-01-02"}),
    (list[Person], {"result": [{"name": "Ada", "home": {"street": "Main", "city": "London"}}]}),
    (Colour, {"result": "blue"}),
    (int | None, {"result": None}),
    (dict[str, int], {"a": 1, "b": 2}),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"a": 1}),
]
IDS = [
    *("nested", "recursive", "constrained", "union", "tagged", "dataclass"),
    *("typeddict", "list", "enum", "optional", "dict", "schema"),
]
NATIVE = {"structured_output": "with_tools"}


def expected(type_: Any, value: Any) -> Any:
    plain = value["result"] if value.keys() == {"result"} else value
    if isinstance(type_, Mapping):
        return plain
    without_nulls = (
        {key: part for key, part in plain.items() if part is not None} if type_ in (Person, Point) else plain
    )
    return TypeAdapter(type_).validate_python(without_nulls)


async def ask(
    replies: list[Answer], wire: Api, output_type: Any, *, stream: bool = False, **settings: Any
) -> tuple[Turn[Any], list[Recorded], list[Any]]:
    options = {name: settings.pop(name) for name in ("tools", "tool_format") if name in settings}
    with model_endpoint(replies) as endpoint:
        async with DialClient(provider_of(endpoint, wire, **settings), **options) as dial:
            if not stream:
                return await dial.run("Which?", output_type=output_type), endpoint.requests, []
            events = [event async for event in dial.stream("Which?", output_type=output_type)]
    outputs = [event.output for event in events if isinstance(event, OutputDelta)]
    assert isinstance(events[-1], Finished)
    return events[-1].turn, endpoint.requests, outputs


def sent_schema(wire: Api, body: Any) -> Any:
    """Return the answer schema of a request, after validation with the SDK's type."""
    from anthropic.types import OutputConfigParam
    from openai.types.responses import ResponseTextConfigParam
    from openai.types.shared_params import ResponseFormatJSONSchema

    match wire:
        case Api.CHAT:
            TypeAdapter(ResponseFormatJSONSchema).validate_python(body["response_format"])
            return body["response_format"]["json_schema"]["schema"]
        case Api.RESPONSES:
            TypeAdapter(ResponseTextConfigParam).validate_python(body["text"])
            return body["text"]["format"]["schema"]
        case Api.MESSAGES:
            TypeAdapter(OutputConfigParam).validate_python(body["output_config"])
            return body["output_config"]["format"]["schema"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", list(Api))
@pytest.mark.parametrize(("type_", "value"), CASES, ids=IDS)
async def test_an_endpoint_with_structured_output_returns_any_type(
    type_: Any, value: Any, wire: Api, *, stream: bool
) -> None:
    turn, requests, outputs = await ask([Say(json.dumps(value))], wire, type_, stream=stream, quirks=NATIVE)
    assert turn.output == expected(type_, value)
    assert outputs[-1:] == ([turn.output] if stream else [])
    if wire is Api.MESSAGES and type_ == dict[str, int]:  # the API has no field for that
        assert requests[0].json["tools"][0]["name"] == "final_answer"
        return
    schema = sent_schema(wire, requests[0].json)
    assert schema["type"] == "object"
    assert "tools" not in requests[0].json


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", list(Api))
@pytest.mark.parametrize(("type_", "value"), CASES, ids=IDS)
async def test_an_endpoint_without_structured_output_returns_any_type_through_a_tool(
    type_: Any, value: Any, wire: Api, *, stream: bool
) -> None:
    reply = Say("Here:", calls=(Call("final_answer", value),))
    turn, requests, outputs = await ask([reply], wire, type_, stream=stream)
    assert turn.output == expected(type_, value)
    assert outputs[-1:] == ([turn.output] if stream else [])
    assert not {"response_format", "text", "output_config"} & requests[0].json.keys()
    assert turn.tool_calls == ()
    assert len(turn.messages) == 2


@pytest.mark.parametrize("tool_format", ["react", "xml"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("type_", "value"), CASES, ids=IDS)
async def test_a_text_format_returns_any_type(type_: Any, value: Any, tool_format: str, *, stream: bool) -> None:
    label = "Thought: I know.\nFinal Answer: " if tool_format == "react" else ""
    reply = Say(f"{label}{json.dumps(value)}")
    turn, requests, outputs = await ask([reply], Api.CHAT, type_, stream=stream, tool_format=tool_format, tools=[add])
    assert turn.output == expected(type_, value)
    assert outputs[-1:] == ([turn.output] if stream else [])
    assert "tools" not in requests[0].json
    assert "JSON Schema" in requests[0].json["messages"][0]["content"]


@pytest.mark.parametrize("tool_format", ["react", "xml"])
@pytest.mark.parametrize("wire", [Api.RESPONSES, Api.MESSAGES])
async def test_a_text_format_returns_any_type_with_the_other_apis(wire: Api, tool_format: str) -> None:
    label = "Thought: I know.\nFinal Answer: " if tool_format == "react" else ""
    for type_, value in CASES:
        reply = Say(f"{label}{json.dumps(value)}")
        turn, _, outputs = await ask([reply], wire, type_, stream=True, tool_format=tool_format, tools=[add])
        assert turn.output == expected(type_, value)
        assert outputs[-1] == turn.output


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def walk(schema: Any) -> list[Any]:
    if isinstance(schema, list):
        return [found for part in schema for found in walk(part)]
    if not isinstance(schema, dict):
        return []
    return [schema, *(found for part in schema.values() for found in walk(part))]


@pytest.mark.parametrize("type_", [Person, Node, Order])
async def test_a_strict_schema_fulfils_the_rules_of_openai(type_: Any) -> None:
    value = next(value for case, value in CASES if case is type_)
    _, requests, _ = await ask([Say(json.dumps(value))], Api.RESPONSES, type_, quirks=NATIVE)
    format_ = requests[0].json["text"]["format"]
    assert format_["strict"] is True
    assert format_["name"] == type_.__name__
    for schema in walk(format_["schema"]):
        if isinstance(schema.get("properties"), dict) and "type" in schema:
            assert set(schema["required"]) == set(schema["properties"])
            assert schema["additionalProperties"] is False
        assert "$ref" not in schema or set(schema) == {"$ref"}


async def test_a_schema_with_open_objects_is_not_strict() -> None:
    _, requests, _ = await ask([Say('{"a": 1}')], Api.CHAT, dict[str, int], quirks=NATIVE)
    definition = requests[0].json["response_format"]["json_schema"]
    assert definition["strict"] is False
    assert definition["schema"]["additionalProperties"] == {"type": "integer"}


async def test_bounds_are_in_the_description_for_the_messages_api() -> None:
    _, requests, _ = await ask([Say(json.dumps(CASES[2][1]))], Api.MESSAGES, Order, quirks=NATIVE)
    schema = sent_schema(Api.MESSAGES, requests[0].json)
    assert "minimum" not in schema["properties"]["number"]
    assert '"maximum":10' in schema["properties"]["number"]["description"]
    assert all(
        part["additionalProperties"] is False for part in walk(schema) if "properties" in part and "type" in part
    )


@pytest.mark.parametrize("wire", list(Api))
async def test_tools_and_an_answer_schema_can_be_combined(wire: Api) -> None:
    replies: list[Answer] = [Say(calls=(Call("add", {"a": 1, "b": 2}),)), Say('{"result": 3}')]
    turn, requests, _ = await ask(replies, wire, int, tools=[add], quirks=NATIVE)
    assert turn.output == 3
    assert [record.tool for record in turn.tool_calls] == ["add"]
    for request in requests:
        assert sent_schema(wire, request.json)
        assert len(request.json["tools"]) == 1


async def test_an_endpoint_that_cannot_combine_tools_and_schemas_gets_an_answer_tool() -> None:
    flags = {"structured_output": "without_tools"}
    turn, requests, _ = await ask(
        [Say(calls=(Call("final_answer", {"result": 3}),))], Api.CHAT, int, tools=[add], quirks=flags
    )
    assert turn.output == 3
    assert "response_format" not in requests[0].json
    turn, requests, _ = await ask([Say('{"result": 3}')], Api.CHAT, int, quirks=flags)
    assert requests[0].json["response_format"]["json_schema"]["name"] == "int"
    assert "JSON Schema" in requests[0].json["messages"][0]["content"]


REFUSALS = [
    (Api.CHAT, "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."),
    (Api.RESPONSES, "Unsupported parameter: 'text.format' is not supported with this model."),
    (Api.MESSAGES, "output_config: Extra inputs are not permitted"),
    (Api.CHAT, "Invalid schema for response_format 'int': In context=(), 'required' is required to be supplied"),
    (Api.CHAT, "Function calling with a response mime type: 'application/json' is unsupported"),
]


@pytest.mark.parametrize(("wire", "words"), REFUSALS)
async def test_an_endpoint_that_refuses_the_schema_gets_an_answer_tool(wire: Api, words: str) -> None:
    replies: list[Answer] = [refuse(400, words), Say(calls=(Call("final_answer", {"result": 3}),))]
    turn, requests, _ = await ask(replies, wire, int, tools=[add], quirks=NATIVE)
    assert turn.output == 3
    assert not {"response_format", "text", "output_config"} & requests[1].json.keys()
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("words", "is_learned"), [(REFUSALS[0][1], True), (REFUSALS[3][1], False)], ids=["parameter", "schema"]
)
async def test_a_parameter_refused_for_all_schemas_is_not_sent_again(words: str, *, is_learned: bool) -> None:
    call = Say(calls=(Call("final_answer", {"result": 3}),))
    replies: list[Answer] = [refuse(400, words), call, call if is_learned else Say('{"result": 4}')]
    with model_endpoint(replies) as endpoint:
        async with DialClient(provider_of(endpoint, quirks=NATIVE)) as dial:
            await dial.run("Which?", output_type=int)
            await dial.run("Which?", output_type=int)
    assert ("response_format" in endpoint.requests[2].json) is not is_learned


@pytest.mark.parametrize("wire", list(Api))
async def test_a_correction_follows_an_invalid_call(wire: Api) -> None:
    replies: list[Answer] = [
        Say(reasoning="Hm.", calls=(Call("final_answer", {"result": "x"}),)),
        Say(calls=(Call("final_answer", {"result": 3}, "call_2"),)),
    ]
    turn, requests, _ = await ask(replies, wire, int)
    assert turn.output == 3
    sent = json.dumps(requests[1].json)
    assert "valid integer" in sent
    assert "call_1" in sent
    assert len(turn.messages) == 2


@pytest.mark.parametrize("wire", list(Api))
async def test_a_correction_follows_an_invalid_text(wire: Api) -> None:
    turn, requests, _ = await ask([Say('{"result": "x"}'), Say('{"result": 3}')], wire, int, quirks=NATIVE)
    assert turn.output == 3
    assert "valid integer" in json.dumps(requests[1].json)
    assert sent_schema(wire, requests[1].json)


@pytest.mark.parametrize("is_native", [False, True])
async def test_a_fallback_model_gets_the_schema_in_its_own_form(*, is_native: bool) -> None:
    answer = Say('{"result": 3}') if is_native else Say(calls=(Call("final_answer", {"result": 3}),))
    with model_endpoint([refuse(404, "there is no such model")]) as first, model_endpoint([answer]) as second:
        main = provider_of(first, quirks=NATIVE)
        fallback = provider_of(second, Api.MESSAGES, quirks=NATIVE if is_native else {})
        async with DialClient(main, fallback_models=[fallback]) as dial:
            turn = await dial.run("Which?", output_type=int)
    assert turn.output == 3
    assert ("output_config" in second.requests[0].json) is is_native


async def test_extra_fields_beside_the_schema_are_kept() -> None:
    extra = {"extra_body": {"text": {"verbosity": "low"}}}
    _, requests, _ = await ask([Say('{"result": 3}')], Api.RESPONSES, int, quirks=NATIVE | extra)
    assert requests[0].json["text"]["verbosity"] == "low"
    assert requests[0].json["text"]["format"]["type"] == "json_schema"


async def test_markup_in_a_constrained_answer_is_text() -> None:
    text = "<think>x</think> <tool_call>{}</tool_call>"
    turn, _, _ = await ask([Say(json.dumps({"result": text}))], Api.CHAT, str, quirks=NATIVE)
    assert turn.output == text


async def test_a_refusal_of_the_model_is_an_error_with_its_text() -> None:
    with pytest.raises(OutputError, match="refused"):
        await ask([Say("I cannot.", finish="content_filter")], Api.CHAT, int, quirks=NATIVE)


async def test_a_long_stream_yields_growing_partial_lists() -> None:
    value = {"result": list(range(300))}
    # Not over a connection, whose reads would decide how many pieces there are.
    model = Model([*map(TextChunk, json.dumps(value)), Completion(FinishReason.STOP)])
    model.info = ModelInfo("stand-in", structured_output=StructuredOutput.WITH_TOOLS)
    async with DialClient(model) as dial:
        events = [event async for event in dial.stream("Which?", output_type=list[int])]
    outputs = [event.output for event in events if isinstance(event, OutputDelta)]
    lengths = [len(output) for output in outputs]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 10
    assert outputs[-1] == value["result"]


@pytest.mark.parametrize("wire", list(Api))
async def test_an_answer_through_a_tool_is_streamed(wire: Api) -> None:
    value = {"result": list(range(300))}
    reply = Say(calls=(Call("final_answer", value),), pieces=300)
    turn, _, outputs = await ask([reply], wire, list[int], stream=True)
    lengths = [len(output) for output in outputs]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 10
    assert outputs[-1] == turn.output == value["result"]


async def test_an_answer_through_a_renamed_tool_is_streamed() -> None:
    reply = Say(calls=(Call("fa", {"result": [1, 2, 3]}),), pieces=20)
    with model_endpoint([reply]) as endpoint:
        provider = provider_of(endpoint, quirks={"tool_name_re": "[a-z]{1,20}"})
        async with DialClient(provider) as dial:
            endpoint.answer_to = lambda request: replace(
                reply, calls=(Call(request.json["tools"][0]["function"]["name"], {"result": [1, 2, 3]}),)
            )
            events = [event async for event in dial.stream("Which?", output_type=list[int])]
    assert [event.output for event in events if isinstance(event, OutputDelta)] == [[], [1], [1, 2], [1, 2, 3]]
    assert endpoint.requests[0].json["tools"][0]["function"]["name"] != "final_answer"


async def test_arguments_of_other_tools_are_not_the_answer() -> None:
    replies: list[Answer] = [
        Say(calls=(Call("add", {"a": 1, "b": 2}, "c1"), Call("final_answer", {"result": 1}, "c2")), pieces=5),
        Say(calls=(Call("final_answer", {"result": 3}),)),
    ]
    turn, _, outputs = await ask(replies, Api.CHAT, int, stream=True, tools=[add])
    assert (turn.output, outputs) == (3, [3])
