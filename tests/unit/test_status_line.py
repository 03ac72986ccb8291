"""The status line in every width, and the table of what fills the context window."""

from __future__ import annotations

import re

import pytest

from tests.inner import (
    DARK,
    ContextPart,
    ContextReport,
    Status,
    count_cells,
    format_context,
    format_status,
    with_counted_tokens,
)

NAME = "anthropic:claude-sonnet-5-5"
FULL = Status(NAME, "ask", False, 0.384, False, 0.0123, True, 2, 1)
WIDTHS = [
    (160, f"{NAME} · mode ask (Shift-Tab) · context 38 % · $0.0123 · 2 servers starting · 1 server failed"),
    (100, "claude-sonnet-5-5 · mode ask · context 38 % · $0.0123 · 2 servers starting · 1 server failed"),
    (80, "anthropic:claude-sonnet-5-5 · mode ask · 38 % · $0.0123 · 2 starting · 1 failed"),
    (60, "claude-sonnet-5-5 · mode ask · 38 % · $0.0123 · 3 not ready"),
    (40, "claude… · mode ask · 38 % · 3 not ready"),
    (32, "claude-sonnet-5-5 · mode ask"),
    (20, "claude-… · mode ask"),
    (12, "mode ask"),
    (6, "mode…"),
]


def show(status: Status, columns: int) -> str:
    """Return the status line without its styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", format_status(status, columns, DARK))


@pytest.mark.parametrize(("columns", "expected"), WIDTHS)
def test_words_are_left_out_before_the_name_is_shortened(columns: int, expected: str) -> None:
    assert show(FULL, columns) == expected


@pytest.mark.parametrize("columns", range(1, 170))
def test_the_status_fits_into_every_width_and_keeps_its_mode(columns: int) -> None:
    shown = show(FULL, columns)
    assert count_cells(shown) < columns or columns == 1
    assert "mode ask" in shown or columns < 9


def test_a_short_status_names_only_what_is_known() -> None:
    assert show(Status("m", "ask"), 80) == "m · mode ask (Shift-Tab)"
    priced = Status("m", "ask", cost_usd=12.347, is_cost_known=False)
    assert show(priced, 80) == "m · mode ask (Shift-Tab) · over $12.35"


def test_an_estimate_of_the_context_window_is_marked() -> None:
    assert show(Status("m", "ask", fill=0.384, is_estimate=True), 80) == "m · mode ask (Shift-Tab) · context ~38 %"


def test_a_mode_other_than_ask_is_emphasized() -> None:
    shown = format_status(Status("m", "auto", is_unusual=True), 80, DARK)
    assert f"\x1b[{DARK.strong}mmode auto" in shown


def test_the_name_of_a_model_cannot_draw_on_the_screen() -> None:
    assert show(Status("m\x1b[2J\n", "ask"), 80) == "m · mode ask (Shift-Tab)"


PARTS = (ContextPart("tools of time", 100, 2), ContextPart("messages", 33, 3), ContextPart("results of calls", 67, 1))


def test_a_counted_sum_is_shared_out_by_the_estimates() -> None:
    counted = with_counted_tokens(ContextReport(PARTS, 1000), 401)
    assert [part.tokens for part in counted.parts] == [200, 67, 134]
    assert (counted.tokens, counted.fill, counted.is_counted) == (401, 0.401, True)


def test_estimates_are_marked_and_the_free_part_is_shown() -> None:
    lines = format_context(ContextReport(PARTS, 1000, left_out=2)).splitlines()
    assert lines[:5] == [
        "Context window: about 200 of 1,000 tokens (20%)",
        "  tools of time (2)     about 100   10%",
        "  messages (3)           about 33    3%",
        "  results of calls (1)   about 67    7%",
        "  free                  about 800   80%",
    ]
    assert lines[5] == "2 messages at the beginning are not sent: the window is full."
    assert lines[6].startswith("All numbers are estimates.")


def test_without_a_known_window_the_shares_are_those_of_the_request() -> None:
    lines = format_context(with_counted_tokens(ContextReport(PARTS), 200)).splitlines()
    assert lines[0] == "Context window: 200 tokens, as the endpoint counted the last request"
    assert lines[1].endswith("50%")
    assert lines[-2:] == [
        "The size of this model's window is not known; `contextWindow` of its profile sets it.",
        "The parts are estimates.",
    ]


def test_a_narrow_terminal_shows_the_model_without_its_api_and_address() -> None:
    def show(model: str) -> str:
        return re.sub(r"\x1b\[[\d;]*m", "", format_status(Status(model, "ask"), 48, DARK))

    assert show("chat:harbour-large@127.0.0.1:45981") == "harbour-large · mode ask (Shift-Tab)"
    assert show("ollama:qwen3.5:4b-instruct-q8") == "qwen3.5:4b-instruct-q8 · mode ask (Shift-Tab)"
