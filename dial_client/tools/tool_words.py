"""The words of tools by which a search finds them, with their weights.

Servers write the names, descriptions and schemas, so each text is read only up to a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.normalization import find_significant_stem, find_words, read_verbs, split_name

# Maximum characters of a description that are read, and of the descriptions of all parameters together.
MAX_TEXT = 1_000
MAX_DETAILS = 600
# Maximum number of subschemas of one tool that are read, including the schema itself.
MAX_SCHEMAS = 80
# Maximum number of values of one ``enum`` that are read.
MAX_VALUES = 40

# Maximum characters of the first sentence of a description, which says what the tool does.
_MAX_HEAD = 160
# The weights of a word in a server's name, and in all its tools together.
_IN_SERVER_NAME = 8.0
_IN_ALL_TOOLS = 12.0


@dataclass(frozen=True, slots=True)
class _Field:
    """A part of a tool whose words have the same weight: BM25F's, with a word in two fields in both of them."""

    weight: float
    usual: float
    """The usual number of words."""
    shortened: float
    """BM25's b: how much longer fields count less."""

    def weigh(self, count: int) -> float:
        """Return the weight of each of `count` words."""
        return self.weight / (1 - self.shortened + self.shortened * count / self.usual)


_NAME, _TITLE, _SERVER = _Field(3.0, 3.0, 0.7), _Field(1.5, 3.0, 0.7), _Field(2.0, 1.0, 0.0)
_HEAD = _Field(1.7, 10.0, 0.35)  # the start of the description
_PARAMETERS = _Field(1.1, 5.0, 0.35)  # their names
_REST = _Field(0.5, 40.0, 0.35)  # the rest of the description, and the descriptions and values of parameters
# BM25's k1: above this weight, further occurrences of a word change the score little.
_SATURATION = 4.5

# Maximum number of words, and of names, whose stems are kept.
_MAX_STEMS = 20_000

# One set of characters first: with two alternatives the search would try both at each character.
_SENTENCE = compile_lazily(r"[.!?\u3002\n](?:(?<=[\u3002\n])|(?=\s))")
_BY_NAME = frozenset({"properties", "$defs"})
_INNER = dict.fromkeys(("properties", "$defs", "items", "anyOf", "oneOf", "allOf")).keys()


class _Stems(dict[str, str]):
    """The stems of the words of all tools, which share most of them; a lookup is faster than a call."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _MAX_STEMS:
            self.clear()
        stem = self[word] = find_significant_stem(word)
        return stem


class _NameStems(dict[str, tuple[str, ...]]):
    """The stems of names of tools and parameters."""

    def __missing__(self, name: str) -> tuple[str, ...]:
        if len(self) >= _MAX_STEMS:
            self.clear()
        stems = self[name] = tuple(filter(None, map(_STEMS.__getitem__, split_name(name))))
        return stems


_STEMS = _Stems()
_NAME_STEMS = _NameStems()


@dataclass(frozen=True, slots=True)
class ToolWords:
    """The words of a tool, as stems."""

    tool: ToolSpec
    weights: Mapping[str, float]
    """The weight of each word."""
    name: tuple[str, ...]
    """The words of the tool's name without those of its server, which all its tools may have in their names."""
    removes: bool | None
    """Whether the first verb of the name removes something; None if the name has no verb."""


def list_words(tool: ToolSpec) -> ToolWords:
    """Return the words of a tool."""
    parameters, details = _find_parameter_texts(tool.input_schema)
    name, server = _NAME_STEMS[tool.tool or tool.name], _NAME_STEMS[tool.server]
    text = tool.description[:MAX_TEXT].strip()
    sentence = _SENTENCE.search(text, 0, _MAX_HEAD)
    head = sentence.end() if sentence else _MAX_HEAD
    stems = _STEMS.__getitem__
    # A word counts once in long texts, which weigh little, and only those of short ones are added up: most of the time
    # of an index is spent here.
    rest = find_words(f"{text[head:]} {' '.join(details)[:MAX_DETAILS]}")
    weights = dict.fromkeys(map(stems, rest), _REST.weigh(len(rest)))
    known = weights.get
    for field, some in (
        (_HEAD, [stems(word) for word in find_words(text[:head])]),
        (_PARAMETERS, [stem for parameter in parameters for stem in _NAME_STEMS[parameter]]),
        (_TITLE, [stems(word) for word in find_words(tool.title)] if tool.title else ()),
        (_SERVER, server),
        (_NAME, name),
    ):
        if some:
            each = field.weigh(len(some))
            for stem in some:
                weights[stem] = known(stem, 0.0) + each
    weights.pop("", None)
    of_name = dict.fromkeys(name)
    verbs = read_verbs()
    return ToolWords(
        tool,
        weights,
        tuple([stem for stem in of_name if stem not in server] or of_name),
        next((verbs[stem] for stem in of_name if stem in verbs), None),
    )


def weigh_server_word(word: str, server: str, total: float, tools: int) -> float:
    """Return how much a word says what kind of server it is, from 0 to 1.

    Args:
        word: The stem of the word.
        server: The server's name.
        total: The sum of the saturated weights of the word in its tools.
        tools: The number of all its tools.
    """
    return saturate(total * _IN_ALL_TOOLS / tools**0.5 + (_IN_SERVER_NAME if word in _NAME_STEMS[server] else 0.0))


def saturate(weight: float) -> float:
    """Return a weight from 0 to 1, which grows little above `_SATURATION`."""
    return weight / (_SATURATION + weight)


def _find_parameter_texts(schema: Any) -> tuple[list[str], list[str]]:
    """Return the names of a schema's properties, and their descriptions and enum values."""
    names: list[str] = []
    details: list[Any] = []
    waiting: list[Any] = [dict(schema)] if isinstance(schema, Mapping) else []
    for part in waiting:  # the loop appends to the list
        if not isinstance(part, dict):
            continue
        if "description" in part:
            details.append(part["description"])
        if "enum" in part and isinstance(values := part["enum"], list):
            details += values[:MAX_VALUES]
        if not _INNER.isdisjoint(part):
            for key in filter(part.__contains__, _INNER):
                inner, room = part[key], MAX_SCHEMAS - len(waiting)
                if isinstance(inner, list):
                    waiting += inner[:room]
                elif isinstance(inner, dict) and room > 0:
                    if key == "properties":
                        names += map(str, islice(inner, MAX_SCHEMAS))
                    waiting += islice(inner.values(), room) if key in _BY_NAME else (inner,)
    return names[:MAX_SCHEMAS], [text for text in details if isinstance(text, str)]
