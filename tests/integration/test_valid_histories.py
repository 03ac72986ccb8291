"""Repair of stored conversations: missing results are added, so that the history is valid."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import (
    CUT_OFF,
    INTERRUPTED,
    Conversation,
    Message,
    Role,
    ToolCallRequest,
    ToolCallResult,
    build_closing_messages,
    repair_conversation,
    repair_history,
)
from tests.support.managed_conversations import assert_valid, dialogue

A, B = ToolCallRequest("a", "add", {}), ToolCallRequest("b", "add", {})


def answer(call: ToolCallRequest, text: str) -> Message:
    return Message.tool(call, ToolCallResult(call.id, success=not text.startswith("["), content=text))


@pytest.mark.parametrize(
    ("stored", "history"),
    [
        ([], []),
        (dialogue("hi", "ho"), dialogue("hi", "ho")),
        (
            [Message.assistant("", [A, B]), answer(A, "1"), answer(B, "2"), Message.assistant("3")],
            [Message.assistant("", [A, B]), answer(A, "1"), answer(B, "2"), Message.assistant("3")],
        ),
        (
            [Message.assistant("", [A, B])],
            [Message.assistant("", [A, B]), answer(A, INTERRUPTED), answer(B, INTERRUPTED)],
        ),
        (
            [Message.assistant("", [A, B]), answer(B, "2"), Message.user("and?")],
            [Message.assistant("", [A, B]), answer(A, INTERRUPTED), answer(B, "2"), Message.user("and?")],
        ),
        (
            [Message.assistant("", [A]), Message.user("another program"), answer(A, "1")],
            [Message.assistant("", [A]), answer(A, "1"), Message.user("another program")],
        ),
        (
            [Message.assistant("", [A]), Message.assistant("", [A]), answer(A, "1")],
            [Message.assistant("", [A]), answer(A, INTERRUPTED), Message.assistant("", [A]), answer(A, "1")],
        ),
        ([answer(A, "0"), *dialogue("hi")], dialogue("hi")),
        ([Message.assistant("", [A]), answer(A, "1"), answer(A, "2")], [Message.assistant("", [A]), answer(A, "1")]),
    ],
)
def test_a_history_is_repaired_with_minimal_changes(stored: Sequence[Message], history: Sequence[Message]) -> None:
    assert repair_history(stored) == tuple(history)


some_messages = st.lists(
    st.sampled_from([Message.user("hi"), Message.assistant("ho"), answer(A, "1"), answer(B, "2")])
    | st.builds(Message.assistant, st.just(""), st.lists(st.sampled_from([A, B]), unique_by=lambda call: call.id))
)


@given(some_messages, some_messages)
def test_any_history_becomes_valid_and_stays_valid(stored: list[Message], later: list[Message]) -> None:
    history = repair_history(stored)
    assert_valid(history)
    assert repair_history(history) == history
    assert [message for message in history if message.role is not Role.TOOL] == [
        message for message in stored if message.role is not Role.TOOL
    ]
    assert_valid(repair_history([*stored, *later]))


def interrupted_conversation(
    stored: Sequence[Message], unfinished: Sequence[Message], *, running: bool = False
) -> Conversation:
    now = datetime.now(UTC)
    return Conversation("c", "", now, now, tuple(stored), running=running, turn="t", unfinished=tuple(unfinished))


CUT = Message.assistant(f"It is\n\n{CUT_OFF}")


@pytest.mark.parametrize(
    ("stored", "unfinished", "added"),
    [
        ([], [], []),
        (dialogue("hi"), [], []),
        (dialogue("hi"), [CUT], [CUT]),
        (dialogue("hi", "ho"), [], []),
        ([Message.assistant("", [A, B])], [answer(B, "2")], [answer(A, INTERRUPTED), answer(B, "2")]),
        ([Message.assistant("", [A, B]), answer(A, "1"), answer(B, "2")], [answer(A, "1")], []),
        ([Message.assistant("", [A]), answer(A, "1")], [CUT], [CUT]),
    ],
)
def test_the_messages_of_an_interrupted_turn_are_completed_and_shown(
    stored: Sequence[Message], unfinished: Sequence[Message], added: Sequence[Message]
) -> None:
    dead = interrupted_conversation(stored, unfinished)
    assert build_closing_messages(dead) == tuple(added)
    read = repair_conversation(dead)
    assert read.messages == (*stored, *added)
    answered = stored == dialogue("hi", "ho")
    assert len(read.notes) == (0 if answered else 1)
    assert repair_conversation(interrupted_conversation(stored, unfinished, running=True)).notes == ()
