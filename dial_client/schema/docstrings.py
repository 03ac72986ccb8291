"""Parses the descriptions of a function and its parameters from a docstring in Google, NumPy or Sphinx style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from dial_client.runtime.lazy_pattern import compile_lazily

_PARAMETER_TITLES = frozenset({"args", "arguments", "parameters", "params", "other parameters", "keyword args"})
_DROPPED_TITLES = frozenset({"raises", "attributes", "see also", "references", "warns"})
_OTHER_TITLES = frozenset({"returns", "return", "yields", "example", "examples", "note", "notes"})
_TITLES = _PARAMETER_TITLES | _DROPPED_TITLES | _OTHER_TITLES
_GOOGLE_TITLE = compile_lazily(r"([A-Z][A-Za-z ]{2,20}):\s*$")
_GOOGLE_ITEM = compile_lazily(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_UNDERLINE = compile_lazily(r"-{3,}")
_NUMPY_ITEM = compile_lazily(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_SPHINX_FIELD = compile_lazily(r":(\w+)(?:\s+([^:]*?))?:(?:\s+(.*))?$")
_SPHINX_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_SPHINX_RESULTS = frozenset({"return", "returns"})
_SPHINX_OTHERS = frozenset({"type", "rtype", "raise", "raises", "except", "exception", "meta", "var", "ivar", "cvar"})
_SPHINX = _SPHINX_PARAMETERS | _SPHINX_RESULTS | _SPHINX_OTHERS


@dataclass(frozen=True, slots=True)
class Docstring:
    """The parsed content of a docstring."""

    description: str = ""
    """The text without the sections on parameters and exceptions."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The one-line descriptions of the parameters, by name."""


def parse_docstring(text: str) -> Docstring:
    """Return the content of a docstring. Text in none of the three styles is part of the description."""
    kept: list[str] = []
    parameters: dict[str, str] = {}
    for title, lines in _split_sections(_take_sphinx_fields(inspect.cleandoc(text).splitlines(), parameters)):
        if title.lower() in _PARAMETER_TITLES:
            parameters.update(_parse_items(lines))
        elif title.lower() not in _DROPPED_TITLES:
            kept += [*([f"{title}:"] if title else []), *lines]
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in kept)).strip()
    return Docstring(description, parameters)


def _take_sphinx_fields(lines: Iterable[str], parameters: dict[str, str]) -> list[str]:
    """Return the lines without Sphinx fields, and add the descriptions of parameters to `parameters`."""
    kept: list[str] = []
    name: str | None = None
    is_in_field = False
    for line in lines:
        found = _SPHINX_FIELD.match(line)
        if found and found[1] in _SPHINX:
            is_in_field, name = True, None
            text = found[3] or ""
            if found[1] in _SPHINX_PARAMETERS and found[2]:
                name = found[2].split()[-1].lstrip("*")
                parameters[name] = text
            elif found[1] in _SPHINX_RESULTS and text:
                kept.append(f"Returns: {text}")
        elif is_in_field and line.startswith((" ", "\t")):
            if name is not None:
                parameters[name] = f"{parameters[name]} {line.strip()}".strip()
        else:
            is_in_field = False
            kept.append(line)
    return kept


def _split_sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each section's title and lines; the title is empty for text outside of sections."""
    title, section = "", list[str]()
    is_indented = False
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        new_title = _find_title(line, following)
        if new_title or (is_indented and line.strip() and not line.startswith((" ", "\t"))):
            yield title, section
            title, section = new_title, []
            is_indented = bool(new_title) and following.startswith((" ", "\t"))
        if not new_title and (section or not (title and _UNDERLINE.fullmatch(line.strip()))):
            section.append(line)
    yield title, section


def _find_title(line: str, following: str) -> str:
    """Return the title of the section that begins at a line; empty if there is none."""
    if line[:1].isspace():
        return ""
    if line.strip().lower() in _TITLES and _UNDERLINE.fullmatch(following.strip()):
        return line.strip()
    found = _GOOGLE_TITLE.match(line.strip())
    if found and found[1].lower() in _TITLES and following.startswith((" ", "\t")):
        return found[1]
    return ""


def _parse_items(lines: list[str]) -> dict[str, str]:
    """Return the descriptions of a section's parameters. Lines with deeper indentation continue a description."""
    filled = [(len(line) - len(line.lstrip()), line.strip()) for line in lines if line.strip()]
    margin = min((indent for indent, _ in filled), default=0)
    found: dict[str, list[str]] = {}
    texts: list[list[str]] = []
    for indent, line in filled:
        if indent > margin:
            for text in texts:
                text.append(line)
        elif margin > 0 and (item := _GOOGLE_ITEM.match(line)):
            texts = [found.setdefault(item[1], [item[2]] if item[2] else [])]
        elif margin == 0 and (item := _NUMPY_ITEM.match(line)):
            texts = [found.setdefault(name.strip().lstrip("*"), []) for name in item[1].split(",")]
    return {name: " ".join(text) for name, text in found.items()}
