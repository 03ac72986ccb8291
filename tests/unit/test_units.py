"""A result in a different unit than the question asks for needs a conversion call."""

from __future__ import annotations

import pytest

from dial_client.messages.message import ToolSpec
from dial_client.providers.embedded.units import Conversion, correct_conversion, find_conversion, find_conversion_call


def tool(name: str, description: str, **properties: dict[str, object]) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolSpec(name, description, schema)


STRING: dict[str, object] = {"type": "string"}
NUMBER: dict[str, object] = {"type": "number"}
UNIT: dict[str, object] = {"enum": ["km", "mi", "C", "F"]}
UNITS = tool("convert_units", "Convert a length or a temperature.", value=NUMBER, from_unit=UNIT, to_unit=UNIT)
MONEY = tool("convert_currency", "Convert money.", amount=NUMBER, from_currency=STRING, to_currency=STRING)
RATE = tool("exchange_rate", "Get the rate between two currencies.", from_currency=STRING, to_currency=STRING)
WEATHER = tool("weather", "Get the temperature of a city.", city=STRING)


@pytest.mark.parametrize(
    ("question", "result", "needed"),
    [
        ("How many miles is it from Lisbon to Rome?", "1,864 km", ("length", 1864.0, "km", "mi")),
        ("How warm is the cellar in degrees Fahrenheit?", "9.0 °C", ("temperature", 9.0, "C", "F")),
        ("How cold is it in Oslo in F?", "Oslo: snow, -3 °C", ("temperature", -3.0, "C", "F")),
        ("What does the lamp cost in US dollars?", "39.90 EUR, 12 in stock", ("currency", 39.9, "EUR", "USD")),
        ("What does the lamp cost in pounds?", "39.90 EUR", ("currency", 39.9, "EUR", "GBP")),
        ("How much is that in pounds?", "5 kg", ("weight", 5.0, "kg", "lb")),
    ],
)
def test_a_result_in_a_different_unit_needs_a_conversion(
    question: str, result: str, needed: tuple[str, float, str, str]
) -> None:
    conversion = find_conversion(question, [result])
    assert conversion is not None
    assert (conversion.kind, conversion.value, conversion.unit, conversion.target) == needed


@pytest.mark.parametrize(
    ("question", "results"),
    [
        ("How many miles is 5 km?", ["3.11 mi"]),
        ("How far is it to Rome?", ["1864 km"]),
        ("How warm is it in Fahrenheit?", ["9 °C", "48.2 F"]),
        ("How many pounds did it cost?", ["12 GBP"]),
        ("How many dollars is 1 EUR?", ["1 EUR = 1.11 USD"]),
        ("How many feet has a cat?", ["four"]),
        ("Which file is in metres.txt?", ["12 km"]),
        ("What do they cost in dollars?", ["lamp: 39.90 EUR", "chair: 189.00 EUR"]),
        ("How warm is it in Celsius?", ["order 12 came to 3 m"]),
    ],
)
def test_other_results_need_no_conversion(question: str, results: list[str]) -> None:
    assert find_conversion(question, results) is None


@pytest.mark.parametrize(
    ("conversion", "call"),
    [
        (
            Conversion("length", 1864.0, "km", "mi", "miles"),
            ("convert_units", {"value": 1864, "from_unit": "km", "to_unit": "mi"}),
        ),
        (
            Conversion("currency", 39.9, "EUR", "USD", "dollars"),
            ("convert_currency", {"amount": 39.9, "from_currency": "EUR", "to_currency": "USD"}),
        ),
        (Conversion("weight", 5.0, "kg", "lb", "pounds"), None),
    ],
)
def test_the_conversion_call_is_built_from_the_tools(conversion: Conversion, call: object) -> None:
    assert find_conversion_call(conversion, (WEATHER, RATE, UNITS, MONEY)) == call


def test_without_a_conversion_tool_there_is_no_call() -> None:
    assert find_conversion_call(Conversion("length", 1.0, "km", "mi", "miles"), (WEATHER, RATE)) is None


@pytest.mark.parametrize(
    ("question", "source", "target"),
    [("26 miles in km", "mi", "km"), ("How many miles are 26 km?", "km", "mi"), ("Convert 26 km to miles", "km", "mi")],
)
def test_the_question_determines_the_direction_of_the_conversion(question: str, source: str, target: str) -> None:
    swapped = {"value": 26, "from_unit": target, "to_unit": source}
    assert correct_conversion(swapped, UNITS, question) == {"value": 26, "from_unit": source, "to_unit": target}


def test_an_unrelated_conversion_is_unchanged() -> None:
    unrelated = {"value": 81, "from_unit": "km", "to_unit": "mi"}
    assert correct_conversion(unrelated, UNITS, "Convert 26 miles to km, and 81 as well") == unrelated
    assert correct_conversion({"city": "Rome"}, WEATHER, "26 miles in km") == {"city": "Rome"}
