"""The messages with which the embedded model is asked to write an answer."""

from __future__ import annotations

from dial_client.messages.message import Message, Role, ToolSpec
from dial_client.providers.embedded import fixed_replies
from dial_client.providers.embedded.answer_prompt import build_answer_messages

CLOCK = ToolSpec("get_time", "Get the time.", {"properties": {"zone": {}}})


def test_earlier_turns_with_composed_replies_are_left_out() -> None:
    composed = (
        fixed_replies.compose_failed_call("get_time", "no such zone", ["12"]),
        fixed_replies.compose_denied_call("get_time"),
        fixed_replies.compose_missing_argument(CLOCK, ["zone"]),
        fixed_replies.NOT_CONNECTED,
        fixed_replies.NO_TOOL_FITS,
    )
    for reply in composed:
        messages = (Message.user("What time is it?"), Message.assistant(reply), Message.user("And in Sydney?"))
        assert [message.role for message in build_answer_messages(messages)] == [Role.USER]
    messages = (Message.user("Hi"), Message.assistant("Hello!"), Message.user("And now?"))
    assert build_answer_messages(messages) == messages
