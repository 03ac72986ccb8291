"""Tool calls as lines: running calls, and finished calls with the beginning of their results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dial_client.cli.cell_width import count_cells, fit
from dial_client.cli.markdown.themes import Theme, style
from dial_client.messages.message import Content, ImagePart, ToolCallResult, extract_text
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.sinks.call_description import MAX_CHARS

PREVIEW_LINES = 2
MAX_PREVIEWED = 20_000
"""The maximum characters of a result that are searched for lines of the preview."""
BAR_COLUMNS = 12
BAR = "  │ "
_WAITS = " waits for permission"
_BRACKETS = re.compile(r"[\[\](){}<>,;:\s]+")


@dataclass(slots=True)
class RunningCall:
    """A running call in the live area."""

    name: str
    """``server.tool``, escaped already."""
    arguments: str
    since: float
    """The `time.monotonic` of its start."""
    progress: float = 0.0
    total: float | None = None
    message: str = ""
    waits: bool = False
    """Whether it waits for approval."""


def format_running_call(call: RunningCall, columns: int, now: float, spinner: str) -> str:
    """Return the line of a running call: its name, seconds, and progress."""
    if call.waits:
        room = max(12, columns - len(_WAITS) - 3)
        return fit(f"· {_format_call(call.name, call.arguments, room)}{_WAITS}", columns - 1)
    tail = f" {max(0.0, now - call.since):.0f} s"
    if call.total:
        tail += f" {_format_bar(call.progress / call.total)} {call.progress:g} of {call.total:g}"
    elif call.progress:
        tail += f" · {call.progress:g}"
    message = f" · {to_one_line(call.message, MAX_CHARS)}" if call.message else ""
    room = max(12, columns - count_cells(tail) - min(count_cells(message), columns // 3) - 3)
    return fit(f"{spinner} {_format_call(call.name, call.arguments, room)}{tail}{message}", columns - 1)


def format_finished_call(
    name: str, arguments: str, result: ToolCallResult, duration: float, columns: int, theme: Theme
) -> Iterator[str]:
    """Yield the lines of a finished call: its name with seconds and size, and the first lines of its result."""
    sign, colour = ("✓", theme.success) if result.success else ("✗", theme.failure)
    size = _format_size(result.content) if result.success else ""
    tail = f" {duration:.2f} s{f' · {size}' if size else ''}"
    called = _format_call(name, arguments, max(12, columns - count_cells(tail) - 3))
    yield fit_styled(sign, colour, f" {called}", tail, theme, columns)
    text = extract_text(result.content) if result.success else (result.error or "")
    for line in _preview(text):
        yield style(fit(f"{BAR}{line}", columns - 1), theme.faint if result.success else theme.failure)


def fit_styled(sign: str, colour: str, text: str, tail: str, theme: Theme, columns: int) -> str:
    """Return a line of three parts, each in its style, shortened to fit into `columns`."""
    room = columns - count_cells(sign) - count_cells(tail) - 1
    return f"{style(sign, colour)}{fit(text, max(1, room))}{style(tail, theme.faint)}"


def _format_call(name: str, arguments: str, columns: int) -> str:
    room = columns - count_cells(name) - 2
    return f"{name}({fit(arguments, room)})" if room > 0 or not arguments else fit(f"{name}({arguments})", columns)


def _preview(text: str) -> list[str]:
    """Return the first lines of a text with content; lines that have only brackets, as in JSON, are skipped."""
    first: list[str] = []
    found: list[str] = []
    for line in text[:MAX_PREVIEWED].splitlines():
        if shown := to_one_line(line[:2_000], MAX_CHARS):
            first = first or [shown]
            if not _BRACKETS.fullmatch(shown):
                found.append(shown)
        if len(found) == PREVIEW_LINES:
            break
    return found or first


def _format_size(content: Content) -> str:
    text = sanitize(extract_text(content)).strip()
    lines = text.count("\n") + 1 if text else 0
    images = 0 if isinstance(content, str) else sum(isinstance(part, ImagePart) for part in content)
    sizes = [f"{lines:,} lines"] if lines > 1 else [f"{len(text):,} characters"] if len(text) > 100 else []
    return " · ".join([*sizes, *([f"{images} image{'s' if images > 1 else ''}"] if images else [])])


def _format_bar(share: float) -> str:
    done = round(max(0.0, min(1.0, share)) * BAR_COLUMNS)
    return "━" * done + "─" * (BAR_COLUMNS - done)
