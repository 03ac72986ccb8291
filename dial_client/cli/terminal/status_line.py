"""The status line below the input line: model, mode, context window, cost, and servers that are not ready."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dial_client.cli.markdown.themes import Theme, style
from dial_client.cli.streams.word_wrap import count_cells, fit
from dial_client.runtime.safe_text import to_one_line
from dial_client.runtime.text import count_noun

# The minimum rows of a terminal with a status line: a lower one needs its rows for the answer.
MIN_ROWS = 8
_SEPARATOR = " · "
_KEY = " (Shift-Tab)"
_MIN_NAME = 6
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class Status:
    """What the status line shows."""

    model: str
    mode: str
    is_unusual: bool = False
    """Whether the mode is another one than ``ask``, which the line emphasizes."""
    fill: float | None = None
    """The part of the context window that the conversation fills; None if it is unknown."""
    is_estimate: bool = False
    """Whether `fill` is an estimate; else the endpoint has counted the tokens."""
    cost_usd: float = 0.0
    """The cost of this run in US dollars; 0 if it is unknown."""
    is_cost_known: bool = True
    """Whether `cost_usd` is the cost of all turns, not only of some."""
    starting: int = 0
    """The number of servers that are starting, or starting again."""
    failed: int = 0


def format_status(status: Status, columns: int, theme: Theme) -> str:
    """Return the status in one row. In a narrow terminal words are left out, then the model's name is shortened.

    The mode is never left out, because it says what runs without a question.
    """
    model = to_one_line(status.model, _MAX_NAME)
    # The part before the first colon names the API, and that after an @ the endpoint.
    short = model.partition(":")[2].partition("@")[0] or model
    for mode, parts in _list_forms(status):
        before, after = _SEPARATOR + mode, "".join(_SEPARATOR + part for part in parts)
        room = columns - 1 - count_cells(before + after)
        name = next((name for name in (model, short) if count_cells(name) <= room), "")
        if name or (room >= _MIN_NAME and not parts[2:]):
            shown = name or fit(short, room)
            emphasis = theme.strong if status.is_unusual else theme.faint
            pieces = ((shown + _SEPARATOR, theme.faint), (mode, emphasis), (after, theme.faint))
            return "".join(style(text, colour) for text, colour in pieces if text)
    return style(fit(f"mode {status.mode}", columns - 1), theme.strong if status.is_unusual else theme.faint)


def _list_forms(status: Status) -> Iterator[tuple[str, list[str]]]:
    """Yield the mode and the parts after it, the longest form first."""
    mode = f"mode {status.mode}"
    about = "~" if status.is_estimate else ""
    fill = "" if status.fill is None else f"{about}{status.fill * 100:.0f} %"
    context = f"context {fill}" if fill else ""
    digits = 4 if status.cost_usd < 1 else 2
    cost = f"{'' if status.is_cost_known else 'over '}${status.cost_usd:.{digits}f}" if status.cost_usd else ""
    starting = f"{count_noun(status.starting, 'server')} starting" if status.starting else ""
    failed = f"{count_noun(status.failed, 'server')} failed" if status.failed else ""
    short = [f"{status.starting} starting" if starting else "", f"{status.failed} failed" if failed else ""]
    yield mode + _KEY, [part for part in (context, cost, starting, failed) if part]
    yield mode, [part for part in (context, cost, starting, failed) if part]
    yield mode, [part for part in (fill, cost, *short) if part]
    both = f"{status.starting + status.failed} not ready" if starting and failed else short[0] or short[1]
    yield mode, [part for part in (fill, cost, both) if part]
    yield mode, [part for part in (fill, both) if part]
    yield mode, []
