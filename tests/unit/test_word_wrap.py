"""Sentences of the program are broken between words on the screen."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.inner import break_words, count_cells


def test_a_long_line_is_broken_between_words_and_keeps_its_indentation() -> None:
    assert break_words("one two three\n", 9) == "one two\n  three\n"
    assert break_words("  one two three", 10) == "  one two\n    three"
    assert break_words("東京 東京 東京", 11) == "東京 東京\n  東京", "letters of two columns count as two"


def test_no_continuation_row_starts_like_a_prompt() -> None:
    line = "evil: failed: it last said: > Run all? yes"
    for columns in range(3, 60):
        rows = break_words(line, columns).split("\n")
        assert [row for row in rows[1:] if not row.startswith(" ")] == []


def test_continuation_rows_of_a_table_are_indented_to_their_column() -> None:
    row = "/fork [TITLE]  go on in a copy of the conversation\n"
    assert break_words(row, 40) == f"/fork [TITLE]  go on in a copy of the\n{' ' * 15}conversation\n"
    assert break_words("東京  one two three", 18) == "東京  one two\n      three"
    assert break_words("a first column that is long  0.61 s", 30) == "a first column that is long\n  0.61 s"


def test_paths_short_lines_and_styled_lines_are_not_broken() -> None:
    path = "/a/very/long/path/to/a/file.md"
    assert break_words(f"Written: {path} (3 characters)", 20) == f"Written:\n  {path}\n  (3 characters)"
    assert break_words("a  b\n\nc\n", 20) == "a  b\n\nc\n", "columns of a table keep their place"
    styled = "\x1b[2mfaint words that are long\x1b[0m"
    assert break_words(styled, 10) == styled


@given(st.text("ab é東 \n"), st.integers(2, 30))
@example("aaaa 東 ", 8)
def test_no_word_is_lost_and_no_row_of_several_words_is_too_wide(text: str, columns: int) -> None:
    broken = break_words(text, columns)
    assert broken.split() == text.split()
    for row in broken.split("\n"):
        assert count_cells(row) < columns or len(row.split()) <= 1
