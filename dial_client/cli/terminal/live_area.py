"""The live area at the bottom of the screen, as data and as lines of a given size; tool calls as lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dial_client.cli.markdown.themes import Theme, style
from dial_client.cli.streams.word_wrap import break_line, break_words, count_cells, fit
from dial_client.cli.terminal.command_screen import Panel
from dial_client.messages.events import ToolCallFinished
from dial_client.messages.late_result import LateResult
from dial_client.messages.message import NOT_ALLOWED, Content, ImagePart, ToolCallResult, extract_text
from dial_client.runtime.safe_text import sanitize, to_one_line
from dial_client.runtime.text import count_noun
from dial_client.sinks.turn_display import (
    IN_BACKGROUND,
    MAX_CHARS,
    describe_arguments,
    format_call_error,
    format_duration,
)
from dial_client.tools.background_calls import BackgroundCall
from dial_client.tools.result_content import describe_cut, drop_change_note

PREVIEW_LINES = 2
# The maximum rows of an error.
MAX_ERROR_ROWS = 4
# The most calls of an agent or snippet that are shown below its own call: the last ones.
MAX_NESTED_CALLS = 8
# The maximum characters of a result that are searched for lines of the preview.
MAX_PREVIEWED = 20_000
BAR_COLUMNS = 12
BAR = "  │ "
_WAITS = " waits for your answer"
# Lines that say nothing by themselves: brackets, rules, and the fences of code.
_EMPTY = re.compile(r"[\[\](){}<>,;:\s=_-]+|(?:```|~~~)\S*")
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
# Seconds for which one character of the spinner is shown.
FRAME = 0.1
MAX_QUEUED = 3
MAX_BACKGROUND = 3
# The minimum rows of a panel, before which running calls give way.
MIN_PANEL = 12
MAX_TEXT = 500
# The minimum rows of an unfinished answer, before which lines of the program give way.
MIN_DRAFT = 3
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_LINK = re.compile(r"\x1b\]8;[^\x07\x1b]*(?:\x07|\x1b\\)")

# Returns lines of the program for a width in columns, wrapped.
Note = Callable[[int], str]


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
    waits: int = 0
    """The number of questions to the user that it waits for: an approval, or forms of its server."""
    server: str = ""
    parent: str = ""
    """The id of the call of the snippet that makes it; empty for a call of the model."""
    nested_calls: list[str] = field(default_factory=list)
    """The ended calls of an agent or snippet, each in one line without its indentation."""
    agent_names: dict[tuple[str, str], str] = field(default_factory=dict)
    """The running calls of an agent, and of those that it calls, by the path of the agent and the id of the call."""
    was_asked_about: bool = False
    """Whether the user was asked about it, so that a line above says what was decided."""


def format_running_call(call: RunningCall, columns: int, now: float, spinner: str) -> str:
    """Return the line of a running call: its name, seconds, and progress."""
    if call.waits:
        room = max(12, columns - len(_WAITS) - 3)
        return fit(f"· {_format_call(call.name, call.arguments, room)}{_WAITS}", columns - 1)
    tail = f" {max(0.0, now - call.since):.0f} s"
    if call.total:
        done = round(max(0.0, min(1.0, call.progress / call.total)) * BAR_COLUMNS)
        tail += f" {'━' * done}{'─' * (BAR_COLUMNS - done)} {call.progress:g} of {call.total:g}"
    elif call.progress:
        tail += f" · {call.progress:g}"
    message = f" · {to_one_line(call.message, MAX_CHARS)}" if call.message else ""
    room = max(12, columns - count_cells(tail) - min(count_cells(message), columns // 3) - 3)
    return fit(f"{spinner} {_format_call(call.name, call.arguments, room)}{tail}{message}", columns - 1)


def format_background_call(call: BackgroundCall[Any], columns: int, now: float, spinner: str) -> str:
    """Return the line of a call in the background: its name, seconds, and progress."""
    progress = f" · {call.progress}" if call.progress else ""
    tail = f" {IN_BACKGROUND} {max(0.0, now - call.started_at):.0f} s{progress}"
    name = _format_call(call.name, describe_arguments(call.call.arguments), max(12, columns - count_cells(tail) - 3))
    return f"{_DIM}{fit(f'{spinner} {name}{tail}', columns - 1)}{_PLAIN}"


def format_late_result(late: LateResult, columns: int, theme: Theme) -> Iterator[str]:
    """Yield the lines of a result from the background: the name of the tool, and the first lines of the result."""
    call = RunningCall(late.name or "a call", "…", 0.0)
    result = ToolCallResult("", late.success, late.content, error=None if late.success else extract_text(late.content))
    yield from format_finished_call(call, result, None, columns, theme)


def format_finished_call(
    call: RunningCall, result: ToolCallResult, duration: float | None, columns: int, theme: Theme
) -> Iterator[str]:
    """Yield the lines of a finished call: its name with seconds and size, and the first lines of its result.

    If the user was asked about it, a line above has said already that it was denied or changed, and why.
    """
    if result.background:
        called = _format_call(call.name, call.arguments, max(12, columns - count_cells(IN_BACKGROUND) - 4))
        yield fit_styled("…", theme.faint, f" {called}", f" {IN_BACKGROUND}", theme, columns)
        return
    sign, colour = ("✓", theme.success) if result.success else ("✗", theme.failure)
    text = extract_text(result.content) if result.success else format_call_error(result)
    if call.was_asked_about:
        text = "" if text.startswith(NOT_ALLOWED) and not result.success else drop_change_note(text)
    size = _format_size(text, result.content) if result.success else ""
    facts = " · ".join(filter(None, ("" if duration is None else format_duration(result, duration), size)))
    tail = f" {facts}" if facts else ""
    called = _format_call(call.name, call.arguments, max(12, columns // 2 - 2, columns - count_cells(tail) - 3))
    yield fit_styled(sign, colour, f" {called}", tail, theme, columns)
    yield from (style(fit(f"{BAR}{line}", columns - 1), theme.faint) for line in _shorten_nested(call.nested_calls))
    if result.success:
        yield from (style(fit(f"{BAR}{line}", columns - 1), theme.faint) for line in _preview(text))
        return
    # The end of an error may be its cause.
    rows = [row for line in _preview(text) for row in break_line(line, columns - len(BAR), 0).split("\n")]
    cut = f"{rows[MAX_ERROR_ROWS - 1]}…" if len(rows) > MAX_ERROR_ROWS else ""
    for row in [*rows[: MAX_ERROR_ROWS - 1], cut] if cut else rows:
        yield style(fit(f"{BAR}{row}", columns - 1), theme.failure)


def describe_nested_call(event: ToolCallFinished, name: str, level: int) -> str:
    """Return the line of an ended call of an agent or snippet, indented by the number of agents above it."""
    sign = "✓" if event.result.success else "✗"
    line = f"{sign} {to_one_line(name, MAX_CHARS)} {format_duration(event.result, event.duration)}"
    return f"{'  ' * level}{line}".rstrip()


def _shorten_nested(lines: Sequence[str]) -> Iterator[str]:
    """Yield the last calls of an agent or snippet, after the number of those before them."""
    if (left := len(lines) - MAX_NESTED_CALLS) > 0:
        failed = sum(line.lstrip().startswith("✗") for line in lines[:left])
        yield f"… {left:,} calls{f', {failed:,} failed' if failed else ''}"
    yield from lines[-MAX_NESTED_CALLS:]


def fit_styled(sign: str, colour: str, text: str, tail: str, theme: Theme, columns: int) -> str:
    """Return a line of three parts, each in its style, shortened to fit into `columns`.

    The tail is shortened only where the text would have less than half of the line.
    """
    room = columns - count_cells(sign) - 1
    text = fit(text, max(room - count_cells(tail), room // 2))
    return f"{style(sign, colour)}{text}{style(fit(tail, room - count_cells(text)), theme.faint)}"


def _format_call(name: str, arguments: str, columns: int) -> str:
    room = columns - count_cells(name) - 2
    return f"{name}({fit(arguments, room)})" if room > 0 or not arguments else fit(f"{name}({arguments})", columns)


def _preview(text: str) -> list[str]:
    """Return the first lines of a text with content; of JSON ``key: value`` without quotes, commas and brackets."""
    first: list[str] = []
    found: list[str] = []
    for line in _list_members(text) or text[:MAX_PREVIEWED].splitlines():
        if shown := to_one_line(line[:2_000], MAX_CHARS):
            first = first or [shown]
            if not _EMPTY.fullmatch(shown):
                found.append(shown)
        if len(found) == PREVIEW_LINES:
            break
    return found or first


def _list_members(text: str) -> list[str]:
    """Return the first members or elements of a JSON text, as ``key: value`` without quotes; empty for other texts."""
    if len(text) > MAX_PREVIEWED or text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    members = [("", element) for element in value] if isinstance(value, list) else [*value.items()]
    shown = ((name, part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)) for name, part in members)
    return [f"{name}: {part}" if name else part for name, part in islice(shown, 2 * PREVIEW_LINES)]


def _format_size(text: str, content: Content) -> str:
    text = sanitize(text).strip()
    sizes = []
    if shown := describe_cut(text):
        sizes.append(shown)
    elif "\n" in text:
        sizes.append(f"{len(text.splitlines()):,} lines")
    elif len(text) > 100:
        sizes.append(f"{len(text):,} characters")
    if images := 0 if isinstance(content, str) else sum(isinstance(part, ImagePart) for part in content):
        sizes.append(count_noun(images, "image"))
    return " · ".join(sizes)


@dataclass(frozen=True, slots=True)
class Activity:
    """The current activity of a turn."""

    text: str
    since: float
    """The `time.monotonic` of its start."""
    tokens: int = 0
    """Tokens that the model has written so far in this turn; 0 if the number is unknown."""


@dataclass(slots=True)
class LiveState:
    """The content of the live area. After a change call `Screen.refresh`."""

    draft: Callable[[int], str] | None = None
    """Returns the unfinished end of the answer for a number of rows, with ANSI sequences of this program only."""
    calls: Mapping[str, RunningCall] = field(default_factory=dict)
    """The running calls, by their ids."""
    queued: list[str] = field(default_factory=list)
    """Messages to send after this turn, as they were typed."""
    activity: Activity | None = None
    starting: Sequence[str] = ()
    """The servers that are still starting."""
    starting_since: float = 0.0
    """The `time.monotonic` since which they are shown."""
    settled: str = ""
    """The numbers of servers that have started or failed, in words."""
    is_waiting: bool = False
    """Whether the turn waits for servers that are starting."""
    progress: str = ""
    """The progress of a download; empty if there is none."""
    items: Callable[[int, int], list[str]] | None = None
    """Returns the lines of a picker for a width in columns and a maximum of rows; None if there is no picker."""
    panel: Panel | None = None
    """Returns the rows of a dialog, which stand above its question; None if there is none."""
    panel_lines: Sequence[str] = ()
    """Lines of the program between the panel and its question."""
    is_asking: bool = False
    """Whether a question waits for its answer, which hides the clock of the turn."""
    background: Callable[[], Sequence[BackgroundCall[Any]]] = tuple
    """Returns the calls in the background of the conversation."""
    steering: list[str] = field(default_factory=list)
    """Messages that the model gets with the next results of the turn."""
    notes: list[Note] | None = None
    """Lines of the program that are printed when the answer ends; None while no answer is written."""

    is_leaving: bool = False
    """Whether the program ends after this turn and the queued messages, because Ctrl-D was pressed meanwhile."""

    @property
    def is_moving(self) -> bool:
        """Whether some of its content changes with time alone."""
        is_working = self.activity is not None or bool(self.calls) or bool(self.starting)
        return is_working or any(call.is_running for call in self.background())


def render(state: LiveState, columns: int, rows: int, now: float) -> list[str]:
    """Return the lines of the live area.

    Args:
        state: The state to show.
        columns: The width of the terminal.
        rows: The maximum number of lines.
        now: The current `time.monotonic`.
    """
    if state.items is not None:
        return state.items(columns, rows)
    # The panel names the calls that wait for its answer.
    calls = [call for call in state.calls.values() if state.panel is None or not call.waits]
    limit = max(1, rows // 3)
    below = [format_running_call(call, columns, now, _choose_frame(now - call.since)) for call in calls[:limit]]
    if len(calls) > limit:
        below.append(fit(f"  … and {len(calls) - limit:,} more calls", columns - 1))
    background = [call for call in state.background() if call.is_running]
    below += [
        format_background_call(call, columns, now, _choose_frame(now - call.started_at))
        for call in background[:MAX_BACKGROUND]
    ]
    if len(background) > MAX_BACKGROUND:
        below.append(fit(f"  … and {len(background) - MAX_BACKGROUND:,} more in the background: /calls", columns - 1))
    below += _format_queue(state.steering, state.queued, columns, leaves=state.is_leaving and bool(state.activity))
    if state.panel is not None:
        lines = [row for line in state.panel_lines for row in break_words(line, columns).splitlines()]
        above = [*below, ""][: max(0, rows - len(lines) - MIN_PANEL)]
        return [*above, *state.panel(columns, rows - len(lines) - len(above)), *lines]
    if state.is_asking:
        return below[-rows:]
    if state.starting:
        below.append(format_starting_servers(state, columns, now))
    key = "Ctrl-C" if state.queued else "Esc"  # while messages wait, Esc in an empty line removes the last one
    if state.progress:
        below.append(_format_progress(state.progress, columns, None if state.activity is None else key))
    elif state.activity is not None:
        below.append(format_activity(state.activity, columns, now, key))
    below = [*_format_notes(state.notes or (), columns, rows - len(below) - MIN_DRAFT), *below]
    left = rows - len(below)
    if left < 1 or state.draft is None:
        return below[-rows:]
    draft = _LINK.sub("", state.draft(left)).splitlines()
    return [*draft[-left:], *below]


def _format_notes(notes: Sequence[Note], columns: int, rows: int) -> list[str]:
    """Return the beginning of the latest lines that wait for the end of the answer, and a count of the others."""
    *earlier, latest = [note(columns).rstrip("\n").split("\n") for note in notes] or [[]]
    if earlier:  # the input that the lines answer
        latest = [*earlier.pop(), *latest]
    if rows < 1 or (not earlier and len(latest) <= rows):
        return latest[: max(0, rows)]
    kept = latest[: rows - 1]
    count = sum(map(len, earlier)) + len(latest) - len(kept)
    rows_left = count_noun(count, "earlier row" if len(kept) == len(latest) else "more row")
    more = f"… {rows_left}, printed when the answer ends"
    return [*kept, f"{_DIM}{fit(more, columns - 1)}{_PLAIN}"]


def format_activity(activity: Activity, columns: int, now: float, key: str) -> str:
    """Return the line with the current activity, its duration, and the key that stops it."""
    tokens = f" · about {count_noun(activity.tokens, 'token')}" if activity.tokens else ""
    tail = f" {max(0.0, now - activity.since):.0f} s{tokens} · {key} stops"
    sign = _choose_frame(now - activity.since)
    room = columns - count_cells(tail) - 3
    if room < 8:
        return f"{sign} {fit(to_one_line(activity.text, columns), max(1, columns - 3))}"
    return f"{sign} {fit(to_one_line(activity.text, MAX_TEXT), room)}{_DIM}{tail}{_PLAIN}"


def _format_progress(progress: str, columns: int, key: str | None) -> str:
    """Return the line with the progress of a download, and the key that stops the turn that waits, if one does."""
    line = fit(to_one_line(progress, MAX_TEXT), columns - 1)
    tail = f" · {key} stops" if key else ""
    return f"{line}{_DIM}{tail}{_PLAIN}" if tail and count_cells(line + tail) < columns else line


def format_starting_servers(state: LiveState, columns: int, now: float) -> str:
    """Return the line with the servers that are still starting, and for how many seconds the line is shown."""
    names = ", ".join(to_one_line(name, 40) for name in state.starting)
    seconds = max(0.0, now - state.starting_since)
    hint = " · press Enter to continue without them" if state.is_waiting else ""
    sign = _choose_frame(seconds)
    tail = f" · {seconds:.0f} s{hint if columns > 2 * len(hint) else ''}"
    room = columns - len(tail) - 3
    return f"{sign} {fit(f'{state.settled}starting: {names}', room)}{_DIM}{tail}{_PLAIN}"


def _format_queue(steering: Sequence[str], messages: Sequence[str], columns: int, *, leaves: bool) -> Iterable[str]:
    for message in steering[-MAX_QUEUED:]:
        yield f"{_DIM}{fit(f'with the next results: {to_one_line(message, MAX_TEXT)}', columns - 1)}{_PLAIN}"
    if steering and not messages:
        yield f"{_DIM}{fit('Up edits the last one', columns - 1)}{_PLAIN}"
    for message in messages[:MAX_QUEUED]:
        yield f"{_DIM}{fit(f'queued: {to_one_line(message, MAX_TEXT)}', columns - 1)}{_PLAIN}"
    if messages:
        more = f"{len(messages) - MAX_QUEUED} more queued; " if len(messages) > MAX_QUEUED else ""
        yield f"{_DIM}{fit(f'{more}Up edits the last one, Esc removes it', columns - 1)}{_PLAIN}"
    if leaves:
        yield f"{_DIM}{fit('leaves after the answer: Ctrl-D', columns - 1)}{_PLAIN}"


def _choose_frame(seconds: float) -> str:
    return SPINNER[int(max(0.0, seconds) / FRAME) % len(SPINNER)]
