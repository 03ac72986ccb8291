"""Output types: the schemas that models read, and the answers that are accepted."""

from __future__ import annotations

import datetime
import enum
import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

from dial_client import ConfigError
from tests.inner import InvalidOutput, OutputType, build_output_type


class Address(BaseModel):
    street: str
    number: Annotated[int, Field(ge=1, le=999)]


class Person(BaseModel):
    """A person."""

    name: str
    home: Address
    born: datetime.date | None = None
    nick: str = ""


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Film(TypedDict, total=False):
    title: str
    year: int


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: bool


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    day: datetime.date


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("the number is odd")
        return number


NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
PERSON = '{"name": "Ada", "home": {"street": "Main", "number": 5}, "born": "1815-12-10"}'
ADA = Person(name="Ada", home=Address(street="Main", number=5), born=datetime.date(1815, 12, 10))
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (Person, PERSON, ADA),
        (Node, '{"value": 1, "children": [{"value": 2}]}', Node(value=1, children=[Node(value=2)])),
        (Colour, '{"result": "blue"}', Colour.BLUE),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Film, '{"title": "Dune"}', {"title": "Dune"}),
        (list[int], '{"result": [1, 2]}', [1, 2]),
        (list[Person], f'{{"result": [{PERSON}]}}', [ADA]),
        (Cat | Dog, '{"result": {"kind": "dog", "barks": true}}', Dog(kind="dog", barks=True)),
        (int | None, '{"result": null}', None),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (tuple[int, str], '{"result": [1, "a"]}', (1, "a")),
        (set[int], '{"result": [1, 1]}', {1}),
        (Annotated[int, Field(gt=3)], '{"result": 4}', 4),
        (datetime.datetime, '{"result": "2026-01-01T00:00:00Z"}', NEW_YEAR),
        (Strict, '{"day": "2026-01-02"}', Strict(day=datetime.date(2026, 1, 2))),
        (SCHEMA, '{"a": 1}', {"a": 1}),
        ({"type": "array", "items": {"type": "integer"}}, '{"result": [1]}', [1]),
        ({"$ref": "#/$defs/N", "$defs": {"N": SCHEMA}}, '{"a": 1}', {"a": 1}),
        (
            {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}},
            '{"result": [1, [2]]}',
            [1, [2]],
        ),
    ],
)  # fmt: skip
def test_an_answer_becomes_a_value_of_its_type(type_: Any, text: str, value: Any) -> None:
    output = build_output_type(type_)
    assert output.parse(text).value == value
    assert output.format.schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "$ref"} & output.format.schema.keys()


@pytest.mark.parametrize(
    "text",
    [
        '  {"a": 1}\n',
        '```json\n{"a": 1}\n```',
        'Here it is:\n```\n{"a": 1}\n```\nIs that all?',
        'The answer is {"a": 1}.',
        "{'a': 1,}",
        '{"a": "1"}',
    ],
)
def test_an_answer_may_be_surrounded_by_text_or_a_fence(text: str) -> None:
    assert build_output_type(SCHEMA).parse(text).json == {"a": 1}


@pytest.mark.parametrize("text", ["[1, 2]", '{"result": [1, 2]}', "It is [1, 2]."])
def test_the_wrapping_object_of_a_list_may_be_left_out(text: str) -> None:
    assert build_output_type(list[int]).parse(text).value == [1, 2]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [(str, "Rome.", "Rome."), (Colour, " red\n", Colour.RED), (str, '"Rome"', "Rome"), (str, "28", "28")]
    + [(str, text, text) for text in ("1.50", "true", "null", "Run this:\n```\n[1]\n```\nThen wait.")],
)
def test_a_string_needs_no_quotation_marks(type_: Any, text: str, value: Any) -> None:
    assert build_output_type(type_).parse(text).value == value


def test_null_for_a_property_with_a_default_means_the_default() -> None:
    found = build_output_type(Person).parse('{"name": "Ada", "home": {"street": "M", "number": 1}, "nick": null}')
    assert found.value.nick == ""
    assert "nick" not in found.json


@pytest.mark.parametrize(
    ("type_", "text", "error"),
    [
        (Person, '{"home": {"street": "M", "number": 1}}', r"^name: Field required$"),
        (Person, '{"name": "A", "home": {"street": "M", "number": 0}}', r"^home.number: .*greater.* \(given: 0\)$"),
        (Person, "[1]", "not an object"),
        (Person, "I do not know.", "no whole JSON value"),
        (Person, '{"name": "A', "no whole JSON value"),
        (Even, '{"number": 3}', "number: Value error, the number is odd"),
        (Colour, '{"result": "green"}', "'red' or 'blue'"),
        (SCHEMA, '{"a": "x"}', r'a: "x" is not of type "integer"'),
        ({"type": "string", "format": "date"}, '{"result": "soon"}', 'result: "soon" is not a "date"'),
    ],
)
def test_the_error_for_an_invalid_answer_names_the_place(type_: Any, text: str, error: str) -> None:
    with pytest.raises(InvalidOutput, match=error):
        build_output_type(type_).parse(text)


def test_a_validator_that_raises_makes_an_answer_invalid() -> None:
    class Broken(BaseModel):
        a: int

        @field_validator("a")
        @classmethod
        def look_up(cls, a: int) -> int:
            return {1: 1}[a]

    with pytest.raises(InvalidOutput, match="KeyError: 2"):
        build_output_type(Broken).parse('{"a": 2}')


@pytest.mark.parametrize("type_", ["int", 3, None, b"", [int], (int, str), object()])
def test_an_invalid_output_type_is_a_type_error(type_: Any) -> None:
    with pytest.raises(TypeError, match="output_type"):
        build_output_type(type_)


def test_a_type_without_a_schema_is_a_type_error() -> None:
    class Opaque:
        pass

    with pytest.raises(TypeError, match="Opaque"):
        build_output_type(Opaque)


def test_an_invalid_schema_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="not a valid JSON Schema"):
        build_output_type({"type": "objekt"})


def test_the_name_of_a_schema_is_valid_at_every_api() -> None:
    assert build_output_type(Person).format.name == "Person"
    assert build_output_type(list[Person]).format.name == "output"
    assert build_output_type({"title": "Städte & Länder", **SCHEMA}).format.name == "St_dte_L_nder"


def test_an_output_type_is_built_once() -> None:
    assert build_output_type(list[Person]) is build_output_type(list[Person])


def partial(output: OutputType, text: str) -> Any:
    try:
        return output.parse_partial(text)
    except InvalidOutput:
        return None


def test_a_partial_answer_is_parsed_as_soon_as_it_is_valid() -> None:
    text = '{"value": 1, "children": [{"value": 2}, {"value": 3}]}'
    seen = [partial(build_output_type(Node), text[:end]) for end in range(len(text) + 1)]
    values = [value for at, value in enumerate(seen) if value is not None and value != seen[at - 1]]
    assert values[0] == Node(value=1)
    assert Node(value=1, children=[Node(value=2)]) in values
    assert values[-1] == Node(value=1, children=[Node(value=2), Node(value=3)])
    assert partial(build_output_type(list[int]), '{"result": [1, 2, ') == [1, 2]
    assert partial(build_output_type(Film), '{"title": "Du') == {"title": "Du"}
    assert partial(build_output_type(SCHEMA), '{"a": 1, "b": "x') == {"a": 1, "b": "x"}


@pytest.mark.parametrize("text", ["`" * 200_000, "{" * 200_000, '```json\n{"a":' * 20_000, "[" * 100_000 + "{}"])
def test_a_long_answer_without_a_value_is_refused_quickly(text: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidOutput):
        build_output_type(SCHEMA).parse(text)
    assert time.process_time() - began < 2
