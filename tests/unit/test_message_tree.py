"""The versions of a conversation, computed from the messages and entries that are stored of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dial_client.conversations.branches import build_branch, build_deletion, build_switch
from dial_client.conversations.conversation_view import build_view, list_messages
from dial_client.conversations.export import from_json
from dial_client.conversations.history_edits import apply_edits, build_summary
from dial_client.conversations.message_tree import build_entry, build_tree, extend
from dial_client.conversations.turn_input import Continuation, EditedMessage, Regeneration, build_first_messages
from dial_client.errors import ConfigError
from dial_client.messages.message import Message
from dial_client.messages.stored_entry import EntryKind, StoredEntry
from dial_client.stores.conversation_store import Conversation

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored(*texts: str) -> Conversation:
    messages = tuple((Message.assistant if at % 2 else Message.user)(text) for at, text in enumerate(texts))
    return Conversation("id", "", NOW, NOW, messages, message_count=len(messages))


def asked(conversation: Conversation, turn_input: object, *answer: str) -> Conversation:
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
    second = asked(first, Regeneration(), "b1")
    assert shown(second) == ["q1", "b1"]
    assert versions(second) == [(1, True, (1, 3), 1)]
    back = extend(second, build_switch(second, 1))
    assert shown(back) == ["q1", "a1"]
    assert versions(back) == [(1, True, (1, 3), 0)]
    assert build_switch(back, 1) == (), "it is shown already"


def test_an_edited_question_begins_a_version_that_goes_on_by_itself() -> None:
    first = stored("q1", "a1", "q2", "a2")
    edited = asked(first, EditedMessage(2, "p2"), "b2")
    longer = asked(edited, "p3", "b3")
    assert shown(longer) == ["q1", "a1", "p2", "b2", "p3", "b3"]
    assert versions(longer) == [(2, False, (2, 5), 1)]
    back = extend(longer, build_switch(longer, 2))
    assert shown(back) == ["q1", "a1", "q2", "a2"]
    forth = extend(back, build_switch(back, 5))
    assert shown(forth) == shown(longer), "a version is shown as it was last continued"


def test_the_first_question_has_versions_too() -> None:
    edited = asked(stored("q1", "a1"), EditedMessage(0, "p1"), "b1")
    assert shown(edited) == ["p1", "b1"]
    assert versions(edited) == [(0, False, (0, 3), 1)]


def test_an_edited_question_keeps_the_taint_of_what_it_had() -> None:
    first = replace(Message.user("of a server"), taint="books")
    conversation = Conversation("id", "", NOW, NOW, (first, Message.assistant("a1")), message_count=2)
    assert [message.taint for message in build_first_messages(conversation, EditedMessage(0, "new"))][-1] == "books"


def test_an_earlier_answer_is_regenerated_by_the_position_of_any_of_its_messages() -> None:
    again = asked(stored("q1", "a1", "q2", "a2"), Regeneration(1), "b1")
    assert shown(again) == ["q1", "b1"]
    assert versions(again) == [(1, True, (1, 5), 1)]


def test_an_answer_that_never_came_can_be_switched_back_from() -> None:
    failed = extend(stored("q1", "a1"), build_first_messages(stored("q1", "a1"), Regeneration()))
    assert shown(failed) == ["q1"]
    assert versions(failed) == [(0, True, (1,), None)]
    assert shown(asked(failed, Regeneration(), "b1")) == ["q1", "b1"], "no further entry is needed"


def test_a_summary_still_stands_for_the_messages_before_a_new_version() -> None:
    long = stored("q1", "a1", "q2", "a2", "q3", "a3")
    compacted = extend(long, (build_summary("short", 4),))
    again = asked(compacted, Regeneration(), "b3")
    assert shown(again) == ["short", "q3", "b3"]
    assert versions(again) == [(2, True, (5, 9), 1)]
    assert shown(asked(compacted, Regeneration(1), "b1")) == ["q1", "b1"], "the summary stands for later messages too"


def test_a_removed_answer_is_in_no_version_and_the_other_version_is_shown() -> None:
    again = asked(stored("q1", "a1"), Regeneration(), "b1")
    removed = extend(again, build_deletion(again, 3))
    assert shown(removed) == ["q1", "a1"]
    assert versions(removed) == []
    nothing = extend(removed, build_deletion(removed, 1))
    assert shown(nothing) == ["q1"]
    with pytest.raises(ConfigError, match="no message 1"):
        build_deletion(nothing, 1)


def test_a_question_is_removed_with_all_its_answers_and_what_follows_stays() -> None:
    again = asked(stored("q1", "a1"), Regeneration(), "b1")
    longer = asked(again, "q2", "a2")
    removed = extend(longer, build_deletion(longer, 0))
    assert shown(removed) == ["q2", "a2"]
    assert [found["position"] for found in list_messages(removed)] == [4, 5]
    assert shown(asked(removed, "q3", "a3")) == ["q2", "a2", "q3", "a3"]


def test_what_is_not_there_is_refused() -> None:
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


def test_wrong_entries_and_those_of_newer_releases_have_no_effect() -> None:
    wrong = [
        build_entry(EntryKind.BRANCH, {"head": 99}),
        build_entry(EntryKind.BRANCH, {"head": "x"}),
        build_entry(EntryKind.REMOVAL, {"positions": ["x", None]}),
        build_entry(EntryKind.REMOVAL, {}),
        Message.system("").from_dict({"role": "system", "entry": {"kind": "of-tomorrow", "data": {}}}),
    ]
    conversation = extend(stored("q1", "a1"), tuple(wrong))
    assert shown(asked(conversation, "q2", "a2")) == ["q1", "a1", "q2", "a2"]


def test_an_entry_is_stored_with_its_message_and_none_comes_with_an_import() -> None:
    entry = build_entry(EntryKind.SETTINGS, {"model": "x"})
    assert Message.from_dict(entry.to_dict()) == entry
    assert entry.entry == StoredEntry("settings", {"model": "x"})
    text = '[{"role": "user", "content": "q"}, {"role": "system", "entry": {"kind": "settings", "data": {}}}]'
    assert from_json(text) == ("", (Message.user("q"),))
    with pytest.raises(ConfigError, match=r"messages\[0\]"):
        from_json('[{"role": "system", "entry": {"kind": 1, "data": {}}}]')


STEPS = st.lists(st.tuples(st.sampled_from(["ask", "edit", "regenerate", "switch", "remove"]), st.integers(0, 40)))


@given(STEPS)
def test_whatever_is_done_the_shown_version_is_a_path_and_nothing_is_lost(steps: list[tuple[str, int]]) -> None:
    conversation = stored("q", "a")
    for kind, number in steps:
        questions = [node.position for node in build_tree(conversation).messages.values() if node.is_question]
        position = questions[number % len(questions)]
        before = conversation
        try:
            match kind:
                case "ask":
                    conversation = asked(conversation, f"q{number}", "a")
                case "edit":
                    conversation = asked(conversation, EditedMessage(position, "p"), "b")
                case "regenerate":
                    conversation = asked(conversation, Regeneration(position), "c")
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


def test_a_branch_to_where_the_conversation_is_stores_nothing() -> None:
    conversation = stored("q1", "a1")
    assert build_branch(conversation, build_tree(conversation), 1) == ()
