"""Elicitation and sampling requests in the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_elicitation_prompts import configured
from tests.support.pseudo_terminal import Terminal, terminal

SEND = "y yes · n no · a again:"
ASKED = "shop asks, while it runs "


def fill_in(screen: Terminal, *answers: tuple[str, str]) -> str:
    """Type each answer after its prompt, and return the output."""
    shown = ""
    for question, answer in answers:
        shown += screen.until(question)
        screen.type(f"{answer}\r")
    return shown


def outcome(screen: Terminal) -> int:
    screen.until("Done.")
    return screen.leave()


def is_stored(folder: Path, words: str) -> bool:
    """Return whether the stored conversation contains a text."""
    return any(words in path.read_text(errors="replace") for path in folder.rglob("*.db*"))


def test_a_form_is_filled_in_field_by_field(tmp_path: Path) -> None:
    configured(tmp_path, "pushes")
    count, gift, email = "count (a whole number) [1]:", "gift (yes or no, required):", "email (email):"
    with terminal(tmp_path, "--plain", "Go") as screen:
        shown = screen.until("Name (required) [Ada]:")
        screen.type("\r")
        shown += fill_in(screen, (count, "99"))
        screen.until("invalid: count: 99 is greater than the maximum of 9", count)
        screen.type("\r")
        shown += fill_in(screen, (gift, ""))
        screen.until("invalid: a value is required", gift)
        screen.type("yes\r")
        shown += fill_in(screen, ("colour (one of them):", "2"), (email, "nobody"))
        screen.until("invalid: email", email)
        screen.type("\r")
        shown += fill_in(screen, (SEND, "y"))
        assert outcome(screen) == 0
    for words in (
        ASKED,
        "│ What shall it be?",
        "│ Wrap it?",
        "│   1. Red",
        "│   2. Green",
        "Send it to shop (pushes)?",
    ):
        assert words in shown
    assert "shop would get:\n│ Name = Ada\n│ count = 1\n│ gift = yes\n│ colour = Green (g)\n" in shown
    assert is_stored(tmp_path, "'colour': 'g'")


@pytest.mark.parametrize(
    ("keys", "action"), [("y\r", "accept"), ("\r", "decline"), ("n\r", "decline"), ("\x04", "cancel")]
)
def test_nothing_is_sent_without_confirmation(tmp_path: Path, keys: str, action: str) -> None:
    configured(tmp_path, "many", times=1)
    with terminal(tmp_path, "--plain", "Go") as screen:
        screen.until("Yes (yes or no) [yes]:")
        screen.type("\r")
        screen.until(SEND)
        screen.type(keys)
        assert outcome(screen) == 0
    assert is_stored(tmp_path, f"at last: {action}")


def test_a_completed_form_can_be_filled_in_again(tmp_path: Path) -> None:
    configured(tmp_path, "returns")
    with terminal(tmp_path, "--plain", "Go") as screen:
        again = "Yes (yes or no) [no]:"
        fill_in(screen, ("Yes (yes or no) [yes]:", "n"), (SEND, "a"), (again, ""), (SEND, "y"))
        assert outcome(screen) == 0
    assert is_stored(tmp_path, "Sure(yes=False)")


@pytest.mark.parametrize(("keys", "action"), [("y\r", "accept"), ("\r", "decline")])
def test_the_full_url_is_shown_and_not_opened(tmp_path: Path, keys: str, action: str) -> None:
    configured(tmp_path, "page", url="http://127.0.0.1:9/" + "x" * 500)
    with terminal(tmp_path, "--plain", "Go") as screen:
        shown = screen.until("Agree to shop (page)? y yes · n no:")
        screen.type(keys)
        assert outcome(screen) == 0
    assert "shop wants you to open an address, while it runs page:" in shown
    assert "http://127.0.0.1:9/" + "x" * 500 in shown.replace("\n│ ", "")
    assert "warning: it leads to this machine" in shown
    assert is_stored(tmp_path, action)


def test_an_interrupt_at_an_elicitation_ends_the_turn(tmp_path: Path) -> None:
    configured(tmp_path, "returns")
    with terminal(tmp_path, "--plain", "--no-save", "Go") as screen:
        screen.until(ASKED, "[yes]:")
        screen.type("\x03")
        assert screen.leave() == 130


def test_sampling_needs_approval(tmp_path: Path) -> None:
    configured(tmp_path, "samples_too", "A word.")
    with terminal(tmp_path, "--plain", "--sampling", "Go") as screen:
        shown = screen.until("shop wants to use your model", "Let shop use your model?", "d details · q stop:")
        screen.type("y\r")
        assert outcome(screen) == 0
    assert '│ "1. user"   A word?' in shown
    assert is_stored(tmp_path, "A word.")
