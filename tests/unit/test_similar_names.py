"""The known name that was probably meant."""

from __future__ import annotations

from tests.inner import did_you_mean, find_nearest, suggest_name


def test_only_a_similar_name_is_suggested() -> None:
    assert did_you_mean("comand", ("command", "args")) == 'did you mean "command"?'
    assert did_you_mean("colour", ("command", "args")) == ""
    assert did_you_mean("x" * 1_000_000, ("command", "args")) == ""


def test_case_and_separators_do_not_count() -> None:
    assert find_nearest("AUTO-APROVE", ("auto_approve", "args")) == "auto_approve"


def test_without_a_similar_name_the_hint_lists_the_names_that_there_are() -> None:
    assert suggest_name("tmie", ("time", "git")) == 'did you mean "time"?'
    assert suggest_name("x", ("time", "git", "time")) == "there are time, git"
    assert suggest_name("x", ["big"]) == "the only one is big"
    assert suggest_name("x", iter(())) == "there is none"
    assert suggest_name("x", map(str, range(1_000))).endswith(", 18, 19, and 980 more")
