"""A search index of tools, for the search tools that models call.

BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) over weighted fields, of tools and of
servers. Words are compared by their stems. Synonyms match with a lower weight. A query word that no tool contains
matches the words with the most similar spelling.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from dial_client.messages.message import ToolSpec
from dial_client.runtime.lazy_pattern import compile_lazily
from dial_client.runtime.normalization import HUMP
from dial_client.tools.search_query import MAX_QUERY, Term, Vocabulary, find_verbs
from dial_client.tools.tool_words import ToolWords, list_words, saturate, weigh_server_word

# How much the words for the kind of server count in a tool, beside those for what to do.
_KIND_IN_TOOL = 0.2
# How much a server counts whose tools together match the words for the kind of server, and those for what to do.
_KIND_IN_SERVER = 0.55
_ACTION_IN_SERVER = 0.6
# How much less each further word of what to do counts: models begin with the action and the thing, and end with
# circumstances ("for NVIDIA"). The weight of the word at place n is 1 / (1 + n * this).
_LATER = 0.03
# The score for a tool whose name has no word that the query lacks: if the kind of server is given as well, and if not.
# A query of one text may be a sentence, which has words of many names by chance.
_COVERED, _COVERED_ALONE = 2.0, 1.0
# The factor for a tool that removes something where the query does not ask for it, or the reverse.
_OPPOSITE = 0.4
# The maximum gain of tools that were used before, and the uses that give half of it.
_USED = 0.15
_HALF_USED = 2
# The score for a tool's name in the query, which is higher than any score of words.
_NAMED = 1_000.0
# A word that more tools have only changes the order of the tools that rarer words have found; the most of these.
_COMMON = 1_000
_MAX_CANDIDATES = 300
# Maximum number of tools that are ranked by their servers.
_MAX_RANKED = 1_000
# Maximum number of tools whose names are compared with the query.
_MAX_COMPARED = 100
# The most tools that the answer of a search names besides those that it describes, and characters of their names.
MAX_NAMED = 30
_MAX_NAMES = 400

KeyT = TypeVar("KeyT", int, str)

_NAME_LIKE = compile_lazily(r"[\w.-]+")


class SearchIndex:
    """A search index of a catalog's tools; each new catalog needs a new index.

    Args:
        tools: The tools to search. If two tools have the same offered name, the second is ignored.
        previous: An earlier index. What it knows of tools that are the same objects is taken over.
    """

    def __init__(self, tools: Iterable[ToolSpec], previous: SearchIndex | None = None) -> None:
        known = {} if previous is None else previous._by_name  # noqa: SLF001 - of the same class
        self._by_name: dict[str, ToolWords] = {}
        for tool in tools:
            if tool.name not in self._by_name:
                words = known.get(tool.name)
                self._by_name[tool.name] = words if words is not None and words.tool is tool else list_words(tool)
        # From here on a tool is its number in this list.
        self._tools = tuple(self._by_name.values())
        self._by_word: defaultdict[str, list[int]] = defaultdict(list)
        for number, words in enumerate(self._tools):
            for word in words.weights:
                self._by_word[word].append(number)
        # What is kept of the words that searches have asked for so far.
        self._postings: dict[str, Mapping[int, float]] = {}
        self._server_postings: dict[str, Mapping[str, float]] = {}
        # How rare the words in the names of the tools are that searches have found so far, and these words together.
        self._idfs: dict[str, float] = {}
        self._whole_names: dict[int, float] = {}
        self._vocabulary = Vocabulary(self._by_word.keys())

    @cached_property
    def _named(self) -> Mapping[str, Sequence[int]]:
        """The tools by their offered and their own names."""
        named: defaultdict[str, list[int]] = defaultdict(list)
        for number, words in enumerate(self._tools):
            offered, own = words.tool.name.casefold(), words.tool.tool.casefold()
            named[offered].append(number)
            if own != offered:
                named[own].append(number)
        named.pop("", None)
        return named

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        """The number of tools of each server."""
        return Counter(words.tool.server for words in self._tools)

    def search(
        self,
        query: str,
        limit: int = 5,
        *,
        server: str = "",
        only: str | None = None,
        uses: Mapping[tuple[str, str], int] = MappingProxyType({}),
    ) -> tuple[ToolSpec, ...]:
        """Return the best matching tools, the best first; tools with equal scores are sorted by name.

        Args:
            query: What the tool should do: words, a question or a tool's name; `MAX_QUERY` characters are read.
            limit: Maximum number of tools. The result may have fewer tools, or none.
            server: What kind of server has the tool, or a server's name; as many characters are read.
            only: The name of the server that the tools must be of; None for any.
            uses: How often the tools of some servers were called, by the servers' and their own names.
        """
        terms, kind = self._vocabulary.find_terms(query), self._vocabulary.find_terms(server)
        action = [(term, 1 / (1 + _LATER * place)) for place, term in enumerate(terms)]
        scores = self._score_words([*action, *((term, _KIND_IN_TOOL) for term in kind)])
        scores = _take_best(scores, _MAX_RANKED)
        in_servers = [(term, _ACTION_IN_SERVER * factor) for term, factor in action]
        in_servers += [(term, _KIND_IN_SERVER) for term in kind]
        self._score_servers(scores, in_servers)
        named = self._find_named(query[:MAX_QUERY])
        if only is not None:
            scores = {number: score for number, score in scores.items() if self._tools[number].tool.server == only}
            named = {number for number in named if self._tools[number].tool.server == only}
        scores = _take_best(scores, max(limit, _MAX_COMPARED))
        self._score_names(scores, [*terms, *kind], _COVERED if kind else _COVERED_ALONE)
        self._lower_opposites(scores, find_verbs(terms))
        for number in scores if uses else ():
            tool = self._tools[number].tool
            if used := uses.get((tool.server, tool.tool), 0):
                scores[number] *= 1 + _USED * used / (used + _HALF_USED)
        for number in named:
            scores[number] = scores.get(number, 0.0) + _NAMED
        ranked = sorted(scores, key=lambda number: (-scores[number], self._tools[number].tool.name))
        return tuple(self._tools[number].tool for number in ranked[: max(limit, 0)])

    def _find_named(self, query: str) -> set[int]:
        """Return the tools whose names are in a query; a name of a single plain word has to be the whole query."""
        candidates = (name.strip(".-") for name in _NAME_LIKE.findall(query))
        names = {name for name in candidates if not name.isalpha() or HUMP.search(name)} | {query.strip()}
        return {number for name in names for number in self._named.get(name.casefold(), ())}

    def _score_words(self, terms: Iterable[tuple[Term, float]]) -> dict[int, float]:
        """Return the scores of tools by their words."""
        counted = []
        for term, factor in terms:
            known = [(postings, part) for word, part in term.items() if (postings := self._find_postings(word))]
            counted.append((sum(len(postings) for postings, _ in known), known, factor))
        total = len(self._tools)
        scores: dict[int, float] = {}
        # Rare words first: they find the tools, and common words only rank what they have found.
        for number_of_tools, known, factor in sorted(counted, key=lambda item: item[0]):
            if is_common := number_of_tools > _COMMON and bool(scores):
                scores = _take_best(scores, _MAX_CANDIDATES)
                among = scores.keys()
                best = _merge_best([({at: found[at] for at in found.keys() & among}, part) for found, part in known])
            else:
                best = _merge_best(known)
            idf = factor * _compute_idf(total, min(number_of_tools, total) if is_common else len(best))
            for number, value in best.items():
                scores[number] = scores.get(number, 0.0) + idf * value
        return scores

    def _find_postings(self, word: str) -> Mapping[int, float]:
        """Return the tools with a word, and its weights in them."""
        if (known := self._postings.get(word)) is None:
            if (numbers := self._by_word.get(word)) is None:
                return {}
            tools = self._tools
            known = self._postings[word] = {number: saturate(tools[number].weights[word]) for number in numbers}
        return known

    def _find_servers(self, word: str) -> Mapping[str, float]:
        """Return the servers with a word, and how much it says what kind of server each is."""
        if (known := self._server_postings.get(word)) is None:
            sums: defaultdict[str, float] = defaultdict(float)
            for number, weight in self._find_postings(word).items():
                sums[self._tools[number].tool.server] += weight
            known = {
                server: weigh_server_word(word, server, total, self._sizes[server]) for server, total in sums.items()
            }
            if word in self._by_word:
                self._server_postings[word] = known
        return known

    def _score_servers(self, scores: dict[int, float], terms: Iterable[tuple[Term, float]]) -> None:
        """Add the scores of servers to the tools that were found."""
        servers: defaultdict[str, float] = defaultdict(float)
        for term, factor in terms:
            best = _merge_best([(found, part) for word, part in term.items() if (found := self._find_servers(word))])
            idf = factor * _compute_idf(len(self._sizes), len(best))
            for server, value in best.items():
                servers[server] += idf * value
        for number in scores:
            scores[number] += servers.get(self._tools[number].tool.server, 0.0)

    def _score_names(self, scores: dict[int, float], terms: Iterable[Term], most: float) -> None:
        """Add a score for the part of a tool's name that the query has, at most `most`."""
        asked: dict[str, float] = {}
        for term in terms:
            for word, part in term.items():
                asked[word] = max(asked.get(word, 0.0), part)
        idfs = self._idfs
        for number in scores:
            words = self._tools[number].name
            if (whole := self._whole_names.get(number)) is None:
                for word in words:
                    if word not in idfs:
                        idfs[word] = _compute_idf(len(self._tools), len(self._find_postings(word)))
                whole = self._whole_names[number] = sum([idfs[word] for word in words])
            if whole and not asked.keys().isdisjoint(words):
                part = sum([idfs[word] * asked.get(word, 0.0) for word in words]) / whole
                # One word is found in many queries by chance.
                scores[number] += most * part * len(words) / (1 + len(words))

    def _lower_opposites(self, scores: dict[int, float], asked: set[bool]) -> None:
        """Lower the scores of tools that remove something unasked, and of those that do not if only this is asked."""
        for number in scores if asked else ():
            removes = self._tools[number].removes
            if removes is not None and removes not in asked:
                scores[number] *= _OPPOSITE


def describe_less_likely(names: Iterable[str], taken: int = 0) -> list[str]:
    """Return a line with the names of tools that a search has ranked lower, for its answer; no line for no names.

    A tool is called by its exact name, so that a name is whole or left out.

    Args:
        names: The names, the best first.
        taken: The characters by which the line is to be shorter, for other names in the answer.
    """
    text, room = ", ".join(names), max(_MAX_NAMES - taken, 0)
    text = text if len(text) <= room else text[: room + 1].rpartition(", ")[0]
    return [f"Others, which can be called by name: {text}."] if text else []


def _merge_best(parts: Sequence[tuple[Mapping[KeyT, float], float]]) -> Mapping[KeyT, float]:
    """Return the highest weight of each key among several mappings, each of which has a factor."""
    if len(parts) == 1 and parts[0][1] == 1.0:
        return parts[0][0]
    best: dict[KeyT, float] = {}
    for weights, factor in parts:
        if not best:
            best = {key: factor * weight for key, weight in weights.items()}
            continue
        for key, weight in weights.items():
            if (value := factor * weight) > best.get(key, 0.0):
                best[key] = value
    return best


def _take_best(scores: dict[int, float], limit: int) -> dict[int, float]:
    """Return the highest scores; of equal scores those with the lowest numbers."""
    if len(scores) <= limit:
        return scores
    least = sorted(scores.values())[-limit]
    best = {number: score for number, score in scores.items() if score > least}
    equal = sorted(number for number, score in scores.items() if score == least)
    return best | dict.fromkeys(equal[: limit - len(best)], least)


def _compute_idf(total: int, found: int) -> float:
    return math.log(1 + (total - found + 0.5) / (found + 0.5))
