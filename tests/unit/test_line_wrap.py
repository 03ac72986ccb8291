"""Lines that are wider than the terminal are wrapped between words."""

from __future__ import annotations

from tests.inner import wrap_line


def test_the_second_row_of_a_line_is_indented_to_the_end_of_its_label() -> None:
    label = "    2  files  "
    rows = wrap_line(f"{label}The files of this folder. (npx @modelcontextprotocol/server)", 50, len(label)).split("\n")
    assert rows == ["    2  files  The files of this folder. (npx", "              @modelcontextprotocol/server)"]


def test_the_second_row_of_a_line_without_a_label_is_indented_further_than_the_first() -> None:
    assert wrap_line("  one two three", 12).split("\n") == ["  one two", "      three"]


def test_a_word_that_is_longer_than_a_row_stays_whole() -> None:
    path = "/a/long/folder/with-hyphens/servers.json"
    assert wrap_line(f"    1  here  {path}", 30, 13).split()[-1] == path


def test_a_line_that_fits_or_is_written_to_a_pipe_is_unchanged() -> None:
    for line in ("a  b", "", "  c"):
        assert wrap_line(line, 80) == line
    assert wrap_line("a  b " * 50, None) == "a  b " * 50
