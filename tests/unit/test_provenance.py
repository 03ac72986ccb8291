"""The sources of argument values in a conversation, and the vocabulary of questions."""

from __future__ import annotations

from typing import Any

import pytest

from dial_client.messages.message import ToolSpec
from dial_client.providers.embedded.provenance import (
    correct_spelling,
    find_address,
    has_strange_digits,
    is_description,
    is_made_up,
    is_no_address,
    occurs_in,
)
from dial_client.providers.embedded.vocabulary import acts, find_named_by_verb, find_words, is_general


@pytest.mark.parametrize(
    ("value", "schema", "is_so"),
    [
        (25, {}, True),
        (348, {}, False),
        (1, {}, False),
        (25, {"default": 25}, False),
        ("km", {"enum": ["km"]}, False),
        ("348 * 577", {}, False),
        ("348 * 25", {}, True),
        ("348 * 1 = 900", {}, True),
        ("2026-03-02", {}, False),
        ("/docs/a.txt", {}, False),
        ("/docs/b.txt", {}, True),
        ("ada@example.test", {}, True),
        ("anything else", {}, False),
        (True, {}, False),
    ],
)
def test_a_value_without_a_source_is_made_up(value: Any, schema: dict[str, Any], is_so: bool) -> None:
    assert is_made_up(value, schema, "Is 348 or 577 in /docs/a.txt?") is is_so


def test_numbers_that_the_conversation_does_not_contain_are_detected() -> None:
    assert has_strange_digits("AB123", "Is my flight on time?")
    assert has_strange_digits("2026-03-05", "What is in my calendar that day?")
    assert not has_strange_digits("KX204", "Is flight KX 204 on time?")
    assert not has_strange_digits("2026-03-05", "What happens on 5 March?")
    assert not has_strange_digits("Lisbon", "Is it raining?")


def test_a_description_in_place_of_a_value_is_detected() -> None:
    text = "How is the weather in the city where Mia lives?"
    assert is_description("city", "Mia's city", text)
    assert is_description("home_city", "the city of Mia", text)
    assert not is_description("city", "Lisbon", text)
    assert not is_description("city", "Mia's city", "How is it in Mia's city?")


def test_questions_about_general_knowledge_are_detected() -> None:
    assert is_general("How does an atomic clock keep the time?")
    assert is_general("Why are there time zones?")
    assert not any(map(is_general, ("Why is my server down?", "How do trains run today?", "What time is it?")))


def test_a_quantity_in_words_counts_as_a_source_of_any_number() -> None:
    assert not is_made_up(30, {}, "Wait half an hour.")


def test_a_value_is_found_in_several_spellings() -> None:
    text = "What time is it in Tokyo, and what are 3 * 4?"
    assert all(occurs_in(value, text) for value in ("tokyo", "Asia/Tokyo", 3, "3 * 4", True))
    assert not any(occurs_in(value, text) for value in ("Kyoto", "Asia/Seoul", 5, "3 * 5"))


def test_the_last_part_of_a_path_or_url_is_no_source_of_the_whole() -> None:
    text = "Show me the git status of /srv/shop"
    assert occurs_in("/srv/shop/", text)
    assert not any(occurs_in(value, text) for value in ("/home/ada/git", "https://example.test/git", "~/git"))


def test_a_miscopied_word_is_corrected_to_the_spelling_of_the_conversation() -> None:
    text = "What's the weather like in Lisbon? It is in notes.txt."
    assert correct_spelling({"city": "Lisboa", "day": "today"}, text) == {"city": "Lisbon", "day": "today"}
    arguments = {"file": "note", "n": 3, "city": "Madrid"}
    assert correct_spelling(arguments, text) == arguments


def test_words_are_compared_by_their_stems() -> None:
    assert find_words("Which files are stored?") == find_words("the STORING of a file")
    assert find_words("What is it now?") == frozenset()


@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("order_status", False),
        ("git_log", False),
        ("git_commit", True),
        ("files__writeFile", True),
        ("getWeather", False),
    ],
)
def test_the_name_of_a_tool_tells_whether_the_tool_acts(name: str, does: bool) -> None:
    assert acts(ToolSpec(name, "", {})) is does
    assert not acts(ToolSpec(name, "", {}, read_only=True))


def test_a_tool_is_found_by_the_verb_of_the_request() -> None:
    tools = tuple(ToolSpec(name, "", {}) for name in ("git_branch", "git_create_branch", "createIssue", "git_add"))

    def named(request: str) -> list[str]:
        return [tool.name for tool in find_named_by_verb(request, tools)]

    assert named("Create a branch called fix-login") == ["git_create_branch", "createIssue"]
    assert named("please add the file a.txt") == ["git_add"]
    assert named("Which branches are there?") == []
    assert named("Address the branch") == []


@pytest.mark.parametrize(
    ("name", "value", "description", "is_so"),
    [
        ("to", "Ruth Okafor", "The receiver's e-mail address", True),
        ("email", "Ruth", "", True),
        ("to", "ruth@example.test", "The receiver's e-mail address", False),
        ("to", "Rome", "The city to go to", False),
        ("addresses", "Ruth", "Comma-separated email addresses or names", False),
        ("subject", "Hello", "The subject of the email", False),
    ],
)
def test_a_name_in_place_of_an_address_is_detected(name: str, value: str, description: str, is_so: bool) -> None:
    assert is_no_address(name, value, {"type": "string", "description": description}) is is_so


@pytest.mark.parametrize(
    ("person", "conversation", "address"),
    [
        ("Ruth Okafor", "Ruth Okafor: ruth@example.test, phone 1", "ruth@example.test"),
        ("Ruth Okafor", "Lena Vogel: lena@example.test, manager: Ruth Okafor", ""),
        ("Ruth Okafor", "Ruth Okafor: office@example.test", "office@example.test"),
        ("Ruth Okafor", "ruth@a.test or ruth@b.test", ""),
        ("Ruth Okafor", "I am mia@example.test. Email Ruth Okafor.", ""),
        ("", "mia@example.test", ""),
    ],
)
def test_an_address_is_found_only_for_its_own_person(person: str, conversation: str, address: str) -> None:
    assert find_address(person, conversation) == address


@pytest.mark.timeout(20)
def test_an_address_is_found_after_a_long_text_without_blanks() -> None:
    conversation = f"{'a' * 50_000} {'a@' * 25_000} mia@example.org"
    assert find_address("Mia", conversation) == "mia@example.org"
