"""The store of long results: pages, search, and its limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import MAX_MATCHES, ResultStore
from tests.support.fakes import unhurried


def add_result(text: str, store: ResultStore | None = None) -> tuple[ResultStore, str]:
    store = ResultStore() if store is None else store
    key = store.keep(text)
    assert key is not None
    return store, key


@unhurried
@given(st.text(max_size=300), st.integers(1, 50))
def test_the_pages_of_a_result_add_up_to_its_text(text: str, length: int) -> None:
    store, key = add_result(text)
    pages = [store.read_page(key, offset, length) or "" for offset in range(0, len(text), length)]
    assert "".join(page.partition("\n")[2] for page in pages) == text


def test_a_page_states_its_offsets_and_the_offset_of_the_next_page() -> None:
    store, key = add_result("abcdefghij")
    assert store.read_page(key, 2, 4) == "[characters 2 to 6 of 10; the next page begins at offset 6]\ncdef"
    assert store.read_page(key, 8, 4) == "[characters 8 to 10 of 10; this is the end]\nij"
    assert store.read_page(key, -3, 10) == "[characters 7 to 10 of 10; this is the end]\nhij"
    assert store.read_page(key, 99, 4) == "[characters 10 to 10 of 10; this is the end]\n"


def test_a_search_ignores_case_and_shows_the_surrounding_text() -> None:
    store, key = add_result(f"{'x' * 1000} The Error is here. {'y' * 1000} another ERROR")
    found = store.find_matches(key, "error", 5000) or ""
    first, middle, two = found.splitlines()
    assert first == "[2 places]"
    assert middle.startswith("[offset 1005] …xxx")
    assert "The Error is here." in middle
    assert two.endswith("another ERROR…")


def test_a_search_without_a_match_is_reported() -> None:
    store, key = add_result("abc")
    assert store.find_matches(key, "z", 100) == "['z' is not in these 3 characters]"
    assert store.find_matches(key, "", 100) == "['' is not in these 3 characters]"


def test_the_first_matches_are_shown_and_all_matches_are_counted() -> None:
    store, key = add_result("ab " * 5000)
    found = store.find_matches(key, "ab", 100_000) or ""
    assert found.startswith(f"[5,000 places, the first {MAX_MATCHES} of them]")
    assert len(found.splitlines()) == MAX_MATCHES + 1
    assert len(store.find_matches(key, "ab", 500) or "") <= 500


def test_a_search_respects_case_if_lower_case_changes_the_length() -> None:
    store, key = add_result("İx needle")
    assert "offset 3" in (store.find_matches(key, "needle", 500) or "")


@pytest.mark.parametrize("key", ["", "nobody", "0" * 12])
def test_ids_cannot_be_guessed(key: str) -> None:
    store, _ = add_result("secret")
    assert store.read_page(key, 0, 10) is None
    assert store.find_matches(key, "secret", 100) is None


def test_the_least_recently_read_result_is_evicted_and_a_too_long_result_is_not_stored() -> None:
    store = ResultStore(max_chars=10)
    _, second = add_result("aaaa", store)
    _, two = add_result("bbbb", store)
    assert store.read_page(second, 0, 4) is not None
    _, three = add_result("cccc", store)
    assert ([store.has(key) for key in (second, two, three)], len(store)) == ([True, False, True], 2)
    assert store.keep("d" * 11) is None
    assert len(store) == 2
