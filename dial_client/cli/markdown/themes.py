"""Colour themes of the terminal: the escape sequence for each kind of text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

RESET = "\x1b[0m"

# The kinds of text of a `Theme` in which words of a command's output are shown.
StyleName = Literal["strong", "faint", "success", "failure", "error"]


@dataclass(frozen=True, slots=True, eq=False)
class Theme:
    """The SGR parameters of each kind of text, such as ``1;36``; empty for plain text."""

    name: str
    heading: str = "1"
    strong: str = "1"
    emphasis: str = "3"
    deleted: str = "9"
    code: str = ""
    link: str = "4"
    quote: str = "3"
    marker: str = ""
    """Bullets, numbers, bars, and lines of tables."""
    faint: str = "2"
    success: str = ""
    failure: str = "1"
    error: str = ""
    """The label of an error of the program."""
    removed: str = ""
    tokens: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The SGR parameters of tokens in code, by their names in Pygments: ``Keyword``, ``String``, ``Comment``."""


# The styles of the themes `ANSI`, `DARK` and `LIGHT`.
_STYLES = {
    "heading": ("1;36", "1;38;5;117", "1;38;5;25"),
    "code": ("36", "38;5;180", "38;5;94"),
    "link": ("4;34", "4;38;5;75", "4;38;5;26"),
    "quote": ("3", "3;38;5;250", "3;38;5;239"),
    "marker": ("36", "38;5;80", "38;5;30"),
    "faint": ("2", "38;5;245", "38;5;242"),
    "success": ("32", "38;5;114", "38;5;28"),
    "failure": ("31", "38;5;174", "38;5;124"),
    "error": ("1;31", "1;38;5;203", "1;38;5;160"),
    "removed": ("31", "38;5;174", "38;5;124"),
}
_TOKENS = {
    "Comment": ("2;3", "38;5;245;3", "38;5;242;3"),
    "Keyword": ("35", "38;5;176", "38;5;90"),
    "Name.Builtin": ("36", "38;5;80", "38;5;24"),
    "Name.Class": ("1;34", "38;5;180", "38;5;94"),
    "Name.Decorator": ("36", "38;5;180", "38;5;94"),
    "Name.Exception": ("31", "38;5;174", "38;5;124"),
    "Name.Function": ("34", "38;5;75", "38;5;26"),
    "Name.Tag": ("34", "38;5;75", "38;5;26"),
    "Name.Attribute": ("36", "38;5;180", "38;5;94"),
    "String": ("32", "38;5;114", "38;5;28"),
    "Number": ("36", "38;5;173", "38;5;130"),
    "Operator.Word": ("35", "38;5;176", "38;5;90"),
    "Generic.Deleted": ("31", "38;5;174", "38;5;124"),
    "Generic.Inserted": ("32", "38;5;114", "38;5;28"),
    "Generic.Heading": ("1", "1", "1"),
    "Generic.Subheading": ("36", "38;5;80", "38;5;24"),
    "Generic.Prompt": ("2", "38;5;245", "38;5;242"),
}


def _build_theme(name: str, column: int) -> Theme:
    styles: dict[str, Any] = {kind: columns[column] for kind, columns in _STYLES.items()}
    tokens = MappingProxyType({token: columns[column] for token, columns in _TOKENS.items()})
    return Theme(name, **styles, tokens=tokens)


# Bold, italics and underlines; no colours.
MONO = Theme("mono")
# The 16 colours that the user has set in the terminal, which suit its background.
ANSI = _build_theme("ansi", 0)
DARK, LIGHT = _build_theme("dark", 1), _build_theme("light", 2)
THEMES: Mapping[str, Theme] = MappingProxyType({theme.name: theme for theme in (DARK, LIGHT, ANSI, MONO)})


def choose_theme(name: str, environment: Mapping[str, str]) -> Theme:
    """Return the theme of this name; for ``auto`` the theme that suits the terminal.

    Args:
        name: ``auto``, or a key of `THEMES`.
        environment: The environment variables; `TERM`, `COLORTERM` and `COLORFGBG` describe the terminal.

    Raises:
        KeyError: There is no such theme.
    """
    if name != "auto":
        return THEMES[name]
    if environment.get("NO_COLOR"):
        return MONO
    has_colours = "256color" in environment.get("TERM", "") or environment.get("COLORTERM") in ("truecolor", "24bit")
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    if not has_colours or not background.isdecimal():
        return ANSI
    return LIGHT if int(background) in (7, 15) else DARK


def understands_escapes(environment: Mapping[str, str]) -> bool:
    """Return False for a terminal that shows escape sequences as text, such as one inside an editor."""
    return sys.platform == "win32" or environment.get("TERM", "") not in ("", "dumb", "unknown")


def style(text: str, parameters: str) -> str:
    """Return a text, which must not contain escape sequences, in a style of a theme."""
    return f"\x1b[{parameters}m{text}{RESET}" if parameters and text else text
