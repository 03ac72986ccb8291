"""Results of calls in the background: what people see of the messages in which a model gets them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.inner import (
    FROM_HOST,
    AgUiEncoder,
    AiSdkEncoder,
    Conversation,
    ImagePart,
    LateResult,
    Message,
    MessageCompleted,
    Role,
    TextPart,
    build_shared,
    read_late_result,
    sse_encoder_encode_event,
    to_markdown,
)

HEAD = f"{FROM_HOST}\n[Background call 0123abcd: ended: print_book]\n"
IMAGE = ImagePart("AA==", "image/png")


def late(text: str, *more: ImagePart, foreign: bool = True, steers: bool = True) -> Message:
    return Message(Role.USER, (TextPart(text, foreign=foreign), *more), steers=steers)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (late(f"{HEAD}120 pages"), LateResult("0123abcd", "print_book", success=True, content="120 pages")),
        (late(HEAD, IMAGE), LateResult("0123abcd", "print_book", success=True, content=(IMAGE,))),
        (
            late(f"{FROM_HOST}\n[Background call 0123abcd: ended, and failed]\nNo paper."),
            LateResult("0123abcd", "", success=False, content="No paper."),
        ),
        (late(f"{HEAD}120 pages", foreign=False), None),
        (late(f"{HEAD}120 pages", steers=False), None),
        (late(f"Look: {HEAD}120 pages"), None),
        (Message.user(f"{HEAD}120 pages"), None),
    ],
)
def test_a_late_result_is_a_message_that_the_host_has_begun(message: Message, found: LateResult | None) -> None:
    assert read_late_result(message) == found


def test_an_event_has_a_late_result_without_the_lines_for_the_model() -> None:
    (line,) = sse_encoder_encode_event(MessageCompleted(late(f"{HEAD}120 pages")), {})
    assert line.startswith("event: late_result\n")
    assert '"name":"print_book","success":true,"content":"120 pages"' in line


def test_front_ends_of_others_get_a_late_result() -> None:
    event = MessageCompleted(late(f"{HEAD}120 pages"))
    assert '"name":"late_result"' in AgUiEncoder("turn", "thread", "run").encode(event)
    assert '"type":"data-late-result"' in AiSdkEncoder("turn").encode(event)


def stored(*messages: Message) -> Conversation:
    now = datetime(2026, 11, 28, tzinfo=UTC)
    return Conversation("1", "Books", now, now, messages, message_count=len(messages))


def test_an_export_has_a_late_result_as_a_result() -> None:
    text = to_markdown(stored(Message.user("Print it."), late(f"{HEAD}120 pages")))
    assert "**`print_book`, in the background:**\n\n```\n120 pages\n```" in text
    assert "From the host" not in text


@pytest.mark.parametrize("attachments", [False, True])
def test_a_link_without_calls_has_no_late_results(attachments: bool) -> None:
    link = {"count": 2, "created": "", "tools": False, "attachments": attachments}
    shared = build_shared(stored(Message.user("Print it."), late(f"{HEAD}120 pages")), link)
    assert [message["content"] for message in shared["messages"]] == ["Print it."]


def test_a_link_with_calls_has_late_results() -> None:
    link = {"count": 2, "created": "", "tools": True, "attachments": True}
    shared = build_shared(stored(Message.user("Print it."), late(f"{HEAD}120 pages")), link)
    assert "120 pages" in str(shared["messages"][1])
