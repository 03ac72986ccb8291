"""Draws the screen of an emulated terminal as SVG, with fonts of the reader's system."""

from __future__ import annotations

from io import StringIO
from itertools import groupby
from typing import Any

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

THEME = TerminalTheme(
    (22, 24, 29),
    (216, 219, 226),
    [
        *((38, 42, 51), (224, 108, 117), (135, 195, 120), (229, 192, 123)),
        *((97, 175, 239), (198, 120, 221), (86, 182, 194), (171, 178, 191)),
    ],
    [
        *((110, 118, 134), (240, 130, 138), (160, 215, 145), (240, 210, 150)),
        *((130, 195, 250), (215, 150, 235), (120, 205, 215), (240, 242, 246)),
    ],
)
LIGHT_THEME = TerminalTheme(
    (252, 252, 250),
    (38, 42, 51),
    [
        *((38, 42, 51), (176, 32, 48), (40, 120, 40), (140, 100, 0)),
        *((20, 90, 180), (140, 50, 160), (0, 120, 130), (110, 118, 134)),
    ],
    [
        *((90, 96, 110), (200, 40, 60), (50, 140, 50), (160, 116, 0)),
        *((30, 110, 210), (160, 70, 180), (0, 140, 150), (20, 22, 26)),
    ],
)
_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
_NAMES = {"brown": "yellow", "brightbrown": "brightyellow"}
_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_NUMBERS = {name: number for number, name in enumerate(_COLORS)}


def draw(rows: list[dict[int, Any]], columns: int, title: str, theme: TerminalTheme = THEME) -> str:
    """Return the SVG of the rows of a pyte screen."""
    console = Console(record=True, width=columns, file=StringIO(), color_system="truecolor", force_terminal=True)
    for row in rows:
        console.print(_to_text(row, columns), no_wrap=True, crop=False, overflow="ignore")
    return console.export_svg(title=title, theme=theme, code_format=_FORMAT, unique_id="terminal")


def _to_text(row: dict[int, Any], columns: int) -> Text:
    text = Text(end="")
    cells = (row[column] for column in range(columns))
    for style, run in groupby(cells, to_style):
        text.append("".join(cell.data for cell in run), style)
    text.rstrip()
    return text


def to_style(cell: Any) -> Style:
    """Return the style of a cell of a pyte screen."""
    return Style(
        color=_to_color(cell.fg),
        bgcolor=_to_color(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        strike=cell.strikethrough,
        reverse=cell.reverse,
    )


def _to_color(name: str) -> Color | None:
    if name == "default":
        return None
    plain = _NAMES.get(name, name)
    if plain.startswith("bright"):
        return Color.from_ansi(8 + _NUMBERS[plain.removeprefix("bright")])
    return Color.from_ansi(_NUMBERS[plain]) if plain in _NUMBERS else Color.parse(f"#{plain}")
