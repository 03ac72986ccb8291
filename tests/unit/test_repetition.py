"""Repetition in an answer is detected; long lists and tables are no repetition."""

from __future__ import annotations

from collections.abc import Iterable

from dial_client.providers.embedded.repetition import Repetition


def is_noticed(lines: Iterable[str]) -> bool:
    repetition = Repetition()
    return any(repetition.feed(f"{line}\n") for line in lines)


def test_an_item_repeated_with_new_numbers_is_detected() -> None:
    assert is_noticed(f"{at}. Sunscreen: 100% SPF {at * 10}" for at in range(30))
    assert is_noticed(["SPF 30 " * 70])


def test_repetition_is_detected_in_pieces_that_end_within_a_word() -> None:
    repetition = Repetition()
    assert any(repetition.feed(letter) for letter in "again and " * 70)


def test_tables_lists_code_and_prose_are_not_repetitions() -> None:
    assert not is_noticed(f"7 x {at} = {7 * at}" for at in range(20))
    assert not is_noticed(f"{at}. {'abcdefghijklmnopqrstuvwxyz'[at % 26] * 3} is a word" for at in range(100))
    assert not is_noticed([("def f(x):\n    return x + 1\n\nclass A:\n    def g(self):\n        pass\n") * 12])
    assert not is_noticed(["The quick brown fox jumps over the lazy dog and runs. " * 20])
