"""Results are reworded into lines that a small model can read."""

from __future__ import annotations

from dial_client.providers.embedded.result_lines import reword


def test_json_becomes_lines_with_times_to_the_minute() -> None:
    text = (
        '{"target": {"time_zone": "Asia/Tokyo", "datetime": "2026-11-23T23:00:05+09:00"}, "is_dst": false, "x": null}'
    )
    assert reword(text) == "target time zone: Asia/Tokyo\ntarget datetime: 2026-11-23 23:00\nis dst: no\nx: none"
    assert reword('["a", "b"]') == "a, b"
    assert reword('[{"id": 1}, {"id": 2}]') == "1 id: 1\n2 id: 2"


def test_the_current_item_of_a_list_is_named() -> None:
    assert reword("* main\n  next\n+ other") == "the current one is main; the others are next, other"
    assert reword("* main\n") == "the current one is main"


def test_other_results_are_unchanged() -> None:
    for text in ("* eggs\n* milk", "a * b", "Shopping:\n* eggs", "", "12", '"12"', "{broken", "[" * 5_000):
        assert reword(text) == text
