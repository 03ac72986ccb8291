"""Elicitation requests on the screen: a box in the live area, keys, Esc, secrets, and the one line that remains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.test_elicitation_prompts import configured
from tests.e2e.test_terminal_elicitation import is_stored
from tests.support.screens import screen


def test_a_form_is_a_box_in_which_values_appear_as_they_are_typed(tmp_path: Path) -> None:
    configured(tmp_path, "pushes")
    with screen(tmp_path, "Go", columns=100) as person:
        person.until("╭ shop asks you ─")
        person.until("while it runs pushes ╮")
        person.until("│   What shall it be?")
        person.until("│ → Name    Ada")
        person.until_last("Name [Ada]:")
        person.type("\r")
        person.until_last("count [1]:")
        person.type("99\r")
        person.until("│ ! count: 99 is greater than the maximum of 9")
        person.type("2\r")
        person.until_gone("99 is greater")
        person.until("│     Wrap it?")
        person.until_last("gift:")
        person.type("yes\r")
        person.until("│     2. Green")
        person.type("2\r")
        person.until_last("email:")
        person.type("\r")
        person.until_true(lambda: person.lines[-1].startswith("╰ y send · n decline · a change"), "no question")
        assert [row.strip("│ ") for row in person.lines[-6:-1]] == [
            "Name    Ada",
            "count   2",
            "gift    yes",
            "colour  Green (g)",
            "email   left empty",
        ]
        person.type("y")
        assert person.leave() == 0
    assert "sent to shop: Name = Ada, count = 2, gift = yes, colour = Green (g)\n" in person.text
    assert not re.search("[╭╰]", person.text), "no box remains"
    assert is_stored(tmp_path, "'colour': 'g'")


@pytest.mark.parametrize(
    ("keys", "action", "line"),
    [
        ("\x1b", "decline", "declined: the question of shop"),
        ("\x04", "cancel", "cancelled: the question of shop"),
        ("\rn", "decline", "declined: the question of shop"),
        ("\r\x1b", "decline", "declined: the question of shop"),
    ],
)
def test_a_form_is_declined_by_esc_and_cancelled_by_ctrl_d(tmp_path: Path, keys: str, action: str, line: str) -> None:
    configured(tmp_path, "many", times=1)
    with screen(tmp_path, "Go") as person:
        person.until_last("Yes [yes]:")
        person.type(keys[0])
        if keys[1:]:
            person.until("y send")
            person.type(keys[1:])
        assert person.leave() == 0
    assert line in person.text.splitlines()
    assert is_stored(tmp_path, f"at last: {action}")


def test_a_form_can_be_changed_before_it_is_sent(tmp_path: Path) -> None:
    configured(tmp_path, "returns")
    with screen(tmp_path, "Go") as person:
        for question, typed in (("Yes [yes]:", "no\r"), ("╰ y send", "a"), ("Yes [no]:", "\r"), ("╰ y send", "y")):
            person.until_last(question)
            person.type(typed)
        assert person.leave() == 0
    assert "sent to shop: Yes = no" in person.text
    assert is_stored(tmp_path, "Sure(yes=False)")


def test_a_url_is_shown_in_full_and_remains_to_be_opened(tmp_path: Path) -> None:
    address = "http://127.0.0.1:9/" + "x" * 200
    configured(tmp_path, "page", url=address)
    with screen(tmp_path, "Go", columns=60) as person:
        person.until("╭ shop wants you to open an address")
        person.until("│ ! it leads to this machine")
        person.until("╰ y agree · n decline")
        rows = [row.strip("│ ") for row in person.lines]
        assert address in "".join(rows)
        person.type("y")
        assert person.leave() == 0
    assert f"agreedforshop;openityourself:{address}" in re.sub(r"\s", "", person.text)
    assert is_stored(tmp_path, "accept")


@pytest.mark.parametrize("columns", [30, 60, 160])
def test_a_secret_is_warned_about_and_hidden_at_any_width(tmp_path: Path, columns: int) -> None:
    configured(tmp_path, "secret")
    with screen(tmp_path, "Go", columns=columns) as person:
        person.until("! it asks for what")
        person.until_last("Password:")
        person.type("hunter2\r")
        person.until("•••")
        person.until("y send")
        assert "hunter2" not in person.text
        person.resize(columns + 20, 30)
        person.until("y send")
        person.resize(columns, 30)
        person.until("y send")
        person.type("y")
        assert person.leave() == 0
    assert person.overrun == []
    assert not re.search("[╭╰]", person.text)
    assert "hunter2" not in person.text
    assert "sent to shop: Password = •••" in person.text
