"""Conversations are shortened to fit the context window of the model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.inner import (
    ContextWindow,
    ImagePart,
    Instruction,
    InstructionSource,
    Message,
    Role,
    TextPart,
    ToolCallRequest,
    ToolCallResult,
    ToolSpec,
)
from tests.support.fakes import unhurried

NOW = ToolSpec("now", "Tells the time.", {"type": "object", "properties": {}})
BRIEF = (Instruction(InstructionSource.CONVERSATION, "Be brief."),)


def turn(number: int, size: int = 300) -> tuple[Message, ...]:
    call = ToolCallRequest(f"call_{number}", "now", {})
    return (
        Message.user(f"question {number}"),
        Message(Role.ASSISTANT, "", tool_calls=(call,)),
        Message.tool(call, ToolCallResult(call.id, success=True, content="x" * size)),
        Message.assistant(f"answer {number}"),
    )


def test_without_a_known_window_nothing_is_left_out() -> None:
    messages = tuple(message for number in range(100) for message in turn(number))
    assert ContextWindow().fit(messages, ()) is messages


def test_a_conversation_that_fits_is_unchanged() -> None:
    messages = turn(1)
    assert ContextWindow(1000).fit(messages, ()) is messages


def test_old_turns_are_left_out_as_a_whole() -> None:
    messages = (*turn(1), *turn(2), *turn(3), Message.user("and now?"))
    assert ContextWindow(400).fit(messages, (), BRIEF) == (*turn(3), Message.user("and now?"))


def test_the_cut_does_not_move_with_every_message() -> None:
    window = ContextWindow(1000)
    conversation: tuple[Message, ...] = ()
    beginnings = []
    for number in range(40):
        conversation += turn(number)
        beginnings.append(window.fit(conversation, ())[0].text)
    assert len(set(beginnings)) < 12
    assert beginnings == sorted(beginnings, key=lambda text: int(text.split()[1]))


def test_results_of_the_current_turn_are_cut_if_there_are_no_old_turns() -> None:
    small, large = turn(1, 50)[2], turn(2, 200_000)[2]
    messages = (*turn(2, 200_000)[:2], large, *turn(1, 50)[1:2], small)
    kept = ContextWindow(4000).fit(messages, ())
    assert [message.role for message in kept] == [message.role for message in messages]
    assert kept[4] == small
    assert len(kept[2].text) < 12_000
    assert "characters are left out here" in kept[2].text


def test_a_result_that_is_cut_keeps_its_images() -> None:
    image = ImagePart("aGk=", "image/png")
    call = ToolCallRequest("1", "now", {})
    shown = Message.tool(call, ToolCallResult("1", success=True, content=(TextPart("x" * 50_000), image)))
    kept = ContextWindow(3000).fit((Message.user("?"), Message(Role.ASSISTANT, "", tool_calls=(call,)), shown), ())
    assert kept[2].content[-1] == image
    assert len(kept[2].text) < 10_000


def test_the_offered_tools_count_towards_the_window() -> None:
    messages = (*turn(1), *turn(2))
    large = ToolSpec("large", "d" * 2000, {"type": "object"})
    assert ContextWindow(1000).fit(messages, (NOW,)) is messages
    assert ContextWindow(1000).fit(messages, (large,)) == turn(2)


def test_a_refused_request_makes_the_window_smaller_than_the_request() -> None:
    window = ContextWindow()
    messages = (*turn(1), *turn(2), *turn(3))
    window.record_refusal(messages, ())
    assert window.fit(messages, ()) == turn(3)


ANY_TURN = st.builds(turn, st.integers(0, 99), st.integers(0, 3000))


@unhurried
@given(st.lists(ANY_TURN, min_size=1, max_size=12), st.integers(50, 3000), st.booleans())
def test_the_messages_sent_are_always_the_last_whole_turns(
    turns: list[tuple[Message, ...]], tokens: int, instructed: bool
) -> None:
    messages = tuple(message for exchange in turns for message in exchange)
    rest = ContextWindow(tokens).fit(messages, (), BRIEF if instructed else ())
    assert rest
    assert rest[0].role is Role.USER
    assert [message.role for message in rest] == [message.role for message in messages[-len(rest) :]]
    assert [message.tool_call_id for message in rest] == [message.tool_call_id for message in messages[-len(rest) :]]
