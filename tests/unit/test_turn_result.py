"""Turns are values: they compare equal, can be copied and pickled, and round-trip through JSON."""

from __future__ import annotations

import copy
import io
import json
import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.inner import (
    ConfigError,
    ConversationBusy,
    DialError,
    Failure,
    LimitReached,
    Message,
    OutputError,
    ProviderError,
    ServerGone,
    StopReason,
    ToolCallRecord,
    ToolCallRequest,
    ToolCallResult,
    Turn,
    Usage,
)
from tests.support.fakes import unhurried
from tests.unit.test_messages import ANY_TEXT, CALLS, JSON, MESSAGES, RESULTS

COUNTS = st.integers(0, 10**9)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
RECORDS = st.builds(
    ToolCallRecord, CALLS, RESULTS, ANY_TEXT, ANY_TEXT, st.floats(0, allow_infinity=False), st.booleans()
)
TURNS = st.builds(
    Turn,
    message=MESSAGES,
    messages=st.lists(MESSAGES, max_size=2).map(tuple),
    stop_reason=st.sampled_from(StopReason),
    depth=st.integers(0, 100),
    usage=USAGES,
    tool_calls=st.lists(RECORDS, max_size=2).map(tuple),
    notes=st.lists(ANY_TEXT, max_size=2).map(tuple),
    request_usages=st.lists(USAGES, max_size=2).map(tuple),
    cost_usd=st.none() | st.floats(0, allow_infinity=False),
    client_tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    output=st.none() | JSON,
)
CALL = ToolCallRequest("call_1", "add", {"a": 1})
ANSWER = Message.assistant("It is 2.")
TURN = Turn(
    ANSWER,
    (Message.assistant("", [CALL]), ANSWER),
    StopReason.ANSWERED,
    1,
    Usage(10, 5),
    (
        ToolCallRecord(
            CALL,
            ToolCallResult.failed("call_1", Failure.TIMEOUT, "too slow"),
            "calc",
            "add",
            0.25,
            changed_arguments={"a": 9},
        ),
    ),
)


@unhurried
@given(TURNS)
def test_any_turn_round_trips_through_json(turn: Turn) -> None:
    assert Turn.from_dict(json.loads(json.dumps(turn.to_dict()))) == turn


@unhurried
@given(TURNS)
def test_any_turn_can_be_pickled_copied_and_printed(turn: Turn) -> None:
    assert pickle.loads(pickle.dumps(turn)) == turn
    assert copy.deepcopy(turn) == turn
    assert repr(turn).startswith("Turn(message=Message(")


@unhurried
@given(JSON)
def test_any_json_that_is_no_turn_raises_only_a_value_error(data: Any) -> None:
    with pytest.raises(ValueError, match="not a"):
        Turn.from_dict(data)


@pytest.mark.parametrize(
    "invalid",
    [
        {"messages": []},
        {"messages": 5},
        {"stop_reason": "bored"},
        {"usage": 5},
        {"usage": {"input_tokens": "many", "rounds": []}},
        {"usage": {"rounds": [5]}},
        {"depth": None},
        {"tool_calls": [5]},
        {"tool_calls": [{"id": "call_1"}]},
        {"client_tool_calls": ["add"]},
    ],
    ids=str,
)
def test_a_turn_with_an_invalid_field_is_a_value_error(invalid: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Turn.from_dict(TURN.to_dict() | invalid)


def test_a_turn_of_an_older_release_is_read() -> None:
    data = TURN.to_dict()
    for name in ("error", "failure"):
        del data["tool_calls"][0][name]
    turn = Turn.from_dict(data)
    assert (turn.text, turn.tool_calls[0].result.failure) == ("It is 2.", None)


def test_unknown_keys_of_newer_releases_are_ignored() -> None:
    assert Turn.from_dict(TURN.to_dict() | {"mood": "good"}) == TURN


def test_the_json_of_a_turn_does_not_repeat_the_answer() -> None:
    assert "message" not in TURN.to_dict()


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("no such key", hint="did you mean model", path="servers.json", line=3),
        ProviderError("busy", status=503, code="overloaded", retry_after=2.5),
        LimitReached("too slow", TURN),
        OutputError("the answer is not of the requested form", TURN, ("a: Field required",)),
        ServerGone("calc", "the process ended"),
        ConversationBusy("c1", "another turn is under way"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_pickled_with_all_its_attributes(error: DialError) -> None:
    received = pickle.loads(pickle.dumps(error))
    assert (type(received), str(received), vars(received)) == (type(error), str(error), vars(error))


HOSTILE = "<script>alert(1)</script><img src=x onerror=y>[bold]&\x1b[31mred\u202e![a](https://x.test/p.png)"


def test_hostile_text_has_no_effect_in_a_notebook_or_a_terminal() -> None:
    call = ToolCallRequest("1", HOSTILE, {HOSTILE: HOSTILE})
    result = ToolCallResult.failed("1", Failure.TOOL, HOSTILE)
    record = ToolCallRecord(call, result, HOSTILE, HOSTILE, 0.1)
    message = Message.assistant(HOSTILE)
    turn = Turn(message, (message,), StopReason.ANSWERED, 1, Usage(), (record,), (HOSTILE,))
    html = turn._repr_html_()
    tags = {tag.split()[0].strip("/") for tag in re.findall(r"<([^>]*)>", html)}
    assert tags <= {"div", "table", "thead", "tbody", "tr", "th", "td", "small"}
    assert "\x1b" not in html
    assert "\u202e" not in html
    console = Console(file=io.StringIO(), width=2_000, force_terminal=False)
    console.print(turn)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert "[bold]" in printed
    assert "\x1b" not in printed
