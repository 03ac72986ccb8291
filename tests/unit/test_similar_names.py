"""The known name that was probably meant."""

from __future__ import annotations

from tests.inner import did_you_mean, find_nearest


def test_only_a_similar_name_is_suggested() -> None:
    assert did_you_mean("comand", ("command", "args")) == 'did you mean "command"?'
    assert did_you_mean("colour", ("command", "args")) == ""
    assert did_you_mean("x" * 1_000_000, ("command", "args")) == ""


def test_case_and_separators_do_not_count() -> None:
    assert find_nearest("AUTO-APROVE", ("auto_approve", "args")) == "auto_approve"
