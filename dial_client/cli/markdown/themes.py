"""Colour themes of the terminal: the escape sequence for each kind of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

RESET = "\x1b[0m"


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
    address: str = "2"
    """The host of a link, after its text."""
    quote: str = "3"
    marker: str = ""
    """Bullets, numbers, bars, and lines of tables."""
    faint: str = "2"
    success: str = ""
    failure: str = "1"
    question: str = "1"
    added: str = ""
    removed: str = ""
    tokens: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The SGR parameters of tokens in code, by their names in Pygments: ``Keyword``, ``String``, ``Comment``."""


_ANSI_TOKENS = {
    "Comment": "2;3",
    "Keyword": "35",
    "Name.Builtin": "36",
    "Name.Class": "1;34",
    "Name.Decorator": "36",
    "Name.Exception": "31",
    "Name.Function": "34",
    "Name.Tag": "34",
    "Name.Attribute": "36",
    "String": "32",
    "Number": "36",
    "Operator.Word": "35",
    "Generic.Deleted": "31",
    "Generic.Inserted": "32",
    "Generic.Heading": "1",
    "Generic.Subheading": "36",
    "Generic.Prompt": "2",
}
_DARK_TOKENS = {
    "Comment": "38;5;245;3",
    "Keyword": "38;5;176",
    "Name.Builtin": "38;5;80",
    "Name.Class": "38;5;180",
    "Name.Decorator": "38;5;180",
    "Name.Exception": "38;5;174",
    "Name.Function": "38;5;75",
    "Name.Tag": "38;5;75",
    "Name.Attribute": "38;5;180",
    "String": "38;5;114",
    "Number": "38;5;173",
    "Operator.Word": "38;5;176",
    "Generic.Deleted": "38;5;174",
    "Generic.Inserted": "38;5;114",
    "Generic.Heading": "1",
    "Generic.Subheading": "38;5;80",
    "Generic.Prompt": "38;5;245",
}
_LIGHT_TOKENS = {
    "Comment": "38;5;242;3",
    "Keyword": "38;5;90",
    "Name.Builtin": "38;5;24",
    "Name.Class": "38;5;94",
    "Name.Decorator": "38;5;94",
    "Name.Exception": "38;5;124",
    "Name.Function": "38;5;26",
    "Name.Tag": "38;5;26",
    "Name.Attribute": "38;5;94",
    "String": "38;5;28",
    "Number": "38;5;130",
    "Operator.Word": "38;5;90",
    "Generic.Deleted": "38;5;124",
    "Generic.Inserted": "38;5;28",
    "Generic.Heading": "1",
    "Generic.Subheading": "38;5;24",
    "Generic.Prompt": "38;5;242",
}

MONO = Theme("mono")
"""Bold, italics and underlines; no colours."""
ANSI = Theme(
    "ansi",
    heading="1;36",
    code="36",
    link="4;34",
    marker="36",
    success="32",
    failure="31",
    question="1;36",
    added="32",
    removed="31",
    tokens=MappingProxyType(_ANSI_TOKENS),
)
"""The 16 colours that the user has set in the terminal, which suit its background."""
DARK = Theme(
    "dark",
    heading="1;38;5;117",
    code="38;5;180",
    link="4;38;5;75",
    address="38;5;245",
    quote="3;38;5;250",
    marker="38;5;80",
    faint="38;5;245",
    success="38;5;114",
    failure="38;5;174",
    question="1;38;5;117",
    added="38;5;114",
    removed="38;5;174",
    tokens=MappingProxyType(_DARK_TOKENS),
)
LIGHT = Theme(
    "light",
    heading="1;38;5;25",
    code="38;5;94",
    link="4;38;5;26",
    address="38;5;242",
    quote="3;38;5;239",
    marker="38;5;30",
    faint="38;5;242",
    success="38;5;28",
    failure="38;5;124",
    question="1;38;5;25",
    added="38;5;28",
    removed="38;5;124",
    tokens=MappingProxyType(_LIGHT_TOKENS),
)
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


def style(text: str, parameters: str) -> str:
    """Return a text, which must not contain escape sequences, in a style of a theme."""
    return f"\x1b[{parameters}m{text}{RESET}" if parameters and text else text
