"""The words of tools by which a search finds them, with their weights.

Servers write the names, descriptions and schemas, so each text is read only up to a limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
# Of each field the weight, the average number of words, and BM25's b: how much longer fields count less.
_FIELDS = (
    (3.0, 3.0, 0.7),  # the name
    (1.5, 3.0, 0.7),  # the title
    (2.0, 1.0, 0.0),  # the server's name
    (1.7, 10.0, 0.35),  # the start of the description
    (0.7, 20.0, 0.35),  # its rest
    (1.1, 5.0, 0.35),  # the names of the parameters
    (0.4, 20.0, 0.35),  # their descriptions and values
)
# BM25's k1: above this weight, further occurrences of a word change the score little.
_SATURATION = 4.5

# Maximum number of words whose stems are kept.
_MAX_STEMS = 20_000

_SENTENCE = compile_lazily(r"[.!?](?=\s)|[\u3002\n]")
_BY_NAME = ("properties", "$defs")
_INNER = dict.fromkeys((*_BY_NAME, "items", "anyOf", "oneOf", "allOf")).keys()


class _Stems(dict[str, str]):
    """The stems of the words of all tools, which share most of them; a lookup is faster than a call."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _MAX_STEMS:
            self.clear()
        stem = self[word] = find_significant_stem(word)
        return stem


_STEMS = _Stems()


@dataclass(frozen=True, slots=True)
class ToolWords:
    """The words of a tool, as stems."""

    tool: ToolSpec
    weights: Mapping[str, float]
    """The saturated weight of each word, from 0 to 1."""
    name: tuple[str, ...]
    """The words of the tool's name without those of its server, which all its tools may have in their names."""
    removes: bool | None
    """Whether the first verb of the name removes something; None if the name has no verb."""


def list_words(tool: ToolSpec) -> ToolWords:
    """Return the words of a tool."""
    parameters, details = _find_parameter_texts(tool.input_schema)
    name, server = split_name(tool.tool or tool.name), split_name(tool.server)
    text = tool.description[:MAX_TEXT].strip()
    sentence = _SENTENCE.search(text, 0, _MAX_HEAD)
    head = sentence.end() if sentence else _MAX_HEAD
    weights: defaultdict[str, float] = defaultdict(float)
    stems = _STEMS
    fields = (
        name,
        find_words(tool.title) if tool.title else (),
        server,
        find_words(text[:head]),
        find_words(text[head:]),
        split_name(" ".join(parameters), MAX_TEXT),
        find_words(" ".join(details)[:MAX_DETAILS]),
    )
    for (weight, usual, shortened), words in zip(_FIELDS, fields, strict=True):
        if words:
            each = weight / (1 - shortened + shortened * len(words) / usual)
            for word in words:
                weights[stems[word]] += each
    weights.pop("", None)
    of_server = {stems[word] for word in server}
    of_name = [stem for stem in dict.fromkeys([stems[word] for word in name]) if stem]
    verbs = read_verbs()
    return ToolWords(
        tool,
        {word: weight / (_SATURATION + weight) for word, weight in weights.items()},
        tuple([word for word in of_name if word not in of_server] or of_name),
        next((verbs[word] for word in of_name if word in verbs), None),
    )


def list_server_words(server: str, tools: Sequence[ToolWords]) -> Mapping[str, float]:
    """Return the saturated weights of the words that say what kind of server it is: its name, and those of its tools.

    Args:
        server: The server's name in the configuration.
        tools: All its tools.
    """
    sums: defaultdict[str, float] = defaultdict(float)
    each = _IN_ALL_TOOLS / len(tools) ** 0.5
    for tool in tools:
        for word, weight in tool.weights.items():
            sums[word] += weight
    weights = {word: weight * each for word, weight in sums.items()}
    for word in split_name(server):
        if stem := _STEMS[word]:
            weights[stem] = weights.get(stem, 0.0) + _IN_SERVER_NAME
    return {word: weight / (_SATURATION + weight) for word, weight in weights.items()}


def _find_parameter_texts(schema: Any) -> tuple[list[str], list[str]]:
    """Return the names of a schema's properties, and their descriptions and enum values."""
    names: list[str] = []
    details: list[Any] = []
    waiting: list[Any] = [dict(schema)] if isinstance(schema, Mapping) else []
    for part in waiting:  # the loop appends to the list
        if "description" in part:
            details.append(part["description"])
        if "enum" in part and isinstance(values := part["enum"], list):
            details += values[:MAX_VALUES]
        if "properties" in part and isinstance(properties := part["properties"], dict):
            names += map(str, islice(properties, MAX_SCHEMAS))
        if not _INNER.isdisjoint(part) and len(waiting) < MAX_SCHEMAS:
            inner = [inner for inner in _list_inner_schemas(part) if isinstance(inner, dict)]
            waiting += inner[: MAX_SCHEMAS - len(waiting)]
    return names[:MAX_SCHEMAS], [text for text in details if isinstance(text, str)]


def _list_inner_schemas(schema: Mapping[str, Any]) -> Iterator[Any]:
    for key in _INNER:
        match schema.get(key):
            case dict() as inner:
                yield from inner.values() if key in _BY_NAME else (inner,)
            case list() as inner:
                yield from inner
