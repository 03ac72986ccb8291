"""The versions of a conversation, computed from its stored messages and entries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inner import (
    ConfigError,
    Continuation,
    Conversation,
    EditedMessage,
    EntryKind,
    Message,
    Regeneration,
    StoredEntry,
    apply_edits,
    build_branch,
    build_deletion,
    build_entry,
    build_first_messages,
    build_summary,
    build_switch,
    build_tree,
    build_view,
    extend,
    list_messages,
)
from tests.inner import export_from_json as from_json

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored(*texts: str) -> Conversation:
    messages = tuple((Message.assistant if at % 2 else Message.user)(text) for at, text in enumerate(texts))
    return Conversation("id", "", NOW, NOW, messages, message_count=len(messages))


def add_turn(conversation: Conversation, turn_input: object, *answer: str) -> Conversation:
    """Return the conversation after a turn with these answers."""
    added = build_first_messages(conversation, turn_input)  # type: ignore[arg-type]
    return extend(conversation, (*added, *map(Message.assistant, answer)))


def shown(conversation: Conversation) -> list[str]:
    return [message.text.splitlines()[-1] for message in apply_edits(conversation).messages]


def versions(conversation: Conversation) -> list[tuple[int, bool, tuple[int, ...], int | None]]:
    view = build_view(conversation)
    return [(found.message, found.is_answer, found.positions, found.current) for found in view.versions]


def test_a_question_is_answered_again_and_both_answers_are_kept() -> None:
    first = stored("q1", "a1")
    second = add_turn(first, Regeneration(), "b1")
    assert shown(second) == ["q1", "b1"]
    assert versions(second) == [(1, True, (1, 3), 1)]
    back = extend(second, build_switch(second, 1))
    assert shown(back) == ["q1", "a1"]
    assert versions(back) == [(1, True, (1, 3), 0)]
    assert build_switch(back, 1) == (), "it is shown already"


def test_an_edited_question_begins_a_separate_version() -> None:
    first = stored("q1", "a1", "q2", "a2")
    edited = add_turn(first, EditedMessage(2, "p2"), "b2")
    longer = add_turn(edited, "p3", "b3")
    assert shown(longer) == ["q1", "a1", "p2", "b2", "p3", "b3"]
    assert versions(longer) == [(2, False, (2, 5), 1)]
    back = extend(longer, build_switch(longer, 2))
    assert shown(back) == ["q1", "a1", "q2", "a2"]
    forth = extend(back, build_switch(back, 5))
    assert shown(forth) == shown(longer), "a version is shown as it was last continued"


def test_the_first_question_can_be_edited_too() -> None:
    edited = add_turn(stored("q1", "a1"), EditedMessage(0, "p1"), "b1")
    assert shown(edited) == ["p1", "b1"]
    assert versions(edited) == [(0, False, (0, 3), 1)]


def test_an_edited_question_keeps_the_taint_of_the_original() -> None:
    first = replace(Message.user("of a server"), taint="books")
    conversation = Conversation("id", "", NOW, NOW, (first, Message.assistant("a1")), message_count=2)
    assert [message.taint for message in build_first_messages(conversation, EditedMessage(0, "new"))][-1] == "books"


def test_an_earlier_answer_is_regenerated_by_the_position_of_any_of_its_messages() -> None:
    again = add_turn(stored("q1", "a1", "q2", "a2"), Regeneration(1), "b1")
    assert shown(again) == ["q1", "b1"]
    assert versions(again) == [(1, True, (1, 5), 1)]


def test_a_failed_regeneration_keeps_the_earlier_answer_as_a_version() -> None:
    failed = extend(stored("q1", "a1"), build_first_messages(stored("q1", "a1"), Regeneration()))
    assert shown(failed) == ["q1"]
    assert versions(failed) == [(0, True, (1,), None)]
    assert shown(add_turn(failed, Regeneration(), "b1")) == ["q1", "b1"], "no further entry is needed"


def test_a_summary_still_replaces_the_messages_before_a_new_version() -> None:
    long = stored("q1", "a1", "q2", "a2", "q3", "a3")
    compacted = extend(long, (build_summary("short", 4),))
    again = add_turn(compacted, Regeneration(), "b3")
    assert shown(again) == ["short", "q3", "b3"]
    assert versions(again) == [(2, True, (5, 9), 1)]
    assert shown(add_turn(compacted, Regeneration(1), "b1")) == ["q1", "b1"], "the summary covers later messages too"


def test_a_removed_answer_is_in_no_version_and_the_other_version_is_shown() -> None:
    again = add_turn(stored("q1", "a1"), Regeneration(), "b1")
    removed = extend(again, build_deletion(again, 3))
    assert shown(removed) == ["q1", "a1"]
    assert versions(removed) == []
    nothing = extend(removed, build_deletion(removed, 1))
    assert shown(nothing) == ["q1"]
    with pytest.raises(ConfigError, match="no message 1"):
        build_deletion(nothing, 1)


def test_a_question_is_removed_with_all_its_answers_and_later_messages_stay() -> None:
    again = add_turn(stored("q1", "a1"), Regeneration(), "b1")
    longer = add_turn(again, "q2", "a2")
    removed = extend(longer, build_deletion(longer, 0))
    assert shown(removed) == ["q2", "a2"]
    assert [found["position"] for found in list_messages(removed)] == [4, 5]
    assert shown(add_turn(removed, "q3", "a3")) == ["q2", "a2", "q3", "a3"]


def test_a_position_that_does_not_exist_is_an_error() -> None:
    conversation = stored("q1", "a1")
    for turn_input in (EditedMessage(1, "x"), EditedMessage(7, "x"), Regeneration(9)):
        with pytest.raises(ConfigError):
            build_first_messages(conversation, turn_input)
    with pytest.raises(ConfigError, match="no question"):
        build_first_messages(stored(), Regeneration())
    with pytest.raises(ConfigError, match="continued"):
        build_first_messages(stored("q1"), Continuation())
    with pytest.raises(ConfigError, match="no message 5"):
        build_switch(conversation, 5)


def test_invalid_entries_and_entries_of_newer_releases_have_no_effect() -> None:
    wrong = [
        build_entry(EntryKind.BRANCH, {"head": 99}),
        build_entry(EntryKind.BRANCH, {"head": "x"}),
        build_entry(EntryKind.REMOVAL, {"positions": ["x", None]}),
        build_entry(EntryKind.REMOVAL, {}),
        Message.system("").from_dict({"role": "system", "entry": {"kind": "of-tomorrow", "data": {}}}),
    ]
    conversation = extend(stored("q1", "a1"), tuple(wrong))
    assert shown(add_turn(conversation, "q2", "a2")) == ["q1", "a1", "q2", "a2"]


def test_an_entry_is_stored_with_its_message_and_dropped_by_an_import() -> None:
    entry = build_entry(EntryKind.SETTINGS, {"model": "x"})
    assert Message.from_dict(entry.to_dict()) == entry
    assert entry.entry == StoredEntry("settings", {"model": "x"})
    text = '[{"role": "user", "content": "q"}, {"role": "system", "entry": {"kind": "settings", "data": {}}}]'
    assert from_json(text) == ("", (Message.user("q"),))
    with pytest.raises(ConfigError, match=r"messages\[0\]"):
        from_json('[{"role": "system", "entry": {"kind": 1, "data": {}}}]')


STEPS = st.lists(st.tuples(st.sampled_from(["ask", "edit", "regenerate", "switch", "remove"]), st.integers(0, 40)))


@given(STEPS)
def test_after_any_edits_the_shown_version_is_a_path_and_no_message_is_lost(steps: list[tuple[str, int]]) -> None:
    conversation = stored("q", "a")
    for kind, number in steps:
        questions = [node.position for node in build_tree(conversation).messages.values() if node.is_question]
        position = questions[number % len(questions)]
        before = conversation
        try:
            match kind:
                case "ask":
                    conversation = add_turn(conversation, f"q{number}", "a")
                case "edit":
                    conversation = add_turn(conversation, EditedMessage(position, "p"), "b")
                case "regenerate":
                    conversation = add_turn(conversation, Regeneration(position), "c")
                case "switch":
                    conversation = extend(conversation, build_switch(conversation, position))
                case _:
                    conversation = extend(conversation, build_deletion(conversation, position))
        except ConfigError:
            continue
        assert conversation.messages[: len(before.messages)] == before.messages
        tree = build_tree(conversation)
        path = [node.position for node in tree.find_path()]
        assert path == sorted(path)
        assert not tree.removed.intersection(path)
        for found in build_view(conversation).versions:
            assert found.current is None or found.positions[found.current] in path


def test_a_branch_at_the_current_message_stores_nothing() -> None:
    conversation = stored("q1", "a1")
    assert build_branch(conversation, build_tree(conversation), 1) == ()
