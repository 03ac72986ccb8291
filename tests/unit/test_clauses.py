"""A question with several requests is split into clauses, one for each request."""

from __future__ import annotations

import pytest

from dial_client.messages.message import ToolCallRequest, ToolSpec
from dial_client.providers.embedded.clauses import find_open, find_sibling, split_clauses


def tool(name: str, description: str, argument: str) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": {argument: {"type": "string"}}})


BOOK = tool("find_book", "Find a book of the library: author, year and shelf.", "title")
LIGHT = tool("set_light", "Switch the light of a room on or off.", "room")
WARMTH = tool("room_temperature", "Measure the temperature of a room.", "room")
LETTERS = tool("count_letters", "Count the letters of a text.", "text")
WORD = tool("define_word", "Look a rare word up in the dictionary.", "word")
TOOLS = (BOOK, LIGHT, WARMTH, LETTERS, WORD)


def call(tool: ToolSpec, value: str) -> ToolCallRequest:
    (name,) = tool.input_schema["properties"]
    return ToolCallRequest("c1", tool.name, {name: value})


@pytest.mark.parametrize(
    ("question", "clauses"),
    [
        ("Lock the door and turn the light off.", ["Lock the door", "turn the light off."]),
        ("Who wrote Emma, and on which shelf is it?", ["Who wrote Emma", "on which shelf is it?"]),
        ("List the files, read the first, then count it.", ["List the files", "read the first", "count it."]),
        ("There are two. Read the first and tell me its size.", ["There are two. Read the first", "tell me its size."]),
        ("What is it? And when does it open?", ["What is it", "when does it open?"]),
        (
            "Is the lift at the mill working, and at the station?",
            ["Is the lift at the mill working", "at the station?"],
        ),
        ("Has the post come, and any parcels?", ["Has the post come", "any parcels?"]),
    ],
)
def test_each_request_is_a_clause(question: str, clauses: list[str]) -> None:
    assert list(split_clauses(question)) == clauses


@pytest.mark.parametrize(
    "question",
    [
        "What is the weather in Oslo and in Rome?",
        "Who is the mayor of the town where Mia lives?",
        "Order 7 has been shipped. Where is its parcel?",
        'Note "call Jo and ask when she comes".',
        "How do I bake bread, cakes and rolls?",
        "How do I get there, and on the way see the castle and the old mill?",
        "Hello",
        "",
        "What is wrong in this log? " + "Read the file and check it. " * 20,
        "Add 2 and 3, add 4 and 5, add 6 and 7, add 8 and 9, add 1 and 2.",
    ],
)
def test_a_single_request_is_not_split(question: str) -> None:
    assert split_clauses(question) == (question,)


@pytest.mark.parametrize(
    ("clauses", "made", "is_open"),
    [
        (("Who wrote Emma", "on which shelf is Dune"), call(BOOK, "Emma"), [1]),
        (("turn on the kitchen light", "how warm is it there"), call(LIGHT, "kitchen"), [1]),
        (("What does ullage mean", "how many letters does the word have"), call(LETTERS, "ullage"), [0]),
        (("How warm is the cellar", "how warm is the office"), call(WARMTH, "cellar"), [1]),
    ],
)
def test_a_request_is_open_until_a_call_was_made_for_it(
    clauses: tuple[str, ...], made: ToolCallRequest, is_open: list[int]
) -> None:
    assert find_open(clauses, TOOLS, [made])[0] == is_open


@pytest.mark.parametrize(
    ("question", "value", "sibling"),
    [
        ("What is the weather in Oslo and in Nairobi today?", "Oslo", "Nairobi"),
        ("What is the weather in Oslo and in Nairobi today?", "Nairobi", "Oslo"),
        ("Compare the battery of the watch with that of the tablet.", "watch", "tablet"),
        ("Which is warmer, the kitchen or the office?", "office", "kitchen"),
        ("Read /a/b.txt and /a/c.txt", "/a/b.txt", "/a/c.txt"),
        ("Who wrote Emma, and on which shelf is Dune?", "Emma", ""),
        ("Lock the front door and write that down.", "front door", ""),
        ("What are the phone numbers of Mia and her manager?", "Mia", ""),
        ("How warm is the office?", "office", ""),
    ],
)
def test_a_name_joined_to_the_value_of_a_call_is_its_sibling(question: str, value: str, sibling: str) -> None:
    made = call(WARMTH, value)
    assert find_sibling(question, made, [made]) == sibling


def test_a_name_that_an_earlier_call_used_is_no_sibling() -> None:
    first, second = call(WARMTH, "kitchen"), call(WARMTH, "office")
    assert find_sibling("How warm are the kitchen and the office?", first, [first, second]) == ""
