"""When a terminal tells the user that the program waits for them, and by which characters."""

from __future__ import annotations

import pytest

from tests.inner import Attention, attention


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_bell_rings_once_after_ten_seconds_without_a_key() -> None:
    clock = Clock()
    waiting = Attention(clock, {})
    assert waiting.take() == ""
    waiting.expect(attention.ANSWER)
    clock.now += 9.9
    assert waiting.take() == ""
    clock.now += 0.2
    assert waiting.take() == "\a"
    clock.now += 60
    assert waiting.take() == ""


def test_a_key_ends_the_wait() -> None:
    clock = Clock()
    waiting = Attention(clock, {})
    waiting.expect(attention.APPROVAL)
    clock.now += 5
    waiting.settle()
    clock.now += 60
    assert waiting.take() == ""


@pytest.mark.parametrize(
    ("kind", "environment", "characters"),
    [
        ("osc9", {}, "\x1b]9;dial-chat: The answer is ready\x1b\\"),
        ("osc777", {}, "\x1b]777;notify;dial-chat;The answer is ready\x1b\\"),
        ("osc9", {"TMUX": "1"}, "\x1bPtmux;\x1b\x1b]9;dial-chat: The answer is ready\x1b\x1b\\\x1b\\"),
        ("none", {}, ""),
    ],
)
def test_a_desktop_notification_replaces_the_bell(kind: str, environment: dict[str, str], characters: str) -> None:
    clock = Clock()
    waiting = Attention(clock, environment)
    waiting.kind = kind  # type: ignore[assignment]
    waiting.expect(attention.ANSWER)
    clock.now += 10
    assert waiting.take() == characters
