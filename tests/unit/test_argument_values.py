"""Argument values are corrected where the schema or the conversation determines them."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client.messages.message import ToolSpec
from dial_client.providers.embedded.argument_values import (
    correct_arguments,
    find_allowed_folder,
    find_fallback,
    is_folder,
    is_named_in,
)

ZONE = {
    "description": "IANA timezone name (e.g., 'America/New_York', 'Europe/London'). "
    "Use 'UTC' as local timezone if no timezone provided by the user."
}
CLOCK = {"description": "Time to convert in 24-hour format (HH:MM)"}
BRANCHES = {"description": "Whether to list local branches ('local'), remote branches ('remote') or all ('all')."}


def corrected(name: str, value: Any, schema: dict[str, Any], conversation: str = "") -> Any:
    tool = ToolSpec("tool", "Does it, by three-letter codes.", {"properties": {name: schema}})
    return correct_arguments({name: value}, tool, conversation)[name]


def test_a_city_becomes_the_iana_name_of_its_time_zone() -> None:
    zones = {
        "London": "Europe/London",
        "new york": "America/New_York",
        "Asia/Berlin": "Europe/Berlin",
        "Asia/Tokyo": "Asia/Tokyo",
        "UTC": "UTC",
        "Mars/Olympus": "Mars/Olympus",
    }
    assert {value: corrected("timezone", value, ZONE) for value in zones} == zones
    assert corrected("city", "London", {"description": "The city"}, "") == "London"


@pytest.mark.parametrize(
    ("value", "question", "time"),
    [
        ("3:00", "If it is 3pm in Berlin, what time is it in Tokyo?", "15:00"),
        ("3:00", "It is 3:00 in Berlin.", "03:00"),
        ("10:30", "at 10:30 p.m.", "22:30"),
        ("12:00", "at 12 am", "00:00"),
        ("3 PM", "", "15:00"),
        ("15:00", "at 3pm", "15:00"),
        ("noon", "at noon", "noon"),
    ],
)
def test_a_time_of_day_is_converted_to_24_hours_if_the_schema_says_so(value: str, question: str, time: str) -> None:
    assert corrected("time", value, CLOCK, question) == time
    assert corrected("time", value, {}, question) == value


@pytest.mark.parametrize(
    ("value", "question", "expression"),
    [
        ("15% of 80", "What's 15% of 80?", "15 / 100 * 80"),
        ("15% * 80", "What's 15% of 80?", "15 / 100 * 80"),
        ("15 * 80", "What's 15 percent of 80?", "15 / 100 * 80"),
        ("15 / 100 * 80", "What's 15% of 80?", "15 / 100 * 80"),
        ("0.15 * 80", "What's 15% of 80?", "0.15 * 80"),
        ("115 * 80", "What's 15% of 80?", "115 * 80"),
        ("15 * 1000", "What's 15% of 1000?", "15 / 100 * 1000"),
        ("15 * 100", "What's 15% of 100?", "15 / 100 * 100"),
        ("15 * 0.01 * 80", "What's 15% of 80?", "15 * 0.01 * 80"),
        ("15 * 4", "What's 15% of 80?\n12\nAnd 15 times 4?", "15 * 4"),
        ("17 % 5", "What is left of 17 divided by 5?", "17 % 5"),
    ],
)
def test_a_percentage_in_an_expression_is_divided_by_100(value: str, question: str, expression: str) -> None:
    schema = {"description": "An arithmetic expression"}
    assert corrected("expression", value, schema, question) == expression


@pytest.mark.parametrize(
    ("value", "question", "title"),
    [
        ("Paper Boats - from what year is that song?", "Paper Boats - from what year is that song?", "Paper Boats"),
        ("Winter Arithmetic: by A. Writer", "Winter Arithmetic: author?", "Winter Arithmetic"),
        ("Alien: Romulus", "Who directed Alien: Romulus", "Alien: Romulus"),
        ("Oslo, Norway", "How is the weather in Oslo?", "Oslo"),
        ("PX-771", "PX-771 where is it", "PX-771"),
        ("Nowhere: a book", "Winter Arithmetic: author?", "Nowhere: a book"),
    ],
)
def test_text_that_the_model_added_after_a_name_is_removed(value: str, question: str, title: str) -> None:
    assert corrected("title", value, {"type": "string"}, question) == title
    assert corrected("text", value, {"type": "string"}, question) == value


def test_a_currency_becomes_its_code_if_the_tool_takes_codes() -> None:
    codes = {"euros": "EUR", "US dollars": "USD", "norwegian kroner": "NOK", "GBP": "GBP", "canadian dollar": "CAD"}
    assert {name: corrected("from_currency", name, {}) for name in codes} == codes
    assert corrected("currency", "crown", {}) == "crown"
    assert corrected("city", "euro", {}) == "euro"


def test_a_flag_is_false_if_the_user_asks_for_the_opposite() -> None:
    assert corrected("locked", True, {}, "Please unlock the garage door") is False
    assert corrected("muted", True, {}, "Mute me.\nAnd now unmute me!") is False
    assert corrected("locked", True, {}, "Lock the door. I had unlocked it.\nYes, lock it.") is True
    assert corrected("locked", False, {}, "Lock the door") is False


def test_an_invented_folder_becomes_the_current_folder() -> None:
    made_up = ("/home/ada/git", "your-repo", "https://github.com/ada/garden", "repo", "the repository")
    assert {corrected("repo_path", value, {}, "Which branch is this repo on?") for value in made_up} == {"."}
    assert corrected("repo_path", "/srv/shop", {}, "Which branch is /srv/shop on?") == "/srv/shop"
    assert corrected("repo_path", "shop", {}, "Which branch is the shop on?") == "shop"
    assert corrected("path", "/docs/plan.txt", {"description": "The file's path"}, "Read it.") == "/docs/plan.txt"


def test_a_miscopied_folder_is_not_replaced_by_a_different_folder() -> None:
    assert corrected("repo_path", "/srv/shap", {}, "Which branch is /srv/shop on?") != "."


def test_a_path_that_must_be_absolute_is_never_the_current_folder() -> None:
    assert is_folder("repo_path", {})
    assert is_folder("projectDir", {"description": "Where to look"})
    assert not is_folder("directory", {"description": "The directory's absolute path"})
    assert not is_folder("director", {"description": "Who made the film"})


def test_a_value_quoted_in_the_description_of_an_argument_is_recognized() -> None:
    assert is_named_in("all", BRANCHES)
    assert not is_named_in("some", BRANCHES)
    assert not is_named_in("Europe/London", ZONE)


def test_a_description_may_name_the_default_of_a_missing_argument() -> None:
    assert find_fallback(ZONE) == "UTC"
    assert find_fallback({"description": "The language. Defaults to 'en'."}) == "en"
    assert find_fallback({"description": "The city, such as 'Rome' if no country is given"}) is None
    assert find_fallback(BRANCHES) is None
    assert find_fallback({}) is None


def test_the_allowed_folder_is_read_from_an_error() -> None:
    error = "Repository path '/home/ada' is outside the allowed repository '/srv/shop'"
    assert find_allowed_folder(error) == "/srv/shop"
    assert find_allowed_folder("Access denied - path outside allowed directories: /x not in /srv/shop") == "/srv/shop"
    assert find_allowed_folder("no such folder: /srv/shop") is None
