"""`ConversationContext` is immutable, and never deeper than its `max_depth`."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from tests.inner import ConversationContext, DepthExceeded, Message, ToolCallRequest, ToolCallResult

QUESTION = Message.user("What time is it?")
CALL = ToolCallRequest("call_1", "now", {})
REPLY = Message.assistant("", [CALL])
RESULT = Message.tool(CALL, ToolCallResult("call_1", success=True, content="noon"))


def test_a_context_deeper_than_max_depth_cannot_be_created() -> None:
    with pytest.raises(DepthExceeded):
        ConversationContext((QUESTION,), max_depth=1, depth=2)


@pytest.mark.parametrize("max_depth", [0, 1, 3])
def test_a_context_descends_exactly_max_depth_times(max_depth: int) -> None:
    context = ConversationContext((QUESTION,), max_depth)
    for depth in range(max_depth):
        assert (context.depth, context.may_descend) == (depth, True)
        context = context.descend(REPLY, [RESULT])
    assert not context.may_descend
    with pytest.raises(DepthExceeded):
        context.descend(REPLY, [RESULT])


def test_descending_appends_the_reply_and_its_results() -> None:
    context = ConversationContext((QUESTION,), max_depth=2)
    below = context.descend(REPLY, iter([RESULT]))
    assert below.messages == (QUESTION, REPLY, RESULT)
    assert below.max_depth == 2


def test_a_context_is_never_changed() -> None:
    context = ConversationContext((QUESTION,), max_depth=2)
    context.descend(REPLY, [RESULT])
    longer = context.extend(REPLY, RESULT)
    assert (context.messages, context.depth) == ((QUESTION,), 0)
    assert (longer.messages, longer.depth) == ((QUESTION, REPLY, RESULT), 0)
    with pytest.raises(FrozenInstanceError):
        context.depth = 5  # type: ignore[misc]  # the assignment is the test
