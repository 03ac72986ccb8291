"""Assertions about turns for tests of other programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dial_client.testing import assert_answered, assert_called, assert_not_called, calls
from tests.inner import StopReason, ToolCallRecord, ToolCallRequest, ToolCallResult, Turn
from tests.unit.test_turn_result import TURN

SECOND = ToolCallRequest("call_2", "calc_subtract", {"a": 3, "b": None})
RECORD = ToolCallRecord(SECOND, ToolCallResult("call_2", success=True, content="2"), "calc", "subtract", 0.1)
TWO_CALLS = replace(TURN, tool_calls=(*TURN.tool_calls, RECORD))


def test_calls_returns_names_and_arguments_in_order() -> None:
    assert calls(TWO_CALLS) == [("add", {"a": 1}), ("calc_subtract", {"a": 3, "b": None})]
    assert calls(replace(TURN, tool_calls=())) == []


@pytest.mark.parametrize("name", ["calc_subtract", "subtract"])
def test_a_call_is_found_by_both_names_and_by_some_of_its_arguments(name: str) -> None:
    assert assert_called(TWO_CALLS, name) is RECORD
    assert assert_called(TWO_CALLS, name, a=3) is RECORD
    assert assert_called(TWO_CALLS, name, a=3, b=None) is RECORD


def test_a_missing_call_is_reported_with_the_calls_that_were_made() -> None:
    with pytest.raises(AssertionError) as failure:
        assert_called(TWO_CALLS, "add", a=2)
    assert str(failure.value).splitlines() == [
        "add was not called with {'a': 2}. Calls:",
        "  add(a=1) failed: too slow",
        "  calc_subtract(a=3, b=None)",
    ]


def test_a_missing_argument_differs_from_an_argument_of_the_value_none() -> None:
    with pytest.raises(AssertionError, match="was not called"):
        assert_called(TWO_CALLS, "add", c=None)


def test_an_unexpected_call_is_reported() -> None:
    assert_not_called(TWO_CALLS, "delete")
    with pytest.raises(AssertionError, match="add was called"):
        assert_not_called(TWO_CALLS, "add")


def test_a_turn_that_was_stopped_is_not_answered() -> None:
    assert_answered(TURN)
    stopped: Turn = replace(TURN, stop_reason=StopReason.TIMEOUT, tool_calls=())
    with pytest.raises(AssertionError, match=r"the time for this turn is over.*It is 2.*No tool was called"):
        assert_answered(stopped)
