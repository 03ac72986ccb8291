"""The words of a question determine which call must follow a successful result."""

from __future__ import annotations

import pytest

from dial_client.messages.message import ToolSpec
from dial_client.providers.embedded.follow_up import find_follow_up


def tool(name: str, description: str, argument: str) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": {argument: {"type": "string"}}})


PERSON = tool("get_person", "Look a person up: phone, city and manager.", "name")
REGION = tool("region_facts", "Get a region's largest town and its language.", "region")
AIR = tool("air_quality", "Get the current air quality of a place.", "place")
NOTE = tool("add_note", "Write a note into the notebook.", "text")
SUM = tool("calculate", "Compute an arithmetic expression.", "expression")
TOOLS = (NOTE, PERSON, REGION, AIR, SUM)

MIA = "Mia Keller: phone 555-0132, lives in Lisbon, manager: Jonas Brandt"
JONAS = "Jonas Brandt: phone 555-0187, lives in Vienna, manager: Ruth Okafor"
VELMARK = "Velmark: largest town Torsby, language Velmarkish"


def found(question: str, *calls: tuple[ToolSpec, str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the tool to call after these calls, and the possible values of its argument."""
    follow_up = find_follow_up(question, TOOLS, [tool.name for tool, _ in calls], [result for _, result in calls])
    return None if follow_up is None else (follow_up.tool.name, follow_up.values)


def test_a_word_of_the_question_that_no_result_explains_selects_the_next_tool() -> None:
    question = "How is the air in the largest town of Velmark?"
    assert found(question, (REGION, VELMARK)) == ("air_quality", ("Torsby",))
    assert found(question, (REGION, VELMARK), (AIR, "Torsby: good")) is None


def test_a_detail_of_a_related_person_is_looked_up_once() -> None:
    question = "What is the phone number of Mia Keller's manager?"
    assert found(question, (PERSON, MIA)) == ("get_person", ("Jonas Brandt",))
    assert found(question, (PERSON, MIA), (PERSON, JONAS)) is None


@pytest.mark.parametrize(
    ("question", "call"),
    [
        ("Who is the manager of Mia Keller?", (PERSON, MIA)),
        ("What is Mia Keller's phone number?", (PERSON, MIA)),
        ("Which city does Mia Keller live in?", (PERSON, MIA)),
        ("What is the largest town of Velmark?", (REGION, VELMARK)),
        ("How is the air in Torsby?", (AIR, "Torsby: good")),
        ("How many days are there from 2026-03-01 to 2026-04-15?", (AIR, "45 days")),
    ],
)
def test_no_call_follows_a_result_that_answers_the_question(question: str, call: tuple[ToolSpec, str]) -> None:
    assert found(question, call) is None


def test_an_action_follows_the_lookups_it_needs() -> None:
    question = "Write the air quality of the largest town of Velmark into the notebook."
    assert found(question, (REGION, VELMARK)) == ("air_quality", ("Torsby",))
    assert found(question, (REGION, VELMARK), (AIR, "Torsby: good")) == ("add_note", ())


def test_a_sum_over_a_result_is_computed() -> None:
    share = tool("stock_price", "Get the price of a share.", "symbol")
    question = "How much do 12 ACME shares cost altogether?"
    follow_up = find_follow_up(question, (*TOOLS, share), ["stock_price"], ["ACME: 83.20 USD"])
    assert follow_up is not None
    assert follow_up.tool is SUM
    assert "12 * 83.20" in follow_up.values
    assert all(set(value.split()) <= {"12", "83.20", "*", "/", "+", "-"} for value in follow_up.values)
