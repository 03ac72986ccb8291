"""Draws a run in an emulated terminal as an animated SVG without scripts: its screens, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

import pyte
from rich.style import Style

from tests.pictures.svg_writer import THEME, to_style
from tests.support.screens import ScreenReader

CELL = (10, 21)
"""Width and height of a cell, in pixels of the picture."""
SHORTEST, LONGEST, LAST = 0.05, 2.2, 6.0
"""Seconds that a screen is shown: minimum, maximum, and duration of the last screen."""

Row = tuple[tuple[int, str, Style], ...]
"""The runs of a row: first column, text, style."""


@dataclass(frozen=True)
class Frame:
    """A screen, and the seconds for which it is shown."""

    rows: tuple[Row, ...]
    seconds: float


def draw_run(person: ScreenReader, title: str) -> str:
    """Return an animated SVG of all screens of a run so far."""
    columns, rows = person.size
    return draw_animation(list_frames(person.recorded, columns, rows), columns, rows, title)


def list_frames(recorded: Iterable[tuple[float, bytes]], columns: int, rows: int) -> list[Frame]:
    """Replay the recorded output of a program, with times in seconds, and return its distinct screens."""
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    shown: list[tuple[float, tuple[Row, ...]]] = []
    for moment, data in recorded:
        stream.feed(data)
        content = tuple(_read_row(screen.buffer[row], columns) for row in range(rows))
        if shown and moment - shown[-1][0] < SHORTEST:
            shown[-1] = (shown[-1][0], content)
        elif not shown or content != shown[-1][1]:
            shown.append((moment, content))
    ends = [moment for moment, _ in shown[1:]]
    lengths = [min(LONGEST, end - moment) for end, (moment, _) in zip(ends, shown, strict=False)]
    return [Frame(content, seconds) for (_, content), seconds in zip(shown, [*lengths, LAST], strict=True)]


def draw_animation(frames: list[Frame], columns: int, rows: int, title: str) -> str:
    """Return an SVG that repeats the frames; it shows only the last frame if the user prefers reduced motion."""
    width, height = columns * CELL[0], rows * CELL[1]
    numbers: dict[Row, int] = {}
    for frame in frames:
        for row in frame.rows:
            if row:
                numbers.setdefault(row, len(numbers))
    drawn = [f'<g id="r{number}">{"".join(_draw_run(*run) for run in row)}</g>' for row, number in numbers.items()]
    strip = [_draw_frame(frame, numbers, position * width) for position, frame in enumerate(frames)]
    lines = [
        f'<svg viewBox="0 0 {width + 32} {height + 56}" xmlns="http://www.w3.org/2000/svg" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_write_style(frames, width)}</style>",
        f'<rect width="{width + 32}" height="{height + 56}" rx="9" fill="{THEME.background_color.hex}"/>',
        '<circle cx="22" cy="20" r="6" fill="#ff5f57"/><circle cx="42" cy="20" r="6" fill="#febc2e"/>',
        '<circle cx="62" cy="20" r="6" fill="#28c840"/>',
        f"<defs>{''.join(drawn)}</defs>",
        f'<svg x="16" y="40" width="{width}" height="{height}"><g class="strip">',
        *strip,
        "</g></svg></svg>",
    ]
    return "\n".join(lines) + "\n"


def _read_row(row: Any, columns: int) -> Row:
    cells = [(column, row[column]) for column in range(columns)]
    runs = ((style, list(run)) for style, run in groupby(cells, lambda cell: to_style(cell[1])))
    drawn = ((run[0][0], "".join(cell.data for _, cell in run), style) for style, run in runs)
    return tuple(run for run in drawn if run[1].strip() or run[2].bgcolor or run[2].reverse)


def _draw_run(column: int, text: str, style: Style) -> str:
    """Return the elements of a run, with each word at its column, for any width of the reader's font."""
    foreground, background = THEME.foreground_color, None
    if style.color is not None:
        foreground = style.color.get_truecolor(THEME)
    if style.bgcolor is not None:
        background = style.bgcolor.get_truecolor(THEME, foreground=False)
    if style.reverse:
        foreground, background = background or THEME.background_color, foreground
    names = [name for name, is_set in zip("biu", (style.bold, style.italic, style.underline), strict=True) if is_set]
    kind = f' class="{" ".join(names)}"' if names else ""
    box = ""
    if background is not None:
        size = f'width="{len(text) * CELL[0]}" height="{CELL[1]}"'
        box = f'<rect x="{column * CELL[0]}" {size} fill="{background.hex}"/>'
    return box + "".join(
        f'<text x="{(column + at) * CELL[0]}" y="16" fill="{foreground.hex}"{kind}>{escape(word, quote=False)}</text>'
        for at, word in _split_words(text)
    )


def _split_words(text: str) -> Iterator[tuple[int, str]]:
    position = 0
    for is_space, letters in groupby(text, str.isspace):
        word = "".join(letters)
        if not is_space:
            yield position, word
        position += sum(2 if "\u2e80" <= letter <= "\uffdc" else 1 for letter in word)


def _draw_frame(frame: Frame, numbers: dict[Row, int], x: int) -> str:
    used = (f'<use href="#r{numbers[row]}" y="{at * CELL[1]}"/>' for at, row in enumerate(frame.rows) if row)
    return f'<g transform="translate({x})">{"".join(used)}</g>'


def _write_style(frames: list[Frame], width: int) -> str:
    total = sum(frame.seconds for frame in frames)
    steps, passed = [], 0.0
    for position, frame in enumerate(frames):
        steps.append(f"{100 * passed / total:.3f}%{{transform:translateX(-{position * width}px)}}")
        passed += frame.seconds
    last = f"translateX(-{(len(frames) - 1) * width}px)"
    return (
        "text{font:16.6px ui-monospace,'DejaVu Sans Mono',monospace;white-space:pre}"
        ".b{font-weight:bold}.i{font-style:italic}.u{text-decoration:underline}"
        f"@keyframes play{{{''.join(steps)}to{{transform:{last}}}}}"
        f".strip{{animation:play {total:.2f}s step-end infinite}}"
        f"@media(prefers-reduced-motion:reduce){{.strip{{animation:none;transform:{last}}}}}"
    )
