"""An answer that says nothing of the results is replaced by them."""

from __future__ import annotations

import pytest

from dial_client.local.result_check import ResultCheck


def played(question: str, result: str, answer: str) -> tuple[str, str]:
    """Return the text shown while the answer was written, and the text at its end."""
    check = ResultCheck(question, [f"tool: {result}"])
    return "".join(check.feed(f"{word} ") for word in answer.split(" ")), check.finish()


def test_an_answer_without_anything_of_the_results_is_replaced_by_them() -> None:
    question, result = "Look into the box for me.", "two spoons\na fork"
    assert played(question, result, "I have looked into the box for you.") == ("", result)


@pytest.mark.parametrize(
    ("question", "result", "answer"),
    [
        ("Look into the box.", "two spoons\na fork", "There is a fork in it, and there are two spoons."),
        ("How many?", '{"count": 12}', "There are 12."),
        ("Turn on the light in the hall.", "The light in the hall is now on.", "I have done that."),
        ("Draw it.", "(no output)", "It is drawn."),
    ],
)
def test_other_answers_are_shown_as_they_are(question: str, result: str, answer: str) -> None:
    assert played(question, result, answer) == (f"{answer} ", "")


def test_without_results_nothing_is_held_back() -> None:
    assert ResultCheck("Hello", []).feed("Hi") == "Hi"
