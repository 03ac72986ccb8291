"""An answer that omits or contradicts the tool results is replaced by the results."""

from __future__ import annotations

import random
from base64 import b64encode

import pytest

from dial_client.providers.embedded.result_check import ResultCheck, find_shown_result


def check_answer(question: str, answer: str, *results: str) -> str:
    """Return the text that is shown for an answer."""
    check = ResultCheck(question, [f"tool: {result}" for result in results])
    shown = "".join(check.feed(piece) for piece in answer.splitlines(keepends=True))
    return shown + check.finish()


def test_an_answer_without_content_of_the_results_is_replaced_by_the_results() -> None:
    question, answer = "Look into the box for me.", "I have looked into the box for you."
    assert check_answer(question, answer, "two spoons\na fork") == "```\ntwo spoons\na fork\n```"


def test_an_answer_with_an_unsupported_number_is_replaced_by_the_results() -> None:
    assert check_answer("What is 348 plus 577?", "925 + 577 = 1502", "925") == "925"
    assert check_answer("What is 348 plus 577?", "348 + 577 = 925", "925") == "348 + 577 = 925"


def test_a_time_must_match_the_results_in_12_or_24_hour_notation() -> None:
    question, result = "If it is 3pm in Berlin, what time is it in Tokyo?", "source: 15:00\ntarget: 23:00"
    for right in ("It is 23:00 in Tokyo.", "It is 11 pm in Tokyo.", "3pm in Berlin is 11:00 PM in Tokyo."):
        assert check_answer(question, right, result) == right
    for wrong in ("It is 11:00 in Tokyo.", "It is 21:00 in Tokyo.", "3pm in Berlin is 15:00 in Tokyo."):
        assert check_answer(question, wrong, result) == f"```\n{result}\n```"


def test_an_answer_from_only_the_first_of_two_results_is_replaced_by_both_results() -> None:
    results = ("Mia: phone 555-0132, manager: Jonas", "Jonas: phone 555-0187, manager: Ruth")
    question = "What is the phone number of Mia's manager?"
    assert check_answer(question, "The number is 555-0132.", *results) == "```\n" + "\n".join(results) + "\n```"
    assert check_answer(question, "The number is 555-0187.", *results) == "The number is 555-0187."


def test_the_result_follows_an_answer_with_only_some_of_its_values() -> None:
    result = "Pell: high at 04:20 and 16:45, low at 10:30"
    answer = "High tide in Pell is at 16:45."
    assert check_answer("When is high tide in Pell?", answer, result) == f"{answer}\n\n{result}"
    answer = "High tide in Pell is at 04:20 and at 16:45."
    assert check_answer("When is high tide in Pell?", answer, result) == answer


def test_an_answer_is_shown_sentence_by_sentence() -> None:
    check = ResultCheck("How many?", ["tool: 12 eggs"])
    assert [check.feed(text) for text in ("There are ", "12 eggs. ", "Enough ", "for us. Yes", "!")] == [
        "",
        "There are 12 eggs.",
        "",
        " Enough for us.",
        "",
    ]
    assert check.finish() == " Yes!"


def test_a_later_sentence_with_an_unsupported_number_is_left_out_and_the_missing_result_follows() -> None:
    lamp, room = "The light in the kitchen is now on.", "21.5 °C"
    answer = "The kitchen light is on at 21.5 °C. It was 25 °C before. It is bright."
    question = "Turn on the kitchen light and tell me how warm it is there."
    assert check_answer(question, answer, lamp, room) == "The kitchen light is on at 21.5 °C. It is bright."
    eggs, hens = "12 eggs", "3 hens"
    assert (
        check_answer("Eggs and hens?", "There are 3 hens. There are 14 eggs.", eggs, hens)
        == f"There are 3 hens.\n\n{eggs}"
    )


@pytest.mark.parametrize(
    ("question", "result", "answer"),
    [
        ("Look into the box.", "two spoons\na fork", "There is a fork in it, and there are two spoons."),
        ("How many?", '{"count": 12}', "There are 12."),
        ("Turn on the light in the hall.", "The light in the hall is now on.", "I have done that."),
        ("Draw it.", "(no output)", "It is drawn."),
        ("What time is it?", '{"time": "2026-11-23T15:04:05"}', "It is 3:04 PM."),
        ("Which files are there?", "a.txt\nb.txt", "1. a.txt\n2. b.txt\n\nThere are 2 files."),
        ("How many people live there?", "4100000 people", "4,100,000 people live there."),
    ],
)
def test_an_answer_that_agrees_with_the_results_is_unchanged(question: str, result: str, answer: str) -> None:
    assert check_answer(question, answer, result) == answer


@pytest.mark.parametrize(
    ("question", "result", "is_shown"),
    [
        ("Show me the git status", "On branch main", True),
        ("List the files in /docs", "a.txt\nb.txt", True),
        ("Show me what time it is", "15:04", False),
        ("Which files are in /docs?", "a.txt\nb.txt", False),
        ("Read the file and tell me the port", "port: 80", False),
    ],
)
def test_a_result_that_the_user_only_asks_to_see_is_shown_unchanged(question: str, result: str, is_shown: bool) -> None:
    assert (find_shown_result(question, [f"tool: {result}"]) is not None) is is_shown


def test_without_results_the_answer_is_not_held_back() -> None:
    assert ResultCheck("Hello", []).feed("Hi") == "Hi"


def test_a_name_from_the_worked_examples_is_not_shown() -> None:
    result = "Orion measures river levels. Maintainer: Lena Vogel."
    assert check_answer("Who maintains it?", "The maintainer is Tom Hill, not Lena Vogel.", result) == result


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "result",
    [
        b64encode(random.Random(1).randbytes(40_000)).decode(),
        "port 80, " + "a" * 50_000,
        ", ".join(["12"] * 15_000),
        "mia@" * 15_000,
        "1" * 50_000,
        "\n" * 50_000,
    ],
    ids=["base64", "word", "list", "addresses", "digits", "lines"],
)
def test_a_long_result_is_checked_in_linear_time(result: str) -> None:
    answer = "The port is 8080."
    assert check_answer("What is the port?", answer, f"{result}\nport: 8080") == answer
