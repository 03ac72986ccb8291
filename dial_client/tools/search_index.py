"""A search index of tools, for the search tool that models call.

BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) over weighted fields. Words are compared by
their stems. Synonyms match with a lower weight. A query word that no tool contains matches the words with the most
similar spelling. Servers write the names, descriptions and schemas, and models write the queries, so each text is read
only up to a limit.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, pairwise
from typing import Any

from dial_client.messages.message import ToolSpec
from dial_client.runtime.normalization import (
    HUMP,
    PARTICLES,
    QUESTIONS,
    SAME_AS,
    WORD,
    build_synonyms,
    find_significant_stem,
    fold,
    list_letter_pairs,
    split_name,
)

# Maximum characters of a query that are read.
MAX_QUERY = 500
# Maximum number of different words of a query; later words are ignored.
MAX_TERMS = 24
# Maximum number of unknown words of a query for which similar spellings are searched.
MAX_UNKNOWN = 6
# Maximum number of similar words that match an unknown word.
MAX_ALIKE = 5
# Maximum characters of one text of a tool that are read.
MAX_TEXT = 2_000
# Maximum characters of one parameter's description that are read.
MAX_DETAIL = 300
# Maximum number of subschemas of one tool that are read, including the schema itself.
MAX_SCHEMAS = 80
# Maximum number of values of one ``enum`` that are read.
MAX_VALUES = 40

# BM25's k1: above this weight, further occurrences of a word change the score little.
_SATURATION = 4.0
# The weight of a synonym of a query word.
_SYNONYM = 0.7
# The weight of a word that may be part of a verb ("turn on") or have no meaning of its own ("on Monday").
_PARTICLE = 0.3
# The weight of words such as get, list or find, which are added if the query is a question.
_ASKED = 0.5
# The minimum similarity of two words with different spellings: Dice's coefficient of their pairs of letters.
_LIKENESS = 0.55
# The score for a tool's name in the query, which is higher than any score of words.
_NAMED = 1_000.0

_NAME_LIKE = re.compile(r"[\w.-]+")

_BY_NAME = ("properties", "$defs")
_INNER = dict.fromkeys((*_BY_NAME, "items", "anyOf", "oneOf", "allOf")).keys()


class SearchIndex:
    """A search index of a catalog's tools; each new catalog needs a new index.

    Args:
        tools: The tools to search. If two tools have the same offered name, the second is ignored.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        first = {tool.name: tool for tool in reversed(tools)}
        self._tools = tuple(first[name] for name in sorted(first))
        self._weights: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self._named: defaultdict[str, list[int]] = defaultdict(list)
        # Many tools share words and names.
        find_stem, split = cache(find_significant_stem), cache(split_name)
        for index, tool in enumerate(self._tools):
            for name in {tool.name.casefold(), tool.tool.casefold()} - {""}:
                self._named[name].append(index)
            for word, weight in _weigh(tool, find_stem, split).items():
                self._weights[word][index] = weight
        self._spelled: defaultdict[str, list[str]] = defaultdict(list)
        for word in self._weights:
            for pair in list_letter_pairs(word):
                self._spelled[pair].append(word)

    def search(self, query: str, limit: int = 5) -> tuple[ToolSpec, ...]:
        """Return the best matching tools, the best first; tools with equal scores are sorted by name.

        Args:
            query: Words, a question or a tool's name; only the first `MAX_QUERY` characters are read.
            limit: Maximum number of tools. The result may have fewer tools, or none.
        """
        query = query[:MAX_QUERY]
        scores: defaultdict[int, float] = defaultdict(float)
        for alternatives in self._find_terms(query):
            best: dict[int, float] = {}
            # BM25's inverse document frequency of a word together with its alternatives.
            found = len(set().union(*(self._weights.get(word, ()) for word in alternatives)))
            idf = math.log(1 + (len(self._tools) - found + 0.5) / (found + 0.5))
            for word, part in alternatives.items():
                value = part * idf
                for index, weight in self._weights.get(word, {}).items():
                    if (score := value * weight / (_SATURATION + weight)) > best.get(index, 0.0):
                        best[index] = score
            for index, value in best.items():
                scores[index] += value
        # A name of a single plain word has to be the whole query.
        candidates = (name.strip(".-") for name in _NAME_LIKE.findall(query))
        names = {name for name in candidates if not name.isalpha() or HUMP.search(name)} | {query.strip()}
        for index in {index for name in names for index in self._named.get(name.casefold(), ())}:
            scores[index] += _NAMED
        ranked = sorted(scores, key=lambda index: (-scores[index], index))
        return tuple(self._tools[index] for index in ranked[: max(limit, 0)])

    def _find_terms(self, query: str) -> Iterator[dict[str, float]]:
        """Yield for each query word the word itself and its synonyms and similar words, with their weights."""
        unknown = 0
        if QUESTIONS.intersection(WORD.findall(query.casefold())[:1]):
            yield dict.fromkeys(("get", "list", "search", "find", "read"), _ASKED)
        for word in self._find_stems(query)[:MAX_TERMS]:
            alternatives = dict.fromkeys(build_synonyms().get(word, ()), _SYNONYM)
            alternatives[word] = _PARTICLE if word in PARTICLES else 1.0
            if self._weights.keys().isdisjoint(alternatives) and unknown < MAX_UNKNOWN:
                unknown += 1
                alternatives |= self._find_similar(word)
            yield alternatives

    def _find_stems(self, query: str) -> list[str]:
        """Return the different stems of a query, and the stems of synonyms of its phrases."""
        stems = [find_significant_stem(word) for chunk in WORD.findall(query) for word in self._split(chunk)]
        stems = [stem for stem in stems if stem and not stem.isdigit()]
        words = dict.fromkeys(stems)
        for word in stems:
            words |= dict.fromkeys(SAME_AS.get((word,), ()))
        for pair in pairwise(stems):
            words |= dict.fromkeys(SAME_AS.get(pair, ()))
            if (joined := "".join(pair)) in self._weights:
                words[joined] = None
        return list(words)

    def _split(self, chunk: str) -> list[str]:
        """Return the parts of a word such as ``GitHub``; the whole word if a tool contains it."""
        whole = fold(chunk)
        return [whole] if find_significant_stem(whole) in self._weights else [fold(part) for part in HUMP.split(chunk)]

    def _find_similar(self, word: str) -> dict[str, float]:
        """Return the known words most similar to an unknown word, which may be misspelled or inflected."""
        if len(word) < 5:
            return {}
        shared: Counter[str] = Counter()
        for pair in list_letter_pairs(word):
            shared.update(self._spelled.get(pair, ()))
        # A word has one pair more than it has letters, because its start and end count as letters.
        likeness = {known: 2 * count / (len(word) + len(known) + 2) for known, count in shared.items()}
        alike = sorted((-value, known) for known, value in likeness.items() if value >= _LIKENESS)
        return {known: value**2 for value, known in alike[:MAX_ALIKE]}


def _weigh(tool: ToolSpec, find_stem: Callable[[str], str], split: Callable[[str], Sequence[str]]) -> dict[str, float]:
    """Return the words of a tool with their weights."""
    parameters, details = _find_parameter_texts(tool.input_schema)
    name_words = split(tool.name)
    weights: defaultdict[str, float] = defaultdict(float)
    # The weight of a field, its average number of words, BM25's b (how much longer fields count less), and its words.
    for weight, usual, shortened, words in (
        (4.0, 3.0, 0.4, [*name_words, *(word for word in split(tool.tool) if word not in name_words)]),
        (2.0, 3.0, 0.4, _find_words(tool.title or "")),
        (2.0, 1.0, 0.0, split(tool.server)),
        (1.0, 14.0, 0.4, _find_words(tool.description)),
        (1.2, 5.0, 0.4, [word for name in parameters for word in split(name)]),
        (0.3, 20.0, 0.4, _find_words(" ".join(details))),
    ):
        each = weight / (1 - shortened + shortened * len(words) / usual)
        for word in words:
            weights[find_stem(word)] += each
    weights.pop("", None)
    return weights


def _find_parameter_texts(schema: Any) -> tuple[list[str], list[str]]:
    """Return the names of a schema's properties, and their descriptions and enum values."""
    names: list[str] = []
    details: list[Any] = []
    waiting: list[Any] = [dict(schema)] if isinstance(schema, Mapping) else []
    for part in waiting:  # the loop appends to the list
        details.append(part.get("description"))
        if isinstance(values := part.get("enum"), list):
            details += values[:MAX_VALUES]
        if isinstance(properties := part.get("properties"), dict):
            names += map(str, islice(properties, MAX_SCHEMAS))
        if not _INNER.isdisjoint(part):
            inner = _list_inner_schemas(part)
            waiting += islice((part for part in inner if isinstance(part, dict)), max(0, MAX_SCHEMAS - len(waiting)))
    return names[:MAX_SCHEMAS], [text[:MAX_DETAIL] for text in details if isinstance(text, str)]


def _list_inner_schemas(schema: Mapping[str, Any]) -> Iterator[Any]:
    for key in _INNER:
        match schema.get(key):
            case dict() as inner:
                yield from inner.values() if key in _BY_NAME else (inner,)
            case list() as inner:
                yield from inner


def _find_words(text: str) -> list[str]:
    return WORD.findall(fold(text[:MAX_TEXT]))
