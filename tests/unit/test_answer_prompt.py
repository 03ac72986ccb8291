"""The results as the model is asked to answer from them."""

from __future__ import annotations

from dial_client.local.answer_prompt import mark_current


def test_the_starred_line_of_a_list_is_marked_in_words() -> None:
    assert mark_current("* main\n  next\n+ other") == "main (the current one)\n  next\n+ other"


def test_a_list_with_stars_before_every_line_is_left_as_it_is() -> None:
    for text in ("* eggs\n* milk", "a * b", "Shopping:\n* eggs", ""):
        assert mark_current(text) == text
