"""The tools and questions of `benchmarks.search`, read from the text files in this folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.tools.catalog import assign_names

FOLDER = Path(__file__).parent
TYPES: dict[str, dict[str, Any]] = {
    "#": {"type": "integer"},
    "~": {"type": "boolean"},
    "[]": {"type": "array", "items": {"type": "string"}},
}


@dataclass(frozen=True, slots=True)
class Question:
    """A search for a tool."""

    text: str
    asks: str
    """The author: ``model`` (the words of a search) or ``person`` (a sentence)."""
    expected: frozenset[str]
    """The offered names of the expected tools."""


def tools() -> tuple[ToolSpec, ...]:
    """Return the tools with the names under which they would be offered."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    server = ""
    for line in _lines("tools"):
        if line.startswith("["):
            server = line.strip("[]")
            continue
        name, title = (part.strip() for part in (line.split("|")[0] + "=").split("=")[:2])
        found[server, name] = (title, *(part.strip() for part in line.split("|")[1:3]))
    names = assign_names(found)
    return tuple(
        _tool(names[key], *key, *texts) for key, texts in sorted(found.items(), key=lambda item: names[item[0]])
    )


def questions(of: str) -> tuple[Question, ...]:
    """Return the questions of a set, ``tuning`` or ``reported``."""
    offered = {f"{tool.server}/{tool.tool}": tool.name for tool in tools()}
    found, asks = [], ""
    for line in _lines(of):
        if line.startswith("["):
            asks = line.strip("[]")
            continue
        text, expected = line.rsplit("|", 1)
        found.append(Question(text.strip(), asks, frozenset(offered[name] for name in expected.split())))
    return tuple(found)


def _lines(name: str) -> list[str]:
    text = (FOLDER / f"search_{name}.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _tool(offered: str, server: str, name: str, title: str, description: str, parameters: str) -> ToolSpec:
    properties: dict[str, Any] = {}
    required = []
    for parameter in filter(None, (part.strip() for part in parameters.split(";"))):
        head, _, about = parameter.partition(" ")
        head, _, values = head.partition("=")
        if head.endswith("!") or values.endswith("!"):
            required.append(head.rstrip("!#~[]"))
        kind = next((TYPES[mark] for mark in TYPES if head.rstrip("!").endswith(mark)), {"type": "string"})
        chosen: dict[str, Any] = {"enum": values.split("/")} if values else {}
        properties[head.rstrip("!#~[]")] = kind | chosen | ({"description": about} if about else {})
    schema = {"type": "object", "properties": properties} | ({"required": required} if required else {})
    return ToolSpec(offered, description, schema, server=server, tool=name, title=title or None)
