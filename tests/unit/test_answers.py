"""The replies of the embedded model that are no calls: prompts for answers, results, composed replies, repetition."""

from __future__ import annotations

from collections.abc import Iterable

from tests.inner import Message, ModelRequest, Repetition, Role, ToolSpec, answers, build_answer_request, show_results

CLOCK = ToolSpec("get_time", "Get the time.", {"properties": {"zone": {}}})


def test_earlier_turns_with_composed_replies_are_left_out() -> None:
    composed = (
        answers.compose_failed_call("get_time", "no such zone", ["12"]),
        answers.compose_denied_call("get_time"),
        answers.compose_missing_argument(CLOCK, ["zone"]),
        answers.NOT_CONNECTED,
        answers.NO_TOOL_FITS,
    )
    for reply in composed:
        messages = (Message.user("What time is it?"), Message.assistant(reply), Message.user("And in Sydney?"))
        asked = build_answer_request(ModelRequest(messages), [])
        assert [message.role for message in asked.messages] == [Role.USER]
    messages = (Message.user("Hi"), Message.assistant("Hello!"), Message.user("And now?"))
    assert build_answer_request(ModelRequest(messages), []).messages == messages


def test_json_is_shown_as_lines_with_times_to_the_minute() -> None:
    text = (
        '{"target": {"time_zone": "Asia/Tokyo", "datetime": "2026-11-23T23:00:05+09:00"}, "is_dst": false, "x": null}'
    )
    lines = "target time zone: Asia/Tokyo\ntarget datetime: 2026-11-23 23:00\nis dst: no\nx: none"
    assert show_results([text]) == f"```\n{lines}\n```"
    assert show_results(['["a", "b"]']) == "a, b"
    assert show_results(['[{"id": 1}, {"id": 2}]']) == "```\n1 id: 1\n2 id: 2\n```"


def test_other_results_are_shown_as_they_are() -> None:
    for text in ("a * b", "", "12", '"12"', "{broken", "[" * 500):
        assert show_results([text]) == text
    assert show_results(["one", "two"]) == "```\none\ntwo\n```"


def test_a_long_result_is_shortened() -> None:
    shown = show_results(["word " * 2_000])
    assert len(shown) <= answers.MAX_RESULT_CHARS + 1
    assert shown.endswith("…")


def is_noticed(lines: Iterable[str]) -> bool:
    repetition = Repetition()
    return any(repetition.feed(f"{line}\n") for line in lines)


def test_an_item_repeated_with_new_numbers_is_detected() -> None:
    assert is_noticed(f"{number}. Sunscreen: 100% SPF {number * 10}" for number in range(30))
    assert is_noticed(["SPF 30 " * 70])


def test_repetition_is_detected_in_pieces_that_end_within_a_word() -> None:
    repetition = Repetition()
    assert any(repetition.feed(letter) for letter in "again and " * 70)


def test_tables_lists_code_and_prose_are_not_repetitions() -> None:
    assert not is_noticed(f"7 x {number} = {7 * number}" for number in range(20))
    assert not is_noticed(
        f"{number}. {'abcdefghijklmnopqrstuvwxyz'[number % 26] * 3} is a word" for number in range(100)
    )
    assert not is_noticed([("def f(x):\n    return x + 1\n\nclass A:\n    def g(self):\n        pass\n") * 12])
    assert not is_noticed(["The quick brown fox jumps over the lazy dog and runs. " * 20])
