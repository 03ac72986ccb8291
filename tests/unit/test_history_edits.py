"""Edits of a conversation (undo, restore, summary), applied to its stored messages."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tests.inner import (
    Conversation,
    Message,
    Role,
    apply_edits,
    build_removal,
    build_summary,
    detach,
    find_edit,
    find_last_exchange,
    find_shown,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def dialogue(*texts: str) -> list[Message]:
    return [(Message.assistant if at % 2 else Message.user)(text) for at, text in enumerate(texts)]


def stored(*messages: Message, unreadable: tuple[int, ...] = ()) -> Conversation:
    return Conversation("id", "", NOW, NOW, messages, unreadable=unreadable)


def shown(conversation: Conversation) -> list[str]:
    return [message.text.splitlines()[-1] for message in apply_edits(conversation).messages]


def test_an_exchange_is_undone_and_then_the_previous_exchange() -> None:
    messages = dialogue("q1", "a1", "q2", "a2")
    for expected in (["q1", "a1"], [], []):
        exchange = find_last_exchange(stored(*messages))
        if exchange:
            messages.append(build_removal(exchange))
        assert shown(stored(*messages)) == expected


def test_an_undone_exchange_can_be_restored_until_the_next_message() -> None:
    messages = dialogue("q1", "a1", "q2", "a2")
    messages.append(build_removal(find_last_exchange(stored(*messages))))
    edit = find_edit(stored(*messages), is_summary=False)
    assert edit is not None
    again = [*messages, build_removal((edit,))]
    assert shown(stored(*again)) == ["q1", "a1", "q2", "a2"]
    assert find_edit(stored(*again), is_summary=False) is None, "nothing is left to restore"
    messages_after = [*messages, *dialogue("q3", "a3")]
    assert shown(stored(*messages_after)) == ["q1", "a1", "q3", "a3"]
    assert find_edit(stored(*messages_after), is_summary=False) is None


def test_a_summary_replaces_its_messages_and_can_be_undone() -> None:
    messages = dialogue("q1", "a1", "q2", "a2", "q3", "a3")
    messages.append(build_summary("short", 4))
    assert shown(stored(*messages)) == ["short", "q3", "a3"]
    messages += [*dialogue("q4", "a4"), build_summary("shorter", 6)]
    assert shown(stored(*messages)) == ["shorter", "q4", "a4"]
    assert apply_edits(apply_edits(stored(*messages))) == apply_edits(stored(*messages))
    for expected in (["short", "q3", "a3", "q4", "a4"], ["q1", "a1", "q2", "a2", "q3", "a3", "q4", "a4"]):
        edit = find_edit(stored(*messages), is_summary=True)
        assert edit is not None
        messages.append(build_removal((edit,)))
        assert shown(stored(*messages)) == expected


def test_undo_after_a_summary_removes_the_last_exchange_and_keeps_the_summary() -> None:
    messages = [*dialogue("q1", "a1", "q2", "a2"), build_summary("short", 2)]
    messages.append(build_removal(find_last_exchange(stored(*messages))))
    assert shown(stored(*messages)) == ["short"]
    assert find_last_exchange(stored(*messages)) == ()


def test_an_unreadable_message_does_not_shift_the_positions_of_an_edit() -> None:
    messages = [*dialogue("q1", "a1", "q2", "a2"), Message(Role.SYSTEM, replaces=(2, 4))]
    del messages[0]
    assert shown(stored(*messages, unreadable=(0,))) == ["a1"]


def test_an_edit_copied_to_another_conversation_replaces_nothing() -> None:
    summary = build_summary("short", 2)
    assert shown(stored(*map(detach, (summary, *dialogue("q", "a"))))) == ["short", "q", "a"]


SPAN = st.none() | st.tuples(st.integers(-3, 12), st.integers(-3, 10**9))


@given(st.lists(st.tuples(st.sampled_from(Role), st.sampled_from(["", "x"]), SPAN), max_size=10))
def test_any_stored_messages_are_shown_without_an_error(rows: list[tuple[Role, str, object]]) -> None:
    messages = [Message(role, text, replaces=span) for role, text, span in rows]  # type: ignore[arg-type]
    positions = [item.position for item in find_shown(stored(*messages))]
    assert len(set(positions)) == len(positions)
