"""Long results kept aside: read page by page, searched, bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial_client.tools.result_store import MAX_MATCHES, ResultStore
from tests.support.fakes import unhurried


def kept(text: str, shelf: ResultStore | None = None) -> tuple[ResultStore, str]:
    shelf = ResultStore() if shelf is None else shelf
    key = shelf.keep(text)
    assert key is not None
    return shelf, key


@unhurried
@given(st.text(max_size=300), st.integers(1, 50))
def test_page_by_page_the_whole_text_comes_back(text: str, length: int) -> None:
    shelf, key = kept(text)
    pages = [shelf.page(key, offset, length) or "" for offset in range(0, len(text), length)]
    assert "".join(page.partition("\n")[2] for page in pages) == text


def test_a_page_says_where_it_is_and_where_the_next_page_begins() -> None:
    shelf, key = kept("abcdefghij")
    assert shelf.page(key, 2, 4) == "[characters 2 to 6 of 10; the next page begins at offset 6]\ncdef"
    assert shelf.page(key, 8, 4) == "[characters 8 to 10 of 10; this is the end]\nij"
    assert shelf.page(key, -3, 10) == "[characters 7 to 10 of 10; this is the end]\nhij"
    assert shelf.page(key, 99, 4) == "[characters 10 to 10 of 10; this is the end]\n"


def test_words_are_found_whatever_their_case_with_what_is_around_them() -> None:
    shelf, key = kept(f"{'x' * 1000} The Error is here. {'y' * 1000} another ERROR")
    found = shelf.matches(key, "error", 5000) or ""
    first, middle, two = found.splitlines()
    assert first == "[2 places]"
    assert middle.startswith("[offset 1005] …xxx")
    assert "The Error is here." in middle
    assert two.endswith("another ERROR…")


def test_a_missing_result_is_reported() -> None:
    shelf, key = kept("abc")
    assert shelf.matches(key, "z", 100) == "['z' is not in these 3 characters]"
    assert shelf.matches(key, "", 100) == "['' is not in these 3 characters]"


def test_of_many_places_the_first_are_shown_and_all_are_counted() -> None:
    shelf, key = kept("ab " * 5000)
    found = shelf.matches(key, "ab", 100_000) or ""
    assert found.startswith(f"[5,000 places, the first {MAX_MATCHES} of them]")
    assert len(found.splitlines()) == MAX_MATCHES + 1
    assert len(shelf.matches(key, "ab", 500) or "") <= 500


def test_case_is_minded_where_lower_case_is_longer() -> None:
    shelf, key = kept("İx needle")
    assert "offset 3" in (shelf.matches(key, "needle", 500) or "")


@pytest.mark.parametrize("key", ["", "nobody", "0" * 12])
def test_ids_cannot_be_guessed(key: str) -> None:
    shelf, _ = kept("secret")
    assert shelf.page(key, 0, 10) is None
    assert shelf.matches(key, "secret", 100) is None


def test_what_was_not_read_for_longest_goes_first_and_what_is_too_long_is_not_kept() -> None:
    shelf = ResultStore(max_chars=10)
    _, second = kept("aaaa", shelf)
    _, two = kept("bbbb", shelf)
    assert shelf.page(second, 0, 4) is not None
    _, three = kept("cccc", shelf)
    assert (second in shelf, two in shelf, three in shelf, len(shelf)) == (True, False, True, 2)
    assert shelf.keep("d" * 11) is None
    assert len(shelf) == 2
